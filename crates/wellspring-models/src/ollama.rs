//! Models that Ollama runs, here or elsewhere, by its own API.

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};
use wellspring_core::{AttemptStream, Model, ModelError, Thinking, TurnRequest};
use wellspring_wire::Framer;
use wellspring_wire::ollama::{Reader, write};

use crate::error::SetupError;
use crate::http::{Endpoint, Exchange};
use crate::listing::{ListedModel, Listing};
use crate::secret::Secret;

/// Where Ollama is unless told otherwise.
pub const BASE_URL: &str = "http://127.0.0.1:11434";

/// The model that answers unless told otherwise.
pub const MODEL: &str = "qwen3";

/// A model that Ollama runs.
///
/// Cheap to clone.
///
/// ```
/// use wellspring_core::{Model as _, Thinking};
/// use wellspring_models::Ollama;
///
/// let model = Ollama::new("http://localhost:11434")?
///     .model("gpt-oss:20b")
///     .thinking(Thinking::Effort("low".into()));
/// assert_eq!(model.name(), "gpt-oss:20b");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ollama {
    endpoint: Endpoint,
    model: Box<str>,
    thinking: Option<Thinking>,
    output: Option<(&'static str, Value)>,
}

impl Ollama {
    /// At an address.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub fn new(base_url: &str) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new("ollama", base_url)?;
        Ok(Self { endpoint, model: MODEL.into(), thinking: None, output: None })
    }

    /// As the environment says: `OLLAMA_HOST`, as Ollama itself reads it, `OLLAMA_MODEL`, and
    /// `OLLAMA_API_KEY` for a server that wants one. Nothing has to be set.
    ///
    /// # Errors
    ///
    /// When something of it cannot be used.
    pub fn from_env() -> Result<Self, SetupError> {
        Self::from_env_with(|name| std::env::var(name).ok())
    }

    pub(crate) fn from_env_with(
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        let set = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let mut model = Self::new(&set("OLLAMA_HOST").map_or(BASE_URL.into(), |it| address(&it)))?;
        if let Some(key) = set("OLLAMA_API_KEY") {
            model = model.key(&Secret::new(key.trim()))?;
        }
        if let Some(name) = set("OLLAMA_MODEL") {
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

    /// With a key, for a server that wants one.
    ///
    /// # Errors
    ///
    /// When the key cannot be sent in a header.
    pub fn key(mut self, key: &Secret) -> Result<Self, SetupError> {
        self.endpoint = self.endpoint.bearer(key)?;
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
        self.output = Some(("format", schema.clone()));
        self
    }

    /// The models that were pulled.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, or refuses.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        Listing::OLLAMA.fetch(&self.endpoint).await
    }
}

/// `OLLAMA_HOST` may lack its scheme, its host or its port. It also tells the server where to
/// listen; at an address for everywhere it is found here.
fn address(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
    let (name, port) = match place.rsplit_once(':') {
        // Colons within brackets, or more than one without, are an IPv6 address's own.
        Some((name, port))
            if !port.ends_with(']') && (!name.contains(':') || name.ends_with(']')) =>
        {
            (name, Some(port))
        }
        Some(_) | None => (place, None),
    };
    let name = match name {
        "" | "0.0.0.0" | "[::]" | "::" => "127.0.0.1".to_owned(),
        bare if bare.contains(':') && !bare.starts_with('[') => format!("[{bare}]"),
        name => name.to_owned(),
    };
    let port = match (port, scheme) {
        (Some(port), _) if !port.is_empty() => format!(":{port}"),
        (_, "https") => String::new(),
        _ if host.contains("://") => ":80".to_owned(),
        _ => ":11434".to_owned(),
    };
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    format!("{scheme}://{name}{port}{path}")
}

impl Model for Ollama {
    fn name(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> Option<&str> {
        Some("ollama")
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
            path: "/api/chat".to_owned(),
            written: write(model, &request),
            framer: Framer::ndjson(),
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
            let model = Ollama::from_env_with(environment).map_err(|error| error.to_string())?;
            Ok((model.endpoint.url().to_owned(), model.model.to_string()))
        };
        let here = |url: &str, model: &str| Ok::<_, String>((url.to_owned(), model.to_owned()));
        assert_eq!(of(&[]), here(BASE_URL, MODEL));
        assert_eq!(
            of(&[("OLLAMA_HOST", "box"), ("OLLAMA_MODEL", "m"), ("OLLAMA_API_KEY", "k")]),
            here("http://box:11434", "m")
        );
        assert!(of(&[("OLLAMA_HOST", "ftp://box")]).is_err());
    }

    #[test]
    fn addresses() {
        for (host, url) in [
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:8000", "http://127.0.0.1:8000"),
            (":8000", "http://127.0.0.1:8000"),
            ("box.local:8000/", "http://box.local:8000"),
            ("http://box", "http://box:80"),
            ("https://box/ollama", "https://box/ollama"),
            ("https://box:8443", "https://box:8443"),
            ("::1", "http://[::1]:11434"),
            ("[::1]:8000", "http://[::1]:8000"),
            ("[::]", "http://127.0.0.1:11434"),
        ] {
            assert_eq!(address(host), url, "{host}");
        }
    }
}
