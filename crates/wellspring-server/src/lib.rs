//! Runs over HTTP: every run durable and resumable, on any wire.
//!
//! [`Server::builder`] serves a [`Runtime`](wellspring_engine::Runtime); [`router`] is the same to
//! mount in an application of your own, with its own [login](Authenticate). A surface is the IO
//! that speaks one protocol, a module each: our own API under `/v1` with event streams in any
//! dialect, AG-UI, the AI SDK, use-ai, endpoints for operators, and a page. All of them act on runs
//! through `Control` and read them through cursors, so none of them holds state that a crash would
//! lose.
//!
//! # What is deliberately absent
//!
//! TLS, which a proxy adds; configuration files and flags, which the command reads; and agents,
//! which are registered with the runtime before it is served.
//!
//! # What is promised
//!
//! 1. Detaching is not cancelling: a closed connection changes nothing.
//! 2. Only this machine is served until a token is created. Another tenant's run is reported as
//!    not found.
//! 3. Every stream ends with an event that reports the reason, also when the server shuts down.
//! 4. A request beyond a limit is refused at once, with the time after which to try again.

mod api;
mod app;
mod auth;
mod config;
mod connection;
mod error;
mod housekeeping;
mod large_body;
mod limits;
mod metrics;
mod middleware;
mod openapi;
mod serve;
mod socket;
mod stream;
mod surfaces;
mod tokens;
mod tokio_runtime;
mod webhook_limits;

pub use api::{Api, ApiBuilder, OpenError, router};
pub use auth::{AuthError, Authenticate, SIGNED_FOR, SIGNED_FOR_MAX};
pub use config::{DEFAULT_LISTEN, ServerConfig, ServerLimits, UseAiConfig};
pub use metrics::Metrics;
pub use serve::{ServeError, Server, ServerBuilder, serve};
pub use tokens::{TOKENS_MAX, TOKENS_REFRESH, TokenError, TokenInfo, Tokens};
pub use tokio_runtime::threads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also if another holder has panicked: the values behind the locks of this crate are
/// consistent at every moment, and a second panic would only hide the first.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
