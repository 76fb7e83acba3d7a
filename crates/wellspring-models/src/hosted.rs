//! The client that all providers share.

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

/// What differs between providers: address, authentication, and the code that reads and writes
/// their wire format. [`Hosted`] is the rest of a client.
pub trait Protocol: Clone + Default + fmt::Debug + Send + Sync + 'static {
    /// The provider's name in errors.
    const NAME: &'static str;
    /// The default address.
    const BASE_URL: &'static str;
    /// The default model.
    const MODEL: &'static str;
    /// How a key is sent.
    const KEY: KeyForm;
    /// Headers that every request has.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];
    /// The environment variables that configure it.
    const VARIABLES: Variables;
    /// How it lists its models.
    const LISTING: Listing;

    /// Normalises a configured address, so that a request's path can follow it.
    fn address(written: &str) -> Cow<'_, str> {
        Cow::Borrowed(written)
    }

    /// Called with the address that will be used. Some protocols infer the vendor from it.
    fn at(&mut self, base_url: &str) {
        let _ = base_url;
    }

    /// The provider's name in errors, if the protocol serves several providers.
    fn provider(&self) -> &str {
        Self::NAME
    }

    /// The path of a request, relative to the base URL; `None` if the model's name is invalid.
    fn path(model: &str, streaming: bool) -> Option<Cow<'static, str>>;

    /// How a streamed answer is framed.
    fn framer() -> Framer {
        Framer::sse()
    }

    /// Writes the request for one turn.
    fn write(&self, model: &str, request: &TurnRequest) -> Written;

    /// Creates the reader of the request's answer.
    fn reader(&self, request: &TurnRequest) -> Box<dyn AnswerReader>;
}

/// How a provider takes its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyForm {
    /// As `authorization: Bearer`.
    Bearer,
    /// In its own header.
    Header(&'static str),
}

/// The environment variables of a provider.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Variables {
    /// The variables that hold a key (or, with `_FILE` appended, name a file with it), and how
    /// that key is sent. The first one that is set is used.
    pub keys: &'static [(&'static str, KeyForm)],
    /// Whether it works without a key.
    pub keyless: bool,
    /// The address.
    pub base_url: &'static str,
    /// The model.
    pub model: &'static str,
    /// Variables whose values are sent as headers: (variable, header).
    pub headers: &'static [(&'static str, &'static str)],
}

/// A model at a provider.
///
/// Cheap to clone. Use it under the providers' names, such as [`Anthropic`](crate::Anthropic).
#[derive(Clone, Debug)]
pub struct Hosted<P> {
    endpoint: Endpoint,
    model: Box<str>,
    thinking: Option<Thinking>,
    output: Option<OutputSchema>,
    pub(crate) protocol: P,
}

impl<P: Protocol> Hosted<P> {
    /// A client at the provider's default address, with a key.
    ///
    /// # Errors
    ///
    /// If the key contains characters that a header cannot hold.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        Self::keyless(P::BASE_URL)?.key(&key)
    }

    /// A client at an address, without a key.
    ///
    /// # Errors
    ///
    /// If `base_url` is not an HTTP URL.
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

    /// A client configured by the environment variables in [`Protocol::VARIABLES`].
    ///
    /// # Errors
    ///
    /// If a key is required and missing, or if a variable is invalid.
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

    /// The first key that is set. A key file that cannot be read is an error; later variables
    /// are then not tried.
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

    /// Uses another model.
    #[must_use]
    pub fn model(mut self, name: impl Into<Box<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// Uses another address.
    ///
    /// # Errors
    ///
    /// If `url` is not an HTTP URL.
    pub fn base_url(mut self, url: &str) -> Result<Self, SetupError> {
        let url = P::address(url);
        self.protocol.at(&url);
        self.endpoint = self.endpoint.base_url(&url)?.named(self.protocol.provider());
        Ok(self)
    }

    /// Sends a key with every request.
    ///
    /// # Errors
    ///
    /// If the key contains characters that a header cannot hold.
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

    /// Sends a header with every request, such as an organisation or a beta flag. It replaces a
    /// header of the same name.
    ///
    /// # Errors
    ///
    /// If the name or the value is not valid in HTTP.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, SetupError> {
        self.endpoint = self.endpoint.header(name, value)?;
        Ok(self)
    }

    /// How much to think, for requests that do not set it.
    #[must_use]
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.thinking = Some(thinking);
        self
    }

    /// The JSON schema of answers, for requests that do not set one.
    #[must_use]
    pub fn output(mut self, name: impl Into<Box<str>>, schema: Value) -> Self {
        self.output = Some(OutputSchema { name: name.into(), schema });
        self
    }

    /// Lists the provider's models.
    ///
    /// # Errors
    ///
    /// If the provider cannot be reached, or rejects the request.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        P::LISTING.fetch(&self.endpoint).await
    }

    /// Changes the protocol's options.
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
        // OpenTelemetry's conventions use other names for two providers.
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
            let what = format!("{model:?} is not a valid name of a model");
            let error = ModelError::new(self.endpoint.provider(), FailureKind::BadRequest, what);
            return ready(Err(error)).boxed();
        };
        let written = self.protocol.write(model, &request);
        if !written.refused.is_empty() {
            let names = written.refused.join("`, `");
            let what = format!("`extra` cannot set `{names}`: remove it from `extra`");
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

/// Describes the client that an environment configures, in one line.
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
