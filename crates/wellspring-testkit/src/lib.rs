//! What the tests of several crates share: runs to feed to whatever folds, stores or
//! projects them.
//!
//! - [`RunBuilder`] writes a run by hand, minting numbers, ids and times.
//! - [`samples`] are named runs, one per thing that can happen.
//! - [`arbitrary`] has random ones: legal runs, and nonsense.
//! - [`acp_agent`] is an agent that speaks ACP and follows a script.
//! - [`FakeProvider`] is a server that answers as a test says, and fails in every way.
//! - [`ag_ui_validate`] is what somebody else's validator says of a stream.
//! - [`mock_model`] is a model behind four providers' protocols, for agents of others.
//! - [`soak`] says how many rounds to play, [`figures`] print what a bench claims.
//!
//! # What is deliberately absent
//!
//! The protocols' own types: a fake that used ours would only prove that we agree with
//! ourselves.

pub mod acp_agent;
mod ag_ui_validate;
pub mod arbitrary;
mod fake_provider;
pub mod figures;
pub mod mock_model;
mod run_builder;
pub mod samples;
mod soak;

pub use ag_ui_validate::{AG_UI_VALIDATE, ag_ui_validate};
pub use fake_provider::{Answer, Asked, FakeProvider};
pub use run_builder::{RUN, RunBuilder, THREAD};
pub use soak::{SOAK, soak};
