//! Our agents from a client's point of view.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the functions that tests share fail by panicking too, and say what they skip"
)]

mod client;
mod client_resources;
mod maxima;
mod outside_sessions;
mod prompts;
mod proxy;
mod questions;
mod schema;
mod sessions;

/// Not a test: the proxied agent, when a test starts this program again.
#[test]
fn scripted_agent() {
    if std::env::var_os(wellspring_testkit::acp_agent::SCRIPT).is_some() {
        wellspring_testkit::acp_agent::play();
        std::process::exit(0);
    }
}
