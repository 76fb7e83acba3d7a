//! The run log.

pub mod store;
