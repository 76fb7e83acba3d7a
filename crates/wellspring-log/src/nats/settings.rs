//! How to reach the servers, what the stream has to be, and what the servers have to keep.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::api::{Api, AskError};
use super::wire::OVERHEAD_BYTES;
use super::{NATS_INDEX_BYTES_MAX, NATS_SETTLE};
use crate::options::Durability;
use crate::store::StoreError;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// The oldest server with all that the store uses: atomic batches and expiring messages.
const OLDEST: (u64, u64, u64) = (2, 12, 0);

/// The oldest server that keeps what it has synced through a loss of power.
const OLDEST_SAFE: (u64, u64, u64) = (2, 12, 3);

/// The most bytes of a server's answer to a question about its settings.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// The smallest `max_payload`: with less, hardly a frame would fit.
const PAYLOAD_MIN: usize = 4 * OVERHEAD_BYTES;

/// How a NATS store behaves.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The servers, such as `nats://10.0.0.1:4222`; separated by commas, if several.
    pub address: Box<str>,
    /// How this process proves who it is.
    pub auth: NatsAuth,
    /// How connections are encrypted.
    pub tls: NatsTls,
    /// The stream's name, with which all subjects begin. It is created if there is none.
    pub stream: Box<str>,
    /// How many servers keep each message.
    pub replicas: usize,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// The monitoring addresses of all servers, such as `http://10.0.0.1:8222`: where
    /// [`Durability::PowerLoss`] looks whether they can keep it.
    pub monitors: Vec<Box<str>>,
    /// The stream grows to so many bytes at most.
    pub bytes_max: Option<u64>,
    /// See [`NATS_INDEX_BYTES_MAX`].
    pub index_bytes_max: usize,
    /// See [`NATS_SETTLE`].
    pub settle: Duration,
}

/// How a process proves to the servers who it is.
#[derive(Clone, Default)]
pub enum NatsAuth {
    /// Not at all.
    #[default]
    None,
    /// By a token.
    Token(Box<str>),
    /// By a name and a password.
    User {
        /// The name.
        name: Box<str>,
        /// The password.
        password: Box<str>,
    },
    /// By a file with a JWT and a seed.
    Credentials(PathBuf),
}

/// How connections to the servers are encrypted. An address that begins with `tls://` requires
/// it, with the system's certificates unless others are named.
#[derive(Clone, Debug, Default)]
pub struct NatsTls {
    /// Certificates of those who may sign for the servers, in a PEM file.
    pub root_certificates: Option<PathBuf>,
    /// Our own certificate and its key, in PEM files, for servers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for NatsAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(..)",
            Self::User { .. } => "User(..)",
            Self::Credentials(_) => "Credentials(..)",
        })
    }
}

impl NatsOptions {
    /// Options for servers at an address, with the usual values.
    #[must_use]
    pub fn at(address: impl Into<Box<str>>) -> Self {
        Self {
            address: address.into(),
            auth: NatsAuth::None,
            tls: NatsTls::default(),
            stream: "wellspring".into(),
            replicas: 1,
            durability: Durability::default(),
            monitors: Vec::new(),
            bytes_max: None,
            index_bytes_max: NATS_INDEX_BYTES_MAX,
            settle: NATS_SETTLE,
        }
    }
}

