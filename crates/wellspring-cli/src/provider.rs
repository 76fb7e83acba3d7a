//! A provider that can be asked: the client behind its configuration.

use std::sync::Arc;

use futures::future::BoxFuture;
use wellspring_core::{AttemptStream, Model, ModelError, TurnRequest};
use wellspring_models::{
    Anthropic, Breaker, Circuit, Fallback, Gemini, ListedModel, Ollama, OpenAiChat,
    OpenAiResponses, Secret, SetupError, anthropic, gemini, ollama, openai_responses,
};

use crate::config::provider::{KeySource, ProviderConfig, ProviderKind};

/// A provider's client. As a model it is the provider's usual one.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    Anthropic(Anthropic),
    OpenAi(OpenAiResponses),
    OpenAiChat(OpenAiChat),
    Gemini(Gemini),
    Ollama(Ollama),
}

/// Does the same to whichever client it is.
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

/// The same, and a client again.
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
        let key = match &config.key {
            KeySource::Usual | KeySource::None => None,
            KeySource::Variable(variable) => Some(Secret::from_env(variable)?),
            KeySource::File(path) => Some(Secret::from_file(path)?),
        };
        let mut client = if config.key == KeySource::Usual {
            Self::usual(config)?
        } else {
            Self::at(config, key.as_ref())?
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
        Ok(match (client, config.vendor) {
            (Self::OpenAiChat(it), Some(vendor)) => Self::OpenAiChat(it.vendor(vendor)),
            (Self::Anthropic(it), _) => Self::Anthropic(it.cache(config.cache)),
            (client, _) => client,
        })
    }

    /// As the provider's usual variables say.
    fn usual(config: &ProviderConfig) -> Result<Self, SetupError> {
        Ok(match config.kind {
            ProviderKind::Anthropic => Self::Anthropic(Anthropic::from_env()?),
            ProviderKind::OpenAi => Self::OpenAi(OpenAiResponses::from_env()?),
            ProviderKind::OpenAiChat => Self::OpenAiChat(OpenAiChat::from_env()?),
            ProviderKind::Gemini => Self::Gemini(Gemini::from_env()?),
            ProviderKind::Ollama => Self::Ollama(Ollama::from_env()?),
        })
    }

    /// At an address, with this key or none.
    fn at(config: &ProviderConfig, key: Option<&Secret>) -> Result<Self, SetupError> {
        let url = |usual: &'static str| config.base_url.as_deref().unwrap_or(usual);
        Ok(match config.kind {
            ProviderKind::Anthropic => {
                let it = match key {
                    Some(key) => Anthropic::new(key.clone())?,
                    None => Anthropic::keyless(anthropic::BASE_URL)?,
                };
                Self::Anthropic(it.base_url(url(anthropic::BASE_URL))?)
            }
            ProviderKind::OpenAi => {
                let it = match key {
                    Some(key) => OpenAiResponses::new(key.clone())?,
                    None => OpenAiResponses::keyless(openai_responses::BASE_URL)?,
                };
                Self::OpenAi(it.base_url(url(openai_responses::BASE_URL))?)
            }
            ProviderKind::OpenAiChat => {
                let it = OpenAiChat::keyless(url(wellspring_models::openai_chat::BASE_URL))?;
                Self::OpenAiChat(match key {
                    Some(key) => it.key(key)?,
                    None => it,
                })
            }
            ProviderKind::Gemini => {
                let it = match key {
                    Some(key) => Gemini::new(key.clone())?,
                    None => Gemini::keyless(gemini::BASE_URL)?,
                };
                Self::Gemini(it.base_url(url(gemini::BASE_URL))?)
            }
            ProviderKind::Ollama => {
                let it = Ollama::new(url(ollama::BASE_URL))?;
                Self::Ollama(match key {
                    Some(key) => it.key(key)?,
                    None => it,
                })
            }
        })
    }

    /// With another model.
    pub(crate) fn named(self, model: &str) -> Self {
        change!(self, it => it.model(model))
    }

    /// The models that the provider has.
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

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        each!(self, it => it.attempt(request))
    }
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
