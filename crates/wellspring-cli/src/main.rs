//! The command `wellspring`: agents in the terminal.
//!
//! It wires the engine, a store and the terminal together, and owns nothing that another
//! crate could. What a run looks like is the pure part (`screen`, `text`, `prompt`); what
//! touches the terminal is thin (`view`, `paint`, `follow`).
//!
//! Exit codes: 0 completed, 1 failed, 2 usage, 130 cancelled.

mod args;
mod find;
mod follow;
mod interrupt;
mod paint;
mod place;
mod prompt;
mod run;
mod runs;
mod screen;
mod serve;
mod text;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use place::Place;

/// How long tasks have to end after the command is done: enough to kill what they started.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// How the command ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Completed,
    Failed,
    Cancelled,
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("WELLSPRING_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error.into()),
    };
    let done = runtime.block_on(command(cli));
    // Tasks that are dropped kill what they started; `exit` alone would leave it behind.
    runtime.shutdown_timeout(SHUTDOWN);
    match done {
        Ok(Exit::Completed) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Ok(Exit::Cancelled) => ExitCode::from(130),
        Err(error) => complain(&error),
    }
}

async fn command(cli: Cli) -> Result<Exit> {
    match cli.command {
        Some(Command::Completions { shell }) => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "wellspring", &mut std::io::stdout());
            Ok(Exit::Completed)
        }
        Some(Command::McpBridge { url, token }) => {
            wellspring_mcp::bridge(&url, &token, tokio::io::stdin(), tokio::io::stdout()).await?;
            Ok(Exit::Completed)
        }
        Some(Command::Run(args)) => run::run(&Place::open(&cli.store)?, args).await,
        Some(Command::Runs(command)) => runs::runs(&Place::open(&cli.store)?, command).await,
        Some(Command::Serve(args)) => serve::serve(&Place::open(&cli.store)?, args).await,
        Some(Command::Token(command)) => serve::token(&Place::open(&cli.store)?, command).await,
        Some(Command::Backup { file }) => serve::backup(&Place::open(&cli.store)?, file).await,
        None => run::demo(&Place::open(&cli.store)?).await,
    }
}

#[expect(clippy::print_stderr, reason = "a command talks to people there")]
fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("wellspring: {error:#}");
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}
