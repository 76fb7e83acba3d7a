//! Our own listener around the API, with a graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use wellspring_engine::Runtime;

use crate::api::{Api, ApiBuilder, OpenError, router};
use crate::auth::Authenticate;
use crate::config::ServerConfig;
use crate::connection::{self, CLOSE_LIMIT};
use crate::metrics::Metrics;
use crate::tokens::Tokens;
use crate::webhook_limits;

/// A server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines could reach the server, but there is no token.
    #[error(
        "refusing to listen on {listen} without a token: make one with `wellspring token create`, \
         or listen on 127.0.0.1"
    )]
    NoToken {
        /// The configured address.
        listen: SocketAddr,
    },
    /// The server cannot listen on the address.
    #[error("could not listen on {listen}")]
    Listen {
        /// The configured address.
        listen: SocketAddr,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The API could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Makes a server from its parts.
///
/// ```
/// # use wellspring_engine::{AdmissionLimits, Runtime};
/// # use wellspring_log::Log;
/// use wellspring_server::{Server, ServerConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ServerConfig { listen: "127.0.0.1:0".parse()?, ..ServerConfig::default() };
/// let server = Server::builder(Runtime::new(Log::in_memory())).config(config).start().await?;
/// println!("http://{}", server.address());
/// server.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerBuilder {
    api: ApiBuilder,
    routes: Router,
}

impl ServerBuilder {
    /// How it behaves.
    #[must_use]
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.api = self.api.config(config);
        self
    }

    /// Where to count. Pass the [`Metrics`] that [meter](Metrics::metered) the log's store, if any.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.api = self.api.metrics(metrics);
        self
    }

    /// How requests are authenticated [default: by their [token](Tokens)].
    #[must_use]
    pub fn authenticate(mut self, authenticate: Arc<dyn Authenticate>) -> Self {
        self.api = self.api.authenticate(authenticate);
        self
    }

    /// Further routes to serve, such as webhooks. They authenticate their own callers, and must not
    /// overlap with the API's paths. Their requests count for their address, and a body has ten
    /// seconds and a share of the memory for all bodies.
    #[must_use]
    pub fn routes(mut self, routes: Router) -> Self {
        self.routes = self.routes.merge(routes);
        self
    }

    /// Continues the runs that a crash left behind, and listens.
    ///
    /// # Errors
    ///
    /// If the server cannot listen on the address, if other machines could reach it without a
    /// token, or if the store fails.
    pub async fn start(self) -> Result<Server, ServeError> {
        let listen = self.api.listen();
        if !listen.ip().is_loopback() && self.api.lets_no_one_in().await? {
            return Err(ServeError::NoToken { listen });
        }
        let failed = |cause| ServeError::Listen { listen, cause };
        let listener = connection::listen(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let api = self.api.served_at(address).open().await?;
        let tasks = TaskTracker::new();
        let mut routes = router(&api);
        if self.routes.has_routes() {
            let bounded = from_fn_with_state(api.app.clone(), webhook_limits::bounded);
            routes = routes.merge(self.routes.route_layer(bounded));
        }
        let accept = connection::accept(api.app.clone(), routes, listener, tasks.clone());
        let accepting = tokio::spawn(accept);
        Ok(Server { api, address, tasks, accepting })
    }
}

/// A server that is running. Dropping it leaves it running; [`stop`](Self::stop) ends it.
#[derive(Debug)]
pub struct Server {
    api: Api,
    address: SocketAddr,
    tasks: TaskTracker,
    accepting: JoinHandle<()>,
}

/// Serves a runtime until `stopped` resolves, then drains.
///
/// # Errors
///
/// As [`ServerBuilder::start`].
pub async fn serve(
    config: ServerConfig,
    runtime: Runtime,
    stopped: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let server = Server::builder(runtime).config(config).start().await?;
    stopped.await;
    server.stop().await;
    Ok(())
}

impl Server {
    /// A server of these runs.
    #[must_use]
    pub fn builder(runtime: Runtime) -> ServerBuilder {
        ServerBuilder { api: Api::builder(runtime), routes: Router::new() }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its tokens. Changes take effect immediately.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        self.api.tokens()
    }

    /// Stops [the API](Api::stop), and then the connections.
    pub async fn stop(self) {
        let Self { api, tasks, accepting, .. } = self;
        api.stop().await;
        // An accept loop that has panicked has nothing left to stop.
        let _ = accepting.await;
        tasks.close();
        if tokio::time::timeout(CLOSE_LIMIT, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "connections did not end in time");
        }
    }
}
