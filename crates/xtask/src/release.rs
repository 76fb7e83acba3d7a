//! `cargo xtask release`: checks the crates before they are published. It publishes nothing.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::step::{Runner, Step};
use crate::workspace::{UNPUBLISHED, Workspace, cargo};

/// Arguments of `cargo xtask release`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The git revision of the last release, whose interfaces are compared with today's [default:
    /// the newest tag `v*`].
    #[arg(long, value_name = "REVISION")]
    pub since: Option<String>,
    /// Package also what is not committed.
    #[arg(long)]
    pub allow_dirty: bool,
}

/// Runs the checks, and stops at the first failure. Ends with a list of what it could not check.
///
/// # Errors
///
/// If a command cannot be started.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut runner = Runner::default();
    let since = options.since.clone().or_else(|| newest_tag(&workspace.root));
    let can_fetch = is_installed("deny") && is_successful(cargo(), "deny fetch db");
    let mut unchecked = Vec::new();
    for check in checks(since.as_deref(), options.allow_dirty, can_fetch) {
        let (tool, step) = match check {
            Check::Run { tool, step } => (tool, step.folder(&workspace.root)),
            Check::Leave { what, why } => {
                unchecked.push((what, why));
                continue;
            }
        };
        if let Some(tool) = tool
            && !is_installed(tool)
        {
            let how = format!("run `cargo install --locked cargo-{tool}` first");
            runner.failed(&step.name, &how);
            return Ok(runner.finish(false));
        }
        if !runner.step(&step)? {
            return Ok(runner.finish(false));
        }
    }
    for (what, why) in unchecked {
        runner.skipped(what, why);
    }
    Ok(runner.finish(true))
}

enum Check {
    /// Runs a step. `tool` is the cargo subcommand that must be installed for it.
    Run { tool: Option<&'static str>, step: Step },
    /// Something that cannot be checked now.
    Leave { what: &'static str, why: &'static str },
}

/// `since` is the revision of the last release; `can_fetch` is whether the database of advisories
/// was fetched.
fn checks(since: Option<&str>, allow_dirty: bool, can_fetch: bool) -> Vec<Check> {
    // `cargo deny` reads the same `deny.toml` as our own test. Our test sees more packages, and
    // finds the entries that are not needed any more.
    let deny = "deny check --allow unmatched-skip --allow unnecessary-skip licenses bans sources";
    let mut checks =
        vec![Check::Run { tool: Some("deny"), step: Step::cargo("dependencies", deny) }];
    checks.push(if can_fetch {
        let advisories = Step::cargo("advisories", "deny check advisories");
        Check::Run { tool: Some("deny"), step: advisories }
    } else {
        let why = "`cargo deny fetch db` could not fetch their database; \
                   run `cargo deny check advisories` where it can";
        Check::Leave { what: "advisories", why }
    });
    let excluded = excluded();
    checks.push(match since {
        Some(revision) => {
            let compare = format!("semver-checks --workspace {excluded} --baseline-rev {revision}");
            Check::Run { tool: Some("semver-checks"), step: Step::cargo("interfaces", &compare) }
        }
        None => Check::Leave {
            what: "interfaces",
            why: "no tag `v*` names an earlier release, and there is no --since REVISION",
        },
    });
    // All crates in the order of their dependencies, each built from its package.
    let dirty = if allow_dirty { " --allow-dirty" } else { "" };
    let publish = format!("publish --workspace {excluded} --dry-run --locked{dirty}");
    checks.push(Check::Run { tool: None, step: Step::cargo("publish", &publish) });
    checks
}

/// The newest tag of an earlier release; `None` before the first one.
fn newest_tag(root: &Path) -> Option<String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]).current_dir(root);
    let output = describe.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The crates that are not published, as arguments for cargo.
#[must_use]
pub fn excluded() -> String {
    UNPUBLISHED.map(|name| format!("--exclude {name}")).join(" ")
}

fn is_installed(subcommand: &str) -> bool {
    is_successful(cargo(), &format!("{subcommand} --help"))
}

/// Runs a command without its output; the arguments are separated by single spaces.
fn is_successful(program: OsString, args: &str) -> bool {
    let mut command = Command::new(program);
    command.args(args.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(since: Option<&str>, allow_dirty: bool, can_fetch: bool) -> String {
        let line = |check: &Check| match check {
            Check::Run { step, .. } => format!("{}: {step}\n", step.name),
            Check::Leave { what, why } => format!("{what}: skipped, {why}\n"),
        };
        checks(since, allow_dirty, can_fetch).iter().map(line).collect()
    }

    #[test]
    fn a_release_is_checked_in_order() {
        insta::assert_snapshot!(shown(Some("v0.1.0"), true, true), @"
        dependencies: cargo deny check --allow unmatched-skip --allow unnecessary-skip licenses bans sources
        advisories: cargo deny check advisories
        interfaces: cargo semver-checks --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --baseline-rev v0.1.0
        publish: cargo publish --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --dry-run --locked --allow-dirty
        ");
    }

    #[test]
    fn what_cannot_be_checked_is_named() {
        insta::assert_snapshot!(shown(None, false, false), @"
        dependencies: cargo deny check --allow unmatched-skip --allow unnecessary-skip licenses bans sources
        advisories: skipped, `cargo deny fetch db` could not fetch their database; run `cargo deny check advisories` where it can
        interfaces: skipped, no tag `v*` names an earlier release, and there is no --since REVISION
        publish: cargo publish --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --dry-run --locked
        ");
    }

    #[test]
    fn a_subcommand_that_is_not_there_is_noticed() {
        assert!(is_installed("check"));
        assert!(!is_installed("no-such-subcommand"));
    }
}
