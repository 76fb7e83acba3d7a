//! Agents: in `wellspring.toml`, or one per Markdown file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value as Json;
use wellspring_acp::client::AcpConfig;
use wellspring_core::{ModelSettings, ToolChoice, ToolMode};
use wellspring_engine::schema::Schema;
use wellspring_engine::tools::egress::Range;
use wellspring_engine::{Editors, Limits, Policy, QueueRule, Rule, Timeouts, ToolOrder, WhenBusy};
use wellspring_mcp::McpConfig;
use wellspring_remote::ag_ui::AgUiConfig;

use super::did_you_mean::did_you_mean;
use super::mcp::{DECISIONS, mcp};
use super::provider::{ModelRef, ProviderConfig, above_zero, model_ref, thinking};
use super::remote_agent::{DifyRef, OpenClawRef, acp, ag_ui, dify, openclaw};
use super::section::{Item, Section, Source, read_file, text};
use super::value::{Member, Node, Value};

/// Maximum size of a schema file in bytes: the size that a model can still read.
pub(super) const SCHEMA_BYTES_MAX: u64 = 256 * 1024;

/// Maximum letters of an agent's name, which appears in paths and lists.
pub(super) const NAME_CHARS_MAX: usize = 64;

const MODES: [(&str, ToolMode); 2] =
    [("parallel", ToolMode::Parallel), ("sequential", ToolMode::Sequential)];

/// The configuration of an agent.
#[derive(Debug)]
pub(crate) struct AgentConfig {
    pub(crate) name: Box<str>,
    /// Its place in the configuration, for later error messages.
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) description: Box<str>,
    pub(crate) instructions: Box<str>,
    pub(crate) backend: BackendConfig,
    pub(crate) allow_model: bool,
    pub(crate) streaming: bool,
    pub(crate) settings: ModelSettings,
    pub(crate) tools: Vec<BuiltInTool>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) variables: Vec<Box<str>>,
    pub(crate) sandbox: Option<SandboxConfig>,
    pub(crate) allow_addresses: Vec<Range>,
    pub(crate) mcp: Vec<McpConfig>,
    pub(crate) queue: ToolMode,
    pub(crate) tool_order: ToolOrder,
    pub(crate) queue_rules: BTreeMap<Box<str>, QueueRule>,
    pub(crate) policy: Policy,
    pub(crate) approvers: Vec<Box<str>>,
    pub(crate) editors: Editors,
    pub(crate) sub_agents: Vec<Box<str>>,
    pub(crate) output: Option<Json>,
    pub(crate) when_busy: WhenBusy,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
}

/// What the agent's commands can access.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SandboxConfig {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) network: bool,
}

/// The backend of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BackendConfig {
    /// A model, and its fallbacks.
    Models(Vec<ModelRef>),
    /// An external agent.
    Acp(Box<AcpConfig>),
    /// An agent on another machine that speaks AG-UI.
    AgUi(Box<AgUiConfig>),
    /// An agent of an OpenClaw gateway.
    OpenClaw(Box<OpenClawRef>),
    /// An app of Dify.
    Dify(Box<DifyRef>),
}

/// The built-in tools, by the names that models see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BuiltInTool {
    AskUser,
    Clock,
    FileTransfer,
    ListFiles,
    LlmCall,
    ReadFile,
    SearchFiles,
    Shell,
    UpdatePlan,
}

pub(crate) const TOOLS: [(&str, BuiltInTool); 9] = [
    ("ask_user", BuiltInTool::AskUser),
    ("clock", BuiltInTool::Clock),
    ("FileTransfer", BuiltInTool::FileTransfer),
    ("list_files", BuiltInTool::ListFiles),
    ("llm_call", BuiltInTool::LlmCall),
    ("read_file", BuiltInTool::ReadFile),
    ("run_shell_command", BuiltInTool::Shell),
    ("search_files", BuiltInTool::SearchFiles),
    ("update_plan", BuiltInTool::UpdatePlan),
];

