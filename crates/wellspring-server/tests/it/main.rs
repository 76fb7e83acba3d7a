//! The server over real sockets.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test, in its helpers too")]

mod access;
mod ag_ui;
mod ag_ui_at_work;
mod ag_ui_shared;
mod ai_sdk;
mod api;
mod attacks;
mod audit;
mod connections;
mod control;
mod crowd;
mod cuts;
mod example_pages;
mod failing;
mod kit;
mod limits;
mod mount;
mod operate;
mod page;
mod peer;
mod socket;
mod sockets;
mod streams;
mod use_ai;
mod wires;
