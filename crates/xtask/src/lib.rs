//! Workspace tasks beyond plain cargo.
//!
//! - `cargo xtask test` is what CI runs.
//! - `cargo xtask soak` runs the long versions of the tests.
//! - `cargo xtask bench` measures everything and prints one table.
//! - `cargo xtask record` records the responses of real servers as fixtures.
//! - `cargo xtask acp-agents` and `cargo xtask openclaw` run real agents and a real gateway.
//! - `cargo xtask pictures` makes the pictures of the documentation.
//! - `cargo xtask release` checks the crates before they are published.
//!
//! Each task is a list of [`step::Step`]s: plain commands that can be repeated by hand.
//!
//! # What is deliberately absent
//!
//! Anything that plain cargo does well. Building, using or changing a crate needs nothing from
//! here, and nothing has to be installed first.

pub mod acp_agents;
pub mod bench;
pub mod dependencies;
pub mod figures;
pub mod openclaw;
pub mod peers;
pub mod pictures;
pub mod readme;
pub mod record;
pub mod release;
pub mod rust;
pub mod serves;
pub mod soak;
pub mod step;
pub mod test;
pub mod workspace;
