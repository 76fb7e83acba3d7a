//! The engine over the in-memory log, a scripted model and real tools. Time is paused, ids
//! are counted, whole runs are compared.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on should stop"
)]

mod cancel;
mod control;
#[cfg(unix)]
mod crash;
mod due;
mod kit;
mod limits;
mod properties;
mod questions;
mod recovery;
mod remote;
mod remote_resume;
mod results;
mod sub_agents;
mod tools;
mod turns;
