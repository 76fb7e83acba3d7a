//! Every key there is: what it takes, what holds without it, and what it is for.
//!
//! Reading, the messages about mistakes and the tables in `docs/configuration.md` all come
//! from here, so that none of them can say something else.

/// A table of a configuration.
#[derive(Debug)]
pub(crate) struct Table {
    /// As one writes it; empty for the outermost.
    pub(crate) title: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation's tables are made of it"))]
    pub(crate) about: &'static str,
    pub(crate) keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) takes: &'static str,
    /// What holds without it; empty where that says itself.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation's tables are made of it"))]
    pub(crate) default: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation's tables are made of it"))]
    pub(crate) about: &'static str,
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

const fn key(
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { name, takes, default, about }
}

const TEXT: &str = "a text";
const TEXTS: &str = "a list of texts";
const YES_NO: &str = "`true` or `false`";
const NUMBER: &str = "a whole number";
const POSITIVE: &str = "a whole number above 0";
const TIME: &str =
    "a time such as `\"20s\"`, `\"5m\"`, `\"6h\"` or `\"30d\"`, or a number of seconds";
const TABLE: &str = "a table";
const SECRETS: &str = "a table of texts, in which `${NAME}` is a variable";
const DECISION: &str = "`\"allow\"`, `\"ask\"` or `\"deny\"`";
const THINKING: &str =
    "`\"off\"`, an effort such as `\"low\"` or `\"high\"`, or a number of tokens";
const PATH: &str = "a path, from the folder of `wellspring.toml`";

/// All tables, in the order of the documentation.
#[cfg(test)]
pub(crate) const ALL: &[&Table] = &[
    &ROOT,
    &STORE,
    &SERVER,
    &SERVER_LIMITS,
    &TELEMETRY,
    &PROVIDER,
    &BREAKER,
    &AGENT,
    &RULE,
    &LIMITS,
    &TIMEOUTS,
    &ACP,
    &MCP,
];

pub(crate) const ROOT: Table = Table {
    title: "",
    about: "At the top of the file.",
    keys: &[
        key(
            "default_agent",
            TEXT,
            "the only agent, or the first of those found",
            "Whom `run` and `chat` ask unless told.",
        ),
        key(
            "demo",
            "`true`, `false` or `\"shell\"`",
            "`true`, and `false` for a server with a token or on a non-loopback address",
            "Whether the built-in agent `demo` exists. With a token, or on a non-loopback \
             address, it can run commands only if this is `\"shell\"`: then everyone with a \
             token that may approve can run any command.",
        ),
        key("agents_directory", PATH, "`agents`", "Where agents are, one `.md` file each."),
        key("store", TABLE, "", "Where runs are kept."),
        key("server", TABLE, "", "How it serves."),
        key("telemetry", TABLE, "", "Who is told what runs cost and how long they take."),
        key("providers", TABLE, "", "Who has models, by name."),
        key("mcp", TABLE, "", "MCP servers, by name."),
        key("agents", TABLE, "", "Agents, by name."),
    ],
};

pub(crate) const STORE: Table = Table {
    title: "[store]",
    about: "Where runs are kept.",
    keys: &[
        key(
            "kind",
            "`\"sqlite\"` or `\"memory\"`",
            "`\"sqlite\"`",
            "A file, or nothing that outlives the process. Flag: `--ephemeral`.",
        ),
        key(
            "directory",
            PATH,
            "the user's data directory",
            "Flag and variable: `--data-dir`, `WELLSPRING_DATA_DIR`.",
        ),
        key(
            "durability",
            "`\"process-crash\"` or `\"power-loss\"`",
            "`\"process-crash\"`",
            "What a record that was shown survives. Flag: `--durability`.",
        ),
        key("bytes_max", NUMBER, "as the disk allows", "How large the file may grow."),
    ],
};

