//! What tells the kin apart when they are asked.

/// How one vendor's API differs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vendor {
    /// What errors and figures call it.
    pub name: &'static str,
    /// How the output limit is called.
    pub limit: LimitMember,
    /// Who says the instructions.
    pub system_role: &'static str,
    /// Whether to ask for usage at the end of a stream.
    pub stream_usage: bool,
    /// How to ask for thoughts.
    pub effort: Effort,
    /// Which of its own thoughts it requires back.
    pub reasoning_back: ReasoningBack,
    /// Whether it takes documents.
    pub files: bool,
    /// What it takes as the id of a call.
    pub call_ids: CallIdRule,
    /// How it takes the schema of the answer.
    pub schema: SchemaForm,
}

/// How the output limit is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum LimitMember {
    MaxTokens,
    MaxCompletionTokens,
}

/// How to ask for thoughts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effort {
    /// `reasoning_effort`, a word.
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
    /// The words, as `reasoning_content`, since the user spoke last.
    SinceTheUser,
    /// `reasoning_details`, as they came.
    Details,
}

/// What a vendor takes as the id of a call.
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
    /// By its schema.
    JsonSchema,
    /// Only that it is JSON; the schema is for the instructions.
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

    /// Anyone who took the API over without saying more.
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

    /// Every vendor that has a name here.
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

    /// The vendor at an address, as far as that tells.
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
