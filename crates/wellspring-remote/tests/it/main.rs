//! Agents on other machines, played by fakes and run by the engine.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests, in their helpers too")]

mod ag_ui;
mod dify;
mod kit;
mod openclaw;
mod real_gateway;
