//! Test helpers that several crates share: runs to fold, store or encode, and fakes of peers.
//!
//! - [`RunBuilder`] writes a run by hand and assigns numbers, ids and times.
//! - [`samples`] are named runs, one per situation.
//! - [`arbitrary`] has random runs and random records.
//! - [`acp_agent`] is an agent that speaks ACP and follows a script.
//! - [`FakeProvider`] is a server that sends scripted answers, and fails in every way.
//! - [`FakeSocket`] is a WebSocket server whose connections a test drives by hand.
//! - [`FakeGateway`] is an OpenClaw gateway that plays scripts and checks its clients.
//! - [`ag_ui_validate`] runs an external validator on a stream.
//! - [`mock_model`] is a model behind four providers' protocols, for external agents.
//! - [`telegram`], [`slack`] and [`discord`] are strict fakes of chat networks, with a check of
//!   their rate limits.
//! - [`NatsServers`] are real NATS servers, single or clustered, and [`Proxy`] is a network
//!   connection that a test can interrupt.
//! - [`soak`] gives the number of rounds to run, [`figures`] print the results of benches.
//!
//! # What is deliberately absent
//!
//! The protocols' own types: a fake that used ours would only prove that our code agrees with
//! itself.

pub mod acp_agent;
mod ag_ui_validate;
pub mod arbitrary;
pub mod discord;
mod fake_gateway;
mod fake_provider;
mod fake_socket;
pub mod figures;
mod lines;
pub mod mock_model;
mod nats;
mod proxy;
mod random;
mod run_builder;
pub mod samples;
pub mod slack;
mod soak;
pub mod telegram;

pub use ag_ui_validate::{AG_UI_VALIDATE, ag_ui_validate};
pub use fake_gateway::{FakeGateway, GatewayOptions};
pub use fake_provider::{Answer, Asked, FakeProvider};
pub use fake_socket::{FakeConnection, FakeSocket};
pub use lines::Lines;
pub use nats::{NATS, NatsServers, nats_program};
pub use proxy::Proxy;
pub use random::Random;
pub use run_builder::{RUN, RunBuilder, THREAD};
pub use soak::{SOAK, soak};
