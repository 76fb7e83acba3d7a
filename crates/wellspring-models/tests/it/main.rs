//! Models against servers: ones that fail in every way, and ones that others wrote.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the functions that tests share fail by panicking too"
)]

mod faults;
mod hostile;
mod http;
mod kit;
mod peer;
