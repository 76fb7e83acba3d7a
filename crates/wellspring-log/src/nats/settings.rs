//! Options of the store, the connection, and the checks of the servers and of the stream.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::rustls::Error as TlsError;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
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

/// The oldest server version with the features that the store uses: atomic batches and expiring
/// messages.
const OLDEST: (u64, u64, u64) = (2, 12, 0);

/// The oldest server version in which synced messages survive a power loss.
const OLDEST_SAFE: (u64, u64, u64) = (2, 12, 3);

/// Maximum size of a server's monitoring response in bytes.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// The smallest accepted `max_payload`: with less, few frames would fit.
const PAYLOAD_MIN: usize = 4 * OVERHEAD_BYTES;

/// Options of a NATS store.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The servers' addresses, separated by commas, such as `nats://10.0.0.1:4222`.
    pub address: Box<str>,
    /// How this process authenticates.
    pub auth: NatsAuth,
    /// The TLS options of connections.
    pub tls: NatsTls,
    /// The stream's name, which is also the prefix of all subjects. The stream is created if it
    /// does not exist.
    pub stream: Box<str>,
    /// The number of servers that store each message.
    pub replicas: usize,
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// The monitoring addresses of all servers, such as `http://10.0.0.1:8222`. Required by
    /// [`Durability::PowerLoss`], which checks the servers' settings there.
    pub monitors: Vec<Box<str>>,
    /// Maximum size of the stream in bytes; `None` for no limit.
    pub bytes_max: Option<u64>,
    /// See [`NATS_INDEX_BYTES_MAX`].
    pub index_bytes_max: usize,
    /// See [`NATS_SETTLE`].
    pub settle: Duration,
}

/// How a process authenticates to the servers.
#[derive(Clone, Default)]
pub enum NatsAuth {
    /// Without credentials.
    #[default]
    None,
    /// With a token.
    Token(Box<str>),
    /// With a user name and a password.
    User {
        /// The user name.
        name: Box<str>,
        /// The password.
        password: Box<str>,
    },
    /// With a credentials file: a JWT and a seed.
    Credentials(PathBuf),
}

/// The TLS options of connections. TLS is required if the address begins with `tls://`. Server
/// certificates are verified with the system's root certificates unless `root_certificates` is set.
#[derive(Clone, Debug, Default)]
pub struct NatsTls {
    /// A PEM file with the root certificates that may sign the servers' certificates.
    pub root_certificates: Option<PathBuf>,
    /// PEM files with our own certificate and its key, for servers that require a client
    /// certificate.
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
    /// Options for servers at an address, with the defaults.
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

/// A NATS store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsOpenError {
    /// No server could be reached, or the server refused the login or a certificate.
    #[error("could not connect to NATS at {address}: {cause}; {remedy}")]
    Connect {
        /// The address.
        address: Box<str>,
        /// The cause.
        cause: String,
        /// How to correct it.
        remedy: &'static str,
    },
    /// A setting of a server or of the stream is not sufficient.
    #[error("{what}; {remedy}")]
    Setting {
        /// The setting that was found.
        what: String,
        /// How to correct it.
        remedy: String,
    },
    /// JetStream rejected a request, or did not answer it.
    #[error(
        "could not use the stream {stream}: {cause}; check that the NATS servers run with \
         JetStream, and that our login may use it"
    )]
    Stream {
        /// The stream's name.
        stream: Box<str>,
        /// The cause.
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
    let failed = |cause: String, remedy| {
        let address = options.address.clone();
        NatsOpenError::Connect { address, cause, remedy }
    };
    let name = &options.stream;
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        let what = format!("{name:?} cannot be the name of a stream");
        return Err(setting(what, "use letters, digits, `-` and `_`"));
    }
    if options.address.contains('@') {
        // An address with credentials is refused, because addresses appear in errors and logs.
        let what = "the address of the NATS servers contains a name or a token";
        return Err(setting(what, "remove it from the address, and say it apart"));
    }
    let connecting = ConnectOptions::new()
        .name("wellspring")
        .connection_timeout(CONNECT)
        .ping_interval(Duration::from_secs(5))
        // Reconnects without limit, because runs outlive a server's restart.
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| {
            Duration::from_millis(50 * u64::try_from(attempt.clamp(1, 40)).unwrap_or(40))
        });
    let cannot = |file: &Path, error: std::io::Error| {
        failed(format!("cannot read {}: {error}", file.display()), FILES)
    };
    let ours = options.tls.client_certificate.iter().flat_map(|(it, key)| [it, key]);
    for file in options.tls.root_certificates.iter().chain(ours) {
        tokio::fs::read(file).await.map_err(|error| cannot(file, error))?;
    }
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
            let text = text.map_err(|error| cannot(file, error))?;
            connecting.credentials(&text).map_err(|error| cannot(file, error))?
        }
    };
    let addresses: Result<Vec<async_nats::ServerAddr>, _> =
        options.address.split(',').map(|address| address.trim().parse()).collect();
    let addresses = addresses.map_err(|error| failed(error.to_string(), REACHABLE))?;
    let connected = timeout(CONNECT, connecting.connect(addresses)).await;
    let connected = connected.map_err(|_| failed("it took too long".into(), REACHABLE))?;
    let client = connected.map_err(|error| {
        let (cause, remedy) = explain(&error, &options.auth);
        failed(cause, remedy)
    })?;
    check_server(&client, options).await?;
    Ok(client)
}

/// What to do if no server can be reached.
const REACHABLE: &str = "check `address` in [store], and that the NATS servers run";

/// What to do if a file cannot be used.
const FILES: &str = "in [store.nats], `ca_file`, `certificate_file` and `key_file` are files in \
                     PEM, and `credentials_file` is a file with a JWT and a seed";

/// Why connecting failed, and what to do.
fn explain(error: &ConnectError, auth: &NatsAuth) -> (String, &'static str) {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let tls = io.and_then(|io| io.get_ref()?.downcast_ref::<TlsError>());
    match (error.kind(), tls) {
        (_, Some(TlsError::InvalidCertificate(cause))) => (
            format!("the server's certificate is not accepted: {cause}"),
            "set `ca_file` in [store.nats] to the certificates that signed it, and use a host \
             name in `address` that it was made for",
        ),
        (_, Some(TlsError::AlertReceived(alert))) => (
            format!("the server does not accept our certificate: {alert:?}"),
            "set `certificate_file` and `key_file` in [store.nats] to a certificate that the \
             server trusts",
        ),
        (_, Some(TlsError::InvalidMessage(_))) => (
            "the server does not use TLS".into(),
            "set `tls` in the server's configuration, or begin `address` with nats:// and remove \
             `ca_file` and `certificate_file` from [store.nats]",
        ),
        (ConnectErrorKind::Tls, _) => (error.to_string(), FILES),
        (ConnectErrorKind::AuthorizationViolation, _) if matches!(auth, NatsAuth::None) => (
            "the server requires a login".into(),
            "set `user`, `token_env` or `credentials_file` in [store.nats]",
        ),
        (ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication, _) => (
            "the server refused the login".into(),
            "check the user and the password, the token or the credentials file that \
             [store.nats] names",
        ),
        _ => (error.to_string(), REACHABLE),
    }
}

/// Checks that the servers have the required version, settings and durability.
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

/// A server's variables (`/varz`), read from its monitoring address.
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

/// Creates the stream, or checks the settings of the existing one.
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
                // A full stream refuses new messages instead of dropping old ones.
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
