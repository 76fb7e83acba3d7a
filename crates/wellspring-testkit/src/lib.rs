//! What the tests of several crates share: runs to feed to whatever folds, stores or
//! projects them.
//!
//! - [`RunBuilder`] writes a run by hand, minting numbers, ids and times.
//! - [`samples`] are named runs, one per thing that can happen.
//! - [`arbitrary`] has random ones: legal runs, and nonsense.
//! - [`FakeProvider`] is a server that answers as a test says, and fails in every way.
//! - [`soak`] says how many rounds to play, [`figures`] print what a bench claims.
//!
//! # What is deliberately absent
//!
//! The protocols' own types: a fake that used ours would only prove that we agree with
//! ourselves.

pub mod arbitrary;
mod fake_provider;
pub mod figures;
mod run_builder;
pub mod samples;
mod soak;

pub use fake_provider::{Answer, Asked, FakeProvider};
pub use run_builder::{RUN, RunBuilder, THREAD};
pub use soak::{SOAK, soak};
