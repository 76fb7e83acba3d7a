//! `cargo xtask openclaw`: a real OpenClaw gateway, driven offline against a mock provider.
//!
//! It is not among the peers, because it takes more than half a gigabyte. Installing it needs a
//! network, running it does not.

use std::process::ExitCode;

use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// The gateway version of the recordings.
pub const GATEWAY: &str = "openclaw@2026.9.6";

/// The gateway needs a newer Node than many machines have; this package provides one.
pub const NODE: &str = "node@24.21.0";

/// The directory they are installed in.
pub const FOLDER: &str = "target/peers/openclaw";

/// Arguments of `cargo xtask openclaw`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {}

/// Installs the gateway, starts it, and runs it through all scenarios.
///
/// # Errors
///
/// If npm or cargo cannot be started.
pub fn run(_: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let folder = workspace.root.join(FOLDER);
    for part in ["node", "gateway"] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    let mut runner = Runner::default();
    let mut passed = true;
    for step in steps(&folder.display().to_string()) {
        passed = passed && runner.step(&step.folder(&workspace.root))?;
    }
    Ok(runner.finish(passed))
}

fn steps(folder: &str) -> [Step; 3] {
    let install = |package: &str, part: &str, more: &[&str]| {
        let words = ["install", "--no-audit", "--no-fund", "--no-save"].iter().chain(more);
        let mut words: Vec<String> = words.map(|&word| word.to_owned()).collect();
        words.extend(["--prefix".into(), format!("{folder}/{part}"), package.into()]);
        words
    };
    [
        Step::new("fetch Node", "npm", install(NODE, "node", &[])),
        // Its install scripts fail with the machine's own Node.
        Step::new("fetch the gateway", "npm", install(GATEWAY, "gateway", &["--ignore-scripts"])),
        Step::cargo(
            "drive the gateway",
            "test --package wellspring-remote --test it real_gateway -- --nocapture",
        )
        .env("WELLSPRING_OPENCLAW", folder),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_fetched_and_then_driven() {
        let steps = steps("here").map(|step| step.to_string());
        assert_eq!(
            steps,
            [
                "npm install --no-audit --no-fund --no-save --prefix here/node node@24.21.0",
                "npm install --no-audit --no-fund --no-save --ignore-scripts --prefix here/gateway \
                 openclaw@2026.9.6",
                "WELLSPRING_OPENCLAW=here cargo test --package wellspring-remote --test it \
                 real_gateway -- --nocapture",
            ]
        );
    }
}
