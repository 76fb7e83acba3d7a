//! The state that all requests share, and the extractors for callers, queries and bodies.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, OriginalUri, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wellspring_core::{Millis, RunId, RunRequest};
use wellspring_engine::{AgentDef, Control, DEFAULT_TENANT, Permission, Principal, Runtime};
use wellspring_log::{Expected, RunInfo};
use wellspring_wire::{DialectChoice, WirePosition};

use crate::auth::{AuthError, Authenticate, Signer};
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::guard::Caller;
use crate::limits::{BytesPass, Gates};
use crate::metrics::Metrics;
use crate::stream::{Carrier, EventPage, EventStream, Folds, Surroundings, Wanted, page};
use crate::surfaces::PolledSessions;

/// Time limit for reading a request's body: enough for a large one on a slow connection. A client
/// that sends single bytes cannot keep a connection open indefinitely.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

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

    /// Fails if the store cannot be written. The put has an impossible expectation, so it takes the
    /// store's write lock but writes nothing.
    pub(crate) async fn check_store(&self) -> Result<(), ApiError> {
        let expected = Expected::Revision(u64::MAX);
        self.runtime.log().store().put_document("server.ready".into(), None, expected).await?;
        Ok(())
    }

    /// The metrics, in the text format of Prometheus.
    pub(crate) fn metrics_text(&self) -> String {
        let log = self.runtime.log();
        self.metrics.render(&[
            ("wellspring_runs", "Active runs in this process.", self.runtime.live_runs() as u64),
            ("wellspring_log_runs", "Runs written or read here now.", log.live_runs() as u64),
            (
                "wellspring_log_tail_bytes",
                "Bytes kept for slower readers.",
                log.tail_bytes() as u64,
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

/// A run's id as a client writes it.
pub(crate) fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|_| ApiError::no_run(text))
}

pub(crate) fn allow(who: &Principal, permission: Permission) -> Result<(), ApiError> {
    if who.may(permission) { Ok(()) } else { Err(ApiError::not_permitted(permission)) }
}

/// Extractors of the caller, after a permission check.
macro_rules! may {
    ($($(#[$doc:meta])* $name:ident => $scope:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Principal);

        impl FromRequestParts<App> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
                let who = app.authenticate(parts).await?;
                allow(&who, Permission::$scope)?;
                Ok(Self(who))
            }
        }
    )*};
}

/// An administrator of the whole server: has `admin` in the default tenant.
pub(crate) struct Operator;

impl FromRequestParts<App> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let MayAdminister(who) = MayAdminister::from_request_parts(parts, app).await?;
        if *who.tenant == *DEFAULT_TENANT {
            return Ok(Self);
        }
        let message = "this is about all tenants, and this token is of one of them";
        let remedy = "use a token with `admin` of the tenant `default`";
        Err(ApiError::new(StatusCode::FORBIDDEN, "operators_only", message, remedy))
    }
}

may! {
    /// May look at runs.
    MayRead => Read;
    /// May start, steer and cancel runs.
    MayRun => Run;
    /// May answer questions.
    MayApprove => Approve;
    /// May see what operators see.
    MayAdminister => Admin;
}

/// The path under which an application has mounted the API: `/agents`, or empty. Every path that is
/// sent to a client begins with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Prefix(pub(crate) Box<str>);

impl Prefix {
    fn of(original: &Uri, inner: &Uri) -> Self {
        let (original, inner) = (original.path(), inner.path());
        let prefix = match original.strip_suffix(inner) {
            Some(prefix) => prefix,
            // The mounted root, requested without a trailing slash.
            None if inner == "/" => original,
            // A layer has rewritten the path, so the prefix cannot be known.
            None => "",
        };
        Self(prefix.into())
    }
}

impl FromRequestParts<App> for Prefix {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Self::Rejection> {
        let original = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |it| &it.0);
        Ok(Self::of(original, &parts.uri))
    }
}

/// The trace that a request belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trace {
    pub(crate) id: Box<str>,
    /// The caller's span, as its `traceparent` says it.
    pub(crate) parent: Option<Box<str>>,
}

impl Trace {
    /// A request to an agent, as a part of this trace.
    pub(crate) fn with(self, request: RunRequest) -> RunRequest {
        RunRequest { trace_id: Some(self.id), trace_parent: self.parent, ..request }
    }
}

/// A request without its body, for handlers that authenticate by themselves.
pub(crate) struct RequestHead(pub(crate) Parts);

impl FromRequestParts<App> for RequestHead {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.clone()))
    }
}

/// The query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::bad("bad_query", error.body_text()))?;
        Ok(Self(params))
    }
}

/// A JSON body, within the limit. An empty body counts as `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    fn from_request(
        request: Request,
        app: &App,
    ) -> impl Future<Output = Result<Self, ApiError>> + Send {
        let limit = app.config.limits.body_bytes;
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let mut pass = app.gates.bytes(caller.name());
        async move {
            let bytes = read_body(request.into_body(), limit, &mut pass).await?;
            let text = if bytes.is_empty() { b"{}" } else { &bytes[..] };
            // serde would accept an array as the fields of a struct, in order.
            if text.trim_ascii_start().first() == Some(&b'[') {
                return Err(ApiError::bad("bad_json", "the body: a list, where an object belongs"));
            }
            let value = serde_json::from_slice(text)
                .map_err(|error| ApiError::bad("bad_json", format!("the body: {error}")))?;
            Ok(Self(value))
        }
    }
}

/// Reads a text body of this principal, within the limit. What it holds counts for as long as the
/// pass is kept.
pub(crate) async fn text_body(
    app: &App,
    who: &Principal,
    body: Body,
) -> Result<(String, BytesPass), ApiError> {
    let mut pass = app.gates.bytes(&who.id);
    let bytes = read_body(body, app.config.limits.body_bytes, &mut pass).await?;
    let not_text = |_| ApiError::bad("bad_utf8", "the body is not valid UTF-8");
    Ok((String::from_utf8(bytes).map_err(not_text)?, pass))
}

/// Reads a body, within the limits of its size, its time and the total of all bodies.
async fn read_body(body: Body, limit: usize, pass: &mut BytesPass) -> Result<Vec<u8>, ApiError> {
    let mut body = Limited::new(body, limit);
    let mut bytes = Vec::new();
    let collect = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken_off(&*error, limit))?;
            let Ok(data) = frame.into_data() else { continue };
            pass.grow(data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIMEOUT, collect).await {
        Ok(collected) => collected.map(|()| bytes),
        Err(_) => {
            let message = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            let remedy = "send it faster, or name files by URL instead of sending them";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message, remedy))
        }
    }
}

fn broken_off(error: &(dyn std::error::Error + 'static), limit: usize) -> ApiError {
    if !error.is::<LengthLimitError>() {
        return ApiError::bad("bad_body", format!("the body broke off: {error}"));
    }
    let message = format!("the body is larger than {limit} bytes");
    let remedy = "name files by URL instead of sending them";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, remedy)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};

    use super::*;
    use crate::config::ServerLimits;

    /// A client that sends one byte every ten seconds gets an error, and its request ends.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_in_is_given_up() {
        let trickle = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(axum::body::Bytes::from_static(b" "))
        });
        let since = Instant::now();
        let gates = Gates::new(&ServerLimits::default());
        let mut pass = gates.bytes("");
        let error = read_body(Body::from_stream(trickle), 1000, &mut pass).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (408, "too_slow"));
        assert_eq!(since.elapsed(), BODY_TIMEOUT);
    }
}
