//! Properties of every dialect, and of every provider.

#![expect(clippy::unwrap_used, reason = "the functions that tests share fail by panicking too")]

mod allocations;
mod crossing;
mod docs;
mod life_cycle;
mod resume;
mod total;
mod wires;