/// The names that an agent may refer to.
pub(crate) struct Known<'a> {
    pub(crate) providers: &'a BTreeMap<Box<str>, ProviderConfig>,
    pub(crate) mcp: &'a BTreeMap<Box<str>, McpConfig>,
}

/// The source of an agent's instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instructions<'a> {
    /// The key `instructions`.
    Key,
    /// The text below the front matter.
    Body(&'a str),
}

/// Reads an agent.
pub(crate) fn agent(
    source: &Source<'_>,
    name: &str,
    node: &Node,
    title: &str,
    instructions: Instructions<'_>,
    known: &Known<'_>,
) -> Option<AgentConfig> {
    let section = Section::open(source, node, "[agents.NAME]", title);
    let legal = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || !name.chars().all(legal) {
        let what = format!("{name:?} cannot be an agent's name");
        let remedy = format!("use up to {NAME_CHARS_MAX} letters, digits, dashes and dots");
        source.complain(section.line, what, remedy);
    }
    let written = section.text("instructions");
    let instructions = match (instructions, section.get("instructions")) {
        (Instructions::Body(_), Some(item)) => {
            let what = format!("`instructions` in {title}: the text of the file is used instead");
            source.complain(item.node.line, what, "move them below the front matter");
            ""
        }
        (Instructions::Body(body), None) => body,
        (Instructions::Key, _) => written.unwrap_or_default(),
    };
    let default_limits = Limits::default();
    let default_timeouts = Timeouts::default();
    let agent = AgentConfig {
        name: name.into(),
        file: source.file.clone(),
        line: section.line,
        description: section.text("description").unwrap_or_default().into(),
        instructions: instructions.into(),
        backend: backend(&section, known)?,
        allow_model: section.bool("allow_model").unwrap_or_default(),
        streaming: section.bool("streaming").unwrap_or(true),
        settings: settings(&section),
        tools: tools(&section),
        directory: directory(&section),
        variables: section.texts("variables").unwrap_or_default(),
        sandbox: section.sub("sandbox").map(sandbox),
        allow_addresses: addresses(&section),
        mcp: servers(&section, known),
        queue: section.word("queue", &MODES).unwrap_or_default(),
        tool_order: section
            .word(
                "tool_order",
                &[("as_called", ToolOrder::AsCalled), ("parallel_first", ToolOrder::ParallelFirst)],
            )
            .unwrap_or_default(),
        queue_rules: queue_rules(&section),
        policy: policy(&section),
        approvers: section.texts("approvers").unwrap_or_default(),
        editors: editors(&section),
        sub_agents: section.texts("sub_agents").unwrap_or_default(),
        output: output(&section),
        when_busy: section
            .word(
                "when_busy",
                &[
                    ("refuse", WhenBusy::Refuse),
                    ("queue", WhenBusy::Queue),
                    ("steer", WhenBusy::Steer),
                ],
            )
            .unwrap_or_default(),
        limits: section.sub("limits").map_or(default_limits, limits),
        timeouts: section.sub("timeouts").map_or(default_timeouts, timeouts),
    };
    section.done();
    Some(agent)
}

/// The keys for the backend of an agent. An agent has exactly one of them.
const BACKENDS: [&str; 5] = ["model", "acp", "ag_ui", "openclaw", "dify"];

