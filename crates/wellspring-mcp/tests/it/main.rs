//! MCP with third-party servers and clients, and with scripted ones.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests, in their helpers too")]

mod everything;
mod faults;
mod http;
mod loopback;
mod over_http;
mod scripted;
mod support;
