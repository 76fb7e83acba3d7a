//! Our tools for an external agent: one MCP server on this machine, for one session.
//!
//! An agent that we drive (for example over ACP) accepts MCP servers. [`Loopback`] is one: it
//! offers the tools of the turn and passes each call to a [`LoopbackHandler`], which runs it.
//! The typed result of a run is returned this way too: `return_result` is a regular tool.
//!
//! # What is promised
//!
//! - It listens on 127.0.0.1 only, with a random path and a random token, and rejects other
//!   hosts and all web pages.
//! - [`Loopback::seen`] waits until the agent has listed the tools; nothing relies on a delay.
//! - A call ends when its client cancels it or disconnects, or when the server is dropped.
//!
//! # What is deliberately absent
//!
//! Arguments are not checked against a tool's schema: the code that runs the call does that.
//! There are no sessions and no stream from the server to the client, because some agents drop
//! a server that has them. So a client gets no notification when the tools change; it lists
//! them again when it chooses to.

mod call;
mod http_server;

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;
use wellspring_core::{Context, Tool, ToolError, ToolResult};

pub use call::{HEARTBEAT, LoopbackCall, Reporter};
pub use http_server::{BODY_BYTES_MAX, CALLS_MAX, CANCEL_GRACE, CONNECTIONS_MAX};

use http_server::HttpServer;

/// Runs the incoming calls.
///
/// # Contract
///
/// 1. Check the arguments against the tool's schema, unless the tool does.
/// 2. End soon after [`LoopbackCall::signal`] is cancelled; after [`CANCEL_GRACE`] the future
///    is dropped.
pub trait LoopbackHandler: Send + Sync {
    /// Runs one call to its end.
    fn call(&self, call: LoopbackCall) -> BoxFuture<'_, Result<ToolResult, ToolError>>;
}

impl<F> LoopbackHandler for F
where
    F: Fn(LoopbackCall) -> BoxFuture<'static, Result<ToolResult, ToolError>> + Send + Sync,
{
    fn call(&self, call: LoopbackCall) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        self(call)
    }
}

/// A handler that runs each call immediately, in a context that `context` creates.
pub fn run_at_once(
    make_context: impl Fn(&LoopbackCall) -> Context + Send + Sync + 'static,
) -> Arc<dyn LoopbackHandler> {
    Arc::new(move |call: LoopbackCall| -> BoxFuture<'static, _> {
        let context = make_context(&call);
        Box::pin(call.run(context))
    })
}

/// An MCP server on this machine that offers our tools. It stops when dropped.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_core::{CancellationToken, Context};
/// use wellspring_mcp::{Loopback, run_at_once};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let handler = run_at_once(|_| Context::create("trace-1", CancellationToken::new()));
/// let loopback = Loopback::start("wellspring", Vec::new(), handler).await?;
/// assert!(loopback.url().starts_with("http://127.0.0.1:"));
/// let (name, value) = loopback.header();
/// assert_eq!(name, "Authorization");
/// assert!(value.starts_with("Bearer "));
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
pub struct Loopback {
    shared: Arc<Shared>,
    url: Box<str>,
    _door: AbortOnDropHandle<()>,
}

/// Shared between the server and its owner.
struct Shared {
    name: Box<str>,
    token: Box<str>,
    offer: Mutex<Arc<Offer>>,
    /// The number of the offer that a client listed last; `None` before the first connection, 0
    /// after it.
    listed: watch::Sender<Option<u64>>,
    handler: Arc<dyn LoopbackHandler>,
    calls: Semaphore,
    running: call::Running,
}

/// The tools of a turn. Each offer that differs from the previous one gets the next number.
struct Offer {
    number: u64,
    tools: Vec<Arc<dyn Tool>>,
}

impl Loopback {
    /// Starts the server. Agents put `name` in front of the tools' names.
    ///
    /// # Errors
    ///
    /// If no port on loopback is available.
    pub async fn start(
        name: impl Into<Box<str>>,
        tools: Vec<Arc<dyn Tool>>,
        handler: Arc<dyn LoopbackHandler>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let path = format!("/{}/mcp", Uuid::new_v4().simple());
        let url = format!("http://{address}{path}").into();
        let shared = Arc::new(Shared {
            name: name.into(),
            token: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into(),
            offer: Mutex::new(Arc::new(Offer { number: 1, tools })),
            listed: watch::Sender::new(None),
            handler,
            calls: Semaphore::new(CALLS_MAX),
            running: call::Running::default(),
        });
        let door = HttpServer::new(shared.clone(), path.into());
        let door = AbortOnDropHandle::new(tokio::spawn(door.open(listener)));
        Ok(Self { shared, url, _door: door })
    }

    /// The server's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The server's URL. Its path is secret.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The header that every request must have. Its value is secret.
    #[must_use]
    pub fn header(&self) -> (&'static str, String) {
        ("Authorization", format!("Bearer {}", self.shared.token))
    }

    /// The secret token in the header, for [`bridge`](crate::bridge).
    #[must_use]
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// Replaces the offered tools. Running calls continue.
    pub fn offer(&self, tools: Vec<Arc<dyn Tool>>) {
        let mut offer = self.shared.offer.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that has already listed the same tools need not list them again.
        let same = offer.tools.iter().map(|tool| tool.spec()).eq(tools.iter().map(|it| it.spec()));
        let number = offer.number + u64::from(!same);
        *offer = Arc::new(Offer { number, tools });
    }

    /// Resolves once a client has listed the currently offered tools.
    ///
    /// # Errors
    ///
    /// If no client did so in time.
    pub async fn seen(&self, within: Duration) -> Result<(), NeverSeen> {
        let number = self.shared.offer().number;
        let mut listed = self.shared.listed.subscribe();
        let seen = listed.wait_for(|listed| listed.is_some_and(|listed| listed >= number));
        if tokio::time::timeout(within, seen).await.is_ok() {
            return Ok(());
        }
        let visited = self.shared.listed.borrow().is_some();
        Err(NeverSeen { within, visited })
    }
}

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Shared {
    fn offer(&self) -> Arc<Offer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// No client listed the offered tools in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the agent did not list our tools within {} s; {}", .within.as_secs_f32(),
    if *.visited { "it connected, though: give it more time" } else {
        "it never connected: does it take MCP servers over HTTP? Otherwise use the stdio bridge"
    }
)]
pub struct NeverSeen {
    /// The time limit.
    pub within: Duration,
    /// Whether any client connected.
    pub visited: bool,
}
