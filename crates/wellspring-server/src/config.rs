//! The configuration of a server.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The default address: loopback only.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7600);

/// Settings of a server.
///
/// Without tokens, it serves only this machine and refuses to listen on non-loopback addresses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Host names that the `Host` header may contain, in addition to those of this machine. Setting
    /// one requires a token, since other machines can reach the server.
    pub hosts: Vec<Box<str>>,
    /// Origins whose pages may call the server, such as `https://app.example.com`. The server's own
    /// page always may.
    pub cors: Vec<Box<str>>,
    /// The limits.
    pub limits: ServerLimits,
    /// How long runs may continue during shutdown. After that, other processes take them over.
    #[serde(with = "seconds")]
    pub drain: Duration,
    /// Interval of keep-alive messages on silent streams: less than the time-outs of proxies.
    #[serde(with = "seconds")]
    pub keep_alive: Duration,
    /// How long a finished run is kept; `None` keeps it indefinitely.
    #[serde(with = "optional_seconds")]
    pub retention: Option<Duration>,
    /// Settings of use-ai's wire.
    pub use_ai: UseAiConfig,
}

/// Settings of use-ai's wire.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UseAiConfig {
    /// The agent of a request that names no agent; the first by name if absent.
    pub default_agent: Option<Box<str>>,
    /// The agents that stand for workflows, by `runner/workflow`: `dify/summary`.
    pub workflows: BTreeMap<Box<str>, Box<str>>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            hosts: Vec::new(),
            cors: Vec::new(),
            limits: ServerLimits::default(),
            drain: Duration::from_secs(20),
            keep_alive: Duration::from_secs(15),
            retention: None,
            use_ai: UseAiConfig::default(),
        }
    }
}

/// The limits of a server. A request beyond a limit is refused at once with 413, 429 or 503.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerLimits {
    /// Bytes of a request's body: a long conversation with a few pictures.
    pub body_bytes: usize,
    /// Bytes that all request bodies being read and all large answers being sent hold together.
    pub held_bytes: usize,
    /// The same per token: room for a few of the largest bodies.
    pub held_bytes_per_token: usize,
    /// Maximum number of connections: twice what a process may usually have open.
    pub connections: usize,
    /// Maximum number of active runs.
    pub runs: usize,
    /// Maximum number of active runs per token: enough for a busy team.
    pub runs_per_token: usize,
    /// Maximum number of active runs per tenant, on all nodes together.
    pub runs_per_tenant: Option<usize>,
    /// Maximum number of open streams.
    pub streams: usize,
    /// Open streams per token: a busy team, each with a few tabs.
    pub streams_per_token: usize,
    /// Requests per second per token, on average.
    pub requests_per_token: u32,
    /// Requests per second per address, on average; this machine's own are not counted.
    pub requests_per_address: u32,
    /// Maximum duration of a run. Overrides the agent's own limit.
    #[serde(with = "seconds")]
    pub run_time: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: 8 * 1024 * 1024,
            held_bytes: 512 * 1024 * 1024,
            held_bytes_per_token: 128 * 1024 * 1024,
            connections: 32 * 1024,
            runs: 10_000,
            runs_per_token: 100,
            runs_per_tenant: None,
            streams: 20_000,
            streams_per_token: 1000,
            requests_per_token: 100,
            requests_per_address: 200,
            run_time: Duration::from_secs(6 * 60 * 60),
        }
    }
}

/// A duration as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(it: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(it.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// A duration as a number of seconds, or nothing.
mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        it: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        it.map(|it| it.as_secs_f64()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        seconds.map(|it| Duration::try_from_secs_f64(it).map_err(de::Error::custom)).transpose()
    }
}
