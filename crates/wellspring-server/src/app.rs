//! What every request shares, and who may make which.

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
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wellspring_core::{RunId, ThreadId};
use wellspring_engine::{DEFAULT_TENANT, LOCAL, Permission, Principal, Runtime};
use wellspring_log::{ExternalId, RunInfo};

use crate::auth::{AuthError, Authenticate, Signer};
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::guard::Caller;
use crate::limits::{BytesPass, Gates, RunPass};
use crate::metrics::Metrics;
use crate::stream::{EventStream, Folds, Surroundings, Wanted};
use crate::turns::{Turn, Turns};

/// How long a request's body may take: a large one on a slow line. Whoever sends a byte now and
/// then does not keep a connection for ever.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// What every request shares. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) runtime: Runtime,
    pub(crate) auth: Arc<dyn Authenticate>,
    /// Where it listens itself; `None` where an application has mounted it.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) signer: Signer,
    pub(crate) gates: Gates,
    pub(crate) metrics: Metrics,
    folds: Arc<Folds>,
    turns: Turns,
    /// Nothing new is begun.
    pub(crate) draining: CancellationToken,
    /// Streams end.
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
        let gates = Gates::new(&config.limits, runtime.clone());
        Self(Arc::new(Shared {
            config,
            runtime,
            auth,
            address,
            signer,
            gates,
            metrics,
            folds: Arc::default(),
            turns: Turns::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
        }))
    }

    /// A run of the caller's tenant. Nobody can tell another's run from one that is not.
    pub(crate) async fn run_of(&self, who: &Principal, id: &str) -> Result<RunInfo, ApiError> {
        let Ok(run) = id.parse::<RunId>() else { return Err(ApiError::no_run(id)) };
        let info = self.runtime.log().store().info(run).await?;
        info.filter(|info| *info.tenant == *who.tenant).ok_or_else(|| ApiError::no_run(id))
    }

    /// Opens an event stream, within the limits.
    pub(crate) async fn stream(
        &self,
        who: &Principal,
        wanted: Wanted,
        asked_at: Option<Instant>,
    ) -> Result<EventStream, ApiError> {
        let around = Surroundings {
            log: self.runtime.log().clone(),
            folds: Arc::clone(&self.folds),
            metrics: self.metrics.clone(),
            keep_alive: self.config.keep_alive,
            closing: self.closing.clone().cancelled_owned(),
            _pass: self.gates.stream(who)?,
            asked_at,
        };
        EventStream::open(wanted, around).await
    }

    /// Alone with an outside id: two requests that name the same do not start two runs.
    pub(crate) async fn alone(&self, id: &ExternalId) -> Turn {
        self.turns.take(id).await
    }

    /// Lets one more run start, within the limits; held until it has.
    pub(crate) fn may_start(&self, who: &Principal, run: RunId) -> Result<RunPass, ApiError> {
        if self.draining.is_cancelled() {
            return Err(ApiError::draining());
        }
        self.gates.run(who, run)
    }

    /// Takes note of a run that goes on here, though nobody has just started it.
    pub(crate) async fn goes_on(&self, run: RunId) -> Result<(), ApiError> {
        let transcript = self.runtime.log().transcript(run).await?;
        let by = transcript.started.and_then(|started| started.request.by.clone());
        // Whoever had no token has no limit of their own.
        if let Some(by) = by.filter(|by| **by != *LOCAL) {
            self.gates.run_goes_on(&by, run);
        }
        Ok(())
    }

    /// The principal who makes a request, within the limits.
    pub(crate) async fn authenticate(&self, request: &Parts) -> Result<Principal, ApiError> {
        let who = self.auth.authenticate(request).await;
        self.counted(request, who.map_err(|error| self.refused(&error))?)
    }

    /// The principal in whose name an address was signed. It may be gone, or may do less, since.
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

    fn refused(&self, error: &AuthError) -> ApiError {
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

pub(crate) fn allow(who: &Principal, scope: Permission) -> Result<(), ApiError> {
    if who.may(scope) {
        return Ok(());
    }
    let message = format!("this needs the permission `{}`", scope.as_str());
    let remedy = "ask an operator for it; tokens: `wellspring token create --scope`";
    Err(ApiError::new(StatusCode::FORBIDDEN, "scope", message, remedy))
}

/// The thread that a surface's own id means: always the same one, whichever of its runs are
/// still there. Nothing has to be kept for it.
pub(crate) fn thread_named(name: &ExternalId) -> ThreadId {
    let mut hasher = Sha256::new();
    for text in [&name.tenant, &name.surface, &name.id] {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize()[..16]);
    ThreadId::new(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// Extractors: whoever calls, once it is clear that they may.
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

/// Looks after the server itself, for all tenants.
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

/// The path under which an application has mounted the API: `/agents`, or nothing. Every path
/// that a client is told begins with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Prefix(pub(crate) Box<str>);

impl Prefix {
    fn of(original: &Uri, inner: &Uri) -> Self {
        let (original, inner) = (original.path(), inner.path());
        let prefix = match original.strip_suffix(inner) {
            Some(prefix) => prefix,
            // Its root, asked for without a slash at the end.
            None if inner == "/" => original,
            // Something else has changed the path on its way; there is nothing to go by.
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

/// A request without its body, for handlers that authenticate by themselves.
pub(crate) struct RequestHead(pub(crate) Parts);

impl FromRequestParts<App> for RequestHead {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.clone()))
    }
}

/// What an address says after its question mark.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::bad("bad_query", error.body_text()))?;
        Ok(Self(params))
    }
}

/// A JSON body, within the limit. An empty one is the default where there is one.
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
            // A list would be taken for an object's members without their names.
            if text.trim_ascii_start().first() == Some(&b'[') {
                return Err(ApiError::bad("bad_json", "the body: a list, where an object belongs"));
            }
            let value = serde_json::from_slice(text)
                .map_err(|error| ApiError::bad("bad_json", format!("the body: {error}")))?;
            Ok(Self(value))
        }
    }
}

/// Reads a body, within its limit, its time and what all bodies together may hold.
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
    use wellspring_log::Log;

    use super::*;
    use crate::config::ServerLimits;

    /// A byte every ten seconds, for ever: it is told so, and nobody waits for the rest.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_in_is_given_up() {
        let trickle = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(axum::body::Bytes::from_static(b" "))
        });
        let since = Instant::now();
        let gates = Gates::new(&ServerLimits::default(), Runtime::new(Log::in_memory()));
        let mut pass = gates.bytes("");
        let error = read_body(Body::from_stream(trickle), 1000, &mut pass).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (408, "too_slow"));
        assert_eq!(since.elapsed(), BODY_TIMEOUT);
    }
}
