//! `cargo xtask record`: what the servers of others send, kept as fixtures.

use std::process::ExitCode;

use crate::peers::{AIMOCK, LLAMA, Plan};
use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// What `cargo xtask record` can be told.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Options {}

const SCRIPT: &str = "crates/wellspring-models/tests/peer/record.py";
const FOLDER: &str = "crates/wellspring-wire/fixtures/recorded";

/// Sets the servers up and records them anew; what changed is for a person to look at.
///
/// # Errors
///
/// When a command cannot be started.
pub fn run(_: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut runner = Runner::default();
    let done = record(&workspace, &mut runner)?;
    Ok(runner.finish(done))
}

fn record(workspace: &Workspace, runner: &mut Runner) -> anyhow::Result<bool> {
    for peer in [AIMOCK, LLAMA] {
        match peer.plan(true) {
            Plan::Use { setup, .. } => {
                if !runner.step(&setup.folder(&workspace.root))? {
                    return Ok(false);
                }
            }
            Plan::Skip(why) | Plan::Missing(why) => {
                runner.failed(&format!("peer {}", peer.name), &why);
                return Ok(false);
            }
        }
    }
    runner.step(&Step::new("record", "python3", [SCRIPT, FOLDER]).folder(&workspace.root))
}
