//! Every configuration key: its type, its default and its meaning.
//!
//! The parser, its error messages and the tables in `docs/configuration.md` are all made from
//! these tables, so that they cannot disagree.

/// A table of a configuration.
#[derive(Debug)]
pub(crate) struct Table {
    /// The TOML header; empty for the top level.
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
    /// Empty if there is no default, or if it is obvious.
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

const TEXT: &str = "a string";
const TEXTS: &str = "a list of strings";
const YES_NO: &str = "`true` or `false`";
const NUMBER: &str = "a whole number";
const POSITIVE: &str = "a whole number above 0";
const TIME: &str =
    "a duration such as `\"20s\"`, `\"5m\"`, `\"6h\"` or `\"30d\"`, or a number of seconds";
const TABLE: &str = "a table";
const SECRETS: &str = "a table of strings; `${NAME}` is replaced by an environment variable";
const DECISION: &str = "`\"allow\"`, `\"ask\"` or `\"deny\"`";
const THINKING: &str =
    "`\"off\"`, an effort such as `\"low\"` or `\"high\"`, or a number of tokens";
const PATH: &str = "a path, relative to `wellspring.toml`";

/// All tables, in the order of the documentation.
#[cfg(test)]
pub(crate) const ALL: &[&Table] = &[
    &ROOT,
    &STORE,
    &STORE_NATS,
    &SERVER,
    &SERVER_LIMITS,
    &SERVER_USE_AI,
    &TELEMETRY,
    &PROVIDER,
    &BREAKER,
    &AGENT,
    &QUEUE_RULE,
    &RULE,
    &LIMITS,
    &SANDBOX,
    &TIMEOUTS,
    &ACP,
    &AG_UI,
    &OPENCLAW,
    &DIFY,
    &MCP,
    &CHANNEL,
];

pub(crate) const ROOT: Table = Table {
    title: "",
    about: "At the top level of the file.",
    keys: &[
        key(
            "default_agent",
            TEXT,
            "the only agent, or the first one found",
            "The agent that `run` and `chat` use by default.",
        ),
        key(
            "demo",
            "`true`, `false` or `\"shell\"`",
            "`true`, and `false` for a server with a token, with a bot, or on a non-loopback address",
            "Whether the built-in agent `demo` exists. With a token, with a bot, or on a \
             non-loopback address, it can run commands only if this is `\"shell\"`: then \
             everyone with a token that may approve can run any command.",
        ),
        key("agents_directory", PATH, "`agents`", "Directory with one `.md` file per agent."),
        key("store", TABLE, "", "Where runs are stored."),
        key("server", TABLE, "", "The HTTP server."),
        key("telemetry", TABLE, "", "Export of traces over OTLP."),
        key("providers", TABLE, "", "Model providers, by name."),
        key("mcp", TABLE, "", "MCP servers, by name."),
        key("agents", TABLE, "", "Agents, by name."),
        key("channels", TABLE, "", "Bots in chat networks, by name."),
    ],
};

pub(crate) const STORE: Table = Table {
    title: "[store]",
    about: "Where runs are stored.",
    keys: &[
        key(
            "kind",
            "`\"sqlite\"`, `\"nats\"` or `\"memory\"`",
            "`\"sqlite\"`",
            "`nats` shares the runs between machines: see [nats.md](nats.md). `memory` stores \
             nothing on disk. Flag: `--ephemeral`.",
        ),
        key(
            "directory",
            PATH,
            "the user's data directory",
            "For `sqlite`. Flag and variable: `--data-dir`, `WELLSPRING_DATA_DIR`.",
        ),
        key(
            "address",
            "a string such as `\"nats://10.0.0.1:4222,nats://10.0.0.2:4222\"`",
            "",
            "For `nats`: its servers. An address that begins with `tls://` requires TLS.",
        ),
        key(
            "durability",
            "`\"process-crash\"` or `\"power-loss\"`",
            "`\"process-crash\"`",
            "What stored events survive. Flag: `--durability`.",
        ),
        key("bytes_max", NUMBER, "no limit", "Maximum size of the file, or of the stream."),
        key(
            "lease",
            TIME,
            "30 seconds",
            "How long a process may give no sign of life before others take over its runs. Not \
             below one second.",
        ),
        key("nats", TABLE, "", "How to use the NATS servers."),
    ],
};

pub(crate) const STORE_NATS: Table = Table {
    title: "[store.nats]",
    about: "How to use the NATS servers, if `kind` is `\"nats\"`. Old runs are deleted as \
            `retention` in `[server]` says.",
    keys: &[
        key(
            "stream",
            "a string of letters, digits, `-` and `_`",
            "`\"wellspring\"`",
            "The stream's name, with which all subjects begin. The stream is created if there is \
             none.",
        ),
        key("replicas", "a whole number from 1 to 5", "1", "How many servers keep each message."),
        key(
            "monitors",
            TEXTS,
            "",
            "Monitoring addresses of all servers, such as `\"http://10.0.0.1:8222\"`. \
             `durability = \"power-loss\"` needs them to check the servers' settings.",
        ),
        key(
            "settle",
            TIME,
            "30 seconds",
            "How long a write may wait for its answer, for example while a server is replaced. A \
             run whose write takes longer is given up and continued later.",
        ),
        key(
            "index_bytes_max",
            NUMBER,
            "1 GiB",
            "Maximum size of the index of all runs that each process keeps in memory.",
        ),
        key("user", TEXT, "", "The user to log in as, with `password_env` or `password_file`."),
        key("password_env", TEXT, "", "Variable with the password."),
        key("password_file", PATH, "", "File with the password."),
        key("token_env", TEXT, "", "Variable with a token to log in with."),
        key("token_file", PATH, "", "File with a token to log in with."),
        key("credentials_file", PATH, "", "File with a JWT and a seed to log in with (`.creds`)."),
        key(
            "ca_file",
            PATH,
            "the system's certificates",
            "Certificates of those who may sign for the servers, in PEM. Requires TLS.",
        ),
        key("certificate_file", PATH, "", "Our own certificate, in PEM, with `key_file`."),
        key("key_file", PATH, "", "The key of our own certificate, in PEM."),
    ],
};

pub(crate) const SERVER: Table = Table {
    title: "[server]",
    about: "The HTTP server. Tokens are not configured here: use `wellspring token create`.",
    keys: &[
        key(
            "listen",
            "an address such as `\"127.0.0.1:7600\"`",
            "`\"127.0.0.1:7600\"`",
            "Address to listen on. Non-loopback addresses require a token. Flag and variable: `--listen`, `WELLSPRING_LISTEN`.",
        ),
        key("hosts", TEXTS, "", "Host names that clients use. Flag: `--host`."),
        key(
            "cors",
            TEXTS,
            "",
            "Origins whose pages may call the server, such as `\"https://app.example.com\"`. Flag: `--cors`.",
        ),
        key(
            "drain",
            TIME,
            "`\"20s\"`",
            "How long runs may continue during shutdown. Flag: `--drain`.",
        ),
        key("keep_alive", TIME, "`\"15s\"`", "Interval of keep-alive messages on silent streams."),
        key("retention", TIME, "for ever", "How long finished runs are kept."),
        key("limits", TABLE, "", "Limits of the server."),
        key("use_ai", TABLE, "", "What use-ai's clients are offered."),
    ],
};

pub(crate) const SERVER_USE_AI: Table = Table {
    title: "[server.use_ai]",
    about: "What use-ai's clients are offered, over Socket.IO and WebSocket.",
    keys: &[
        key("default_agent", TEXT, "the first by name", "The agent of a request without one."),
        key(
            "workflows",
            "a table of agents",
            "",
            "The agents that stand for workflows, by `runner/workflow`: `\"dify/summary\" = \"summary\"`.",
        ),
    ],
};

pub(crate) const SERVER_LIMITS: Table = Table {
    title: "[server.limits]",
    about: "Requests beyond a limit are refused at once with 413, 429 or 503.",
    keys: &[
        key("body_bytes", NUMBER, "8388608", "Maximum size of a request body."),
        key(
            "held_bytes",
            NUMBER,
            "536870912",
            "Memory for request bodies and large responses, in total.",
        ),
        key("held_bytes_per_token", NUMBER, "134217728", "The same, per token."),
        key("connections", NUMBER, "32768", "Open connections."),
        key("runs", NUMBER, "10000", "Active runs, in total."),
        key("runs_per_token", NUMBER, "100", "Active runs, per token."),
        key(
            "runs_per_tenant",
            NUMBER,
            "no limit",
            "Active runs, per tenant, on all machines together. Runs that start at the same \
             moment do not count each other, so it can be exceeded by as many as that.",
        ),
        key("streams", NUMBER, "20000", "Open streams, in total."),
        key("streams_per_token", NUMBER, "1000", "Open streams, per token."),
        key("requests_per_token", NUMBER, "100", "Requests per second, on average."),
        key(
            "requests_per_address",
            NUMBER,
            "200",
            "Requests per second and client address, on average. Loopback is not limited.",
        ),
        key("run_time", TIME, "`\"6h\"`", "Maximum duration of a run. Overrides the agent's own."),
    ],
};

pub(crate) const TELEMETRY: Table = Table {
    title: "[telemetry]",
    about: "Export of traces over OTLP, following OpenTelemetry's conventions for GenAI.",
    keys: &[
        key(
            "endpoint",
            "a URL such as `\"http://localhost:4318\"`",
            "no export",
            "Variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.",
        ),
        key(
            "headers",
            SECRETS,
            "",
            "Headers of every request, such as credentials. Variable: `OTEL_EXPORTER_OTLP_HEADERS`.",
        ),
        key("service_name", TEXT, "`\"wellspring\"`", "Variable: `OTEL_SERVICE_NAME`."),
        key(
            "content",
            YES_NO,
            "`false`",
            "Whether to include messages, tool arguments and tool results. Variable: `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.",
        ),
    ],
};

pub(crate) const PROVIDER: Table = Table {
    title: "[providers.NAME]",
    about: "A model provider. `anthropic`, `openai`, `gemini` and `ollama` are configured from their usual environment variables.",
    keys: &[
        key(
            "kind",
            "`\"anthropic\"`, `\"openai\"`, `\"openai-chat\"`, `\"gemini\"` or `\"ollama\"`",
            "its name",
            "Its API: `openai` is the Responses API, `openai-chat` is Chat Completions, which most other providers support.",
        ),
        key(
            "base_url",
            "a URL such as `\"http://localhost:8080/v1\"`",
            "the provider's own",
            "Base URL of the API. A key is sent to another URL only if `key_env` or `key_file` is set.",
        ),
        key(
            "key_env",
            "the name of a variable",
            "the provider's usual one",
            "Environment variable with the API key.",
        ),
        key("key_file", PATH, "", "File that contains only the API key."),
        key("headers", SECRETS, "", "Headers of every request."),
        key(
            "model",
            TEXT,
            "the provider's usual one",
            "Model of agents that name only the provider.",
        ),
        key("models", TEXTS, "any", "Models that agents may use."),
        key(
            "vendor",
            "`\"openai\"`, `\"openai-compatible\"`, `\"llama.cpp\"`, `\"vllm\"`, `\"ollama\"`, `\"openrouter\"`, `\"deepseek\"`, `\"groq\"` or `\"mistral\"`",
            "derived from the URL",
            "Which variant of the API to expect. Only for `openai-chat`.",
        ),
        key("thinking", THINKING, "the provider's own", "Default reasoning effort of its models."),
        key(
            "cache",
            YES_NO,
            "`true`",
            "Whether to use prompt caching. Only for `anthropic`; other providers decide themselves.",
        ),
        key("breaker", TABLE, "", "Circuit breaker."),
    ],
};

pub(crate) const BREAKER: Table = Table {
    title: "[providers.NAME.breaker]",
    about: "Circuit breaker: requests to a failing provider are suspended for a while.",
    keys: &[
        key("failures", POSITIVE, "5", "Consecutive failures that open the breaker."),
        key("rest", TIME, "`\"30s\"`", "How long it stays open."),
    ],
};

pub(crate) const AGENT: Table = Table {
    title: "[agents.NAME]",
    about: "An agent. The same keys can be used in the front matter of `agents/NAME.md`, whose text is the instructions.",
    keys: &[
        key(
            "description",
            TEXT,
            "",
            "One sentence, shown in lists and to agents that may call it.",
        ),
        key(
            "instructions",
            TEXT,
            "",
            "System prompt. Not allowed in front matter, where the text of the file is used.",
        ),
        key(
            "model",
            "`\"PROVIDER/MODEL\"`, or `\"PROVIDER\"` for its usual model",
            "",
            "Model. Required, unless `acp`, `ag_ui`, `openclaw` or `dify` is set.",
        ),
        key(
            "fallback",
            "a list of models like `model`",
            "",
            "Models to try, in order, if the first one fails.",
        ),
        key(
            "acp",
            "an ACP agent: its name such as `\"claude\"`, its command line or URL, or a table",
            "",
            "External agent, driven over ACP.",
        ),
        key(
            "ag_ui",
            "an AG-UI agent: the URL that requests are posted to, or a table",
            "",
            "An agent on another machine that speaks AG-UI.",
        ),
        key(
            "openclaw",
            "an OpenClaw gateway: its WebSocket URL, or a table",
            "",
            "An agent of an OpenClaw gateway.",
        ),
        key("dify", "a Dify app: a table", "", "An app of Dify: a chat, an agent or a workflow."),
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
            "Whether to stream the model's answers. Requests can override it.",
        ),
        key("max_output_tokens", NUMBER, "4096", "Maximum output tokens per turn."),
        key("temperature", "a number", "the provider's own", "Sampling temperature."),
        key("stop_sequences", TEXTS, "", "Strings that end the model's output."),
        key("thinking", THINKING, "the provider's", "Reasoning effort."),
        key(
            "tool_choice",
            "`\"auto\"`, `\"none\"`, `\"required\"`, or a tool's name",
            "`\"auto\"`",
            "Whether the model must use a tool.",
        ),
        key("extra", TABLE, "", "Additional members of the request to the provider."),
        key("tools", TEXTS, "", "Built-in tools, by name. See below."),
        key(
            "directory",
            PATH,
            "the current directory",
            "Working directory of the file and shell tools.",
        ),
        key(
            "variables",
            TEXTS,
            "",
            "Environment variables that shell commands get, in addition to a few such as `PATH` \
             and `HOME`.",
        ),
        key("sandbox", TABLE, "", "Sandbox for shell commands."),
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
            "MCP servers whose tools it has.",
        ),
        key(
            "queue",
            "`\"parallel\"` or `\"sequential\"`",
            "`\"parallel\"`",
            "Whether its tools may run concurrently.",
        ),
        key(
            "tool_order",
            "`\"as_called\"` or `\"parallel_first\"`",
            "`\"as_called\"`",
            "Whether a parallel call waits for the sequential calls before it in the same turn.",
        ),
        key("queue_rules", TABLE, "", "How the calls of single tools are queued, by tool name."),
        key(
            "approval",
            "a list of tables",
            "ask before tools that change things",
            "Approval rules for its tools. The first matching rule decides.",
        ),
        key(
            "approvers",
            TEXTS,
            "",
            "Names that may answer its questions, in addition to the principal that started the run.",
        ),
        key(
            "editors",
            "`\"approvers\"`, `\"nobody\"`, or a list of names",
            "`\"approvers\"`",
            "Who may edit a call's arguments when approving it. The policy can deny edited \
             arguments too.",
        ),
        key("sub_agents", TEXTS, "", "Agents that it may call; `\"*\"` means all others."),
        key("output", TABLE, "", "JSON Schema of its result, if the request has none."),
        key("output_file", PATH, "", "File with that schema."),
        key(
            "when_busy",
            "`\"refuse\"`, `\"queue\"` or `\"steer\"`",
            "`\"refuse\"`",
            "What to do with a request while its thread has an unfinished run.",
        ),
        key("limits", TABLE, "", "Limits of a run."),
        key("timeouts", TABLE, "", "Time limits."),
    ],
};