pub(crate) const SERVER: Table = Table {
    title: "[server]",
    about: "How it serves. Tokens are not in here: `wellspring token create` makes them.",
    keys: &[
        key(
            "listen",
            "an address such as `\"127.0.0.1:7600\"`",
            "`\"127.0.0.1:7600\"`",
            "Elsewhere than on this machine it needs a token. Flag and variable: `--listen`, `WELLSPRING_LISTEN`.",
        ),
        key("hosts", TEXTS, "", "The names by which others reach it. Flag: `--host`."),
        key(
            "cors",
            TEXTS,
            "",
            "Origins whose pages may talk to it, such as `\"https://app.example.com\"`. Flag: `--cors`.",
        ),
        key(
            "drain",
            TIME,
            "`\"20s\"`",
            "How long runs may go on once it is told to stop. Flag: `--drain`.",
        ),
        key(
            "keep_alive",
            TIME,
            "`\"15s\"`",
            "How long a stream may be silent before it says that it is alive.",
        ),
        key("retention", TIME, "for ever", "How long a finished run is kept."),
        key("limits", TABLE, "", "How much is too much."),
    ],
};

pub(crate) const SERVER_LIMITS: Table = Table {
    title: "[server.limits]",
    about: "How much is too much. Beyond a limit the answer is 413, 429 or 503, never a wait.",
    keys: &[
        key("body_bytes", NUMBER, "8388608", "Of a request's body."),
        key("connections", NUMBER, "32768", "In all."),
        key("runs", NUMBER, "10000", "At work, in all."),
        key("runs_per_token", NUMBER, "100", "At work, per token."),
        key("streams", NUMBER, "20000", "Open, in all."),
        key("streams_per_token", NUMBER, "1000", "Open, per token."),
        key("requests_per_token", NUMBER, "100", "Per second, on average."),
        key(
            "requests_per_address",
            NUMBER,
            "200",
            "Per second, on average; this machine's own are not counted.",
        ),
        key("run_time", TIME, "`\"6h\"`", "How long a run may take, whatever its agent allows."),
    ],
};

pub(crate) const TELEMETRY: Table = Table {
    title: "[telemetry]",
    about: "Who is told what runs cost and how long they take: spans by OpenTelemetry's conventions for GenAI, over OTLP.",
    keys: &[
        key(
            "endpoint",
            "an address such as `\"http://localhost:4318\"`",
            "nobody is told",
            "Variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.",
        ),
        key(
            "headers",
            SECRETS,
            "",
            "With every request: credentials, mostly. Variable: `OTEL_EXPORTER_OTLP_HEADERS`.",
        ),
        key("service_name", TEXT, "`\"wellspring\"`", "Variable: `OTEL_SERVICE_NAME`."),
        key(
            "content",
            YES_NO,
            "`false`",
            "Whether what was said, and what tools were given and gave back, is told too. Variable: `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.",
        ),
    ],
};

pub(crate) const PROVIDER: Table = Table {
    title: "[providers.NAME]",
    about: "Who has models. `anthropic`, `openai`, `gemini` and `ollama` are there without being named, as their usual variables say.",
    keys: &[
        key(
            "kind",
            "`\"anthropic\"`, `\"openai\"`, `\"openai-chat\"`, `\"gemini\"` or `\"ollama\"`",
            "its name",
            "What it speaks: `openai` is the Responses API, `openai-chat` is Chat Completions, which most others speak too.",
        ),
        key(
            "base_url",
            "an address such as `\"http://localhost:8080/v1\"`",
            "the provider's own",
            "Where it is. A key is sent there only if `key_env` or `key_file` says so.",
        ),
        key(
            "key_env",
            "the name of a variable",
            "the provider's usual one",
            "The variable that holds the key.",
        ),
        key("key_file", PATH, "", "The file that holds the key and nothing else."),
        key("headers", SECRETS, "", "With every request."),
        key(
            "model",
            TEXT,
            "the provider's usual one",
            "The model that answers where an agent names only the provider.",
        ),
        key("models", TEXTS, "any", "The only models that agents may name."),
        key(
            "vendor",
            "`\"openai\"`, `\"openai-compatible\"`, `\"llama.cpp\"`, `\"vllm\"`, `\"ollama\"`, `\"openrouter\"`, `\"deepseek\"`, `\"groq\"` or `\"mistral\"`",
            "told by the address",
            "Whose peculiarities to expect; for `openai-chat` only.",
        ),
        key(
            "thinking",
            THINKING,
            "the provider's own",
            "How long models think where an agent does not say.",
        ),
        key(
            "cache",
            YES_NO,
            "`true`",
            "Whether prompts are cached; for `anthropic` only, others do as they like.",
        ),
        key("breaker", TABLE, "", "When it is left alone."),
    ],
};

