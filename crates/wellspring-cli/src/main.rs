//! The command `wellspring`: agents in the terminal.
//!
//! It wires the engine, a store and the terminal together, and owns nothing that another
//! crate could. What a run looks like is the pure part (`screen`, `text`, `prompt`); what
//! touches the terminal is thin (`view`, `paint`, `follow`).
//!
//! Exit codes: 0 completed, 1 failed, 2 usage, 130 cancelled, 141 output closed.

mod acp;
mod agents;
mod approvals;
mod args;
mod channels;
mod chat;
mod config;
mod demo;
mod doctor;
mod follow;
mod init;
mod launch;
mod mcp;
mod models;
mod output;
mod paint;
mod prompt;
mod provider;
mod run;
mod runs;
mod screen;
mod serve;
mod setup;
mod short_id;
mod signals;
mod store;
mod telemetry;
mod text;
mod token;
mod tools;
mod typed_lines;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};

use crate::telemetry::{LogUnlessAsked, Telemetry};
use args::{Cli, Command, ServeArgs};
use config::Config;
use setup::{Missing, Setup};

/// How long tasks may take to end after the command: enough to kill their child processes.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// The exit status of the command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Completed,
    Failed,
    Cancelled,
    /// The exit code of a child process, which it passes on.
    Code(u8),
}

/// The command was used wrongly; the message says how to use it.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prevents other processes of the same user from reading this process's memory and environment
/// (`/proc/PID`), which hold keys. A debugger then needs to run as root.
fn keep_secrets() {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "children may read this process's environment");
    }
}

fn main() -> ExitCode {
    keep_secrets();
    let cli = Cli::parse();
    let telemetry = match telemetry(&cli) {
        Ok(telemetry) => telemetry,
        Err(error) => return complain(&error),
    };
    let runtime = match wellspring_server::threads() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error.into()),
    };
    let done = runtime.block_on(command(cli));
    // Dropping tasks kills their child processes; `exit` alone would leave those running.
    runtime.shutdown_timeout(SHUTDOWN);
    telemetry.finish();
    match done {
        Ok(Exit::Completed) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Ok(Exit::Cancelled) => ExitCode::from(130),
        Ok(Exit::Code(code)) => ExitCode::from(code),
        Err(error) => complain(&error),
    }
}

/// Starts logging. Errors in the telemetry configuration are reported by the command itself.
fn telemetry(cli: &Cli) -> Result<Telemetry> {
    let runs_agents = matches!(
        cli.command,
        None | Some(
            Command::Run(_)
                | Command::Chat(_)
                | Command::Acp(_)
                | Command::Serve(_)
                | Command::Runs(_)
        )
    );
    let config = if runs_agents { Config::load(cli.setup.config.as_deref()).ok() } else { None };
    let unless_asked = match cli.command {
        None | Some(Command::Serve(_)) => LogUnlessAsked::Requests,
        Some(_) => LogUnlessAsked::Nothing,
    };
    telemetry::init(&config.map(|config| config.telemetry).unwrap_or_default(), unless_asked)
}

async fn command(cli: Cli) -> Result<Exit> {
    let alone = cli.serve;
    if !matches!(cli.command, None | Some(Command::Serve(_))) && alone != ServeArgs::default() {
        let what =
            "--listen, --host, --cors and --drain are for `wellspring` alone and for `serve`";
        anyhow::bail!(Usage(what.into()));
    }
    let open = || Setup::open(&cli.setup, Missing::Make);
    match cli.command {
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "wellspring", &mut script);
            std::io::stdout().write_all(&script)?;
            Ok(Exit::Completed)
        }
        Some(Command::McpBridge { url, token }) => {
            wellspring_mcp::bridge(&url, &token, tokio::io::stdin(), tokio::io::stdout()).await?;
            Ok(Exit::Completed)
        }
        Some(Command::Launch(args)) => Ok(Exit::Code(launch::launch(&args))),
        Some(Command::Run(args)) => run::run(&open().await?, args).await,
        Some(Command::Chat(args)) => chat::chat(&open().await?, args).await,
        Some(Command::Runs(args)) => {
            let setup = Setup::open(&cli.setup, Missing::AsEmpty).await?;
            runs::runs(&setup.in_tenant(args.tenant), args.command).await
        }
        Some(Command::Acp(args)) => acp::acp(&open().await?, &args).await,
        Some(Command::Serve(args)) => serve::serve(&open().await?, alone.and(args)).await,
        Some(Command::Token(command)) => token::token(&open().await?, command).await,
        Some(Command::Approvals(command)) => approvals::approvals(&open().await?, command).await,
        Some(Command::Channels(command)) => channels::channels(&open().await?, command).await,
        Some(Command::Backup { file }) => {
            store::backup(&Setup::open(&cli.setup, Missing::Refuse).await?, file).await
        }
        Some(Command::StoreUpkeep(command)) => store::store(&cli.setup, command).await,
        Some(Command::Init(args)) => init::init(&args),
        Some(Command::Doctor { json }) => doctor::doctor(&cli.setup, json).await,
        Some(Command::Models { provider, json }) => {
            models::models(&cli.setup, provider.as_deref(), json).await
        }
        None => serve::serve(&open().await?, alone).await,
    }
}

#[expect(clippy::print_stderr, reason = "a command talks to people there")]
fn complain(error: &anyhow::Error) -> ExitCode {
    // Only a failed write to our own output has no context. Its reader, such as `head`, has closed
    // it, so this is not reported as an error.
    let output = error.downcast_ref::<io::Error>();
    if output.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::from(141);
    }
    eprintln!("wellspring: {error:#}");
    let usage = error.is::<Usage>() || error.is::<config::problem::Problems>();
    ExitCode::from(if usage { 2 } else { 1 })
}
