//! Agents on other machines, as [`RemoteAgent`](wellspring_core::RemoteAgent)s.
//!
//! [`ag_ui::AgUiAgent`] is an agent that speaks AG-UI over HTTP, [`dify::DifyAgent`] an app of
//! Dify, and [`openclaw::OpenClawAgent`] an agent of an OpenClaw gateway over its WebSocket.
//!
//! # What is deliberately absent
//!
//! The protocols themselves, which are in `wellspring-wire`, and everything about runs, which
//! is in the engine.

pub mod ag_ui;
pub mod dify;
mod drive;
mod http;
pub mod openclaw;
