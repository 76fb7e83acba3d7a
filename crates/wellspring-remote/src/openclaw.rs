//! Agents of an [OpenClaw](https://docs.openclaw.ai) gateway.
//!
//! All runs of an [`OpenClawAgent`] share one WebSocket. The gateway tells every client
//! everything, so events are routed by run id; a run is registered before it is asked for. A run
//! of ours keeps the name of its run at the gateway in its handle, so that it is found again
//! after a lost connection and after a restart of this process.
//!
//! # What is deliberately absent
//!
//! Our tools: the gateway has its own, and no way to borrow one. Input in mid-run: it is the
//! user's next message, once the agent has finished.
//!
//! # What is promised
//!
//! A run goes on after a lost connection without repeating a word, and is never asked for twice.
//! If the gateway itself was restarted, its runs are gone: ours fail, with what was said.

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
    Batch, Context, FailureKind, ModelError, RemoteAgent, RemoteCapabilities, RemoteInputs,
    RemoteRequest, RemoteResume,
};

use self::connection::Link;
use self::drive::Drive;
pub use self::identity::{DeviceIdentity, IdentityError};
use crate::circuit::Circuit;

/// How long a run may say nothing, unless configured otherwise.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(120);

/// Runs that one connection carries at once. It is what the gateway's other clients keep to;
/// further runs wait.
pub const RUNS_MAX: usize = 50;

/// Runs that wait for a place. With more the gateway is hopelessly behind, and a clear error
/// helps more than a longer queue.
pub const RUNS_WAITING_MAX: usize = 1_000;

/// Where a gateway is, and who we are for it.
#[derive(Clone, PartialEq)]
pub struct OpenClawConfig {
    /// The WebSocket: `ws://` or `wss://`.
    pub url: Box<str>,
    /// The gateway's token. It is not shown.
    pub token: Option<Box<str>>,
    /// The gateway's password, if it has one instead. It is not shown.
    pub password: Option<Box<str>>,
    /// The identity of this device. Gateways on other machines want one.
    pub identity: Option<DeviceIdentity>,
    /// The gateway's agent.
    pub agent: Box<str>,
    /// How long a run may say nothing. Then it is aborted and fails.
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

/// A gateway that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenClawError {
    /// The address is not one of a WebSocket.
    #[error("{url:?} is not a ws or wss URL")]
    BadUrl {
        /// The address.
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
    /// The connection, once there is one.
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// Places on the connection.
    places: Arc<Semaphore>,
    /// Places in the queue for a place.
    queue: Arc<Semaphore>,
    circuit: Circuit,
}

impl OpenClawAgent {
    /// An agent by its name in the log. Nothing is sent before its first run.
    ///
    /// # Errors
    ///
    /// If the URL cannot be used.
    pub fn new(name: impl Into<Box<str>>, config: OpenClawConfig) -> Result<Self, OpenClawError> {
        let request = (*config.url).into_client_request().ok();
        let scheme = request.as_ref().and_then(|request| request.uri().scheme_str());
        if !matches!(scheme, Some("ws" | "wss")) {
            return Err(OpenClawError::BadUrl { url: config.url });
        }
        let shared = Shared {
            name: name.into(),
            config,
            link: tokio::sync::Mutex::default(),
            places: Arc::new(Semaphore::new(RUNS_MAX)),
            queue: Arc::new(Semaphore::new(RUNS_WAITING_MAX)),
            circuit: Circuit::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Connects to the gateway, and says its version.
    ///
    /// # Errors
    ///
    /// If the gateway cannot be reached or refuses us; the message says what to do.
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

    /// The connection that all runs share; made if there is none, or if it was lost.
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
