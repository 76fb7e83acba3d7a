//! A connection to a server, which is restarted when it ends, and its tools.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use wellspring_core::{CancellationToken, DropGuard, Tool};

use crate::config::McpConfig;
use crate::connection::{Connection, Line};
use crate::convert;
use crate::error::{McpError, McpErrorKind};
use crate::tool::Offer;
use crate::tool_name;

/// The delay before the first restart of a server; it doubles with each attempt.
pub const RESTART_DELAY_FIRST: Duration = Duration::from_millis(250);

/// The maximum delay between two restarts.
pub const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);

/// Attempts to restart a server, over about two minutes. After them, only a call triggers
/// another attempt.
pub const RESTARTS_MAX: u32 = 10;

/// How long a server must run until its earlier failures are forgotten.
pub const HEALTHY_TIME: Duration = Duration::from_secs(60);

/// The minimum time between two reads of a list of tools that keeps changing.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// An MCP server that is not connected yet.
///
/// ```
/// use wellspring_mcp::{McpConfig, McpServer};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let config = McpConfig::stdio("files", "my-file-server", ["--root", "."]);
/// match McpServer::new(config).connect().await {
///     Ok(files) => {
///         for tool in files.tools() {
///             println!("{}: {}", tool.spec().name, tool.spec().description);
///         }
///         files.close().await;
///     }
///     Err(error) => println!("{error}"), // here: there is no such program
/// }
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct McpServer {
    config: McpConfig,
}

impl McpServer {
    /// A server with this configuration. It is not started yet.
    #[must_use]
    pub fn new(config: McpConfig) -> Self {
        Self { config }
    }

    /// Starts or connects to the server and reads its tools. From then on it is kept running.
    ///
    /// # Errors
    ///
    /// If it cannot be started or reached, or does not respond in time. No process is left
    /// running.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the server.
    pub async fn connect(self) -> Result<McpConnection, McpError> {
        let config = self.config;
        if config.name.trim().is_empty() {
            let what = "a server needs a name, which is part of its tools' names";
            return Err(McpError::new("", McpErrorKind::Configuration(what.into())));
        }
        let prefix = tool_name::prefix(config.prefix.as_deref().unwrap_or(&config.name));
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            config,
            prefix,
            state: watch::Sender::new(State::Starting),
            tools_changed: Arc::default(),
            wanted: Notify::new(),
            known: Mutex::default(),
            version: watch::Sender::new(0),
        });
        let handle = Arc::new(Handle { shared: shared.clone(), _stop: stop.clone().drop_guard() });
        let connection = open(&shared).await?;
        let keeper = Keeper { shared, stop: stop.clone() };
        tokio::spawn(keeper.keep(connection));
        Ok(McpConnection { handle, stop })
    }
}

/// Connects to several servers concurrently. If one fails, the others are still connected. A second
/// server with the same name is refused, because their tools' names would collide.
pub async fn connect_all(
    configs: impl IntoIterator<Item = McpConfig>,
) -> Vec<Result<McpConnection, McpError>> {
    let mut prefixes = BTreeSet::new();
    let connecting = configs.into_iter().map(|config| {
        let prefix = tool_name::prefix(config.prefix.as_deref().unwrap_or(&config.name));
        let is_new = prefixes.insert(prefix);
        async move {
            if is_new {
                return McpServer::new(config).connect().await;
            }
            let what = "another server has the same name or prefix; set another prefix";
            Err(McpError::new(&config.name, McpErrorKind::Configuration(what.into())))
        }
    });
    let connecting: Vec<_> = connecting.collect();
    join_all(connecting).await
}

/// A connection to a server that is kept running. Cheap to clone.
///
/// The server runs while this or one of its tools exists; it is stopped when the last of them
/// is dropped.
#[derive(Clone)]
pub struct McpConnection {
    handle: Arc<Handle>,
    stop: CancellationToken,
}