pub(crate) const QUEUE_RULE: Table = Table {
    title: "[agents.NAME.queue_rules.TOOL]",
    about: "How the calls of one tool are queued.",
    keys: &[
        key(
            "mode",
            "`\"parallel\"` or `\"sequential\"`",
            "what the tool says",
            "Together with other calls, or alone.",
        ),
        key(
            "priority",
            NUMBER,
            "what the tool says",
            "Among waiting sequential calls, the highest goes first.",
        ),
    ],
};

pub(crate) const RULE: Table = Table {
    title: "[[agents.NAME.approval]]",
    about: "One approval rule.",
    keys: &[
        key(
            "tool",
            "a tool's name, where `*` matches anything",
            "every tool",
            "Tools that the rule is for.",
        ),
        key(
            "arguments",
            "a table of regular expressions, or of `{ raw = PATTERN }`",
            "any",
            "Argument names, and patterns that their whole values must match. See \"Rules\" above.",
        ),
        key("decide", DECISION, "`\"ask\"`", "The decision."),
    ],
};

pub(crate) const LIMITS: Table = Table {
    title: "[agents.NAME.limits]",
    about: "Limits of a run.",
    keys: &[
        key("turns", NUMBER, "10", "Turns of one agent."),
        key("tokens", NUMBER, "any", "Input and output tokens, over all turns."),
        key("cost", "a number", "any", "Cost over all turns, if the provider reports it."),
        key(
            "time",
            TIME,
            "any",
            "Working time, checked between turns. `timeouts.run` is the hard limit.",
        ),
        key("tools_at_once", POSITIVE, "8", "Tools that run concurrently."),
        key("attempts", POSITIVE, "4", "Attempts per turn."),
        key("retries", NUMBER, "10", "Retries in the whole run."),
        key("repairs", NUMBER, "3", "How often an invalid result is returned to the agent."),
    ],
};

