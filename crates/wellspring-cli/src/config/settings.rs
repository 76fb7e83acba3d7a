//! Settings of the whole command: the store, the server, telemetry.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use wellspring_log::{Durability, NatsTls};
use wellspring_models::Secret;
use wellspring_server::{ServerConfig, ServerLimits, UseAiConfig};

use super::provider::KeySource;
use super::section::Section;

/// The store.
#[derive(Debug, Default)]
pub(crate) struct StoreConfig {
    pub(crate) kind: StoreKind,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) address: Option<Box<str>>,
    pub(crate) durability: Option<Durability>,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) lease: Option<Duration>,
    pub(crate) nats: NatsConfig,
}

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum StoreKind {
    #[default]
    Sqlite,
    Nats,
    Memory,
}

/// The settings of the NATS store.
#[derive(Debug, Default)]
pub(crate) struct NatsConfig {
    pub(crate) stream: Option<Box<str>>,
    pub(crate) replicas: Option<usize>,
    pub(crate) monitors: Vec<Box<str>>,
    pub(crate) settle: Option<Duration>,
    pub(crate) index_bytes_max: Option<usize>,
    pub(crate) login: NatsLogin,
    pub(crate) tls: NatsTls,
}

/// How to authenticate to NATS. Secrets are read for each connection.
#[derive(Debug, Default)]
pub(crate) enum NatsLogin {
    #[default]
    Anyone,
    User {
        name: Box<str>,
        password: KeySource,
    },
    Token(KeySource),
    Credentials(PathBuf),
}

/// The minimum lease. With a shorter one, a busy disk would lose live processes their runs.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// The maximum number of replicas, which JetStream sets.
const REPLICAS_MAX: usize = 5;

pub(crate) fn store(section: &Section<'_>) -> StoreConfig {
    let kinds =
        [("sqlite", StoreKind::Sqlite), ("nats", StoreKind::Nats), ("memory", StoreKind::Memory)];
    let durabilities =
        [("process-crash", Durability::ProcessCrash), ("power-loss", Durability::PowerLoss)];
    let store = StoreConfig {
        kind: section.word("kind", &kinds).unwrap_or_default(),
        directory: section.path("directory"),
        address: section.text("address").map(Into::into),
        durability: section.word("durability", &durabilities),
        bytes_max: section.number("bytes_max"),
        lease: section.duration("lease"),
        nats: section.sub("nats").map(|nats| self::nats(&nats)).unwrap_or_default(),
    };
    if let Some(item) = section.get("lease")
        && store.lease.is_some_and(|lease| lease < LEASE_MIN)
    {
        let what = format!("`lease` in {} is {}", section.title, item.node.kind());
        section.source.complain(item.node.line, what, "set it to \"1s\" or more");
    }
    if let Some(item) = section.get("kind")
        && store.kind == StoreKind::Nats
        && section.get("address").is_none()
    {
        let what = format!("{} has no `address`, which `kind = \"nats\"` needs", section.title);
        section.source.complain(item.node.line, what, "add `address = \"nats://HOST:4222\"`");
    }
    if let Some(item) = section.get("address")
        && store.address.as_ref().is_some_and(|address| address.contains('@'))
    {
        let what = format!("`address` in {} contains a user or a token", section.title);
        let remedy = "use `token_env`, `user` or `credentials_file` in [store.nats]";
        section.source.complain(item.node.line, what, remedy);
    }
    section.done();
    store
}

fn nats(section: &Section<'_>) -> NatsConfig {
    section.not_both("password_env", "password_file");
    section.not_both("token_env", "token_file");
    section.not_both("user", "token_env");
    section.not_both("user", "token_file");
    section.not_both("user", "credentials_file");
    section.not_both("token_env", "credentials_file");
    section.not_both("token_file", "credentials_file");
    let secret = |variable: Option<&str>, file: Option<PathBuf>| match (variable, file) {
        (Some(variable), _) => Some(KeySource::Variable(variable.into())),
        (None, Some(file)) => Some(KeySource::File(file)),
        (None, None) => None,
    };
    let password = secret(section.text("password_env"), section.path("password_file"));
    let token = secret(section.text("token_env"), section.path("token_file"));
    let credentials = section.path("credentials_file");
    let user = section.text("user");
    let login = match (user, password, token, credentials) {
        (Some(name), Some(password), ..) => NatsLogin::User { name: name.into(), password },
        (None, None, Some(token), _) => NatsLogin::Token(token),
        (None, None, None, Some(file)) => NatsLogin::Credentials(file),
        (None, None, None, None) => NatsLogin::Anyone,
        (Some(_), None, ..) | (None, Some(_), ..) => {
            let what = format!("{} has one of `user` and its password", section.title);
            let remedy = "set `user` and one of `password_env` and `password_file`";
            section.source.complain(section.line, what, remedy);
            NatsLogin::Anyone
        }
    };
    let (certificate, key) = (section.path("certificate_file"), section.path("key_file"));
    if certificate.is_some() != key.is_some() {
        let what = format!("{} has one of `certificate_file` and `key_file`", section.title);
        section.source.complain(section.line, what, "set both, or none");
    }
    let tls = NatsTls {
        root_certificates: section.path("ca_file"),
        client_certificate: certificate.zip(key),
    };
    let config = NatsConfig {
        stream: section.text("stream").map(Into::into),
        replicas: section.number("replicas"),
        monitors: section.texts("monitors").unwrap_or_default(),
        settle: section.duration("settle"),
        index_bytes_max: section.number("index_bytes_max"),
        login,
        tls,
    };
    if let Some(item) = section.get("replicas")
        && config.replicas.is_some_and(|it| it == 0 || it > REPLICAS_MAX)
    {
        section.wrong(item);
    }
    section.done();
    config
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
        limits: section.sub("limits").map_or(default.limits, server_limits),
        use_ai: section.sub("use_ai").map_or(default.use_ai, use_ai),
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
        runs_per_tenant: section.number("runs_per_tenant"),
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