fn backend(section: &Section<'_>, known: &Known<'_>) -> Option<BackendConfig> {
    for (at, key) in BACKENDS.iter().enumerate() {
        for other in &BACKENDS[at + 1..] {
            section.not_both(key, other);
        }
    }
    let reference = |node: &Node, item| {
        if text(node).is_none() {
            section.wrong(item);
        }
        model_ref(section.source, node, &section.title, known.providers)
    };
    let mut models = Vec::new();
    if let Some(item) = section.get("model") {
        models.extend(reference(item.node, item));
    }
    if let Some(item) = section.get("fallback") {
        if let Value::List(nodes) = &item.node.value {
            models.extend(nodes.iter().filter_map(|node| reference(node, item)));
        } else {
            section.wrong(item);
        }
        if section.get("model").is_none() {
            let what = format!("{} has a `fallback` but no `model`", section.title);
            section.source.complain(item.node.line, what, "set `model` to the first one");
        }
    }
    if let Some(item) = section.get("ag_ui") {
        return ag_ui(section, item.node).map(Box::new).map(BackendConfig::AgUi);
    }
    if let Some(item) = section.get("openclaw") {
        return openclaw(section, item.node).map(Box::new).map(BackendConfig::OpenClaw);
    }
    if let Some(item) = section.get("dify") {
        return dify(section, item.node).map(Box::new).map(BackendConfig::Dify);
    }
    match section.get("acp") {
        Some(item) => acp(section, item.node).map(Box::new).map(BackendConfig::Acp),
        None => {
            if section.get("model").is_none() {
                let names: Vec<&str> = known.providers.keys().map(|name| &**name).collect();
                let what = format!("{} has no model", section.title);
                let remedy = format!(
                    "set `model` to PROVIDER/MODEL, with a provider of {}; or {}",
                    names.join(", "),
                    BACKENDS[1..]
                        .iter()
                        .map(|key| format!("`{key}`"))
                        .collect::<Vec<_>>()
                        .join(" or ")
                );
                section.source.complain(section.line, what, remedy);
            }
            // A problem is recorded, so this value is never used.
            Some(BackendConfig::Models(models))
        }
    }
}

fn settings(section: &Section<'_>) -> ModelSettings {
    let default = ModelSettings::default();
    let tool_choice = section.text("tool_choice").map(|word| match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        tool => ToolChoice::Tool(tool.into()),
    });
    #[expect(clippy::cast_possible_truncation, reason = "a temperature has two digits")]
    let temperature = section.float("temperature").map(|value| value as f32);
    ModelSettings {
        max_output_tokens: section.number("max_output_tokens").unwrap_or(default.max_output_tokens),
        temperature,
        stop_sequences: section
            .texts("stop_sequences")
            .unwrap_or_default()
            .into_iter()
            .map(String::from)
            .collect(),
        thinking: thinking(section),
        tool_choice: tool_choice.unwrap_or(default.tool_choice),
        // The schema of a run's result is the agent's `output`, against which the engine validates
        // it.
        output: None,
        extra: object(section, "extra"),
    }
}

/// A table that is passed on unchanged.
fn object(section: &Section<'_>, name: &'static str) -> Option<Json> {
    let item = section.get(name)?;
    if matches!(item.node.value, Value::Table(_)) {
        return Some(item.node.json());
    }
    section.wrong(item);
    None
}

fn tools(section: &Section<'_>) -> Vec<BuiltInTool> {
    let mut tools = Vec::new();
    let names: Vec<_> = TOOLS.iter().map(|(name, _)| *name).collect();
    for name in section.texts("tools").unwrap_or_default() {
        match TOOLS.iter().find(|(known, _)| **known == *name) {
            Some((_, tool)) if tools.contains(tool) => {}
            Some((_, tool)) => tools.push(*tool),
            None => {
                let line = section.get("tools").map(|item| item.node.line);
                let what =
                    format!("{} names the tool {name:?}, which is not built in", section.title);
                section.source.complain(line, what, did_you_mean(&name, &names));
            }
        }
    }
    tools
}

fn directory(section: &Section<'_>) -> Option<PathBuf> {
    let directory = section.path("directory")?;
    if !directory.is_dir() {
        let line = section.get("directory").map(|item| item.node.line);
        let what = format!("there is no directory {}", directory.display());
        section.source.complain(line, what, "create it, or choose another one");
    }
    Some(directory)
}

