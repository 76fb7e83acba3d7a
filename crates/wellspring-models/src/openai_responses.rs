//! OpenAI's models, and whatever else speaks the Responses API.

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};
use wellspring_core::{AttemptStream, Model, ModelError, Thinking, TurnRequest};
use wellspring_wire::Framer;
use wellspring_wire::openai_responses::{Reader, output_format, write};

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// Where OpenAI is.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The model that answers unless told otherwise.
pub const MODEL: &str = "gpt-5.1";

/// A model behind OpenAI's Responses API.
///
/// Cheap to clone.
///
/// ```
/// use wellspring_core::{Model as _, Thinking};
/// use wellspring_models::{OpenAiResponses, Secret};
///
/// let model = OpenAiResponses::new(Secret::new("sk-…"))?
///     .model("gpt-5.1-codex")
///     .thinking(Thinking::Effort("high".into()));
/// assert_eq!(model.name(), "gpt-5.1-codex");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiResponses {
    endpoint: Endpoint,
    model: Box<str>,
    thinking: Option<Thinking>,
    output: Option<(&'static str, Value)>,
}

impl OpenAiResponses {
    /// With a key.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        let mut model = Self::keyless(BASE_URL)?;
        model.endpoint = model.endpoint.bearer(&key)?;
        Ok(model)
    }

    /// Without a key, for a server that needs none.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn keyless(base_url: &str) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new("openai", base_url)?;
        Ok(Self { endpoint, model: MODEL.into(), thinking: None, output: None })
    }

    /// As the environment says: `OPENAI_API_KEY` (or `OPENAI_API_KEY_FILE`),
    /// `OPENAI_BASE_URL`, `OPENAI_MODEL`, `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID`.
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
        let mut model = Self::new(Secret::from_env_with("OPENAI_API_KEY", &environment)?)?;
        if let Some(url) = set("OPENAI_BASE_URL") {
            model = model.base_url(&url)?;
        }
        if let Some(name) = set("OPENAI_MODEL") {
            model = model.model(name);
        }
        for (variable, header) in
            [("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project")]
        {
            if let Some(value) = set(variable) {
                model = model.header(header, &value)?;
            }
        }
        Ok(model)
    }

    /// Another model.
    #[must_use]
    pub fn model(mut self, name: impl Into<Box<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// At another address, with its `/v1`.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn base_url(mut self, url: &str) -> Result<Self, SetupError> {
        self.endpoint = self.endpoint.base_url(url)?;
        Ok(self)
    }

    /// With a header: a gateway's own.
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

    /// Every answer has this shape, where a request does not say otherwise.
    #[must_use]
    pub fn output(mut self, name: impl AsRef<str>, schema: &Value) -> Self {
        self.output = Some(output_format(name.as_ref(), schema));
        self
    }

    /// The models that there are.
    ///
    /// # Errors
    ///
    /// When the provider cannot be reached, or refuses.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        Listing::OPENAI.fetch(&self.endpoint).await
    }
}

impl Model for OpenAiResponses {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        Some("openai")
    }

    fn attempt(
        &self,
        mut request: TurnRequest,
    ) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        if request.settings.thinking.is_none() {
            request.settings.thinking.clone_from(&self.thinking);
        }
        if let Some((member, shape)) = &self.output {
            let extra = request.settings.extra.get_or_insert_with(|| Value::Object(Map::new()));
            if let Some(extra) = extra.as_object_mut() {
                extra.entry(*member).or_insert_with(|| shape.clone());
            }
        }
        let model = request.model.as_deref().unwrap_or(&self.model);
        let exchange = Exchange {
            path: "/responses".to_owned(),
            written: write(model, &request),
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
            let model =
                OpenAiResponses::from_env_with(environment).map_err(|error| error.to_string())?;
            Ok((model.endpoint.url().to_owned(), model.model.to_string()))
        };
        let here = |url: &str, model: &str| Ok::<_, String>((url.to_owned(), model.to_owned()));
        assert_eq!(of(&[("OPENAI_API_KEY", "k")]), here(BASE_URL, MODEL));
        assert_eq!(
            of(&[
                ("OPENAI_API_KEY", "k"),
                ("OPENAI_BASE_URL", "http://localhost:8080/v1/"),
                ("OPENAI_MODEL", "m"),
                ("OPENAI_ORG_ID", "org"),
            ]),
            here("http://localhost:8080/v1", "m")
        );
        let no_key = "no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file with it";
        assert_eq!(of(&[]), Err(no_key.to_owned()));
    }
}
