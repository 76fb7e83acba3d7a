//! Runs over HTTP: every run durable and resumable, on any wire.
//!
//! [`Server::builder`] serves a [`Runtime`](wellspring_engine::Runtime); [`router`] is the same to
//! mount in an application of your own, with its own [login](Authenticate). A surface is the IO
//! that speaks one protocol, a module each: our own API under `/v1` with event streams in any
//! dialect, what operators read, and a page. All of them read runs through cursors and reach
//! them through their inbox, so none of them holds anything that a crash would lose.
//!
//! # What is deliberately absent
//!
//! TLS belongs to a proxy, configuration files and flags to the command. Agents are registered
//! with the runtime before it is served.
//!
//! # What is promised
//!
//! 1. Detaching is not cancelling: a closed connection changes nothing.
//! 2. Until a token was made only this machine is served. Another tenant's run is reported as not
//!    found.
//! 3. Every stream says how it ends, also when the server does.
//! 4. Beyond a limit the answer is an error with the time to wait, never a wait.

mod answers;
mod api;
mod app;
mod auth;
mod config;
mod connection;
mod error;
mod guard;
mod housekeeping;
mod limits;
mod metrics;
mod openapi;
mod serve;
mod socket;
mod stream;
mod surfaces;
mod threads;
mod tokens;
mod visitors;

pub use api::{Api, ApiBuilder, OpenError, router};
pub use auth::{AuthError, Authenticate, SIGNED_FOR, SIGNED_FOR_MAX};
pub use config::{DEFAULT_LISTEN, ServerConfig, ServerLimits, UseAiConfig};
pub use metrics::Metrics;
pub use serve::{ServeError, Server, ServerBuilder, serve};
pub use threads::threads;
pub use tokens::{TOKENS_MAX, TOKENS_REFRESH, TokenError, TokenInfo, Tokens};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind a lock here is consistent at
/// every moment, and a second panic would only hide the first.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