pub(crate) const SANDBOX: Table = Table {
    title: "[agents.NAME.sandbox]",
    about: "Sandbox for shell commands, used if this table exists: commands can read programs \
            and libraries, and read and change `directory`, but cannot access other files, the \
            network over TCP, or other processes. Requires Linux 6.12 or newer with Landlock; \
            on other systems the server does not start.",
    keys: &[
        key("read", TEXTS, "", "Files and directories that commands can also read."),
        key("write", TEXTS, "", "Files and directories that commands can also read and change."),
        key("network", YES_NO, "`false`", "Whether commands can use TCP."),
    ],
};

pub(crate) const TIMEOUTS: Table = Table {
    title: "[agents.NAME.timeouts]",
    about: "Time limits.",
    keys: &[
        key("connect", TIME, "`\"30s\"`", "Until the provider responds."),
        key("first_content", TIME, "`\"2m\"`", "From the response to the first content."),
        key("whole_answer", TIME, "`\"10m\"`", "A response without streaming."),
        key("between_chunks", TIME, "`\"1m\"`", "Between two chunks of a response."),
        key("turn", TIME, "`\"15m\"`", "One attempt at a turn."),
        key("tool_idle", TIME, "`\"2m\"`", "A tool that reports no progress."),
        key("tool_total", TIME, "`\"30m\"`", "A tool call in total."),
        key("run", TIME, "`\"6h\"`", "The whole run, without pauses."),
        key("question", TIME, "`\"1d\"`", "Until an unanswered question expires."),
        key(
            "client_call",
            TIME,
            "`\"24h\"`",
            "Until a tool call that runs in the client expires. The model is told so.",
        ),
        key("cancel_grace", TIME, "`\"2s\"`", "How long cancelled work may take to stop."),
    ],
};

