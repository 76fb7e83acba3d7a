//! The command as people and scripts use it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests, in their helpers too, which say what they skip"
)]
#![cfg(unix)]

mod acp;
mod acp_agents;
mod acp_names;
mod acp_served;
mod ag_ui_agents;
mod channels;
mod commands;
mod config;
mod crash;
mod damage;
mod kit;
mod mcp_server;
mod pipes;
mod providers;
mod runs;
mod serve;
mod signals;
mod telemetry;
mod terminal;
mod use_ai;
mod who_may_run;
