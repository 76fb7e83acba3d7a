//! The command as people and scripts use it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests, in their helpers too, which say what they skip"
)]
#![cfg(unix)]

mod acp;
mod crash;
mod kit;
mod pipes;
mod runs;
mod serve;
mod signals;
mod terminal;