impl McpConnection {
    /// The server's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.shared.config.name
    }

    /// Its current tools.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let known = self.handle.shared.known.lock();
        let offers = known.unwrap_or_else(PoisonError::into_inner).offers.clone();
        offers.iter().map(|offer| offer.tool(&self.handle)).collect()
    }

    /// The server's instructions for the model.
    #[must_use]
    pub fn instructions(&self) -> Option<Box<str>> {
        let known = self.handle.shared.known.lock();
        known.unwrap_or_else(PoisonError::into_inner).instructions.clone()
    }

    /// Counts the changes of [`tools`](Self::tools). Wait for the next one with `changed`.
    #[must_use]
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.handle.shared.version.subscribe()
    }

    /// Checks that the server is ready.
    ///
    /// # Errors
    ///
    /// If it is being restarted, could not be restarted, or was closed.
    pub fn check(&self) -> Result<(), McpError> {
        self.handle.line().map(drop)
    }

    /// Waits until the server is ready, or has failed permanently.
    ///
    /// # Errors
    ///
    /// If it could not be restarted, or was closed.
    pub async fn ready(&self) -> Result<(), McpError> {
        let mut states = self.handle.shared.state.subscribe();
        let settled = |state: &State| match state {
            State::Ready(_) | State::Down { .. } | State::Closed => true,
            State::Starting | State::Waiting { .. } => false,
        };
        // The sender lives in the handle.
        let _ = states.wait_for(settled).await;
        self.check()
    }

    /// Stops the server, and waits for its end. Calls of its tools then fail.
    pub async fn close(self) {
        self.stop.cancel();
        let mut states = self.handle.shared.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Closed)).await;
    }
}

impl fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConnection").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Keeps a server running: the connection and each tool hold one.
pub(crate) struct Handle {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Handle {
    /// The connection to the server, or the reason why there is none.
    pub(crate) fn line(&self) -> Result<Arc<Line>, McpError> {
        let shared = &self.shared;
        let error = |kind| McpError::new(&shared.config.name, kind);
        match &*shared.state.borrow() {
            State::Ready(line) => Ok(line.clone()),
            State::Starting => Err(error(McpErrorKind::Restarting {
                why: "not started yet".into(),
                retry_in: Duration::ZERO,
            })),
            State::Waiting { why, until } => Err(error(McpErrorKind::Restarting {
                why: why.kind().to_string().into(),
                retry_in: until.saturating_duration_since(Instant::now()),
            })
            .last_words(why.stderr().unwrap_or_default().to_owned())),
            State::Down { why, attempts } => {
                shared.wanted.notify_one();
                let kind =
                    McpErrorKind::Down { why: why.kind().to_string().into(), attempts: *attempts };
                Err(error(kind).last_words(why.stderr().unwrap_or_default().to_owned()))
            }
            State::Closed => Err(error(McpErrorKind::Closed)),
        }
    }
}

struct Shared {
    config: McpConfig,
    prefix: String,
    state: watch::Sender<State>,
    tools_changed: Arc<Notify>,
    /// Notified by a call when the server is down.
    wanted: Notify,
    known: Mutex<Known>,
    version: watch::Sender<u64>,
}

/// The server's tools and instructions. Holds no [`Tool`](wellspring_core::Tool), because tools
/// keep the server running.
#[derive(Default)]
struct Known {
    offers: Arc<[Offer]>,
    instructions: Option<Box<str>>,
}

enum State {
    Starting,
    Ready(Arc<Line>),
    /// It has ended; the next attempt is at this time.
    Waiting {
        why: McpError,
        until: Instant,
    },
    /// It is down, and is not restarted until a call needs it.
    Down {
        why: McpError,
        attempts: u32,
    },
    Closed,
}

/// Restarts a server. It holds no strong [`Handle`], because it must not keep the server
/// running.
struct Keeper {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Keeper {
    async fn keep(self, first: Connection) {
        let mut connection = first;
        let mut attempts = 0;
        loop {
            let began = Instant::now();
            let Some(why) = self.watch(connection).await else { break };
            tracing::warn!(error = %why, "an MCP server stopped");
            if began.elapsed() >= HEALTHY_TIME {
                attempts = 0;
            }
            match self.restart(why, &mut attempts).await {
                Some(again) => connection = again,
                None => break,
            }
        }
        self.shared.state.send_replace(State::Closed);
    }

