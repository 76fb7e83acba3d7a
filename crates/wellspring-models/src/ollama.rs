//! Models that Ollama runs, on this machine or another, over its own API.

use std::borrow::Cow;

use wellspring_core::TurnRequest;
use wellspring_wire::Framer;
use wellspring_wire::ollama::{Reader, write};
use wellspring_wire::provider::{AnswerReader, Written};

use crate::hosted::{Hosted, KeyForm, Protocol, Variables};
use crate::listing::Listing;

/// The default address.
pub const BASE_URL: &str = "http://127.0.0.1:11434";

/// The default model.
pub const MODEL: &str = "qwen3";

/// A model that Ollama runs.
///
/// The environment is `OLLAMA_HOST`, as Ollama itself reads it, `OLLAMA_MODEL`, and
/// `OLLAMA_API_KEY` for a server that requires one. All are optional. An address may lack its
/// scheme or its port.
///
/// ```
/// use wellspring_core::{Model as _, Thinking};
/// use wellspring_models::Ollama;
///
/// let model = Ollama::keyless("http://localhost:11434")?
///     .model("gpt-oss:20b")
///     .thinking(Thinking::Effort("low".into()));
/// assert_eq!(model.name(), "gpt-oss:20b");
/// # Ok::<(), wellspring_models::SetupError>(())
/// ```
pub type Ollama = Hosted<OllamaChat>;

/// Ollama's own API.
#[derive(Clone, Debug, Default)]
pub struct OllamaChat {
    _private: (),
}

impl Protocol for OllamaChat {
    const NAME: &'static str = "ollama";
    const BASE_URL: &'static str = BASE_URL;
    const MODEL: &'static str = MODEL;
    const KEY: KeyForm = KeyForm::Bearer;
    const VARIABLES: Variables = Variables {
        keys: &[("OLLAMA_API_KEY", Self::KEY)],
        keyless: true,
        base_url: "OLLAMA_HOST",
        model: "OLLAMA_MODEL",
        headers: &[],
    };
    const LISTING: Listing = Listing::OLLAMA;

    fn address(written: &str) -> Cow<'_, str> {
        address(written).into()
    }

    fn path(_: &str, _: bool) -> Option<Cow<'static, str>> {
        Some("/api/chat".into())
    }

    fn framer() -> Framer {
        Framer::ndjson()
    }

    fn write(&self, model: &str, request: &TurnRequest) -> Written {
        write(model, request)
    }

    fn reader(&self, request: &TurnRequest) -> Box<dyn AnswerReader> {
        Box::new(Reader::new(request))
    }
}

/// The URL for `OLLAMA_HOST`, which may lack its scheme, its host or its port. The variable
/// also tells the server where to listen; a wildcard address becomes the loopback address.
fn address(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
    let (name, port) = match place.rsplit_once(':') {
        // Several colons, or colons within brackets, belong to an IPv6 address.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosted::from_env;

    #[test]
    fn as_the_environment_says() {
        assert_eq!(from_env::<OllamaChat>(&[]), "ollama http://127.0.0.1:11434 qwen3 []");
        assert_eq!(
            from_env::<OllamaChat>(&[
                ("OLLAMA_HOST", "box"),
                ("OLLAMA_MODEL", "m"),
                ("OLLAMA_API_KEY", "k")
            ]),
            "ollama http://box:11434 m [authorization]"
        );
        assert_eq!(
            from_env::<OllamaChat>(&[("OLLAMA_HOST", "ftp://box")]),
            "\"ftp://box:80\" is not the URL of a server: expected something like https://api.example.com"
        );
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
