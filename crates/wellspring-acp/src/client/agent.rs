//! An agent that is driven by ACP.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;
use wellspring_core::{Batch, Context, ModelError, RemoteAgent, RemoteRequest};

use super::config::AcpConfig;
use super::drive::Drive;
use super::error::AcpError;
use super::files::Files;
use super::host::Host;
use super::peer::{Peer, Serving};
use super::session::{Handle, Opened, Session};

/// Sessions that are kept for a next run of their thread; beyond, the one that rested longest
/// is closed, and continued by the agent's own means if it is wanted again.
pub const SESSIONS_KEPT_MAX: usize = 64;

/// How long closing a session may take: nobody waits for it.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(10);

/// An agent that speaks ACP. Its processes are started when they are needed, serve many runs,
/// and end when it is dropped. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_acp::client::{AcpAgent, AcpConfig};
/// use wellspring_engine::{AgentDef, Runtime};
/// use wellspring_log::Log;
///
/// let runtime = Runtime::new(Log::in_memory());
/// let config: AcpConfig = "gemini --acp".parse()?;
/// runtime.register(AgentDef::remote("gemini", Arc::new(AcpAgent::new("gemini", config))));
/// # Ok::<(), wellspring_acp::client::AcpError>(())
/// ```
#[derive(Clone)]
pub struct AcpAgent {
    shared: Arc<Shared>,
    host: Option<Arc<dyn Host>>,
}

pub(super) struct Shared {
    pub(super) name: Box<str>,
    pub(super) config: AcpConfig,
    peers: Mutex<Vec<Arc<Peer>>>,
    /// Held while one is started: whoever comes meanwhile can use it too.
    starting: tokio::sync::Mutex<()>,
    resting: Mutex<VecDeque<Session>>,
}

impl AcpAgent {
    /// An agent of this name, to be started as configured.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, config: AcpConfig) -> Self {
        let shared = Shared {
            name: name.into(),
            config,
            peers: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            resting: Mutex::default(),
        };
        Self { shared: Arc::new(shared), host: None }
    }

    /// The same agent, with the same processes and sessions, for a client that lends what it has.
    pub(crate) fn hosted(&self, host: Arc<dyn Host>) -> Self {
        Self { shared: Arc::clone(&self.shared), host: Some(host) }
    }

    /// Starts it now, rather than with the first run, and says what is wrong if it cannot be.
    ///
    /// # Errors
    ///
    /// When it is not installed, does not start, or speaks another version.
    pub async fn start(&self) -> Result<(), AcpError> {
        self.shared.peer().await.map(drop)
    }

    /// What it said of itself and of what it can do, as the protocol has it; nothing before it
    /// was started.
    #[must_use]
    pub fn info(&self) -> Option<Value> {
        self.shared.peers().first().map(|peer| peer.info.clone())
    }

    /// How many of its processes run.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.shared.peers().iter().filter(|peer| peer.is_well()).count()
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &AcpConfig {
        &self.shared.config
    }
}

impl RemoteAgent for AcpAgent {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let host = self.host.clone();
        let drive = Drive::new(Arc::clone(&self.shared), host, request, context);
        let batches = stream::unfold(drive, |mut drive| async move {
            let batch = drive.next().await?;
            Some((batch, drive))
        });
        std::future::ready(Ok(batches.boxed())).boxed()
    }
}

impl fmt::Debug for AcpAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, config, .. } = &*self.shared;
        f.debug_struct("AcpAgent")
            .field("name", name)
            .field("transport", &config.transport)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A process with room for a prompt: one that runs, or another one.
    async fn peer(&self) -> Result<(Arc<Peer>, Serving), AcpError> {
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let _starting = self.starting.lock().await;
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let peer = Arc::new(Peer::start(&self.config).await?);
        let serving = peer.serve();
        let mut peers = self.peers();
        peers.retain(|peer| peer.is_well() || peer.prompts() > 0);
        peers.push(Arc::clone(&peer));
        Ok((peer, serving))
    }

    fn with_room(&self) -> Option<(Arc<Peer>, Serving)> {
        let peers = self.peers();
        let room = self.config.sessions_per_process.max(1);
        let peer = peers.iter().find(|peer| peer.is_well() && peer.prompts() < room)?;
        Some((Arc::clone(peer), peer.serve()))
    }

    /// The session for a run: the one its thread had, as it is or continued, or a new one.
    pub(super) async fn session(
        &self,
        request: &RemoteRequest,
    ) -> Result<(Opened, Serving), AcpError> {
        let files = Files::open(&self.directory(request)?, self.config.files)?;
        let earlier = request.attached.as_ref().or(request.session.as_ref());
        let earlier = earlier.and_then(Handle::read);
        let kept = earlier.as_ref().and_then(|handle| self.take(handle));
        let mut earlier = earlier;
        if let (Some(mut session), Some(handle)) = (kept, &earlier) {
            if session.fits(request, handle, &files) {
                let serving = session.peer.serve();
                session.last_run = request.run;
                session.queue.begin();
                let before = super::prompt::Before::Continued;
                return Ok((Opened { session, before, note: None, said: Value::Null }, serving));
            }
            // Other tools, another place, or a process that died: the agent may continue it.
            // Another branch: it may not, for the session knows of this one.
            if handle.run != Some(session.last_run) {
                earlier = None;
            }
            session.close();
        }
        let (peer, serving) = self.peer().await?;
        let opened = Session::open(peer, &self.config, request, earlier.as_ref(), files).await?;
        Ok((opened, serving))
    }

    /// Keeps a session for the next run of its thread.
    pub(super) fn keep(&self, mut session: Session) {
        session.queue.rest();
        if let Some(tools) = &session.tools {
            tools.rest();
        }
        let surplus = {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            resting.push_back(session);
            if resting.len() > SESSIONS_KEPT_MAX { resting.pop_front() } else { None }
        };
        if let Some(session) = surplus {
            session.close();
        }
    }

    fn take(&self, handle: &Handle) -> Option<Session> {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = resting.iter().position(|session| session.id == handle.session)?;
        resting.remove(at)
    }

    fn directory(&self, request: &RemoteRequest) -> Result<PathBuf, AcpError> {
        let asked = request.request.cwd.as_deref().map(PathBuf::from);
        match asked.or_else(|| self.config.cwd.clone()) {
            Some(path) => Ok(path),
            None => std::env::current_dir()
                .map_err(|error| AcpError::directory(&PathBuf::from("."), &error)),
        }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
