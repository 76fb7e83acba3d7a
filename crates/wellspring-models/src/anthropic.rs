//! Anthropic's models, and whatever else speaks the Messages API.

use futures::future::{BoxFuture, FutureExt as _};
use wellspring_core::{AttemptStream, Model, ModelError, Thinking, TurnRequest};
use wellspring_wire::Framer;
use wellspring_wire::anthropic::{Options, Reader, write};

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// Where Anthropic is.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// The model that answers unless told otherwise.
pub const MODEL: &str = "claude-sonnet-4-5";

const VERSION: &str = "2023-06-01";

/// A model behind Anthropic's Messages API.
///
/// Cheap to clone.
///
/// ```
/// use wellspring_core::{Model as _, Thinking};
/// use wellspring_models::{Anthropic, Secret};
///
/// let model = Anthropic::new(Secret::new("sk-ant-…"))?
///     .model("claude-opus-4-5")
///     .thinking(Thinking::Budget(4096))
///     .header("anthropic-beta", "interleaved-thinking-2025-05-14")?;
/// assert_eq!(model.name(), "claude-opus-4-5");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    endpoint: Endpoint,
    model: Box<str>,
    options: Options,
    thinking: Option<Thinking>,
}

impl Anthropic {
    /// With a key.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        Self::keyless(BASE_URL)?.header("x-api-key", key.expose())
    }

    /// Without a key, for a server that needs none.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn keyless(base_url: &str) -> Result<Self, SetupError> {
        Ok(Self {
            endpoint: Endpoint::new("anthropic", base_url)?.header("anthropic-version", VERSION)?,
            model: MODEL.into(),
            options: Options::default(),
            thinking: None,
        })
    }

    /// As the environment says: `ANTHROPIC_API_KEY` (or `ANTHROPIC_API_KEY_FILE`, or
    /// `ANTHROPIC_AUTH_TOKEN`), `ANTHROPIC_BASE_URL`, `ANTHROPIC_MODEL`.
    ///
    /// # Errors
    ///
    /// When there is no key, or something of it cannot be used.
    pub fn from_env() -> Result<Self, SetupError> {
        Self::from_env_with(|name| std::env::var(name).ok())
    }

    pub(crate) fn from_env_with(
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        let set = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let mut model = match Secret::from_env_with("ANTHROPIC_API_KEY", &environment) {
            Ok(key) => Self::new(key)?,
            Err(error) => {
                let token = set("ANTHROPIC_AUTH_TOKEN").ok_or(error)?;
                let mut model = Self::keyless(BASE_URL)?;
                model.endpoint = model.endpoint.bearer(&Secret::new(token))?;
                model
            }
        };
        if let Some(url) = set("ANTHROPIC_BASE_URL") {
            model = model.base_url(&url)?;
        }
        if let Some(name) = set("ANTHROPIC_MODEL") {
            model = model.model(name);
        }
        Ok(model)
    }

    /// Another model.
    #[must_use]
    pub fn model(mut self, name: impl Into<Box<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// At another address, without `/v1`.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn base_url(mut self, url: &str) -> Result<Self, SetupError> {
        let url = url.trim_end_matches('/');
        self.endpoint = self.endpoint.base_url(url.strip_suffix("/v1").unwrap_or(url))?;
        Ok(self)
    }

    /// With a header: `anthropic-beta`, a gateway's own.
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

    /// Whether the provider keeps what the next request will begin with; on unless told
    /// otherwise.
    #[must_use]
    pub fn cache(mut self, cache: bool) -> Self {
        self.options.cache = cache;
        self
    }

    /// The models that there are.
    ///
    /// # Errors
    ///
    /// When the provider cannot be reached, or refuses.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        Listing::ANTHROPIC.fetch(&self.endpoint).await
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        Some("anthropic")
    }

    fn attempt(
        &self,
        mut request: TurnRequest,
    ) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        if request.settings.thinking.is_none() {
            request.settings.thinking.clone_from(&self.thinking);
        }
        let model = request.model.as_deref().unwrap_or(&self.model);
        let exchange = Exchange {
            path: "/v1/messages".to_owned(),
            written: write(model, &request, &self.options),
            framer: Framer::sse(),
            reader: Box::new(Reader::new(&request)),
            streaming: request.streaming,
        };
        self.endpoint.clone().attempt(exchange).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_environment_says() {
        let of = |variables: &[(&str, &str)]| {
            let environment = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let model = Anthropic::from_env_with(environment).map_err(|error| error.to_string())?;
            Ok((model.endpoint.url().to_owned(), model.model.to_string()))
        };
        let here = |url: &str, model: &str| Ok::<_, String>((url.to_owned(), model.to_owned()));
        assert_eq!(of(&[("ANTHROPIC_API_KEY", "k")]), here(BASE_URL, MODEL));
        assert_eq!(
            of(&[
                ("ANTHROPIC_AUTH_TOKEN", "t"),
                ("ANTHROPIC_BASE_URL", "http://localhost:8080/v1/"),
                ("ANTHROPIC_MODEL", "m")
            ]),
            here("http://localhost:8080", "m")
        );
        let no_key = "no key: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE to a file with it";
        assert_eq!(of(&[]), Err(no_key.to_owned()));
    }
}
