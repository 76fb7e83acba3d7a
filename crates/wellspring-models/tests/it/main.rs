//! Models against servers: failing ones, and third-party ones.

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