pub(crate) const CHANNEL: Table = Table {
    title: "[channels.NAME]",
    about: "A bot in a chat network. `wellspring serve` starts it; see docs/channels.md.",
    keys: &[
        key(
            "kind",
            "`\"telegram\"`, `\"whatsapp\"`, `\"slack\"` or `\"discord\"`",
            "its name",
            "The network.",
        ),
        key("agent", TEXT, "the default agent", "The agent that answers."),
        key("tenant", TEXT, "`\"default\"`", "The tenant of its runs."),
        key(
            "secrets",
            SECRETS,
            "",
            "`token`, and for a webhook of Telegram `webhook`; for WhatsApp `token`, \
             `app_secret` and `verify_token`; for Slack `token` with `app_token` (a socket) or \
             `signing_secret` (a webhook); for Discord `token`.",
        ),
        key(
            "stream",
            YES_NO,
            "`false`",
            "Whether answers are shown while they grow, where the network can (`agentStreamMode`).",
        ),
        key(
            "when_busy",
            "`\"accumulate\"`, `\"queue\"` or `\"steer\"`",
            "`\"accumulate\"`",
            "What becomes of messages while another one is being answered: answered together in \
             one piece, answered one by one, or added to what the agent is working on.",
        ),
        key("show_tools", YES_NO, "`true`", "Whether a line says which tool is running."),
        key("drafts", YES_NO, "`false`", "Whether previews are drafts; Telegram, direct chats."),
        key(
            "language",
            "`\"en\"` or `\"pt\"`",
            "`\"en\"`",
            "For people whose own language is not known or is another one.",
        ),
        key("users", TEXTS, "", "Ids of people who may use it. Others get a code to be paired."),
        key("chats", TEXTS, "", "Ids of chats in which everyone may use it."),
        key("everyone", YES_NO, "`false`", "Whether everyone may use it."),
        key("base_url", "an address", "the network's own", "Where the network's API is."),
        key(
            "webhook_url",
            "an address such as `\"https://bot.example.com\"`",
            "Telegram is polled",
            "Where the network reaches this server; updates come to `/channels/NAME` there.",
        ),
        key("phone_number_id", TEXT, "", "For WhatsApp: the id of the sender's number."),
        key(
            "public_key",
            TEXT,
            "presses come over the gateway",
            "For Discord: the public key of the application, which signs what comes to a webhook.",
        ),
    ],
};

