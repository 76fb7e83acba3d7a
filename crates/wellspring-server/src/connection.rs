//! Connections: how many there are, their protocol, and the time limit of each phase.
//!
//! # What is promised
//!
//! 1. Every phase has a time limit: the first byte, a request's head, the pause between two requests,
//!    a request's body, and an answer that the client does not read.
//! 2. When all places are taken, the connection that has waited longest without a request makes
//!    room for a new one. Silent connections cannot lock out other clients.
//! 3. What a client does not read is bounded, in this process and in the kernel.

mod activity;
mod capacity;
mod incomplete_messages;
mod stalled_client;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use self::activity::{Activity, Watched};
use self::capacity::Places;
pub(crate) use self::incomplete_messages::Inflow;
use self::stalled_client::Socket;
use crate::app::App;

/// How long a client may take to send a request's head, and how long a connection may have no
/// request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a client may read nothing although data waits for it. It can resume after its last
/// event id; a phone that comes out of a tunnel reconnects anyway.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connections may take to end once their streams were closed.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait when the system has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel keeps of what a client has not taken; Linux doubles it. Without it the
/// kernel keeps up to 4 MB per connection. Enough for 600 KB per second over 100 ms.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;

/// Bytes of an answer that wait in this process for the kernel to take them, and of a request's
/// head.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// File descriptors that are kept for everything but connections: the store, models, tools.
const DESCRIPTORS_RESERVED: usize = 256;

/// Connections that wait to be accepted: what Linux allows by default.
const BACKLOG: u32 = 4096;

/// Streams that one HTTP/2 connection may have: more than a browser opens.
const H2_STREAMS_MAX: u32 = 256;

/// Bytes of one HTTP/2 request's body that may be on their way here.
const H2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;

/// Bytes of all bodies of one HTTP/2 connection that may be on their way here.
const H2_WINDOW_BYTES: u32 = 256 * 1024;

/// Bytes of the headers of one HTTP/2 request.
const H2_HEADERS_BYTES_MAX: u32 = 32 * 1024;

/// How every HTTP/2 connection begins.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long to wait for the rest of the preface where it came in pieces, which it hardly ever
/// does.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);

/// What a client gets when there are too many connections.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
content-type: application/json\r\n\r\n\
{\"error\":{\"code\":\"too_many_connections\",\"message\":\"the server is full\",\"remedy\":\"try again in a few seconds\"}}";

/// Listens, with a small send buffer: accepted connections inherit it.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise a restarted server has to wait for the connections of the previous process.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the server closes, and serves each one in its own task.
pub(crate) async fn accept(app: App, router: Router, listener: TcpListener, tasks: TaskTracker) {
    let places = Places::new(app.config.limits.connections.min(descriptors()));
    loop {
        let accepted = tokio::select! {
            biased;
            () = app.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match places.take() {
                Some(activity) => {
                    let open = app.metrics.connection_opened();
                    let socket = Socket::new(stream, (activity.place(), open, tasks.token()));
                    tasks.spawn(serve(app.clone(), router.clone(), socket, peer, activity));
                }
                None => drop(tasks.spawn(turn_away(app.clone(), stream))),
            },
            Err(error) => {
                // Usually the process has run out of file descriptors: close an idle connection.
                tracing::warn!(%error, "a connection could not be accepted");
                places.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How many connections this process has file descriptors for.
fn descriptors() -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_RESERVED).max(1)
    }
    #[cfg(not(unix))]
    usize::MAX
}

async fn turn_away(app: App, mut stream: TcpStream) {
    app.metrics.error("too_many_connections");
    // The write has a time limit, because the client may not read.
    let _ = tokio::time::timeout(CLOSE_LIMIT, stream.write_all(FULL)).await;
}

/// Serves one connection to its end.
async fn serve(
    app: App,
    router: Router,
    socket: Socket,
    peer: SocketAddr,
    activity: Arc<Activity>,
) {
    // Events are small and must not wait for each other.
    if let Err(error) = socket.stream().set_nodelay(true) {
        tracing::debug!(%error, "the connection keeps its delay");
    }
    let protocol = tokio::select! {
        biased;
        () = app.closing.cancelled() => return,
        () = activity.evicted() => return,
        protocol = tokio::time::timeout(HEAD_TIMEOUT, protocol(socket.stream())) => protocol,
    };
    // The client sent nothing, or disconnected.
    let Ok(Ok(protocol)) = protocol else { return };
    let answering = Arc::clone(&activity);
    let inflow = socket.inflow();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let active = Activity::begin(&answering);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(inflow.clone());
        let request: Request = request.map(Body::new);
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body| Watched::new(body, active, protocol)))
        }
    });
    let io = TokioIo::new(socket);
    /// Serves until the end, the server's end, or what else ends it.
    macro_rules! until {
        ($connection:expr, $given_up:expr) => {{
            let connection = $connection;
            tokio::pin!(connection);
            tokio::select! {
                ended = &mut connection => ended,
                () = $given_up => return,
                () = app.closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    match tokio::time::timeout(CLOSE_LIMIT, connection).await {
                        Ok(ended) => ended,
                        Err(_) => return,
                    }
                }
            }
        }};
    }
    // With a known protocol, hyper uses a buffer of half the size, because it does not have to keep
    // the bytes that it peeked at.
    let ended = match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            builder.writev(true).max_buf_size(UNSENT_BYTES_MAX);
            until!(builder.serve_connection(io, service).with_upgrades(), activity.evicted())
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
            builder.max_send_buf_size(UNSENT_BYTES_MAX).max_header_list_size(H2_HEADERS_BYTES_MAX);
            builder.initial_stream_window_size(H2_STREAM_WINDOW_BYTES);
            builder.initial_connection_window_size(H2_WINDOW_BYTES);
            // hyper times neither the first request nor a stream whose window stays closed.
            until!(builder.serve_connection(io, service), activity.given_up())
        }
    };
    if let Err(error) = ended {
        // Clients may go away at any time.
        tracing::debug!(error = &error as &dyn std::error::Error, "the connection broke off");
    }
}

/// The protocol of a connection.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Protocol {
    Http1,
    Http2,
}

/// Detects the protocol of a connection by peeking at its first bytes.
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
        // `P` could still become either, and nothing tells when there is more than that.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}
