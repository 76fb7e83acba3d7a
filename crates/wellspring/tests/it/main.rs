//! The library as its users see it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, in its helpers too")]

mod attach;
mod cancel;
mod kit;
mod questions;
mod results;
mod semantics;
mod skills;
mod threads;
mod tools;