pub(crate) const AG_UI: Table = Table {
    title: "[agents.NAME.ag_ui]",
    about: "An AG-UI agent on another machine.",
    keys: &[
        key("url", TEXT, "", "The URL that requests are posted to. Required."),
        key("headers", SECRETS, "", "Headers of every request."),
        key(
            "silence",
            TIME,
            "`\"2m\"`",
            "How long the agent may send nothing, not even a comment, before the run fails.",
        ),
        key(
            "resumable",
            YES_NO,
            "`false`",
            "Whether a request that names a known run attaches to it, and `URL/runs/RUN/cancel` \
             stops it, as on a Wellspring server. A run then survives a lost connection.",
        ),
    ],
};

pub(crate) const OPENCLAW: Table = Table {
    title: "[agents.NAME.openclaw]",
    about: "An agent of an OpenClaw gateway.",
    keys: &[
        key("url", TEXT, "", "The gateway's WebSocket: `ws://` or `wss://`. Required."),
        key("token_env", TEXT, "", "The variable that has the gateway's token."),
        key("password_env", TEXT, "", "The variable that has the gateway's password."),
        key(
            "identity",
            PATH,
            "none",
            "The file with this device's key. It is made if it is not there. Gateways on other \
             machines need one, and must approve it.",
        ),
        key("agent", TEXT, "`\"main\"`", "The gateway's agent."),
        key(
            "idle",
            TIME,
            "`\"2m\"`",
            "How long a run may say nothing. Then it is aborted and fails.",
        ),
    ],
};

