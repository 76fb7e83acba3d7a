//! Settings of the whole command: the store, the server, telemetry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use wellspring_log::Durability;
use wellspring_models::Secret;
use wellspring_server::{ServerConfig, ServerLimits, UseAiConfig};

use super::keys;
use super::section::Section;

/// The store.
#[derive(Debug, Default)]
pub(crate) struct StoreConfig {
    pub(crate) kind: StoreKind,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) durability: Option<Durability>,
    pub(crate) bytes_max: Option<u64>,
}

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum StoreKind {
    #[default]
    Sqlite,
    Memory,
}

pub(crate) fn store(section: &Section<'_>) -> StoreConfig {
    let kinds = [("sqlite", StoreKind::Sqlite), ("memory", StoreKind::Memory)];
    let durabilities =
        [("process-crash", Durability::ProcessCrash), ("power-loss", Durability::PowerLoss)];
    let store = StoreConfig {
        kind: section.word("kind", &kinds).unwrap_or_default(),
        directory: section.path("directory"),
        durability: section.word("durability", &durabilities),
        bytes_max: section.number("bytes_max"),
    };
    section.done();
    store
}

pub(crate) fn server(section: &Section<'_>) -> ServerConfig {
    let default = ServerConfig::default();
    let config = ServerConfig {
        listen: section.parsed("listen").unwrap_or(default.listen),
        hosts: section.texts("hosts").unwrap_or_default(),
        cors: section.texts("cors").unwrap_or_default(),
        drain: section.duration("drain").unwrap_or(default.drain),
        keep_alive: section.duration("keep_alive").unwrap_or(default.keep_alive),
        retention: section.duration("retention"),
        limits: section.sub("limits", &keys::SERVER_LIMITS).map_or(default.limits, server_limits),
        use_ai: section.sub("use_ai", &keys::SERVER_USE_AI).map_or(default.use_ai, use_ai),
    };
    section.done();
    config
}

fn use_ai(section: Section<'_>) -> UseAiConfig {
    let config = UseAiConfig {
        default_agent: section.text("default_agent").map(Into::into),
        workflows: section.texts_by_name("workflows"),
    };
    section.done();
    config
}

fn server_limits(section: Section<'_>) -> ServerLimits {
    let default = ServerLimits::default();
    let limits = ServerLimits {
        body_bytes: section.number("body_bytes").unwrap_or(default.body_bytes),
        held_bytes: section.number("held_bytes").unwrap_or(default.held_bytes),
        held_bytes_per_token: section
            .number("held_bytes_per_token")
            .unwrap_or(default.held_bytes_per_token),
        connections: section.number("connections").unwrap_or(default.connections),
        runs: section.number("runs").unwrap_or(default.runs),
        runs_per_token: section.number("runs_per_token").unwrap_or(default.runs_per_token),
        streams: section.number("streams").unwrap_or(default.streams),
        streams_per_token: section.number("streams_per_token").unwrap_or(default.streams_per_token),
        requests_per_token: section
            .number("requests_per_token")
            .unwrap_or(default.requests_per_token),
        requests_per_address: section
            .number("requests_per_address")
            .unwrap_or(default.requests_per_address),
        run_time: section.duration("run_time").unwrap_or(default.run_time),
    };
    section.done();
    limits
}

/// Export of traces.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TelemetryConfig {
    pub(crate) endpoint: Option<Box<str>>,
    pub(crate) headers: BTreeMap<Box<str>, Secret>,
    pub(crate) service_name: Option<Box<str>>,
    pub(crate) content: Option<bool>,
}

pub(crate) fn telemetry(section: &Section<'_>) -> TelemetryConfig {
    let telemetry = TelemetryConfig {
        endpoint: section.text("endpoint").map(Into::into),
        headers: section.secrets("headers"),
        service_name: section.text("service_name").map(Into::into),
        content: section.bool("content"),
    };
    section.done();
    telemetry
}
