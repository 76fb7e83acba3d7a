//! Anthropic's Messages API, and servers that implement it.

use std::borrow::Cow;

use wellspring_core::TurnRequest;
use wellspring_wire::anthropic::{Options, Reader, write};
use wellspring_wire::provider::{AnswerReader, Written};

use crate::hosted::{Hosted, KeyForm, Protocol, Variables};
use crate::listing::Listing;

/// The default address.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// The default model.
pub const MODEL: &str = "claude-sonnet-4-5";

const VERSION: &str = "2023-06-01";

/// A model behind Anthropic's Messages API.
///
/// The environment is `ANTHROPIC_API_KEY` (or `ANTHROPIC_API_KEY_FILE`, or
/// `ANTHROPIC_AUTH_TOKEN`), `ANTHROPIC_BASE_URL` and `ANTHROPIC_MODEL`. The
/// address may end with `/v1` or not.
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
pub type Anthropic = Hosted<Messages>;

/// The Messages API.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    options: Options,
}

impl Anthropic {
    /// Whether to use prompt caching [default: true].
    #[must_use]
    pub fn cache(self, cache: bool) -> Self {
        self.with(|protocol| protocol.options.cache = cache)
    }
}

impl Protocol for Messages {
    const NAME: &'static str = "anthropic";
    const BASE_URL: &'static str = BASE_URL;
    const MODEL: &'static str = MODEL;
    const KEY: KeyForm = KeyForm::Header("x-api-key");
    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", VERSION)];
    const VARIABLES: Variables = Variables {
        keys: &[("ANTHROPIC_API_KEY", Self::KEY), ("ANTHROPIC_AUTH_TOKEN", KeyForm::Bearer)],
        keyless: false,
        base_url: "ANTHROPIC_BASE_URL",
        model: "ANTHROPIC_MODEL",
        headers: &[],
    };
    const LISTING: Listing = Listing::ANTHROPIC;

    fn address(written: &str) -> Cow<'_, str> {
        let written = written.trim_end_matches('/');
        written.strip_suffix("/v1").unwrap_or(written).into()
    }

    fn path(_: &str, _: bool) -> Option<Cow<'static, str>> {
        Some("/v1/messages".into())
    }

    fn write(&self, model: &str, request: &TurnRequest) -> Written {
        write(model, request, &self.options)
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
            from_env::<Messages>(&[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")]),
            "anthropic https://api.anthropic.com claude-sonnet-4-5 [anthropic-version x-api-key]"
        );
        assert_eq!(
            from_env::<Messages>(&[
                ("ANTHROPIC_AUTH_TOKEN", "t"),
                ("ANTHROPIC_BASE_URL", "http://localhost:8080/v1/"),
                ("ANTHROPIC_MODEL", "m")
            ]),
            "anthropic http://localhost:8080 m [anthropic-version authorization]"
        );
        assert_eq!(
            from_env::<Messages>(&[]),
            "no key: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE to a file with it"
        );
    }
}
