//! What the tests of several crates share: runs to feed to whatever folds, stores or
//! projects them.
//!
//! - [`RunBuilder`] writes a run by hand, minting numbers, ids and times.
//! - [`samples`] are named runs, one per thing that can happen.
//! - [`arbitrary`] has random ones: legal runs, and nonsense.
//! - [`soak`] says how many rounds to play, [`figures`] print what a bench claims.
//!
//! # What is deliberately absent
//!
//! The protocols' own types: a fake that used ours would only prove that we agree with
//! ourselves.

pub mod arbitrary;
pub mod figures;
mod run_builder;
pub mod samples;
mod soak;

pub use run_builder::{RUN, RunBuilder, THREAD};
pub use soak::{SOAK, soak};