/// NATS could not be used as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsOpenError {
    /// There is no connection.
    #[error("could not connect to NATS at {address}: {cause}")]
    Connect {
        /// Where.
        address: Box<str>,
        /// What happened.
        cause: String,
    },
    /// A setting of the server or of the stream does not do.
    #[error("{what}; {remedy}")]
    Setting {
        /// What was found.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// JetStream did not do what it was asked.
    #[error("could not use the stream {stream}: {cause}")]
    Stream {
        /// Which stream.
        stream: Box<str>,
        /// What happened.
        cause: String,
    },
    /// The stream could not be read.
    #[error("could not read the stream")]
    Read(#[source] StoreError),
}

fn setting(what: impl Into<String>, remedy: impl Into<String>) -> NatsOpenError {
    NatsOpenError::Setting { what: what.into(), remedy: remedy.into() }
}

pub(super) async fn connect(options: &NatsOptions) -> Result<Client, NatsOpenError> {
    let failed = |cause: String| NatsOpenError::Connect { address: options.address.clone(), cause };
    let name = &options.stream;
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        let what = format!("{name:?} cannot be the name of a stream");
        return Err(setting(what, "use letters, digits, `-` and `_`"));
    }
    if options.address.contains('@') {
        // Addresses are shown in errors and in logs.
        let what = "the address of the NATS servers contains a name or a token";
        return Err(setting(what, "remove it from the address, and say it apart"));
    }
    let connecting = ConnectOptions::new()
        .name("wellspring")
        .connection_timeout(CONNECT)
        .ping_interval(Duration::from_secs(5))
        // Runs outlive a server's restart, however long it takes.
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| {
            Duration::from_millis(50 * u64::try_from(attempt.clamp(1, 40)).unwrap_or(40))
        });
    let connecting = match &options.tls.root_certificates {
        Some(file) => connecting.add_root_certificates(file.clone()).require_tls(true),
        None => connecting,
    };
    let connecting = match &options.tls.client_certificate {
        Some((certificate, key)) => {
            connecting.add_client_certificate(certificate.clone(), key.clone()).require_tls(true)
        }
        None => connecting,
    };
    let connecting = match &options.auth {
        NatsAuth::None => connecting,
        NatsAuth::User { name, password } => {
            connecting.user_and_password(name.to_string(), password.to_string())
        }
        NatsAuth::Token(token) => connecting.token(token.to_string()),
        NatsAuth::Credentials(file) => {
            let text = tokio::fs::read_to_string(file).await;
            let cannot = |error: std::io::Error| failed(format!("{}: {error}", file.display()));
            connecting.credentials(&text.map_err(cannot)?).map_err(cannot)?
        }
    };
    let addresses: Result<Vec<async_nats::ServerAddr>, _> =
        options.address.split(',').map(|address| address.trim().parse()).collect();
    let addresses = addresses.map_err(|error| failed(error.to_string()))?;
    let connected = timeout(CONNECT, connecting.connect(addresses)).await;
    let connected = connected.map_err(|_| failed("it took too long".into()))?;
    let client = connected.map_err(|error| {
        let cause = std::error::Error::source(&error);
        failed(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
    })?;
    check_server(&client, options).await?;
    Ok(client)
}

/// Whether the servers can do and keep what is asked.
async fn check_server(client: &Client, options: &NatsOptions) -> Result<(), NatsOpenError> {
    let info = client.server_info();
    let old = |version: &str, oldest: (u64, u64, u64)| {
        let (major, minor, patch) = oldest;
        let what = format!("the NATS server has version {version}");
        setting(what, format!("use version {major}.{minor}.{patch} or newer"))
    };
    if version(&info.version) < OLDEST {
        return Err(old(&info.version, OLDEST));
    }
    if info.max_payload < PAYLOAD_MIN {
        let what = format!("the NATS server takes messages of {} bytes only", info.max_payload);
        return Err(setting(what, format!("set `max_payload` to {PAYLOAD_MIN} or more")));
    }
    if options.durability != Durability::PowerLoss {
        return Ok(());
    }
    if options.monitors.len() < options.replicas.max(1) {
        let what = "whether the NATS servers survive a loss of power cannot be seen";
        let remedy = "set `monitors` in [store] to the monitoring address of every server";
        return Err(setting(what, remedy));
    }
    for monitor in &options.monitors {
        let varz = varz(monitor).await.map_err(|cause| {
            let what = format!("the NATS server's settings cannot be read at {monitor}: {cause}");
            setting(what, "start it with `http_port`, and correct `monitors` in [store]")
        })?;
        let found = varz.get("version").and_then(Value::as_str).unwrap_or_default();
        if version(found) < OLDEST_SAFE {
            return Err(old(found, OLDEST_SAFE));
        }
        let always = varz.pointer("/jetstream/config/sync_always").and_then(Value::as_bool);
        if always != Some(true) {
            let what = format!(
                "the NATS server at {monitor} acknowledges before it syncs, so a loss of power \
                 loses what it acknowledged"
            );
            let remedy = "set `sync_interval: always` in its `jetstream` block, or \
                          `durability = \"process-crash\"` in [store]";
            return Err(setting(what, remedy));
        }
    }
    Ok(())
}

