//! The Agent Client Protocol, both ways: drive any agent that speaks it, and be one.

pub mod agent;
pub mod client;
mod rpc;
