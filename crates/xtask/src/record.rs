//! `cargo xtask record`: records the responses of real servers as fixtures.

use std::process::ExitCode;

use crate::peers::{AIMOCK, LLAMA, Plan};
use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask record`.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Options {}

const SCRIPT: &str = "crates/wellspring-models/tests/peer/record.py";
const FOLDER: &str = "crates/wellspring-wire/fixtures/recorded";

/// Starts the servers and records them again. Review the changes before you commit them.
///
/// # Errors
///
/// If a command cannot be started.
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