fn version(text: &str) -> (u64, u64, u64) {
    let numbers = text.split(['.', '-']).map(|part| part.parse().unwrap_or_default());
    let mut numbers = numbers.chain([0, 0, 0]);
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next(), next())
}

/// What a server says of itself at its monitoring address.
async fn varz(monitor: &str) -> Result<Value, String> {
    let rest = monitor.strip_prefix("http://").ok_or("it has to begin with http://")?;
    let host = rest.trim_end_matches('/');
    let asked = async {
        let mut connection = TcpStream::connect(host).await?;
        let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        connection.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(CONNECT, asked).await.map_err(|_| "no answer in time")?;
    let answer = answer.map_err(|error| error.to_string())?;
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").ok_or("not an HTTP answer")?;
    serde_json::from_slice(&answer[end + 4..]).map_err(|error| error.to_string())
}

/// Creates the stream, or looks whether the one that is there will do.
pub(super) async fn ensure_stream(api: &Api, options: &NatsOptions) -> Result<(), NatsOpenError> {
    let failed = |error: AskError| NatsOpenError::Stream {
        stream: options.stream.clone(),
        cause: error.to_string(),
    };
    let info = match api.stream_info().await {
        Ok(info) => info,
        Err(error) if error.is_no_stream() => {
            let bytes_max = options.bytes_max.and_then(|max| i64::try_from(max).ok());
            let config = json!({
                "name": options.stream,
                "subjects": [format!("{}.>", options.stream)],
                "retention": "limits",
                "storage": "file",
                "num_replicas": options.replicas,
                "max_consumers": -1,
                "max_msgs": -1,
                "max_msgs_per_subject": -1,
                "max_bytes": bytes_max.unwrap_or(-1),
                "max_age": 0,
                "max_msg_size": -1,
                // What is kept is never dropped to make room.
                "discard": "new",
                "duplicate_window": 120_000_000_000_u64,
                "allow_rollup_hdrs": true,
                "allow_direct": true,
                "allow_msg_ttl": true,
                "allow_atomic": true,
            });
            api.create_stream(config).await.map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    let config = info.get("config").unwrap_or(&Value::Null);
    for flag in ["allow_rollup_hdrs", "allow_direct", "allow_msg_ttl", "allow_atomic"] {
        if config.get(flag).and_then(Value::as_bool) != Some(true) {
            let what = format!("the stream {} does not have `{flag}`", options.stream);
            return Err(setting(what, "let Wellspring create the stream, or set it"));
        }
    }
    let replicas = config.get("num_replicas").and_then(Value::as_u64).unwrap_or_default();
    if options.durability == Durability::PowerLoss && replicas < options.replicas as u64 {
        let what = format!("the stream {} has {replicas} replicas", options.stream);
        let remedy = format!("set `num_replicas` of the stream to {}", options.replicas);
        return Err(setting(what, remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("2.9.10") < OLDEST);
        assert!(version("2.12.2") < OLDEST_SAFE);
        assert!(version("2.12.3") >= OLDEST_SAFE && version("2.15.1-rc.1") >= OLDEST_SAFE);
        assert!(version("") < OLDEST);
    }
}
