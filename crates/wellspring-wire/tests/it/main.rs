//! What holds for every dialect.

#![expect(clippy::unwrap_used, reason = "the functions that tests share fail by panicking too")]

mod allocations;
mod docs;
mod resume;
mod total;