pub(crate) const DIFY: Table = Table {
    title: "[agents.NAME.dify]",
    about: "An app of Dify.",
    keys: &[
        key("url", TEXT, "", "The API's URL, such as `https://api.dify.ai/v1`. Required."),
        key("key_env", TEXT, "", "The variable that has the app's key. Required."),
        key(
            "app",
            "`\"chat\"` (also agents and chatflows), `\"completion\"` or `\"workflow\"`",
            "`\"chat\"`",
            "The kind of the app.",
        ),
        key(
            "input",
            TEXT,
            "`\"query\"`",
            "The variable that a workflow or a completion app gets the text in.",
        ),
        key(
            "silence",
            TIME,
            "`\"2m\"`",
            "How long the app may send nothing, not even a ping, before the run fails.",
        ),
    ],
};

pub(crate) const ACP: Table = Table {
    title: "[agents.NAME.acp]",
    about: "An ACP agent with options.",
    keys: &[
        key(
            "agent",
            "a name such as `\"claude\"`, a command line, or a URL (`http`, `https`, `ws`, `wss`)",
            "",
            "The agent.",
        ),
        key(
            "env",
            SECRETS,
            "",
            "Environment variables of its process, in addition to `PATH`, `HOME`, a few others, and those that a known agent needs.",
        ),
        key("env_remove", TEXTS, "", "Default environment variables to remove."),
        key("headers", SECRETS, "", "Headers of every request to its URL."),
        key("cwd", PATH, "the current directory", "Working directory, unless the request has one."),
        key("mode", TEXT, "its own", "Mode of its sessions."),
        key(
            "files",
            "`\"write\"`, `\"read\"` or `\"none\"`",
            "`\"write\"`",
            "Access to files below its working directory, through us.",
        ),
        key("terminals", YES_NO, "`true`", "Whether it may run commands through us."),
        key(
            "sessions_per_process",
            POSITIVE,
            "32",
            "Concurrent prompts per process. Beyond that, another process is started.",
        ),
    ],
};

