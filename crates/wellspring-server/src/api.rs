//! The API to mount: an [`axum::Router`] for an application's own listener, prefix, layers and
//! login.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::task::AbortHandle;
use wellspring_engine::{AdmissionLimits, Runtime};

use crate::app::App;
use crate::auth::{Authenticate, Signer, TokenAuth};
use crate::config::ServerConfig;
use crate::housekeeping::look_after;
use crate::metrics::Metrics;
use crate::surfaces;
use crate::tokens::{TokenError, Tokens};

/// An API could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The tokens could not be read.
    #[error("could not read the tokens")]
    Tokens(#[from] TokenError),
}

/// The whole HTTP API of a runtime: our own API, AG-UI, the AI SDK, use-ai, the endpoints for
/// operators, and the page.
///
/// To serve it by itself, use [`Server`](crate::Server). To mount it in an application, open it
/// and nest its [`router`]:
///
/// ```
/// # use wellspring_engine::Runtime;
/// # use wellspring_log::Log;
/// use axum::Router;
/// use axum::routing::get;
/// use wellspring_server::{Api, router};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let api = Api::builder(Runtime::new(Log::in_memory())).open().await?;
/// let app: Router = Router::new()
///     .route("/", get(async || "my application"))
///     .nest("/agents", router(&api));
/// // axum::serve(listener, app).with_graceful_shutdown(async { stopped.await; api.stop().await })
/// # drop(app);
/// api.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Api {
    pub(crate) app: App,
    tokens: Tokens,
    looking_after: AbortHandle,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// The API as a router, to be nested or merged into an application's, or served as it is. It is a
/// [`tower::Service`] too, for [`Router::nest_service`] and everything else that takes one.
///
/// Paths that are sent to clients (`stream-url`, the page, `/openapi.json`) begin with the prefix
/// of the request. For limits per address, serve the application with
/// [`Router::into_make_service_with_connect_info`]. Connections belong to the application:
/// `axum::serve` has none of the time-outs and limits of [`Server`](crate::Server).
pub fn router(api: &Api) -> Router {
    surfaces::router(api.app.clone())
}

impl Api {
    /// The API of a runtime, with the default configuration.
    #[must_use]
    pub fn builder(runtime: Runtime) -> ApiBuilder {
        ApiBuilder {
            runtime,
            config: ServerConfig::default(),
            metrics: Metrics::default(),
            authenticate: None,
            address: None,
        }
    }

    /// The store's tokens. Changes take effect immediately. They are not used if the application
    /// [authenticates](ApiBuilder::authenticate) callers itself.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Shuts down gracefully. It starts no new runs and gives active runs the configured time to
    /// end. Then it releases the remaining runs to other processes, and ends every open stream with
    /// an event that reports the shutdown. During that time requests are answered, and `/readyz`
    /// returns 503.
    pub async fn stop(self) {
        let Self { app, looking_after, .. } = self;
        app.draining.cancel();
        looking_after.abort();
        app.runtime.shutdown(app.config.drain).await;
        app.closing.cancel();
    }
}

/// Makes an [`Api`] from its parts.
pub struct ApiBuilder {
    runtime: Runtime,
    config: ServerConfig,
    metrics: Metrics,
    authenticate: Option<Arc<dyn Authenticate>>,
    address: Option<SocketAddr>,
}

impl fmt::Debug for ApiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ApiBuilder {
    /// The configuration. If the API is mounted in an application, `listen` and the limit of
    /// connections have no effect, and `hosts` are checked only if any are listed.
    #[must_use]
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// Where to count. Pass the [`Metrics`] that [meter](Metrics::metered) the log's store, if any.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// How requests are authenticated [default: by their [token](Tokens)].
    #[must_use]
    pub fn authenticate(mut self, authenticate: Arc<dyn Authenticate>) -> Self {
        self.authenticate = Some(authenticate);
        self
    }

    pub(crate) fn listen(&self) -> SocketAddr {
        self.config.listen
    }

    pub(crate) fn served_at(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Whether no request could be authenticated: there is no token, and no [`Authenticate`].
    pub(crate) async fn lets_no_one_in(&self) -> Result<bool, OpenError> {
        let tokens = Tokens::new(Arc::clone(self.runtime.log().store()));
        Ok(self.authenticate.is_none() && tokens.is_empty().await?)
    }

    /// Continues the runs that a crash left behind, and starts the background work.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn open(self) -> Result<Api, OpenError> {
        let Self { runtime, mut config, metrics, authenticate, address } = self;
        if let Some(address) = address {
            config.listen = address;
        }
        let store = Arc::clone(runtime.log().store());
        let tokens = Tokens::new(Arc::clone(&store));
        let authenticate = authenticate.unwrap_or_else(|| {
            let here = address.is_some_and(|address| address.ip().is_loopback());
            let open_without_tokens = here && config.hosts.is_empty();
            Arc::new(TokenAuth { tokens: tokens.clone(), open_without_tokens })
        });
        runtime.observe(Arc::new(metrics.clone()));
        runtime.limit_run_time(config.limits.run_time);
        runtime.limit_runs(AdmissionLimits {
            runs: config.limits.runs,
            runs_per_principal: config.limits.runs_per_token,
            runs_per_tenant: config.limits.runs_per_tenant,
        });
        let signer = Signer::of(&*store).await?;
        let app = App::new(config, runtime, authenticate, address, signer, metrics);
        // The background work tries again. Reading works until then.
        if let Err(error) = app.runtime.recover().await {
            tracing::warn!(%error, "failed to search for runs to continue");
        }
        let looking_after = tokio::spawn(look_after(app.clone())).abort_handle();
        Ok(Api { app, tokens, looking_after })
    }
}
