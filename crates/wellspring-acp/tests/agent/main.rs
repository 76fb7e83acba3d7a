//! Our agents, as a client sees them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the functions that tests share fail by panicking too, and say what they skip"
)]

mod client;
mod lent;
mod maxima;
mod prompts;
mod questions;
mod schema;
mod sessions;
