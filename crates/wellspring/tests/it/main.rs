//! The library as its users see it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test, in its helpers too"
)]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for what it is about")]

mod at_once;
mod attach;
mod cancel;
mod kit;
mod questions;
mod results;
mod semantics;
mod skills;
mod threads;
mod tools;
