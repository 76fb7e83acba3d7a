//! Agents of an [OpenClaw](https://docs.openclaw.ai) gateway.
//!
//! All runs of an [`OpenClawAgent`] share one WebSocket. The gateway sends all events to every
//! client, so events are routed by run id; a run is registered before it is requested. The
//! handle of a run holds the id of its run at the gateway, so that it is found again after a
//! lost connection and after a restart of this process.
//!
//! # What is deliberately absent
//!
//! Our tools: the gateway has its own, and cannot call ours. Input to an active run: it is the
//! user's next message, once the agent has finished. The gateway steers only runs that were started
//! with `chat.send`, which takes neither instructions nor a model.
//!
//! # What is promised
//!
//! A run continues after a lost connection without repeated text, and is never requested twice.
//! If the gateway itself was restarted, its runs are lost: ours fail, and keep their text.

mod connection;
mod drive;
mod identity;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use wellspring_core::{
    Batch, Circuit, Context, FailureKind, ModelError, RemoteAgent, RemoteCapabilities,
    RemoteInputs, RemoteRequest, RemoteResume,
};

use self::connection::Link;
use self::drive::Drive;
pub use self::identity::{DeviceIdentity, IdentityError};

/// Default time that a run may send nothing.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(120);

/// Concurrent runs per connection, the same limit as the gateway's other clients have; further
/// runs wait.
pub const RUNS_MAX: usize = 50;

/// Runs that may wait for a connection slot. Beyond that the gateway is overloaded, and a clear
/// error is better than a longer queue.
pub const RUNS_WAITING_MAX: usize = 1_000;

/// The configuration of a gateway.
#[derive(Clone, PartialEq)]
pub struct OpenClawConfig {
    /// The URL of the WebSocket: `ws://` or `wss://`.
    pub url: Box<str>,
    /// The gateway's token. It is redacted in `Debug`.
    pub token: Option<Box<str>>,
    /// The gateway's password, if it uses one instead. It is redacted in `Debug`.
    pub password: Option<Box<str>>,
    /// The identity of this device, which gateways on other machines require.
    pub identity: Option<DeviceIdentity>,
    /// The gateway's agent.
    pub agent: Box<str>,
    /// How long a run may send nothing. Then it is aborted and fails.
    pub idle: Duration,
}

impl OpenClawConfig {
    /// The agent `main` of a gateway.
    #[must_use]
    pub fn new(url: impl Into<Box<str>>) -> Self {
        Self {
            url: url.into(),
            token: None,
            password: None,
            identity: None,
            agent: "main".into(),
            idle: IDLE_DEFAULT,
        }
    }
}

impl fmt::Debug for OpenClawConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClawConfig")
            .field("url", &self.url)
            .field("identity", &self.identity)
            .field("agent", &self.agent)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

/// An invalid configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenClawError {
    /// The URL is not a WebSocket URL.
    #[error("{url:?} is not a ws or wss URL")]
    BadUrl {
        /// The URL.
        url: Box<str>,
    },
}

/// An agent of an OpenClaw gateway.
#[derive(Clone)]
pub struct OpenClawAgent {
    shared: Arc<Shared>,
}

struct Shared {
    name: Box<str>,
    config: OpenClawConfig,
    /// The connection; `None` before the first one.
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// Slots of the connection.
    places: Arc<Semaphore>,
    /// Slots in the queue for a connection slot.
    queue: Arc<Semaphore>,
    circuit: Circuit,
}

impl OpenClawAgent {
    /// Creates an agent. `name` is its name in the log. Nothing is sent before its first run.
    ///
    /// # Errors
    ///
    /// If the URL is invalid.
    pub fn new(name: impl Into<Box<str>>, config: OpenClawConfig) -> Result<Self, OpenClawError> {
        let request = (*config.url).into_client_request().ok();
        let scheme = request.as_ref().and_then(|request| request.uri().scheme_str());
        if !matches!(scheme, Some("ws" | "wss")) {
            return Err(OpenClawError::BadUrl { url: config.url });
        }
        let name = name.into();
        let circuit = Circuit::new(&*name);
        let shared = Shared {
            name,
            config,
            link: tokio::sync::Mutex::default(),
            places: Arc::new(Semaphore::new(RUNS_MAX)),
            queue: Arc::new(Semaphore::new(RUNS_WAITING_MAX)),
            circuit,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Connects to the gateway. Returns its version.
    ///
    /// # Errors
    ///
    /// If the gateway cannot be reached or rejects us. The message contains a remedy.
    pub async fn check(&self) -> Result<Box<str>, ModelError> {
        let link = self.shared.link().await?;
        Ok(link.hello.version.clone())
    }
}

impl RemoteAgent for OpenClawAgent {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities { inputs: RemoteInputs::FollowUp, resume: RemoteResume::SameParts }
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        crate::drive::run(Drive::new(Arc::clone(&self.shared), request, context))
    }
}

impl fmt::Debug for OpenClawAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, config, .. } = &*self.shared;
        f.debug_struct("OpenClawAgent").field("name", name).field("config", config).finish()
    }
}

impl Shared {
    fn error(&self, kind: FailureKind, what: &str) -> ModelError {
        let secrets = [self.config.token.as_deref(), self.config.password.as_deref()];
        let secrets = secrets.into_iter().flatten().filter(|secret| !secret.is_empty());
        ModelError::new(&*self.name, kind, what).redacted(secrets)
    }

    /// The connection that all runs share, opened if there is none or if it was lost.
    async fn link(&self) -> Result<Arc<Link>, ModelError> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(Arc::clone(link));
        }
        let new = Arc::new(Link::open(self).await?);
        *link = Some(Arc::clone(&new));
        Ok(new)
    }
}
