//! OpenAI's Responses API, and servers that implement it.

use std::borrow::Cow;

use wellspring_core::TurnRequest;
use wellspring_wire::openai_responses::{Reader, write};
use wellspring_wire::provider::{AnswerReader, Written};

use crate::hosted::{Hosted, KeyForm, Protocol, Variables};
use crate::listing::Listing;

/// The default address.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The default model.
pub const MODEL: &str = "gpt-5.1";

/// OpenAI's variables, for both of its protocols.
pub(crate) const VARIABLES: Variables = Variables {
    keys: &[("OPENAI_API_KEY", KeyForm::Bearer)],
    keyless: false,
    base_url: "OPENAI_BASE_URL",
    model: "OPENAI_MODEL",
    headers: &[("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project")],
};

/// A model behind OpenAI's Responses API.
///
/// The environment is `OPENAI_API_KEY` (or `OPENAI_API_KEY_FILE`), `OPENAI_BASE_URL`,
/// `OPENAI_MODEL`, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`. A base URL includes its `/v1`.
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
pub type OpenAiResponses = Hosted<Responses>;

/// The Responses API.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    _private: (),
}

impl Protocol for Responses {
    const NAME: &'static str = "openai";
    const BASE_URL: &'static str = BASE_URL;
    const MODEL: &'static str = MODEL;
    const KEY: KeyForm = KeyForm::Bearer;
    const VARIABLES: Variables = VARIABLES;
    const LISTING: Listing = Listing::OPENAI;

    fn path(_: &str, _: bool) -> Option<Cow<'static, str>> {
        Some("/responses".into())
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
            from_env::<Responses>(&[("OPENAI_API_KEY", "k")]),
            "openai https://api.openai.com/v1 gpt-5.1 [authorization]"
        );
        assert_eq!(
            from_env::<Responses>(&[
                ("OPENAI_API_KEY", "k"),
                ("OPENAI_BASE_URL", "http://localhost:8080/v1/"),
                ("OPENAI_MODEL", "m"),
                ("OPENAI_ORG_ID", "org"),
            ]),
            "openai http://localhost:8080/v1 m [authorization openai-organization]"
        );
        assert_eq!(
            from_env::<Responses>(&[]),
            "no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file with it"
        );
    }
}