pub(crate) const MCP: Table = Table {
    title: "[mcp.NAME]",
    about: "An MCP server: a command, or a URL.",
    keys: &[
        key("command", TEXT, "", "Program to start. Either `command` or `url` is required."),
        key("args", TEXTS, "", "Its arguments."),
        key(
            "env",
            SECRETS,
            "",
            "Environment variables, in addition to `PATH`, `HOME` and a few others.",
        ),
        key(
            "cwd",
            PATH,
            "the current directory",
            "Working directory. It is also the server's root.",
        ),
        key(
            "url",
            "a URL such as `\"https://mcp.example.com/mcp\"`",
            "",
            "URL of a server over streamable HTTP.",
        ),
        key("headers", SECRETS, "", "Headers of every request to the URL."),
        key("prefix", TEXT, "its name", "Prefix of its tools' names."),
        key("allow", TEXTS, "all", "Tools to use, by the server's own names."),
        key("deny", TEXTS, "", "Tools not to use."),
        key(
            "approval",
            "a table of tools, each `\"allow\"`, `\"ask\"` or `\"deny\"`",
            "",
            "Approval per tool. Overrides the server's own hints.",
        ),
        key(
            "approval_default",
            DECISION,
            "allow tools that only read, ask for others",
            "Approval of all other tools.",
        ),
        key(
            "resources",
            YES_NO,
            "`false`",
            "Whether to add two tools that list and read its resources.",
        ),
        key("startup_timeout", TIME, "`\"60s\"`", "Until the server is initialized."),
        key("request_timeout", TIME, "`\"30s\"`", "Requests other than tool calls."),
        key("call_timeout", TIME, "the agent's `tool_total`", "A tool call."),
        key("idle_timeout", TIME, "the agent's `tool_idle`", "A tool call without progress."),
    ],
};