fn addresses(section: &Section<'_>) -> Vec<Range> {
    let mut ranges = Vec::new();
    for range in section.texts("allow_addresses").unwrap_or_default() {
        match range.parse() {
            Ok(range) => ranges.push(range),
            Err(_) => {
                if let Some(item) = section.get("allow_addresses") {
                    section.wrong(item);
                }
            }
        }
    }
    ranges
}

fn servers(section: &Section<'_>, known: &Known<'_>) -> Vec<McpConfig> {
    let Some(item) = section.get("mcp") else { return Vec::new() };
    let servers = named_or_inline(section, item, known);
    let mut prefixes = BTreeSet::new();
    for server in &servers {
        if !prefixes.insert(server.prefix.as_ref().unwrap_or(&server.name)) {
            let what = format!("two MCP servers of {} have the same name or prefix", section.title);
            let remedy = format!("set another `prefix` for {}", server.name);
            section.source.complain(item.node.line, what, remedy);
        }
    }
    servers
}

fn named_or_inline(section: &Section<'_>, item: Item<'_>, known: &Known<'_>) -> Vec<McpConfig> {
    if let Value::Table(members) = &item.node.value {
        let title = |member: &Member| format!("`mcp.{}` in {}", member.name, section.title);
        let server = |member| mcp(section.source, member, &title(member));
        return members.iter().filter_map(server).collect();
    }
    let mut servers = Vec::new();
    for name in section.texts("mcp").unwrap_or_default() {
        match known.mcp.get(&name) {
            Some(server) => servers.push(server.clone()),
            None => {
                let names: Vec<&str> = known.mcp.keys().map(|name| &**name).collect();
                let what = format!(
                    "{} names the MCP server {name:?}, which is not configured",
                    section.title
                );
                let remedy = format!(
                    "{} (add [mcp.{name}] to wellspring.toml)",
                    did_you_mean(&name, &names)
                );
                section.source.complain(item.node.line, what, remedy);
            }
        }
    }
    servers
}

fn queue_rules(section: &Section<'_>) -> BTreeMap<Box<str>, QueueRule> {
    let mut rules = BTreeMap::new();
    for (member, title) in section.named("queue_rules") {
        let rule =
            Section::open(section.source, &member.node, "[agents.NAME.queue_rules.TOOL]", title);
        let mode = rule.word("mode", &MODES);
        let priority = rule.number("priority");
        rule.done();
        rules.insert(member.name.as_str().into(), QueueRule { mode, priority });
    }
    rules
}

fn policy(section: &Section<'_>) -> Policy {
    let mut policy = Policy::default();
    let Some(item) = section.get("approval") else { return policy };
    let Value::List(nodes) = &item.node.value else {
        section.wrong(item);
        return policy;
    };
    for node in nodes {
        let title = format!("a rule of `approval` in {}", section.title);
        let rule = Section::open(section.source, node, "[[agents.NAME.approval]]", title);
        let mut read = Rule::tool(rule.text("tool").unwrap_or("*"));
        if let Some(decision) = rule.word("decide", &DECISIONS) {
            read = read.decide(decision);
        }
        if let Some(item) = rule.get("arguments") {
            read = patterns(&rule, item, read);
        }
        rule.done();
        policy = policy.rule(read);
    }
    policy
}

/// Adds a rule's patterns for arguments: by name, a pattern, or `{ raw = PATTERN }`.
fn patterns(section: &Section<'_>, item: Item<'_>, mut rule: Rule) -> Rule {
    let Value::Table(members) = &item.node.value else {
        section.wrong(item);
        return rule;
    };
    for member in members {
        let raw = match &member.node.value {
            Value::Table(inner) => match inner.as_slice() {
                [only] if only.name == "raw" => text(&only.node),
                _ => None,
            },
            Value::Nothing
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => None,
        };
        let with = match (text(&member.node), raw) {
            (Some(pattern), _) => rule.clone().argument(&*member.name, pattern),
            (None, Some(pattern)) => rule.clone().raw_argument(&*member.name, pattern),
            (None, None) => {
                section.wrong(item);
                continue;
            }
        };
        match with {
            Ok(with) => rule = with,
            Err(error) => {
                let remedy = "write it as Rust's `regex` reads it; a backslash is doubled within \
                              double quotes, and not within single ones";
                section.source.complain(member.node.line, error.to_string(), remedy);
            }
        }
    }
    rule
}

