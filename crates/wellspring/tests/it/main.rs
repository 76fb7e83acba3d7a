//! The library from its users' point of view.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test, in its helpers too"
)]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for what it is about")]

#[cfg(feature = "acp")]
mod acp;
mod at_once;
mod attach;
mod cancel;
mod kit;
mod questions;
mod results;
mod seed_examples;
mod semantics;
#[cfg(feature = "skills")]
mod skills;
mod threads;
mod tools;

/// Not a test: the agent that `acp` drives, when it starts this program again.
#[test]
fn scripted_agent() {
    if std::env::var_os(wellspring_testkit::acp_agent::SCRIPT).is_some() {
        wellspring_testkit::acp_agent::play();
        std::process::exit(0);
    }
}
