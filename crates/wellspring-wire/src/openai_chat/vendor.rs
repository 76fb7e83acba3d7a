//! Differences between vendors' requests.

/// The differences of one vendor's API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vendor {
    /// The name in errors and metrics.
    pub name: &'static str,
    /// The member that holds the output limit.
    pub limit: LimitMember,
    /// The role of the instructions.
    pub system_role: &'static str,
    /// Whether to ask for usage at the end of a stream.
    pub stream_usage: bool,
    /// How reasoning effort is requested.
    pub effort: Effort,
    /// Which of its own thoughts it requires back.
    pub reasoning_back: ReasoningBack,
    /// Whether it accepts documents.
    pub files: bool,
    /// Which ids of calls it accepts.
    pub call_ids: CallIdRule,
    /// How the schema of the answer is sent.
    pub schema: SchemaForm,
}

/// The member that holds the output limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the names are enough")]
pub enum LimitMember {
    MaxTokens,
    MaxCompletionTokens,
}

/// How reasoning effort is requested.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effort {
    /// `reasoning_effort`: a string.
    Word,
    /// `reasoning`, an object with an effort or a number of tokens.
    Object,
    /// `chat_template_kwargs.enable_thinking`: on or off.
    Template,
}

/// Which of its own thoughts a vendor requires back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReasoningBack {
    /// None.
    Never,
    /// As `reasoning_content`, for thoughts after the last user message.
    SinceTheUser,
    /// As `reasoning_details`, unchanged.
    Details,
}

/// Which ids of calls a vendor accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallIdRule {
    /// A maximum number of characters.
    AtMost(usize),
    /// An exact number of letters and digits.
    Exactly(usize),
}

/// How a vendor takes the schema of the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SchemaForm {
    /// As a JSON schema.
    JsonSchema,
    /// Only as JSON mode; the instructions must describe the schema.
    JsonObject,
}

impl Vendor {
    /// OpenAI itself.
    pub const OPENAI: Self = Self {
        name: "openai",
        limit: LimitMember::MaxCompletionTokens,
        system_role: "developer",
        stream_usage: true,
        effort: Effort::Word,
        reasoning_back: ReasoningBack::Never,
        files: true,
        call_ids: CallIdRule::AtMost(40),
        schema: SchemaForm::JsonSchema,
    };

    /// Any other compatible server.
    pub const COMPATIBLE: Self = Self {
        name: "openai-compatible",
        limit: LimitMember::MaxTokens,
        system_role: "system",
        files: false,
        ..Self::OPENAI
    };

    /// llama.cpp's server.
    pub const LLAMA_CPP: Self =
        Self { name: "llama.cpp", effort: Effort::Template, ..Self::COMPATIBLE };

    /// vLLM.
    pub const VLLM: Self = Self { name: "vllm", effort: Effort::Template, ..Self::COMPATIBLE };

    /// Ollama.
    pub const OLLAMA: Self = Self { name: "ollama", ..Self::COMPATIBLE };

    /// OpenRouter.
    pub const OPENROUTER: Self = Self {
        name: "openrouter",
        effort: Effort::Object,
        reasoning_back: ReasoningBack::Details,
        files: true,
        ..Self::COMPATIBLE
    };

    /// DeepSeek.
    pub const DEEPSEEK: Self = Self {
        name: "deepseek",
        reasoning_back: ReasoningBack::SinceTheUser,
        schema: SchemaForm::JsonObject,
        ..Self::COMPATIBLE
    };

    /// Groq.
    pub const GROQ: Self =
        Self { name: "groq", limit: LimitMember::MaxCompletionTokens, ..Self::COMPATIBLE };

    /// Mistral.
    pub const MISTRAL: Self = Self {
        name: "mistral",
        stream_usage: false,
        call_ids: CallIdRule::Exactly(9),
        ..Self::COMPATIBLE
    };

    /// All named vendors.
    pub const ALL: [Self; 9] = [
        Self::OPENAI,
        Self::COMPATIBLE,
        Self::LLAMA_CPP,
        Self::VLLM,
        Self::OLLAMA,
        Self::OPENROUTER,
        Self::DEEPSEEK,
        Self::GROQ,
        Self::MISTRAL,
    ];

    /// The vendor of a URL, or [`COMPATIBLE`](Self::COMPATIBLE).
    #[must_use]
    pub fn at(url: &str) -> Self {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let of = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if of("openai.com") {
            Self::OPENAI
        } else if of("openrouter.ai") {
            Self::OPENROUTER
        } else if of("deepseek.com") {
            Self::DEEPSEEK
        } else if of("groq.com") {
            Self::GROQ
        } else if of("mistral.ai") {
            Self::MISTRAL
        } else {
            Self::COMPATIBLE
        }
    }
}
