//! The Agent Client Protocol, both ways: drive any agent that speaks it, and be one.

pub mod agent;
pub mod client;
mod rpc;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind a lock here is consistent at
/// every moment, and a second panic would only hide the first.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
