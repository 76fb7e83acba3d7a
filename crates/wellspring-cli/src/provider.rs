//! The client of a configured provider.

use std::sync::Arc;

use futures::future::BoxFuture;
use wellspring_core::{AttemptStream, Model, ModelError, TurnRequest};
use wellspring_models::{
    Anthropic, Breaker, Circuit, Fallback, Gemini, Hosted, ListedModel, Ollama, OpenAiChat,
    OpenAiResponses, Protocol, Secret, SetupError,
};

use crate::config::provider::{KeySource, ProviderConfig, ProviderKind};

/// A provider's client. As a model, it is the provider's default model.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    Anthropic(Anthropic),
    OpenAi(OpenAiResponses),
    OpenAiChat(OpenAiChat),
    Gemini(Gemini),
    Ollama(Ollama),
}

/// Applies an expression to any kind of client.
macro_rules! each {
    ($client:expr, $it:ident => $done:expr) => {
        match $client {
            Client::Anthropic($it) => $done,
            Client::OpenAi($it) => $done,
            Client::OpenAiChat($it) => $done,
            Client::Gemini($it) => $done,
            Client::Ollama($it) => $done,
        }
    };
}

/// The same for an expression that returns a client.
macro_rules! change {
    ($client:expr, $it:ident => $done:expr) => {
        match $client {
            Client::Anthropic($it) => Client::Anthropic($done),
            Client::OpenAi($it) => Client::OpenAi($done),
            Client::OpenAiChat($it) => Client::OpenAiChat($done),
            Client::Gemini($it) => Client::Gemini($done),
            Client::Ollama($it) => Client::Ollama($done),
        }
    };
}

impl Client {
    /// The client of a provider, with its key read.
    pub(crate) fn of(config: &ProviderConfig) -> Result<Self, SetupError> {
        let mut client = match config.kind {
            ProviderKind::Anthropic => Self::Anthropic(hosted(config)?.cache(config.cache)),
            ProviderKind::OpenAi => Self::OpenAi(hosted(config)?),
            ProviderKind::OpenAiChat => {
                let it: OpenAiChat = hosted(config)?;
                Self::OpenAiChat(match config.vendor {
                    Some(vendor) => it.vendor(vendor),
                    None => it,
                })
            }
            ProviderKind::Gemini => Self::Gemini(hosted(config)?),
            ProviderKind::Ollama => Self::Ollama(hosted(config)?),
        };
        for (name, value) in &config.headers {
            client = change!(client, it => it.header(name, value.expose())?);
        }
        if let Some(model) = &config.model {
            client = client.named(model);
        }
        if let Some(thinking) = &config.thinking {
            client = change!(client, it => it.thinking(thinking.clone()));
        }
        Ok(client)
    }

    /// The same client with another model.
    pub(crate) fn named(self, model: &str) -> Self {
        change!(self, it => it.model(model))
    }

    /// Lists the provider's models.
    pub(crate) async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        each!(self, it => it.models().await)
    }
}

impl Model for Client {
    fn name(&self) -> &str {
        each!(self, it => it.name())
    }

    fn provider(&self) -> Option<&str> {
        each!(self, it => Model::provider(it))
    }

    fn server(&self) -> Option<(&str, u16)> {
        each!(self, it => it.server())
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        each!(self, it => it.attempt(request))
    }
}

/// A provider's URL and key: from the configuration, or else from the provider's usual variables.
fn hosted<P: Protocol>(config: &ProviderConfig) -> Result<Hosted<P>, SetupError> {
    if config.key == KeySource::Usual {
        return Hosted::from_env();
    }
    let key = secret(&config.key)?;
    let it = Hosted::keyless(config.base_url.as_deref().unwrap_or(P::BASE_URL))?;
    match key {
        Some(key) => it.key(&key),
        None => Ok(it),
    }
}

/// Reads a secret from where the configuration says it is.
pub(crate) fn secret(source: &KeySource) -> Result<Option<Secret>, SetupError> {
    Ok(match source {
        KeySource::Usual | KeySource::None => None,
        KeySource::Variable(variable) => Some(Secret::from_env(variable)?),
        KeySource::File(path) => Some(Secret::from_file(path)?),
    })
}

/// One model, or a chain of them, each behind the breaker of its provider.
pub(crate) fn chain(links: Vec<(Client, Circuit)>) -> Option<Arc<dyn Model>> {
    let mut links = links.into_iter().map(|(client, circuit)| Breaker::new(client, circuit));
    let first = links.next()?;
    let mut rest = links.peekable();
    if rest.peek().is_none() {
        return Some(Arc::new(first));
    }
    Some(Arc::new(rest.fold(Fallback::new(first), Fallback::or)))
}
