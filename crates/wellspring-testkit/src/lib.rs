//! Shared by the tests of several crates: runs to fold, store or project, and fakes of peers.
//!
//! - [`RunBuilder`] writes a run by hand, minting numbers, ids and times.
//! - [`samples`] are named runs, one per situation.
//! - [`arbitrary`] has random ones: legal runs, and nonsense.
//! - [`acp_agent`] is an agent that speaks ACP and follows a script.
//! - [`FakeProvider`] is a server that answers as a test says, and fails in every way.
//! - [`FakeGateway`] is an OpenClaw gateway that plays scripts and checks its clients.
//! - [`ag_ui_validate`] is what somebody else's validator says of a stream.
//! - [`mock_model`] is a model behind four providers' protocols, for agents of others.
//! - [`telegram`] is a strict Telegram, and an oracle for its rates.
//! - [`NatsServers`] are real NATS servers, alone or as a cluster, [`Proxy`] a network that can be
//!   cut.
//! - [`soak`] says how many rounds to play, [`figures`] print what a bench claims.
//!
//! # What is deliberately absent
//!
//! The protocols' own types: a fake that used ours would only prove that we agree with
//! ourselves.

pub mod acp_agent;
mod ag_ui_validate;
pub mod arbitrary;
mod fake_gateway;
mod fake_provider;
pub mod figures;
pub mod mock_model;
mod nats;
mod proxy;
mod run_builder;
pub mod samples;
mod soak;
pub mod telegram;

pub use ag_ui_validate::{AG_UI_VALIDATE, ag_ui_validate};
pub use fake_gateway::{FakeGateway, GatewayOptions};
pub use fake_provider::{Answer, Asked, FakeProvider};
pub use nats::{NATS, NatsServers};
pub use proxy::Proxy;
pub use run_builder::{RUN, RunBuilder, THREAD};
pub use soak::{SOAK, soak};