pub(crate) const BREAKER: Table = Table {
    title: "[providers.NAME.breaker]",
    about: "A provider that keeps failing is left alone for a while.",
    keys: &[
        key("failures", POSITIVE, "5", "In a row, before it is left alone."),
        key("rest", TIME, "`\"30s\"`", "For how long."),
    ],
};

pub(crate) const AGENT: Table = Table {
    title: "[agents.NAME]",
    about: "An agent. The same keys are the front matter of `agents/NAME.md`, whose text then is the instructions.",
    keys: &[
        key("description", TEXT, "", "A sentence for lists, and for agents that may call it."),
        key(
            "instructions",
            TEXT,
            "",
            "What it is told to be. Not in front matter: there the text is.",
        ),
        key(
            "model",
            "`\"PROVIDER/MODEL\"`, or `\"PROVIDER\"` for its usual model",
            "",
            "What thinks. It, or `acp`, must be there.",
        ),
        key(
            "fallback",
            "a list of models like `model`",
            "",
            "Who is asked when that one cannot answer, in order.",
        ),
        key(
            "acp",
            "an ACP agent: its name such as `\"claude\"`, its command line or URL, or a table",
            "",
            "An agent that somebody else wrote, driven over ACP.",
        ),
        key(
            "allow_model",
            YES_NO,
            "`false`",
            "Whether a request may name another model of the same provider.",
        ),
        key(
            "streaming",
            YES_NO,
            "`true`",
            "Whether the model answers word by word, unless a request says otherwise.",
        ),
        key("max_output_tokens", NUMBER, "4096", "That the model may write in one turn."),
        key("temperature", "a number", "the provider's own", "How freely it chooses its words."),
        key("stop_sequences", TEXTS, "", "Where it must stop."),
        key("thinking", THINKING, "the provider's", "How long it thinks."),
        key(
            "tool_choice",
            "`\"auto\"`, `\"none\"`, `\"required\"`, or a tool's name",
            "`\"auto\"`",
            "Whether it must use a tool.",
        ),
        key(
            "extra",
            TABLE,
            "",
            "Members for the provider's request that there is no word for here.",
        ),
        key("tools", TEXTS, "", "Built-in tools, by name; see below."),
        key("directory", PATH, "where the command runs", "What files and the shell work below."),
        key(
            "allow_addresses",
            "a list of ranges such as `\"192.168.0.0/16\"`",
            "",
            "Private addresses that `FileTransfer` may reach.",
        ),
        key(
            "mcp",
            "a list of names of MCP servers, or a table of them",
            "",
            "Whose tools it has besides.",
        ),
        key(
            "queue",
            "`\"parallel\"` or `\"sequential\"`",
            "`\"parallel\"`",
            "Whether its tools run beside each other.",
        ),
        key(
            "approval",
            "a list of tables",
            "what changes things asks",
            "What its tools may do: the first rule that fits decides.",
        ),
        key("approvers", TEXTS, "", "Who, besides the asker, may answer its questions."),
        key("sub_agents", TEXTS, "", "The agents it may call; `\"*\"` is all others."),
        key("output", TABLE, "", "The JSON Schema of its result, where a request brings none."),
        key("output_file", PATH, "", "A file with that schema."),
        key(
            "when_busy",
            "`\"refuse\"`, `\"queue\"` or `\"steer\"`",
            "`\"refuse\"`",
            "What becomes of a request while its thread has an unfinished run.",
        ),
        key("limits", TABLE, "", "What a run may spend."),
        key("timeouts", TABLE, "", "How long things may take."),
    ],
};

pub(crate) const RULE: Table = Table {
    title: "[[agents.NAME.approval]]",
    about: "One rule on what tools may do.",
    keys: &[
        key("tool", "a tool's name, in which `*` is anything", "every tool", "For which tools."),
        key(
            "arguments",
            "a regular expression",
            "any",
            "Only where a text among the arguments matches.",
        ),
        key("decide", DECISION, "`\"ask\"`", "What then."),
    ],
};

