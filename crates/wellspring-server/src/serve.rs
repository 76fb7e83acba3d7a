//! Listening, serving connections, and stopping without cutting anyone off unsaid.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::StoreError;

use crate::app::App;
use crate::auth::{Signer, TokenError, Tokens};
use crate::config::ServerConfig;
use crate::connection::{self, CLOSE_LIMIT};
use crate::metrics::Metrics;
use crate::surfaces;

/// How often runs that lost their owner are looked for: a lease is longer.
const RECOVER_EVERY: Duration = Duration::from_secs(10);

/// How often runs are tried again that the store failed: soon after it is repaired.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How often old runs are looked for, where they are to be deleted.
const RETENTION_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many old runs are deleted at a time, before others have their turn.
const RETENTION_BATCH: usize = 100;

/// A server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others could reach it, and nothing would keep them out.
    #[error(
        "refusing to listen on {listen} without a token: make one with `wellspring token create`, \
         or listen on 127.0.0.1"
    )]
    NoToken {
        /// Where it should have listened.
        listen: SocketAddr,
    },
    /// The address cannot be had.
    #[error("could not listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// The tokens could not be read.
    #[error("could not read the tokens")]
    Tokens(#[from] TokenError),
    /// The runs of before could not be read.
    #[error("could not look for runs to continue")]
    Recover(#[source] StoreError),
}

/// Makes a server from its parts.
///
/// ```
/// # use wellspring_engine::Runtime;
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
    runtime: Runtime,
    config: ServerConfig,
    metrics: Metrics,
}

impl ServerBuilder {
    /// How it behaves.
    #[must_use]
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// What counts; the same that [meters](Metrics::metered) the log's store, where one does.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Continues the runs that a crash left behind, and listens.
    ///
    /// # Errors
    ///
    /// When the address cannot be had, others could reach it without a token, or the store
    /// fails.
    pub async fn start(self) -> Result<Server, ServeError> {
        let Self { runtime, mut config, metrics } = self;
        let store = Arc::clone(runtime.log().store());
        let tokens = Tokens::new(Arc::clone(&store));
        if !config.listen.ip().is_loopback() && tokens.is_empty().await? {
            return Err(ServeError::NoToken { listen: config.listen });
        }
        let listen = config.listen;
        let listener =
            connection::listen(listen).map_err(|cause| ServeError::Listen { listen, cause })?;
        let address =
            listener.local_addr().map_err(|cause| ServeError::Listen { listen, cause })?;
        config.listen = address;
        runtime.observe(Arc::new(metrics.clone()));
        runtime.limit_run_time(config.limits.run_time);
        let signer = Signer::of(&*store).await?;
        let app = App::new(config, runtime, tokens, signer, metrics);
        recover(&app).await.map_err(ServeError::Recover)?;
        let tasks = TaskTracker::new();
        let accepting = tokio::spawn(connection::accept(
            app.clone(),
            surfaces::router(app.clone()),
            listener,
            tasks.clone(),
        ));
        let looking_after = tokio::spawn(look_after(app.clone()));
        Ok(Server { app, address, tasks, accepting, looking_after })
    }
}

/// A server that is running. Dropping it leaves it running; [`stop`](Self::stop) ends it.
pub struct Server {
    app: App,
    address: SocketAddr,
    tasks: TaskTracker,
    accepting: JoinHandle<()>,
    looking_after: JoinHandle<()>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
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
        let (config, metrics) = (ServerConfig::default(), Metrics::default());
        ServerBuilder { runtime, config, metrics }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its tokens: what is made or revoked here counts at once.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.app.tokens
    }

    /// Begins no new run, lets runs end within the configured time, hands over those that do
    /// not, tells every stream that is still open, and stops. Until then whoever asks is
    /// answered: they can watch what ends, and `/readyz` says that it ends.
    pub async fn stop(self) {
        let Self { app, tasks, accepting, looking_after, .. } = self;
        app.draining.cancel();
        looking_after.abort();
        app.runtime.shutdown(app.config.drain).await;
        app.closing.cancel();
        // An accept loop that has panicked has nothing left to stop.
        let _ = accepting.await;
        tasks.close();
        if tokio::time::timeout(CLOSE_LIMIT, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "connections did not end in time");
        }
    }
}

/// Continues runs that lose their owner elsewhere, and deletes old ones.
async fn look_after(app: App) {
    let mut recovery = tokio::time::interval(RECOVER_EVERY);
    let mut retry = tokio::time::interval(RETRY_EVERY);
    let mut retention = tokio::time::interval(RETENTION_EVERY);
    loop {
        tokio::select! {
            _ = recovery.tick() => {
                if let Err(error) = recover(&app).await {
                    tracing::warn!(%error, "runs to continue could not be looked for");
                }
            }
            _ = retry.tick() => {
                // That the store fails has been said already, by those that it failed.
                if app.runtime.has_lost_runs()
                    && let Err(error) = recover(&app).await
                {
                    tracing::debug!(%error, "the store still fails");
                }
            }
            _ = retention.tick() => {
                if let Some(keep) = app.config.retention {
                    forget(&app, keep).await;
                }
            }
        }
    }
}

/// Continues runs that lost their owner; they count as those of whoever started them.
async fn recover(app: &App) -> Result<(), StoreError> {
    for run in app.runtime.recover().await? {
        if let Err(error) = app.goes_on(run).await {
            tracing::warn!(%run, error = error.message, "nobody's limit counts this run");
        }
    }
    Ok(())
}

async fn forget(app: &App, keep: Duration) {
    let log = app.runtime.log();
    let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    let before = Millis(log.clock().now().0.saturating_sub(keep));
    loop {
        match log.purge(before, RETENTION_BATCH).await {
            Ok(runs) => {
                if runs > 0 {
                    tracing::info!(runs, "old runs were deleted");
                }
                if runs < RETENTION_BATCH {
                    return;
                }
            }
            Err(error) => return tracing::warn!(%error, "old runs could not be deleted"),
        }
        // Runs that are at work come first.
        tokio::task::yield_now().await;
    }
}
