//! Google's models, by the Gemini API.

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Map, Value};
use wellspring_core::{AttemptStream, FailureKind, Model, ModelError, Thinking, TurnRequest};
use wellspring_wire::Framer;
use wellspring_wire::gemini::{Reader, output_format, write};

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// Where Google is.
pub const BASE_URL: &str = "https://generativelanguage.googleapis.com";

/// The model that answers unless told otherwise.
pub const MODEL: &str = "gemini-flash-latest";

/// A model behind the Gemini API.
///
/// Cheap to clone.
///
/// ```
/// use wellspring_core::{Model as _, Thinking};
/// use wellspring_models::{Gemini, Secret};
///
/// let model = Gemini::new(Secret::new("AIza…"))?
///     .model("gemini-3-pro-preview")
///     .thinking(Thinking::Effort("high".into()));
/// assert_eq!(model.name(), "gemini-3-pro-preview");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gemini {
    endpoint: Endpoint,
    model: Box<str>,
    thinking: Option<Thinking>,
    output: Option<(&'static str, Value)>,
}

impl Gemini {
    /// With a key.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn new(key: Secret) -> Result<Self, SetupError> {
        Self::keyless(BASE_URL)?.header("x-goog-api-key", key.expose())
    }

    /// Without a key, for a server that needs none.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn keyless(base_url: &str) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new("gemini", base_url)?;
        Ok(Self { endpoint, model: MODEL.into(), thinking: None, output: None })
    }

    /// As the environment says: `GEMINI_API_KEY` (or `GEMINI_API_KEY_FILE`, or
    /// `GOOGLE_API_KEY`), `GOOGLE_GEMINI_BASE_URL`, `GEMINI_MODEL`.
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
        let key = Secret::from_env_with("GEMINI_API_KEY", &environment).or_else(|error| {
            let other = set("GOOGLE_API_KEY").ok_or(error)?;
            Ok(Secret::new(other.trim()))
        })?;
        let mut model = Self::new(key)?;
        if let Some(url) = set("GOOGLE_GEMINI_BASE_URL") {
            model = model.base_url(&url)?;
        }
        if let Some(name) = set("GEMINI_MODEL") {
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

    /// At another address, without `/v1beta`.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn base_url(mut self, url: &str) -> Result<Self, SetupError> {
        let url = url.trim_end_matches('/');
        self.endpoint = self.endpoint.base_url(url.strip_suffix("/v1beta").unwrap_or(url))?;
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
    pub fn output(mut self, schema: &Value) -> Self {
        self.output = Some(output_format(schema));
        self
    }

    /// The models that there are.
    ///
    /// # Errors
    ///
    /// When the provider cannot be reached, or refuses.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        Listing::GEMINI.fetch(&self.endpoint).await
    }
}

/// Where a model is asked. Its name is part of the address, and may come from whoever makes
/// the request: it must not lead anywhere else.
fn path(model: &str, streaming: bool) -> Option<String> {
    let legal = |segment: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
        segment.bytes().all(known) && !segment.bytes().all(|byte| byte == b'.')
    };
    if !model.split('/').all(legal) {
        return None;
    }
    let folder = if model.contains('/') { "" } else { "models/" };
    let method = if streaming { "streamGenerateContent?alt=sse" } else { "generateContent" };
    Some(format!("/v1beta/{folder}{model}:{method}"))
}

impl Model for Gemini {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        Some("gcp.gemini")
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
        let Some(path) = path(model, request.streaming) else {
            let what = format!("{model:?} is not the name of a model");
            let error = ModelError::new(self.endpoint.provider(), FailureKind::BadRequest, what);
            return ready(Err(error)).boxed();
        };
        let exchange = Exchange {
            path,
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
            let model = Gemini::from_env_with(environment).map_err(|error| error.to_string())?;
            Ok((model.endpoint.url().to_owned(), model.model.to_string()))
        };
        let here = |url: &str, model: &str| Ok::<_, String>((url.to_owned(), model.to_owned()));
        assert_eq!(of(&[("GEMINI_API_KEY", "k")]), here(BASE_URL, MODEL));
        assert_eq!(
            of(&[
                ("GOOGLE_API_KEY", "k"),
                ("GOOGLE_GEMINI_BASE_URL", "http://localhost:8080/v1beta/"),
                ("GEMINI_MODEL", "m"),
            ]),
            here("http://localhost:8080", "m")
        );
        let no_key = "no key: set GEMINI_API_KEY, or GEMINI_API_KEY_FILE to a file with it";
        assert_eq!(of(&[]), Err(no_key.to_owned()));
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        assert_eq!(
            path("gemini-3-pro", true).as_deref(),
            Some("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse")
        );
        assert_eq!(
            path("tunedModels/mine", false).as_deref(),
            Some("/v1beta/tunedModels/mine:generateContent")
        );
        for model in ["", "../files", "a/../../b", "a?key=x", "a#b", "a%2e", "a b", "a//b", "ä"] {
            assert_eq!(path(model, true), None, "{model}");
        }
    }
}