pub(crate) const LIMITS: Table = Table {
    title: "[agents.NAME.limits]",
    about: "What a run may spend.",
    keys: &[
        key("turns", NUMBER, "10", "Of one agent."),
        key("tokens", NUMBER, "any", "In and out, over all turns."),
        key("cost", "a number", "any", "Over all turns, where the provider reports it."),
        key("time", TIME, "any", "Looked at between turns; `timeouts.run` is the hard limit."),
        key("tools_at_once", POSITIVE, "8", "That run beside each other."),
        key("attempts", POSITIVE, "4", "At one turn."),
        key("retries", NUMBER, "10", "Beyond the first attempts, in the whole run."),
        key("repairs", NUMBER, "3", "How often an invalid result goes back."),
    ],
};

pub(crate) const TIMEOUTS: Table = Table {
    title: "[agents.NAME.timeouts]",
    about: "How long things may take.",
    keys: &[
        key("connect", TIME, "`\"30s\"`", "Until the model answers at all."),
        key("first_content", TIME, "`\"2m\"`", "From there to the first word."),
        key("between_chunks", TIME, "`\"1m\"`", "Between two pieces of an answer."),
        key("turn", TIME, "`\"15m\"`", "One attempt in all."),
        key("tool_idle", TIME, "`\"2m\"`", "A tool without progress."),
        key("tool_total", TIME, "`\"30m\"`", "A tool in all."),
        key("run", TIME, "`\"6h\"`", "The whole run; waiting for people does not count."),
        key("question", TIME, "`\"1d\"`", "A question without an answer."),
        key(
            "client_call",
            TIME,
            "`\"24h\"`",
            "A call that runs in a client, until it expires and the model is told so.",
        ),
        key("cancel_grace", TIME, "`\"2s\"`", "How long what is cancelled has to end."),
    ],
};

pub(crate) const ACP: Table = Table {
    title: "[agents.NAME.acp]",
    about: "An ACP agent, with more to say about it.",
    keys: &[
        key(
            "agent",
            "a name such as `\"claude\"`, a command line, or a URL (`http`, `https`, `ws`, `wss`)",
            "",
            "Which one.",
        ),
        key("env", SECRETS, "", "Variables that its process gets besides ours."),
        key("env_remove", TEXTS, "", "Variables of ours that it does not get."),
        key("headers", SECRETS, "", "With every request to its URL."),
        key("cwd", PATH, "where the command runs", "Where it works unless a request says."),
        key("mode", TEXT, "its own", "The mode that its sessions are put into."),
        key(
            "files",
            "`\"write\"`, `\"read\"` or `\"none\"`",
            "`\"write\"`",
            "What it may do with files through us, below where it works.",
        ),
        key("terminals", YES_NO, "`true`", "Whether it may run commands through us."),
        key(
            "sessions_per_process",
            POSITIVE,
            "32",
            "Prompts at a time in one process; beyond, another one is started.",
        ),
    ],
};

pub(crate) const MCP: Table = Table {
    title: "[mcp.NAME]",
    about: "An MCP server: a command, or a URL.",
    keys: &[
        key("command", TEXT, "", "The program. It, or `url`, must be there."),
        key("args", TEXTS, "", "Its arguments."),
        key("env", SECRETS, "", "Variables that it gets besides `PATH`, `HOME` and a few others."),
        key(
            "cwd",
            PATH,
            "where the command runs",
            "Where it starts, which is also what it is told to work on.",
        ),
        key(
            "url",
            "an address such as `\"https://mcp.example.com/mcp\"`",
            "",
            "Where it is, over streamable HTTP.",
        ),
        key("headers", SECRETS, "", "With every request to the URL."),
        key("prefix", TEXT, "its name", "In front of its tools' names."),
        key("allow", TEXTS, "all", "The only tools to use, by the server's own names."),
        key("deny", TEXTS, "", "Tools not to use."),
        key(
            "approval",
            "a table of tools, each `\"allow\"`, `\"ask\"` or `\"deny\"`",
            "",
            "Whether a tool may run, whatever the server says of it.",
        ),
        key(
            "approval_default",
            DECISION,
            "what reads may, what else asks",
            "The same for all other tools.",
        ),
        key("resources", YES_NO, "`false`", "Whether two more tools list and read its resources."),
        key("startup_timeout", TIME, "`\"60s\"`", "Until it has introduced itself."),
        key("request_timeout", TIME, "`\"30s\"`", "For an answer that is no tool's."),
        key("call_timeout", TIME, "the agent's `tool_total`", "For a tool's."),
        key("idle_timeout", TIME, "the agent's `tool_idle`", "For a tool's without progress."),
    ],
};
