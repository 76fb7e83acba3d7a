//! What cargo cannot do for this workspace by itself.
//!
//! `cargo xtask test` is what CI runs, `cargo xtask soak` runs the tests in their long versions,
//! `cargo xtask bench` measures everything and prints one table, `cargo xtask record` records the
//! responses of real servers as fixtures, `cargo xtask acp-agents` drives real agents,
//! `cargo xtask openclaw` a real gateway, and `cargo xtask pictures` makes the pictures of the
//! documentation. Each is a list of [`step::Step`]s: plain commands that
//! can be repeated by hand.
//!
//! # What is deliberately absent
//!
//! Anything plain cargo does well. Nothing here is needed to build, use or change a crate,
//! and nothing has to be installed first.

pub mod acp_agents;
pub mod bench;
pub mod figures;
pub mod openclaw;
pub mod peers;
pub mod pictures;
pub mod readme;
pub mod record;
pub mod serves;
pub mod soak;
pub mod step;
pub mod test;
pub mod workspace;
