//! The state that all requests share.

mod body;
mod extract;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wellspring_core::Millis;
use wellspring_engine::{AgentDef, Control, Principal, Runtime};
use wellspring_log::RunInfo;
use wellspring_wire::{DialectChoice, WirePosition};

pub(crate) use self::body::{JsonBody, text_body};
pub(crate) use self::extract::{
    MayAdminister, MayApprove, MayRead, MayRun, Operator, Params, Prefix, RequestHead, Trace,
    allow, run_id,
};
use crate::auth::{AuthError, Authenticate, Signer};
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::limits::Gates;
use crate::metrics::Metrics;
use crate::middleware::Caller;
use crate::stream::{Carrier, EventPage, EventStream, Folds, Surroundings, Wanted, page};
use crate::surfaces::PolledSessions;

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) runtime: Runtime,
    pub(crate) auth: Arc<dyn Authenticate>,
    /// The address of our own listener; `None` if an application has mounted the API.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) signer: Signer,
    pub(crate) gates: Gates,
    pub(crate) metrics: Metrics,
    folds: Arc<Folds>,
    /// The Socket.IO sessions that poll.
    pub(crate) polled: PolledSessions,
    /// Cancelled when a shutdown begins: no new runs start.
    pub(crate) draining: CancellationToken,
    /// Cancelled at the end of a shutdown: streams end.
    pub(crate) closing: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub(crate) fn new(
        config: ServerConfig,
        runtime: Runtime,
        auth: Arc<dyn Authenticate>,
        address: Option<SocketAddr>,
        signer: Signer,
        metrics: Metrics,
    ) -> Self {
        let gates = Gates::new(&config.limits);
        Self(Arc::new(Shared {
            config,
            runtime,
            auth,
            address,
            signer,
            gates,
            metrics,
            folds: Arc::default(),
            polled: PolledSessions::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
        }))
    }

    /// An agent by its name.
    pub(crate) fn agent(&self, name: &str) -> Result<Arc<AgentDef>, ApiError> {
        self.runtime
            .agent(name)
            .ok_or_else(|| ApiError::no_agent(format!("there is no agent {name:?}")))
    }

    /// What a caller may do with the runs.
    pub(crate) fn control(&self, who: &Principal) -> Control {
        self.runtime.control(who.clone())
    }

    /// Reads one page of a run's events.
    pub(crate) async fn page(
        &self,
        info: &RunInfo,
        dialect: &DialectChoice,
        after: WirePosition,
        until: Option<Instant>,
    ) -> Result<EventPage, ApiError> {
        Ok(page(self.runtime.log(), info, dialect, after, until).await?)
    }

    /// Fails if the store cannot be written.
    pub(crate) async fn check_store(&self) -> Result<(), ApiError> {
        self.runtime.log().store().ready().await.map_err(|error| ApiError::not_ready(&error))
    }

    /// The metrics, in the text format of Prometheus.
    pub(crate) fn metrics_text(&self) -> String {
        let log = self.runtime.log();
        let nodes = log.nodes();
        let is_node = usize::from(nodes.owned > 0);
        self.metrics.render(&[
            ("wellspring_runs", "Active runs in this process.", self.runtime.live_runs() as u64),
            ("wellspring_log_runs", "Runs written or read here now.", log.live_runs() as u64),
            (
                "wellspring_log_tail_bytes",
                "Bytes kept for slower readers.",
                log.tail_bytes() as u64,
            ),
            (
                "wellspring_nodes",
                "Processes that own runs, as this one last saw them.",
                (nodes.others + is_node) as u64,
            ),
            (
                "wellspring_nodes_silent",
                "Of these, processes that gave no sign of life for a lease.",
                nodes.silent as u64,
            ),
            ("wellspring_leases", "Runs that this process owns.", nodes.owned as u64),
            (
                "wellspring_take_overs_total",
                "Runs that this process took over from silent ones.",
                nodes.take_overs,
            ),
            (
                "wellspring_runs_lost_total",
                "Runs that other processes took over from this one.",
                nodes.lost,
            ),
        ])
    }

    pub(crate) fn now(&self) -> Millis {
        self.runtime.now()
    }

    /// Opens an event stream, within the limits.
    pub(crate) async fn stream(
        &self,
        who: &Principal,
        wanted: Wanted,
        asked_at: Option<Instant>,
    ) -> Result<EventStream, ApiError> {
        self.open_stream(who, wanted, Carrier::Response, asked_at).await
    }

    /// Opens an event stream that shares a socket with others, within the limits.
    pub(crate) async fn subscribe(
        &self,
        who: &Principal,
        wanted: Wanted,
        asked_at: Option<Instant>,
    ) -> Result<EventStream, ApiError> {
        self.open_stream(who, wanted, Carrier::Messages, asked_at).await
    }

    async fn open_stream(
        &self,
        who: &Principal,
        wanted: Wanted,
        carrier: Carrier,
        asked_at: Option<Instant>,
    ) -> Result<EventStream, ApiError> {
        let around = Surroundings {
            carrier,
            log: self.runtime.log().clone(),
            folds: Arc::clone(&self.folds),
            metrics: self.metrics.clone(),
            keep_alive: self.config.keep_alive,
            closing: self.closing.clone().cancelled_owned(),
            _pass: self.gates.stream(who)?,
            held: self.gates.bytes(&who.id),
            asked_at,
        };
        EventStream::open(wanted, around).await
    }

    /// Authenticates a request and counts it against the principal's rate.
    pub(crate) async fn authenticate(&self, request: &Parts) -> Result<Principal, ApiError> {
        let who = self.auth.authenticate(request).await;
        self.counted(request, who.map_err(|error| self.refused(&error))?)
    }

    /// The principal for whom a URL was signed, with the permissions that it has now. An error if it
    /// no longer exists.
    pub(crate) async fn signer_of(&self, request: &Parts, id: &str) -> Result<Principal, ApiError> {
        let who = self.auth.principal(id).await.map_err(|error| self.refused(&error))?;
        let gone = || self.unauthorized("bad_token", "the token is not known any more");
        self.counted(request, who.ok_or_else(gone)?)
    }

    fn counted(&self, request: &Parts, who: Principal) -> Result<Principal, ApiError> {
        if let Some(caller) = request.extensions.get::<Caller>() {
            caller.is(&who);
        }
        self.gates.token(&who)?;
        Ok(who)
    }

    pub(crate) fn refused(&self, error: &AuthError) -> ApiError {
        match error {
            AuthError::Missing => self.unauthorized("no_token", "this needs a token"),
            AuthError::Unknown => self.unauthorized("bad_token", "this token is not known"),
            AuthError::Failed(cause) => {
                tracing::error!(error = &**cause as &dyn std::error::Error, "{error}");
                let remedy = "try again; the server's log says more";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                ApiError::new(status, "store", error.to_string(), remedy).retry_after(5)
            }
        }
    }

    pub(crate) fn unauthorized(&self, code: &'static str, message: &str) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, code, message, self.auth.remedy())
    }
}
