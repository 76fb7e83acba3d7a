//! `cargo xtask release`: checks the crates before they are published. It publishes nothing.

use std::process::{Command, ExitCode, Stdio};

use crate::step::{Runner, Step};
use crate::workspace::{UNPUBLISHED, Workspace, cargo};

/// Arguments of `cargo xtask release`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The published version that the interfaces of the crates are compared with. Without it they
    /// are not compared.
    #[arg(long, value_name = "VERSION")]
    pub since: Option<String>,
    /// Package also what is not committed.
    #[arg(long)]
    pub allow_dirty: bool,
}

/// Runs the checks, and stops at the first failure.
///
/// # Errors
///
/// If a command cannot be started.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut runner = Runner::default();
    for (tool, step) in steps(options) {
        if let Some(tool) = tool
            && !is_installed(tool)
        {
            let how = format!("run `cargo install --locked cargo-{tool}` first");
            runner.failed(&step.name, &how);
            return Ok(runner.finish(false));
        }
        if !runner.step(&step.folder(&workspace.root))? {
            return Ok(runner.finish(false));
        }
    }
    if options.since.is_none() {
        runner.skipped("interfaces", "there is no --since VERSION to compare them with");
    }
    Ok(runner.finish(true))
}

/// The checks, each with the cargo subcommand that must be installed for it.
fn steps(options: &Options) -> Vec<(Option<&'static str>, Step)> {
    // `cargo deny` reads the same `deny.toml` as our own test, and also checks advisories. Our
    // test sees more packages and finds the entries that are not needed any more.
    let deny = "deny check --allow unmatched-skip --allow unnecessary-skip";
    let mut steps = vec![(Some("deny"), Step::cargo("dependencies", deny))];
    let excluded = excluded();
    if let Some(version) = &options.since {
        let compare = format!("semver-checks --workspace {excluded} --baseline-version {version}");
        steps.push((Some("semver-checks"), Step::cargo("interfaces", &compare)));
    }
    // All crates in the order of their dependencies, each built from its package.
    let dirty = if options.allow_dirty { " --allow-dirty" } else { "" };
    let publish = format!("publish --workspace {excluded} --dry-run --locked{dirty}");
    steps.push((None, Step::cargo("publish", &publish)));
    steps
}

/// The crates that are not published, as arguments for cargo.
#[must_use]
pub fn excluded() -> String {
    UNPUBLISHED.map(|name| format!("--exclude {name}")).join(" ")
}

fn is_installed(subcommand: &str) -> bool {
    let mut help = Command::new(cargo());
    help.args([subcommand, "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    help.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(options: &Options) -> Vec<String> {
        steps(options).iter().map(|(_, step)| step.to_string()).collect()
    }

    #[test]
    fn a_release_is_checked_in_order() {
        let first = Options::default();
        let want = [
            "cargo deny check --allow unmatched-skip --allow unnecessary-skip",
            "cargo publish --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --dry-run --locked",
        ];
        assert_eq!(shown(&first), want);
        let later = Options { since: Some("0.1.0".into()), allow_dirty: true };
        let want = [
            "cargo deny check --allow unmatched-skip --allow unnecessary-skip",
            "cargo semver-checks --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --baseline-version 0.1.0",
            "cargo publish --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --dry-run --locked --allow-dirty",
        ];
        assert_eq!(shown(&later), want);
    }

    #[test]
    fn a_subcommand_that_is_not_there_is_noticed() {
        assert!(is_installed("check"));
        assert!(!is_installed("no-such-subcommand"));
    }
}
