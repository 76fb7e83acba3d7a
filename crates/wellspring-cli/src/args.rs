//! What one can type.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use wellspring_wire::DialectName;

/// One typed stream from any agent to any screen.
#[derive(Debug, Parser)]
#[command(name = "wellspring", version, about, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// For `wellspring` alone, which serves.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const EXAMPLES: &str = "Examples:\n  \
    wellspring                              serve the agents: a page, and an API\n  \
    wellspring run \"what is here?\"          ask an agent something, here\n  \
    wellspring run --agent demo \"hello\"     the demonstration, which needs no key\n  \
    wellspring run --json --yes \"hello\"     only the result, for a script\n  \
    wellspring chat                         a conversation in the terminal\n  \
    wellspring init                         write a configuration to begin with\n  \
    wellspring doctor                       look whether everything works\n  \
    wellspring runs list                    what ran so far\n  \
    wellspring runs replay last --speed 3   see it again, faster";

/// What is configured, and where runs are kept.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// The configuration: `wellspring.toml` here or in the user's own folder unless told.
    #[arg(long, global = true, env = "WELLSPRING_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The directory that runs are kept in.
    #[arg(long, global = true, env = "WELLSPRING_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What a record that was shown survives.
    #[arg(long, global = true, value_enum)]
    pub(crate) durability: Option<DurabilityArg>,
    /// Keep nothing: runs are gone with the process.
    #[arg(long, global = true)]
    pub(crate) ephemeral: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// The death of the process.
    ProcessCrash,
    /// The loss of power too; every append waits for the disk.
    PowerLoss,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask an agent something and watch it work.
    Run(RunArgs),
    /// Talk with an agent: one conversation, line by line. Ctrl-D leaves.
    Chat(ChatArgs),
    /// Look at runs, also while they go on.
    Runs(RunsArgs),
    /// Serve the agents over HTTP, with a page to talk to them.
    Serve(ServeArgs),
    /// Be an ACP agent on standard input and output, for an editor that starts it.
    Acp(AcpArgs),
    /// Make, list and revoke the tokens that let others use the server.
    #[command(subcommand)]
    Token(TokenCommand),
    /// List and revoke approvals that hold for longer than one call.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Write a configuration to begin with: wellspring.toml and an agent.
    Init(InitArgs),
    /// Look whether everything works, and say what to do where it does not.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the models that providers have.
    Models {
        /// Only those of this provider.
        provider: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy all runs to a new file, while they go on.
    Backup {
        /// The new file.
        file: PathBuf,
    },
    /// Carry our tools to an agent that takes MCP servers over stdio only. It is started by
    /// that agent, and told by its environment where the tools are.
    #[command(hide = true)]
    McpBridge {
        /// Where the tools are.
        #[arg(long, env = "WELLSPRING_MCP_URL", hide_env_values = true)]
        url: String,
        /// What lets one in there.
        #[arg(long, env = "WELLSPRING_MCP_TOKEN", hide_env_values = true)]
        token: String,
    },
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct ServeArgs {
    /// Where to listen, 127.0.0.1:7600 unless told. Elsewhere than on this machine it needs a
    /// token. [env: WELLSPRING_LISTEN=]
    #[arg(long)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// A name by which others reach it, such as `agents.example.com`.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<Box<str>>,
    /// An origin whose pages may talk to it, such as `https://app.example.com`.
    #[arg(long = "cors", value_name = "ORIGIN")]
    pub(crate) cors: Vec<Box<str>>,
    /// Seconds that runs may go on once it is told to stop, 20 unless told.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain: Option<u64>,
}

impl ServeArgs {
    /// What was said before the command and after it.
    pub(crate) fn and(mut self, more: Self) -> Self {
        self.listen = more.listen.or(self.listen);
        self.hosts.extend(more.hosts);
        self.cors.extend(more.cors);
        self.drain = more.drain.or(self.drain);
        self
    }
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Where to write it.
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Overwrite what is there.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AcpArgs {
    /// Who answers in a new session; the others are its modes.
    #[arg(long)]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the approvals that hold for longer than one call.
    List {
        /// Whose.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
    },
    /// Revoke one.
    Revoke {
        /// The first column of the list.
        id: String,
        /// Whose.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it. It is not shown again.
    Create {
        /// What to call it: letters, digits and dashes.
        name: String,
        /// Whose runs it sees.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
        /// What it allows: read, run, approve, admin.
        #[arg(long = "scope", value_name = "SCOPE", default_values = ["read", "run", "approve"])]
        scopes: Vec<wellspring_engine::Permission>,
    },
    /// List the tokens.
    List,
    /// Revoke a token.
    Revoke {
        /// What it is called.
        name: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// What to ask. Text that is piped into the command is added to it, or is the question itself.
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) whom: WhomArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) whom: WhomArgs,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

/// Who is asked, and how.
#[derive(Args, Debug)]
pub(crate) struct WhomArgs {
    /// Whom to ask: the default agent unless told.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Another model of the agent's provider, where the agent allows it.
    #[arg(long)]
    pub(crate) model: Option<Box<str>>,
    /// The conversation to go on with: an id, its beginning or end, or `last`.
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Let the model answer whole instead of word by word.
    #[arg(long)]
    pub(crate) no_stream: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Print only the result, as JSON.
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print events as JSON lines: record, thought_event, turn_event, streaming_event,
    /// agent_event, stream_delta, ag_ui or acp.
    #[arg(long, value_name = "DIALECT")]
    pub(crate) events: Option<DialectName>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct AnswerArgs {
    /// Say yes to every call that wants to be allowed.
    #[arg(long, short, conflicts_with = "no")]
    pub(crate) yes: bool,
    /// Say no to every question.
    #[arg(long, short)]
    pub(crate) no: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// The tenant whose runs to use.
    #[arg(long, global = true, default_value = wellspring_engine::DEFAULT_TENANT)]
    pub(crate) tenant: String,
    #[command(subcommand)]
    pub(crate) command: Runs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, the newest first.
    List {
        /// Only those in this state.
        #[arg(long, value_enum)]
        state: Option<StateArg>,
        /// Only those of this agent.
        #[arg(long)]
        agent: Option<String>,
        /// Only those of this conversation.
        #[arg(long, value_name = "ID")]
        thread: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a run as it stands.
    Show {
        /// An id, its beginning or end, or `last`.
        id: String,
        /// Stay until the run ends. Ctrl-C leaves it alone.
        #[arg(long, short)]
        follow: bool,
        /// As JSON.
        #[arg(long, conflicts_with = "follow")]
        json: bool,
    },
    /// Play a run again.
    Replay {
        /// An id, its beginning or end, or `last`.
        id: String,
        /// How much faster than it was, or `max`.
        #[arg(long, default_value = "1")]
        speed: Speed,
        /// Print events as JSON lines instead.
        #[arg(long, value_name = "DIALECT")]
        events: Option<DialectName>,
    },
    /// Stop a run, wherever it runs.
    Cancel {
        /// An id, its beginning or end, or `last`.
        id: String,
        /// Why; it becomes part of the run.
        #[arg(long)]
        why: Option<String>,
    },
    /// Write a run to standard output.
    Export {
        /// An id, its beginning or end, or `last`.
        id: String,
        /// In which form.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Go on with a run that lost its process, or waits for an answer.
    Resume {
        /// An id, its beginning or end, or `last`.
        id: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        answers: AnswerArgs,
    },
    /// Delete a run that is over.
    Delete {
        /// An id, its beginning or end, or `last`.
        id: String,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum StateArg {
    Running,
    Waiting,
    Interrupted,
    Completed,
    Cancelled,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// The records, one per line.
    #[default]
    Jsonl,
    /// What is known of the run, and its records.
    Json,
    /// For people.
    Markdown,
}

/// How fast a run is played again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    Times(f64),
    Max,
}

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<f64>() {
            _ if text == "max" => Ok(Self::Max),
            Ok(times) if times.is_finite() && times > 0.0 => Ok(Self::Times(times)),
            _ => Err("a speed is a number above zero, such as 2 or 0.5, or `max`".into()),
        }
    }
}
