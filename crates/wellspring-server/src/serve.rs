//! Listening, serving connections, and stopping without cutting anyone off unsaid.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::StoreError;

use crate::app::App;
use crate::auth::{Signer, TokenError, Tokens};
use crate::config::ServerConfig;
use crate::guard::Peer;
use crate::metrics::Metrics;
use crate::surfaces;

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long connections may take to end once their streams were closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait when the system has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often runs that lost their owner are looked for: a lease is longer.
const RECOVER_EVERY: Duration = Duration::from_secs(10);

/// How often runs are tried again that the store failed: soon after it is repaired.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How often old runs are looked for, where they are to be deleted.
const RETENTION_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many old runs are deleted at a time, before others have their turn.
const RETENTION_BATCH: usize = 100;

/// Streams that one HTTP/2 connection may have: more than a browser opens.
const H2_STREAMS_MAX: u32 = 256;

/// How every HTTP/2 connection begins.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long to wait for the rest of it where it came in pieces, which it hardly ever does.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);

/// What someone gets when there are too many connections.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
content-type: application/json\r\n\r\n\
{\"error\":{\"code\":\"too_many_connections\",\"message\":\"the server is full\",\"remedy\":\"try again in a few seconds\"}}";

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
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|cause| ServeError::Listen { listen, cause })?;
        let address =
            listener.local_addr().map_err(|cause| ServeError::Listen { listen, cause })?;
        config.listen = address;
        runtime.observe(Arc::new(metrics.clone()));
        runtime.limit_run_time(config.limits.run_time);
        let signer = Signer::of(&*store).await?;
        let app = App::new(config, runtime, tokens, signer, metrics);
        recover(&app).await.map_err(ServeError::Recover)?;
        let tasks = TaskTracker::new();
        let accepting = tokio::spawn(accept(app.clone(), listener, tasks.clone()));
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

async fn accept(app: App, listener: TcpListener, tasks: TaskTracker) {
    let router = surfaces::router(app.clone());
    let room = Arc::new(Semaphore::new(app.config.limits.connections));
    loop {
        let accepted = tokio::select! {
            biased;
            () = app.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&room).try_acquire_owned() {
                Ok(place) => {
                    let serve = connection(app.clone(), router.clone(), stream, peer, place);
                    tasks.spawn(serve);
                }
                Err(_) => drop(tasks.spawn(turn_away(app.clone(), stream))),
            },
            Err(error) => {
                // Usually no file descriptor is left; some will be soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn turn_away(app: App, mut stream: TcpStream) {
    app.metrics.error("too_many_connections");
    // Whoever does not listen is not told.
    let _ = tokio::time::timeout(CLOSE_LIMIT, stream.write_all(FULL)).await;
}

async fn connection(
    app: App,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    _place: OwnedSemaphorePermit,
) {
    let _open = app.metrics.connection_opened();
    // Events are small and must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection keeps its delay");
    }
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let request: Request = request.map(Body::new);
        let router = router.clone();
        async move {
            Ok::<_, Infallible>(
                router.oneshot(request).await.unwrap_or_else(|never| match never {}),
            )
        }
    });
    let protocol = tokio::select! {
        biased;
        () = app.closing.cancelled() => return,
        protocol = tokio::time::timeout(HEAD_TIMEOUT, protocol(&stream)) => protocol,
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    // Told which, it reads into a buffer of half the size: it need not keep what it looked at.
    let mut builder = match protocol {
        Ok(Ok(Protocol::Http1)) => builder.http1_only(),
        Ok(Ok(Protocol::Http2)) => builder.http2_only(),
        // It says nothing, or is gone.
        Ok(Err(_)) | Err(_) => return,
    };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).writev(true);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = app.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(CLOSE_LIMIT, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // The client went away; that is its right.
        tracing::debug!(error = &*error, "the connection broke off");
    }
}

/// What is spoken on a connection.
enum Protocol {
    Http1,
    Http2,
}

/// Finds out what is spoken on a connection by how it begins, and leaves that to be read.
async fn protocol(stream: &TcpStream) -> std::io::Result<Protocol> {
    let mut first = [0; H2_PREFACE.len()];
    loop {
        let first = match stream.peek(&mut first).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => &first[..count],
        };
        if first == H2_PREFACE {
            return Ok(Protocol::Http2);
        }
        if !H2_PREFACE.starts_with(first) {
            return Ok(Protocol::Http1);
        }
        // `P` could still become either, and nobody says when there is more than that.
        tokio::time::sleep(PREFACE_PAUSE).await;
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
