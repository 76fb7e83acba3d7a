//! Google's models, over the Gemini API.

use std::borrow::Cow;

use wellspring_core::TurnRequest;
use wellspring_wire::gemini::{Reader, write};
use wellspring_wire::provider::{AnswerReader, Written};

use crate::hosted::{Hosted, KeyForm, Protocol, Variables};
use crate::listing::Listing;

/// The default address.
pub const BASE_URL: &str = "https://generativelanguage.googleapis.com";

/// The default model.
pub const MODEL: &str = "gemini-flash-latest";

/// A model behind the Gemini API.
///
/// The environment is `GEMINI_API_KEY` (or `GEMINI_API_KEY_FILE`, or `GOOGLE_API_KEY`),
/// `GOOGLE_GEMINI_BASE_URL` and `GEMINI_MODEL`. An address may end with `/v1beta` or not.
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
pub type Gemini = Hosted<GenerateContent>;

/// The Gemini API.
#[derive(Clone, Debug, Default)]
pub struct GenerateContent {
    _private: (),
}

impl Protocol for GenerateContent {
    const NAME: &'static str = "gemini";
    const BASE_URL: &'static str = BASE_URL;
    const MODEL: &'static str = MODEL;
    const KEY: KeyForm = KeyForm::Header("x-goog-api-key");
    const VARIABLES: Variables = Variables {
        keys: &[("GEMINI_API_KEY", Self::KEY), ("GOOGLE_API_KEY", Self::KEY)],
        keyless: false,
        base_url: "GOOGLE_GEMINI_BASE_URL",
        model: "GEMINI_MODEL",
        headers: &[],
    };
    const LISTING: Listing = Listing::GEMINI;

    fn address(written: &str) -> Cow<'_, str> {
        let written = written.trim_end_matches('/');
        written.strip_suffix("/v1beta").unwrap_or(written).into()
    }

    /// A model's name is part of the path and may come from the client, so it must not lead to
    /// another path.
    fn path(model: &str, streaming: bool) -> Option<Cow<'static, str>> {
        let legal = |segment: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
            segment.bytes().all(known) && !segment.bytes().all(|byte| byte == b'.')
        };
        if !model.split('/').all(legal) {
            return None;
        }
        let folder = if model.contains('/') { "" } else { "models/" };
        let method = if streaming { "streamGenerateContent?alt=sse" } else { "generateContent" };
        Some(format!("/v1beta/{folder}{model}:{method}").into())
    }

    fn write(&self, model: &str, request: &TurnRequest) -> Written {
        write(model, request)
    }

    fn reader(&self, request: &TurnRequest) -> Box<dyn AnswerReader> {
        Box::new(Reader::new(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosted::from_env;

    #[test]
    fn as_the_environment_says() {
        assert_eq!(
            from_env::<GenerateContent>(&[("GEMINI_API_KEY", "k")]),
            "gemini https://generativelanguage.googleapis.com gemini-flash-latest [x-goog-api-key]"
        );
        assert_eq!(
            from_env::<GenerateContent>(&[
                ("GOOGLE_API_KEY", "k"),
                ("GOOGLE_GEMINI_BASE_URL", "http://localhost:8080/v1beta/"),
                ("GEMINI_MODEL", "m"),
            ]),
            "gemini http://localhost:8080 m [x-goog-api-key]"
        );
        assert_eq!(
            from_env::<GenerateContent>(&[]),
            "no key: set GEMINI_API_KEY, or GEMINI_API_KEY_FILE to a file with it"
        );
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        assert_eq!(
            GenerateContent::path("gemini-3-pro", true).as_deref(),
            Some("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse")
        );
        assert_eq!(
            GenerateContent::path("tunedModels/mine", false).as_deref(),
            Some("/v1beta/tunedModels/mine:generateContent")
        );
        for model in ["", "../files", "a/../../b", "a?key=x", "a#b", "a%2e", "a b", "a//b", "ä"] {
            assert_eq!(GenerateContent::path(model, true), None, "{model}");
        }
    }
}
