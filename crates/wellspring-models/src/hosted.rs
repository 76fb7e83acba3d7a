//! The client of a provider, once for all of them.

use std::borrow::Cow;
use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::Value;
use wellspring_core::{
    AttemptStream, FailureKind, Model, ModelError, OutputSchema, Thinking, TurnRequest,
};
use wellspring_wire::Framer;
use wellspring_wire::provider::{AnswerReader, Written};

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// What differs between providers: where they are, how they are let know who asks, and the
/// pure code that speaks their wire. The rest of a client is [`Hosted`].
pub trait Protocol: Clone + Default + fmt::Debug + Send + Sync + 'static {
    /// What errors call the provider.
    const NAME: &'static str;
    /// Where it is unless told otherwise.
    const BASE_URL: &'static str;
    /// The model that answers unless told otherwise.
    const MODEL: &'static str;
    /// How a key is sent.
    const KEY: KeyForm;
    /// Headers that every request has.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];
    /// What it is called in the environment.
    const VARIABLES: Variables;
    /// How it lists its models.
    const LISTING: Listing;

    /// An address as people write it, as a request's path can follow it.
    fn address(written: &str) -> Cow<'_, str> {
        Cow::Borrowed(written)
    }

    /// It will be spoken at this address; some can tell by it with whom.
    fn at(&mut self, base_url: &str) {
        let _ = base_url;
    }

    /// What errors call the provider, where the protocol has many.
    fn provider(&self) -> &str {
        Self::NAME
    }

    /// Where a model is asked, behind the base URL; nothing where its name cannot be one.
    fn path(model: &str, streaming: bool) -> Option<Cow<'static, str>>;

    /// What a streamed answer is cut into.
    fn framer() -> Framer {
        Framer::sse()
    }

    /// A request for one turn.
    fn write(&self, model: &str, request: &TurnRequest) -> Written;

    /// The reader of its answer.
    fn reader(&self, request: &TurnRequest) -> Box<dyn AnswerReader>;
}

/// How a provider wants a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyForm {
    /// As `authorization: Bearer`.
    Bearer,
    /// In a header of its own.
    Header(&'static str),
}

/// What a provider is called in the environment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Variables {
    /// The variables of keys, each also with `_FILE` behind it, and how that key is sent. The
    /// first one that is set counts.
    pub keys: &'static [(&'static str, KeyForm)],
    /// Whether it can be asked without a key.
    pub keyless: bool,
    /// The address.
    pub base_url: &'static str,
    /// The model.
    pub model: &'static str,
    /// Headers, after the variables that hold them.
    pub headers: &'static [(&'static str, &'static str)],
}

/// A model at a provider.
///
/// Cheap to clone. The names to use are those of the providers, such as
/// [`Anthropic`](crate::Anthropic).
#[derive(Clone, Debug)]
pub struct Hosted<P> {
    endpoint: Endpoint,
    model: Box<str>,
    thinking: Option<Thinking>,
    output: Option<OutputSchema>,
    pub(crate) protocol: P,
}

