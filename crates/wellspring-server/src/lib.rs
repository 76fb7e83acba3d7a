//! Runs over HTTP: every run durable and resumable, on any wire.
//!
//! [`Server::builder`] serves a [`Runtime`](wellspring_engine::Runtime). A surface is the IO
//! that speaks one protocol, a module each: our own API under `/v1` with event streams in any
//! dialect, what operators read, and a page. All of them read runs through cursors and reach
//! them through their inbox, so none of them holds anything that a crash would lose.
//!
//! # What is deliberately absent
//!
//! TLS: a proxy's. Configuration files and flags: the command's. Agents: whoever makes the
//! runtime registers them.
//!
//! # What is promised
//!
//! 1. Detaching is not cancelling: a closed connection changes nothing.
//! 2. Without a token only this machine is served. Another tenant's run looks like none.
//! 3. Every stream says how it ends, also when the server does.
//! 4. Beyond a limit the answer is an error with the time to wait, never a wait.

mod app;
mod auth;
mod config;
mod connection;
mod error;
mod guard;
mod kind;
mod limits;
mod metrics;
mod openapi;
mod serve;
mod stream;
mod surfaces;
mod threads;

pub use auth::{
    SIGNED_FOR, SIGNED_FOR_MAX, TOKENS_MAX, TOKENS_REFRESH, TokenError, TokenInfo, Tokens,
};
pub use config::{DEFAULT_LISTEN, ServerConfig, ServerLimits};
pub use metrics::Metrics;
pub use serve::{ServeError, Server, ServerBuilder, serve};
pub use threads::threads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind a lock here is consistent at
/// every moment, and a second panic would only hide the first.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
