//! OpenAI's Chat Completions API, and servers that implement it: llama.cpp, vLLM, OpenRouter, …

use std::borrow::Cow;

use wellspring_core::TurnRequest;
use wellspring_wire::openai_chat::{Reader, write};
use wellspring_wire::provider::{AnswerReader, Written};

pub use wellspring_wire::openai_chat::Vendor;

use crate::hosted::{Hosted, KeyForm, Protocol, Variables};
use crate::listing::Listing;
use crate::openai_responses;

/// The default address.
pub const BASE_URL: &str = openai_responses::BASE_URL;

/// The default model.
pub const MODEL: &str = "gpt-5-mini";

/// A model behind a Chat Completions API.
///
/// The environment is OpenAI's own, as for [`OpenAiResponses`](crate::OpenAiResponses). A base
/// URL includes its `/v1`. The vendor is inferred from the URL if possible.
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
pub type OpenAiChat = Hosted<ChatCompletions>;

/// The Chat Completions API, with the differences of a vendor.
#[derive(Clone, Debug)]
pub struct ChatCompletions {
    /// Inferred from the URL.
    found: Vendor,
    /// Set explicitly; overrides `found`.
    told: Option<Vendor>,
}

impl Default for ChatCompletions {
    fn default() -> Self {
        Self { found: Vendor::COMPATIBLE, told: None }
    }
}

impl ChatCompletions {
    fn vendor(&self) -> &Vendor {
        self.told.as_ref().unwrap_or(&self.found)
    }
}

impl OpenAiChat {
    /// Sets the vendor, which decides the differences of the wire format and the name in
    /// errors.
    #[must_use]
    pub fn vendor(self, vendor: Vendor) -> Self {
        self.with(|protocol| protocol.told = Some(vendor))
    }
}

impl Protocol for ChatCompletions {
    const NAME: &'static str = Vendor::OPENAI.name;
    const BASE_URL: &'static str = BASE_URL;
    const MODEL: &'static str = MODEL;
    const KEY: KeyForm = KeyForm::Bearer;
    const VARIABLES: Variables = openai_responses::VARIABLES;
    const LISTING: Listing = Listing::OPENAI;

    fn at(&mut self, base_url: &str) {
        self.found = Vendor::at(base_url);
    }

    fn provider(&self) -> &str {
        self.vendor().name
    }

    fn path(_: &str, _: bool) -> Option<Cow<'static, str>> {
        Some("/chat/completions".into())
    }

    fn write(&self, model: &str, request: &TurnRequest) -> Written {
        write(model, request, self.vendor())
    }

    fn reader(&self, request: &TurnRequest) -> Box<dyn AnswerReader> {
        Box::new(Reader::new(request, self.vendor()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosted::from_env;

    #[test]
    fn as_the_environment_says() {
        let key = ("OPENAI_API_KEY", "k");
        assert_eq!(
            from_env::<ChatCompletions>(&[key]),
            "openai https://api.openai.com/v1 gpt-5-mini [authorization]"
        );
        assert_eq!(
            from_env::<ChatCompletions>(&[
                key,
                ("OPENAI_BASE_URL", "https://openrouter.ai/api/v1/"),
                ("OPENAI_MODEL", "m")
            ]),
            "openrouter https://openrouter.ai/api/v1 m [authorization]"
        );
    }

    #[test]
    fn who_says_the_vendor_knows_better_than_the_address() {
        let name = |it: &OpenAiChat| it.protocol.provider().to_owned();
        let found = OpenAiChat::keyless("https://openrouter.ai/api/v1").unwrap();
        let moved = found.clone().base_url("https://api.deepseek.com/v1").unwrap();
        let told = found.clone().vendor(Vendor::VLLM).base_url("https://api.groq.com/v1").unwrap();
        assert_eq!([&found, &moved, &told].map(name), ["openrouter", "deepseek", "vllm"]);
    }
}
