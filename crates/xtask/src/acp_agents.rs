//! `cargo xtask acp-agents`: the real agents, driven offline against a mock provider.
//!
//! They are not among the peers, because they take half a gigabyte. Installing them needs a
//! network, running them does not.

use std::process::ExitCode;

use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// The versions in the table of `docs/acp.md`. Some need a newer Node than many machines have;
/// the package `node` provides one.
pub const PACKAGES: &[&str] = &[
    "@agentclientprotocol/claude-agent-acp@0.99.1",
    "@agentclientprotocol/codex-acp@2.6.0",
    "@google/gemini-cli@0.61.0",
    "opencode-ai@1.18.33",
    "node@22",
];

/// The directory they are installed in.
pub const FOLDER: &str = "target/peers/acp-agents";

/// Arguments of `cargo xtask acp-agents`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Only these: claude, codex, gemini, opencode.
    pub agents: Vec<String>,
}

/// Installs the agents, runs each through all scenes, and prints a table.
///
/// # Errors
///
/// If npm or cargo cannot be started.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let folder = workspace.root.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let mut runner = Runner::default();
    let mut passed = true;
    for step in steps(options, &folder.display().to_string()) {
        passed = passed && runner.step(&step.folder(&workspace.root))?;
    }
    Ok(runner.finish(passed))
}

fn steps(options: &Options, folder: &str) -> [Step; 2] {
    let install = ["install", "--no-audit", "--no-fund", "--no-save", "--prefix", folder];
    let install = install.into_iter().chain(PACKAGES.iter().copied());
    [
        Step::new("fetch the agents", "npm", install),
        Step::cargo("drive the agents", "test --package wellspring-acp --test real_agents")
            .env("WELLSPRING_ACP_AGENTS", folder)
            .env("WELLSPRING_ACP_ONLY", options.agents.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_fetched_and_then_driven() {
        let [fetch, drive] = steps(&Options { agents: vec!["codex".into()] }, "here");
        assert!(fetch.to_string().starts_with("npm install --no-audit"), "{fetch}");
        let want = "WELLSPRING_ACP_AGENTS=here WELLSPRING_ACP_ONLY=codex \
                    cargo test --package wellspring-acp --test real_agents";
        assert_eq!(drive.to_string(), want);
    }
}