fn editors(section: &Section<'_>) -> Editors {
    let Some(item) = section.get("editors") else { return Editors::default() };
    match text(item.node) {
        Some("approvers") => Editors::Approvers,
        Some("nobody") => Editors::Nobody,
        Some(_) => {
            section.wrong(item);
            Editors::Nobody
        }
        None => section.texts("editors").map_or(Editors::Nobody, Editors::Named),
    }
}

fn output(section: &Section<'_>) -> Option<Json> {
    section.not_both("output", "output_file");
    let inline = object(section, "output");
    let (schema, line) = match (inline, section.path("output_file")) {
        (Some(schema), _) => (schema, section.get("output")?.node.line),
        (None, None) => return None,
        (None, Some(path)) => {
            let line = section.get("output_file")?.node.line;
            let read = read_file(&path, SCHEMA_BYTES_MAX);
            let read = read.and_then(|text| {
                serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))
            });
            match read {
                Ok(schema) => (schema, line),
                Err(error) => {
                    let what = format!("the schema {} cannot be used: {error}", path.display());
                    section.source.complain(line, what, "create it, or set another file");
                    return None;
                }
            }
        }
    };
    if let Err(error) = Schema::compile(&schema) {
        let what = format!("the schema of {}'s result cannot be used: {error}", section.title);
        section.source.complain(line, what, "use a JSON Schema without external references");
    }
    Some(schema)
}

fn limits(section: Section<'_>) -> Limits {
    let default = Limits::default();
    let limits = Limits {
        turns: section.number("turns").unwrap_or(default.turns),
        tokens: section.number("tokens"),
        cost: section.float("cost"),
        time: section.duration("time"),
        tools_at_once: above_zero(&section, "tools_at_once").unwrap_or(default.tools_at_once),
        attempts: above_zero(&section, "attempts").unwrap_or(default.attempts),
        retries: section.number("retries").unwrap_or(default.retries),
        repairs: section.number("repairs").unwrap_or(default.repairs),
    };
    section.done();
    limits
}

fn sandbox(section: Section<'_>) -> SandboxConfig {
    let paths = |name| {
        let paths = section.texts(name).unwrap_or_default();
        paths.iter().map(|path| section.source.path(path)).collect()
    };
    let sandbox = SandboxConfig {
        read: paths("read"),
        write: paths("write"),
        network: section.bool("network").unwrap_or_default(),
    };
    section.done();
    sandbox
}

fn timeouts(section: Section<'_>) -> Timeouts {
    let default = Timeouts::default();
    let timeouts = Timeouts {
        connect: section.duration("connect").unwrap_or(default.connect),
        first_content: section.duration("first_content").unwrap_or(default.first_content),
        whole_answer: section.duration("whole_answer").unwrap_or(default.whole_answer),
        between_chunks: section.duration("between_chunks").unwrap_or(default.between_chunks),
        turn: section.duration("turn").unwrap_or(default.turn),
        tool_idle: section.duration("tool_idle").unwrap_or(default.tool_idle),
        tool_total: section.duration("tool_total").unwrap_or(default.tool_total),
        run: section.duration("run").unwrap_or(default.run),
        question: section.duration("question").unwrap_or(default.question),
        client_call: section.duration("client_call").unwrap_or(default.client_call),
        cancel_grace: section.duration("cancel_grace").unwrap_or(default.cancel_grace),
    };
    section.done();
    timeouts
}
