//! Whatever speaks OpenAI's Chat Completions: OpenAI itself, llama.cpp, vLLM, OpenRouter, …

use futures::future::{BoxFuture, FutureExt as _};
use wellspring_core::{AttemptStream, Model, ModelError, Thinking, TurnRequest};
use wellspring_wire::Framer;
use wellspring_wire::openai_chat::{Options, OutputSchema, Reader, write};

pub use wellspring_wire::openai_chat::Vendor;

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// Where OpenAI is.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The model that answers unless told otherwise.
pub const MODEL: &str = "gpt-5-mini";

/// A model behind a Chat Completions API.
///
/// Cheap to clone.
///
/// ```
/// use wellspring_core::Model as _;
/// use wellspring_models::OpenAiChat;
/// use wellspring_models::openai_chat::Vendor;
///
/// let model = OpenAiChat::keyless("http://localhost:8080/v1")?
///     .vendor(Vendor::LLAMA_CPP)
///     .model("qwen3");
/// assert_eq!(model.name(), "qwen3");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiChat {
    endpoint: Endpoint,
    model: Box<str>,
    options: Options,
    thinking: Option<Thinking>,
}

impl OpenAiChat {
    /// OpenAI, with a key.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        Self::keyless(BASE_URL)?.key(&key)
    }

    /// A server at an address with its `/v1`; the vendor follows from the address as far as
    /// that tells.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn keyless(base_url: &str) -> Result<Self, SetupError> {
        let vendor = Vendor::at(base_url);
        Ok(Self {
            endpoint: Endpoint::new(vendor.name, base_url)?,
            model: MODEL.into(),
            options: Options { vendor, output: None },
            thinking: None,
        })
    }

    /// As the environment says: `OPENAI_API_KEY` (or `OPENAI_API_KEY_FILE`),
    /// `OPENAI_BASE_URL`, `OPENAI_MODEL`.
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
        let key = Secret::from_env_with("OPENAI_API_KEY", &environment)?;
        let url = set("OPENAI_BASE_URL");
        let model = Self::keyless(url.as_deref().unwrap_or(BASE_URL))?.key(&key)?;
        Ok(match set("OPENAI_MODEL") {
            Some(name) => model.model(name),
            None => model,
        })
    }

    /// With a key.
    ///
    /// # Errors
    ///
    /// When it cannot be sent in a header.
    pub fn key(mut self, key: &Secret) -> Result<Self, SetupError> {
        self.endpoint = self.endpoint.bearer(key)?;
        Ok(self)
    }

    /// Another model.
    #[must_use]
    pub fn model(mut self, name: impl Into<Box<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// With the peculiarities of this vendor, and under its name in errors.
    #[must_use]
    pub fn vendor(mut self, vendor: Vendor) -> Self {
        self.endpoint = self.endpoint.named(vendor.name);
        self.options.vendor = vendor;
        self
    }

    /// With a header: an organisation, a gateway's own.
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

    /// Every answer has this shape.
    #[must_use]
    pub fn output(mut self, name: impl Into<Box<str>>, schema: serde_json::Value) -> Self {
        self.options.output = Some(OutputSchema { name: name.into(), schema });
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

impl Model for OpenAiChat {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        Some(match self.endpoint.provider() {
            "mistral" => "mistral_ai",
            vendor => vendor,
        })
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
            path: "/chat/completions".to_owned(),
            written: write(model, &request, &self.options),
            framer: Framer::sse(),
            reader: Box::new(Reader::new(&request, &self.options.vendor)),
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
                OpenAiChat::from_env_with(environment).map_err(|error| error.to_string())?;
            let provider = model.endpoint.provider();
            Ok(format!("{provider} {} {}", model.endpoint.url(), model.model))
        };
        let key = ("OPENAI_API_KEY", "k");
        let openai = Ok("openai https://api.openai.com/v1 gpt-5-mini".to_owned());
        assert_eq!(of(&[key]), openai);
        assert_eq!(
            of(&[key, ("OPENAI_BASE_URL", "https://openrouter.ai/api/v1/"), ("OPENAI_MODEL", "m")]),
            Ok("openrouter https://openrouter.ai/api/v1 m".to_owned())
        );
        let no_key = "no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file with it";
        assert_eq!(of(&[]), Err(no_key.to_owned()));
    }
}
