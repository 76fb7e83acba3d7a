//! The command line of `cargo xtask`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{acp_agents, bench, openclaw, pictures, record, release, soak, test};

/// Workspace tasks beyond plain cargo.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs everything that CI runs, and stops at the first failure.
    Test(test::Options),
    /// Runs the tests in their long versions, optimised.
    Soak(soak::Options),
    /// Runs every bench and prints the figures in one table.
    Bench(bench::Options),
    /// Records the responses of real servers again, as fixtures.
    Record(record::Options),
    /// Runs the real ACP agents, offline, and prints a table of the outcomes.
    AcpAgents(acp_agents::Options),
    /// Runs a real OpenClaw gateway, offline, through all scenarios.
    Openclaw(openclaw::Options),
    /// Checks what is to be published: dependencies, interfaces, packages. It publishes nothing.
    Release(release::Options),
    /// Makes the pictures of a chat that the documentation shows. Needs Chromium.
    Pictures(pictures::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Record(options) => record::run(&options),
        Command::AcpAgents(options) => acp_agents::run(&options),
        Command::Openclaw(options) => openclaw::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Pictures(options) => pictures::run(&options),
    }
}
