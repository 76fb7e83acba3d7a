//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use wellspring_wire::DialectName;

/// One typed stream from any agent to any screen.
#[derive(Debug, Parser)]
#[command(name = "wellspring", version, about, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// For `wellspring` without a subcommand, which starts the server.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const EXAMPLES: &str = "Examples:\n  \
    wellspring                              start the server with the web page and the API\n  \
    wellspring run \"what is here?\"          ask the default agent\n  \
    wellspring run --agent demo \"hello\"     run the demo agent, which needs no key\n  \
    wellspring run --json --yes \"hello\"     print only the result, for scripts\n  \
    wellspring chat                         chat with an agent in the terminal\n  \
    wellspring init                         create a configuration file and an agent\n  \
    wellspring doctor                       check that everything works\n  \
    wellspring runs list                    list earlier runs\n  \
    wellspring runs replay last --speed 3   replay the last run at three times its speed";

/// The configuration and the data directory.
#[derive(Args, Clone, Debug)]
pub(crate) struct SetupArgs {
    /// Configuration file [default: `wellspring.toml` in the current directory, or in your
    /// configuration directory].
    #[arg(long, global = true, env = "WELLSPRING_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory that runs are stored in.
    #[arg(long, global = true, env = "WELLSPRING_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What stored events survive.
    #[arg(long, global = true, value_enum)]
    pub(crate) durability: Option<DurabilityArg>,
    /// Store nothing on disk: runs are lost when the process ends.
    #[arg(long, global = true)]
    pub(crate) ephemeral: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// A crash of the process.
    ProcessCrash,
    /// A power loss too. Every write waits for the disk.
    PowerLoss,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask an agent and show its work.
    Run(RunArgs),
    /// Chat with an agent, line by line. Ctrl-D exits.
    Chat(ChatArgs),
    /// List, show and manage runs, including running ones.
    Runs(RunsArgs),
    /// Serve the agents over HTTP, with a web page.
    Serve(ServeArgs),
    /// Run as an ACP agent on standard input and output, for editors.
    Acp(AcpArgs),
    /// Create, list and revoke access tokens for the server.
    #[command(subcommand)]
    Token(TokenCommand),
    /// List and revoke standing approvals of tool calls.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// List bots in chat networks, and decide who may use them.
    #[command(subcommand)]
    Channels(ChannelsCommand),
    /// Create a first configuration: `wellspring.toml` and an agent.
    Init(InitArgs),
    /// Check that everything works, and suggest fixes.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the models of the configured providers.
    Models {
        /// Only the models of this provider.
        provider: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check the store for damage, and delete damaged runs.
    #[command(subcommand, name = "store")]
    StoreUpkeep(StoreCommand),
    /// Copy all runs to a new file, also while runs are active. Damage is copied as it is and
    /// reported, and the exit status is then 1.
    Backup {
        /// File to create.
        file: PathBuf,
    },
    /// Bridge our tools to an agent that supports MCP servers over stdio only. The agent starts
    /// it; the environment holds the address.
    #[command(hide = true)]
    McpBridge {
        /// Address of the MCP server.
        #[arg(long, env = "WELLSPRING_MCP_URL", hide_env_values = true)]
        url: String,
        /// Token for the MCP server.
        #[arg(long, env = "WELLSPRING_MCP_TOKEN", hide_env_values = true)]
        token: String,
    },
    /// Start a command of the shell tool. The command is killed if the server dies.
    #[command(hide = true)]
    Launch(LaunchArgs),
    /// Print shell completions.
    Completions { shell: Shell },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LaunchArgs {
    /// Run the command in a sandbox that allows its directory and what the other options list.
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// Path that it can read, in addition to programs and libraries.
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// Path that it can read and change.
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// Allow network access.
    #[arg(long)]
    pub(crate) network: bool,
    /// The command line.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct ServeArgs {
    /// Address to listen on [default: 127.0.0.1:7600]. Non-loopback addresses require a token.
    /// [env: WELLSPRING_LISTEN=]
    #[arg(long)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Host name that clients use, such as `agents.example.com`. Can be repeated.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<Box<str>>,
    /// Origin whose pages may call the server, such as `https://app.example.com`. Can be
    /// repeated.
    #[arg(long = "cors", value_name = "ORIGIN")]
    pub(crate) cors: Vec<Box<str>>,
    /// Seconds to let runs finish during shutdown [default: 20].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain: Option<u64>,
}

impl ServeArgs {
    /// Combines the options before the subcommand with those after it, which win.
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
    /// Directory to write to.
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Overwrite existing files.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AcpArgs {
    /// Agent of new sessions. The other agents are offered as session modes.
    #[arg(long)]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List standing approvals.
    List {
        /// Tenant.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
    },
    /// Revoke a standing approval.
    Revoke {
        /// Id, the first column of the list.
        id: String,
        /// Tenant.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
    },
}

/// What to do with the store.
/// A kind of store that keeps runs for good.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MigrateTo {
    /// A SQLite file in the data directory.
    Sqlite,
    /// A NATS stream.
    Nats,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check everything in the store. The exit status is 1 if anything is damaged.
    Check {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy everything to an empty store of another kind, and compare both. Stop all processes that
    /// use either store first. The original is not changed; to use the copy, change `kind` in
    /// `[store]`.
    Migrate {
        /// The kind of the store to copy to. The configuration says where it is: `directory` or
        /// `address` in `[store]`.
        #[arg(long, value_enum)]
        to: MigrateTo,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete a finished or damaged run of any tenant.
    Delete {
        /// The run's id.
        run: uuid::Uuid,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChannelsCommand {
    /// List the bots, who may use each, and who waits to be allowed.
    List,
    /// Let the person with this code use a bot.
    Pair {
        /// The bot's name in the configuration.
        channel: String,
        /// The code that the bot has told them.
        code: String,
    },
    /// Let a person use a bot, or everyone in a chat.
    Allow {
        /// The bot's name in the configuration.
        channel: String,
        /// The network's id of the person or of the chat.
        id: String,
        /// Withdraw the permission instead.
        #[arg(long)]
        revoke: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it. It cannot be shown again.
    Create {
        /// Name of the token: letters, digits and dashes.
        name: String,
        /// Tenant whose runs it gives access to.
        #[arg(long, default_value = wellspring_engine::DEFAULT_TENANT)]
        tenant: String,
        /// Permission: read, run, approve or admin. Can be repeated.
        #[arg(long = "scope", value_name = "SCOPE", default_values = ["read", "run", "approve"])]
        scopes: Vec<wellspring_engine::Permission>,
    },
    /// List tokens.
    List,
    /// Revoke a token.
    Revoke {
        /// Name of the token.
        name: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The prompt. Piped standard input is appended to it, or is the prompt if there is none.
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

/// The agent, and how to run it.
#[derive(Args, Debug)]
pub(crate) struct WhomArgs {
    /// Agent to run [default: the default agent of the configuration].
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Another model of the agent's provider, if the agent allows it.
    #[arg(long)]
    pub(crate) model: Option<Box<str>>,
    /// Thread to continue: an id, the start or end of one, or `last`.
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Request the model's answers without streaming.
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
    /// Approve every tool call.
    #[arg(long, short, conflicts_with = "no")]
    pub(crate) yes: bool,
    /// Decline every question and tool call.
    #[arg(long, short)]
    pub(crate) no: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// Tenant whose runs to use.
    #[arg(long, global = true, default_value = wellspring_engine::DEFAULT_TENANT)]
    pub(crate) tenant: String,
    #[command(subcommand)]
    pub(crate) command: Runs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first.
    List {
        /// Only runs in this state.
        #[arg(long, value_enum)]
        state: Option<StateArg>,
        /// Only runs of this agent.
        #[arg(long)]
        agent: Option<String>,
        /// Only runs of this thread.
        #[arg(long, value_name = "ID")]
        thread: Option<String>,
        /// Maximum number of runs.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a run.
    Show {
        /// Run id, the start or end of one, or `last`.
        id: String,
        /// Follow the run until it ends. Ctrl-C stops following; the run continues.
        #[arg(long, short)]
        follow: bool,
        /// Print JSON.
        #[arg(long, conflicts_with = "follow")]
        json: bool,
    },
    /// Replay a run.
    Replay {
        /// Run id, the start or end of one, or `last`.
        id: String,
        /// Speed factor, or `max`.
        #[arg(long, default_value = "1")]
        speed: Speed,
        /// Print events as JSON lines instead.
        #[arg(long, value_name = "DIALECT")]
        events: Option<DialectName>,
    },
    /// Cancel a run, in any process.
    Cancel {
        /// Run id, the start or end of one, or `last`.
        id: String,
        /// Reason, stored with the run.
        #[arg(long)]
        why: Option<String>,
    },
    /// Write a run to standard output.
    Export {
        /// Run id, the start or end of one, or `last`.
        id: String,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Continue a run that was interrupted or waits for an answer.
    Resume {
        /// Run id, the start or end of one, or `last`.
        id: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        answers: AnswerArgs,
    },
    /// Delete a finished run.
    Delete {
        /// Run id, the start or end of one, or `last`.
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
    /// One object with the run's metadata and its records.
    Json,
    /// A readable document.
    Markdown,
}

/// The speed of a replay.
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
            _ => Err("expected a number above zero, such as 2 or 0.5, or `max`".into()),
        }
    }
}
