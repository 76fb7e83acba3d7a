//! `cargo xtask soak`: the tests in their long versions.
//!
//! A test with a variable number of rounds calls `wellspring_testkit::soak(ci, long)`, which
//! reads `WELLSPRING_SOAK` at run time; only this command sets it. Property tests read
//! `PROPTEST_CASES`. So each test exists once, the same binary runs both versions (with the
//! checks that a release build omits), and a failing long version can be repeated by hand with
//! the variable set.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// Cases per property in a soak: sixteen times proptest's default of 256, which takes a machine
/// a few minutes.
pub const PROPERTY_CASES: u32 = 4096;

/// Arguments of `cargo xtask soak`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Only the tests of this crate.
    #[arg(long = "crate", value_name = "NAME")]
    pub package: Option<String>,
    /// Start new rounds until this many minutes have passed [default: one round].
    #[arg(long)]
    pub minutes: Option<u64>,
}

/// Runs the long versions, round after round, and stops at the first failure.
///
/// # Errors
///
/// If cargo cannot be started.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let deadline = Instant::now() + Duration::from_secs(60 * options.minutes.unwrap_or(0));
    let mut runner = Runner::default();
    let mut round = 0;
    loop {
        round += 1;
        if !runner.step(&step(round, options).folder(&workspace.root))? {
            return Ok(runner.finish(false));
        }
        if Instant::now() >= deadline {
            return Ok(runner.finish(true));
        }
    }
}

fn step(round: u32, options: &Options) -> Step {
    let selected = match &options.package {
        Some(package) => format!("--package {package}"),
        None => "--workspace".to_owned(),
    };
    let test = format!("test {selected} --all-features --lib --bins --tests");
    let cases = std::env::var("PROPTEST_CASES").unwrap_or_else(|_| PROPERTY_CASES.to_string());
    Step::cargo(format!("soak round {round}"), &test)
        .env("WELLSPRING_SOAK", "1")
        .env("PROPTEST_CASES", cases)
}