impl<P: Protocol> Hosted<P> {
    /// At its usual address, with a key.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        Self::keyless(P::BASE_URL)?.key(&key)
    }

    /// At an address, without a key.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn keyless(base_url: &str) -> Result<Self, SetupError> {
        let mut protocol = P::default();
        let base_url = P::address(base_url);
        protocol.at(&base_url);
        let mut endpoint = Endpoint::new(protocol.provider(), &base_url)?;
        for (name, value) in P::HEADERS {
            endpoint = endpoint.header(name, value)?;
        }
        Ok(Self { endpoint, model: P::MODEL.into(), thinking: None, output: None, protocol })
    }

    /// As the environment says; [`Protocol::VARIABLES`] are the names.
    ///
    /// # Errors
    ///
    /// When there is no key and one is needed, or something of it cannot be used.
    pub fn from_env() -> Result<Self, SetupError> {
        Self::from_env_with(|name| std::env::var(name).ok())
    }

    pub(crate) fn from_env_with(
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        let set = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let names = P::VARIABLES;
        let base_url = set(names.base_url);
        let mut model = Self::keyless(base_url.as_deref().unwrap_or(P::BASE_URL))?;
        match Self::key_in(&environment)? {
            Some((key, form)) => model = model.sent_as(form, &key)?,
            None if names.keyless => {}
            None => {
                let variable = names.keys.first().map_or("", |(variable, _)| variable).into();
                return Err(SetupError::NoKey { variable });
            }
        }
        for (variable, header) in names.headers {
            if let Some(value) = set(variable) {
                model = model.header(header, value.trim())?;
            }
        }
        Ok(match set(names.model) {
            Some(name) => model.model(name.trim()),
            None => model,
        })
    }

    /// The first key that is set. A file that cannot be read is an error, not a reason to look
    /// further.
    fn key_in(
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<(Secret, KeyForm)>, SetupError> {
        for (variable, form) in P::VARIABLES.keys {
            match Secret::from_env_with(variable, environment) {
                Ok(key) => return Ok(Some((key, *form))),
                Err(SetupError::NoKey { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Another model.
    #[must_use]
    pub fn model(mut self, name: impl Into<Box<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// At another address.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn base_url(mut self, url: &str) -> Result<Self, SetupError> {
        let url = P::address(url);
        self.protocol.at(&url);
        self.endpoint = self.endpoint.base_url(&url)?.named(self.protocol.provider());
        Ok(self)
    }

    /// With a key.
    ///
    /// # Errors
    ///
    /// When it cannot be sent in a header.
    pub fn key(self, key: &Secret) -> Result<Self, SetupError> {
        self.sent_as(P::KEY, key)
    }

    fn sent_as(mut self, form: KeyForm, key: &Secret) -> Result<Self, SetupError> {
        self.endpoint = match form {
            KeyForm::Bearer => self.endpoint.key("authorization", "Bearer ", key),
            KeyForm::Header(name) => self.endpoint.key(name, "", key),
        }?;
        Ok(self)
    }

    /// With a header: an organisation, a beta, a gateway's own. It replaces one of the same
    /// name.
    ///
    /// # Errors
    ///
    /// When HTTP does not allow it.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, SetupError> {
        self.endpoint = self.endpoint.header(name, value)?;
        Ok(self)
    }

    /// How long it thinks where a request does not say.
    #[must_use]
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.thinking = Some(thinking);
        self
    }

    /// The shape that every answer has where a request does not say.
    #[must_use]
    pub fn output(mut self, name: impl Into<Box<str>>, schema: Value) -> Self {
        self.output = Some(OutputSchema { name: name.into(), schema });
        self
    }

    /// The models that there are.
    ///
    /// # Errors
    ///
    /// When the provider cannot be reached, or refuses.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        P::LISTING.fetch(&self.endpoint).await
    }

    /// Its protocol, changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut P)) -> Self {
        change(&mut self.protocol);
        self.endpoint = self.endpoint.named(self.protocol.provider());
        self
    }
}

impl<P: Protocol> Model for Hosted<P> {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        // The conventions call two of them otherwise.
        Some(match self.protocol.provider() {
            "gemini" => "gcp.gemini",
            "mistral" => "mistral_ai",
            name => name,
        })
    }

    fn server(&self) -> Option<(&str, u16)> {
        self.endpoint.server()
    }

    fn attempt(
        &self,
        mut request: TurnRequest,
    ) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        let settings = &mut request.settings;
        settings.thinking = settings.thinking.take().or_else(|| self.thinking.clone());
        settings.output = settings.output.take().or_else(|| self.output.clone());
        let model = request.model.as_deref().unwrap_or(&self.model);
        let Some(path) = P::path(model, request.streaming) else {
            let what = format!("{model:?} is not the name of a model");
            let error = ModelError::new(self.endpoint.provider(), FailureKind::BadRequest, what);
            return ready(Err(error)).boxed();
        };
        let written = self.protocol.write(model, &request);
        if !written.refused.is_empty() {
            let names = written.refused.join("`, `");
            let what = format!("`extra` cannot set `{names}`: remove it there");
            let error = ModelError::new(self.endpoint.provider(), FailureKind::BadRequest, what);
            return ready(Err(error)).boxed();
        }
        let exchange = Exchange {
            path,
            written,
            framer: P::framer(),
            reader: self.protocol.reader(&request),
            streaming: request.streaming,
        };
        ready(Ok(self.endpoint.clone().attempt(exchange))).boxed()
    }
}

/// What an environment makes of a client, in one line.
#[cfg(test)]
pub(crate) fn from_env<P: Protocol>(variables: &[(&str, &str)]) -> String {
    let environment = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    match Hosted::<P>::from_env_with(environment) {
        Ok(it) => {
            let (provider, url) = (it.endpoint.provider(), it.endpoint.url());
            let headers = it.endpoint.header_names().join(" ");
            format!("{provider} {url} {} [{headers}]", it.model)
        }
        Err(error) => error.to_string(),
    }
}