    /// Watches a connection to its end; `None` if we closed it.
    async fn watch(&self, connection: Connection) -> Option<McpError> {
        let line = connection.line.clone();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    connection.close().await;
                    return None;
                }
                () = line.gone.cancelled() => {
                    // Before waiting for the exit status, so that no call uses the lost
                    // connection.
                    let why = McpError::new(&self.shared.config.name, McpErrorKind::Ended { exit: None });
                    self.shared.state.send_replace(State::Waiting { why, until: Instant::now() });
                    return Some(connection.end().await);
                }
                () = self.shared.tools_changed.notified() => {
                    if let Err(error) = refresh(&self.shared, &connection).await {
                        tracing::warn!(%error, "could not read the tools again");
                    }
                    tokio::select! {
                        () = tokio::time::sleep(REFRESH_INTERVAL) => {}
                        () = self.stop.cancelled() => {}
                        () = line.gone.cancelled() => {}
                    }
                }
            }
        }
    }

    /// Restarts a server after a delay; `None` if the server was closed meanwhile.
    async fn restart(&self, mut why: McpError, attempts: &mut u32) -> Option<Connection> {
        loop {
            if *attempts >= RESTARTS_MAX {
                let state = State::Down { why: why.clone(), attempts: *attempts };
                self.shared.state.send_replace(state);
                tokio::select! {
                    () = self.shared.wanted.notified() => {}
                    () = self.stop.cancelled() => return None,
                }
            } else {
                let delay = restart_delay(*attempts);
                let until = Instant::now() + delay;
                self.shared.state.send_replace(State::Waiting { why: why.clone(), until });
                tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = self.stop.cancelled() => return None,
                }
            }
            *attempts = attempts.saturating_add(1);
            let opened = tokio::select! {
                opened = open(&self.shared) => opened,
                () = self.stop.cancelled() => return None,
            };
            match opened {
                Ok(connection) => return Some(connection),
                Err(error) => why = error,
            }
        }
    }
}

fn restart_delay(attempts: u32) -> Duration {
    RESTART_DELAY_FIRST.saturating_mul(2_u32.saturating_pow(attempts)).min(RESTART_DELAY_MAX)
}

/// Connects, reads the tools, and makes them available.
async fn open(shared: &Shared) -> Result<Connection, McpError> {
    let connection = Connection::open(&shared.config, &shared.tools_changed).await?;
    refresh(shared, &connection).await?;
    shared.state.send_replace(State::Ready(connection.line.clone()));
    Ok(connection)
}

/// Reads the tools again.
async fn refresh(shared: &Shared, connection: &Connection) -> Result<(), McpError> {
    let (config, prefix) = (&shared.config, &shared.prefix);
    let mut names = BTreeSet::new();
    let mut offers = Vec::new();
    let mut offer = |offer: Offer| {
        if names.insert(offer.spec().name.clone()) {
            offers.push(offer);
        } else {
            let tool = &*offer.spec().name;
            tracing::warn!(server = &*config.name, tool, "left out the second of this name");
        }
    };
    for tool in &connection.line.tools().await? {
        match convert::spec(config, prefix, tool) {
            Some((own, spec)) if config.wants(&own) => offer(Offer::Tool { own, spec }),
            Some(_) => {}
            None => tracing::warn!(server = &*config.name, "left out a tool without a name"),
        }
    }
    if config.resources && connection.has_resources() {
        offer(Offer::list_resources(prefix));
        offer(Offer::read_resource(prefix));
    }
    let known = Known { offers: offers.into(), instructions: connection.instructions() };
    *shared.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    shared.version.send_modify(|version| *version += 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_twice_as_long_each_time_up_to_the_maximum() {
        let delays: Vec<u128> = (0..9).map(|it| restart_delay(it).as_millis()).collect();
        assert_eq!(delays, [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(restart_delay(u32::MAX), RESTART_DELAY_MAX);
    }
}
