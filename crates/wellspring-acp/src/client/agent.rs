//! An agent that is driven over ACP.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;
use wellspring_core::{
    Batch, CancellationToken, Context, ModelError, RemoteAgent, RemoteCapabilities, RemoteInputs,
    RemoteRequest, RemoteResume, RunId, ThreadId, Tool,
};

use super::broadcast::{Attending, Ear};
use super::config::AcpConfig;
use super::drive::Drive;
use super::error::AcpError;
use super::files::Files;
use super::host::Host;
use super::running_agent::{Peer, Serving};
use super::session::{Handle, Link, Opened, Session, Wanted};
use crate::lock;
use crate::rpc::RpcError;

/// Idle sessions that are kept for the next run of their thread. Beyond that, the one that was idle
/// longest is closed; the agent may still be able to load it again.
pub const SESSIONS_KEPT_MAX: usize = 64;

/// How long closing a session may take. Nothing waits for it.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(10);

/// An agent that speaks ACP. Its processes are started on demand, serve many runs,
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
    /// Held while a process is starting, so that concurrent runs share it.
    starting: tokio::sync::Mutex<()>,
    resting: Mutex<VecDeque<Session>>,
    /// Sessions that were opened but not prompted yet, by thread; bounded like idle ones.
    prepared: Mutex<VecDeque<(ThreadId, Opened)>>,
    /// The `initialize` parameters of the client that we serve, if there is one.
    client: Mutex<Value>,
    /// Listeners for messages that belong to no session.
    attending: Attending,
}

impl AcpAgent {
    /// An agent of this name, started as configured.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, config: AcpConfig) -> Self {
        let shared = Shared {
            name: name.into(),
            config,
            peers: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            resting: Mutex::default(),
            prepared: Mutex::default(),
            client: Mutex::default(),
            attending: Attending::default(),
        };
        Self { shared: Arc::new(shared), host: None }
    }

    /// The same agent, with the same processes and sessions, working through a client's
    /// files and terminals.
    pub(crate) fn hosted(&self, host: Arc<dyn Host>) -> Self {
        Self { shared: Arc::clone(&self.shared), host: Some(host) }
    }

    /// Opens the session of a thread before its first prompt. `session` is the handle of an
    /// earlier one. Returns the session and what the agent offers in it.
    pub(crate) async fn prepare(
        &self,
        thread: ThreadId,
        cwd: &str,
        tools: &[Arc<dyn Tool>],
        session: Option<&Value>,
    ) -> Result<(Arc<Link>, Value), AcpError> {
        let wanted = self.shared.wanted(Some(cwd), tools, self.host.as_deref())?;
        self.shared.prepare(thread, wanted, session.and_then(Handle::read)).await
    }

    /// Passes the `initialize` parameters of a client that we serve to processes that are started
    /// from now on.
    pub(crate) fn introduce(&self, params: &Value) {
        *lock(&self.shared.client) = params.clone();
    }

    /// Forwards a request that names no session and that we do not understand.
    pub(crate) async fn pass_on(
        &self,
        method: &str,
        params: &Value,
        cancelled: &CancellationToken,
    ) -> Result<Value, RpcError> {
        let started = tokio::select! {
            started = self.shared.peer() => started,
            () = cancelled.cancelled() => return Err(RpcError::cancelled()),
        };
        let (peer, _serving) = started.map_err(|error| RpcError::internal(&error))?;
        peer.connection.pass_on(method, params, cancelled).await
    }

    /// Forwards a notification of that kind to every running process.
    pub(crate) async fn tell(&self, method: &str, params: &Value) {
        let peers = self.shared.peers().clone();
        for peer in peers.iter().filter(|peer| peer.is_well()) {
            peer.connection.notify(method, params).await;
        }
    }

    /// Listens to messages that belong to no session.
    pub(crate) fn attend(&self) -> Ear {
        self.shared.attending.join()
    }

    /// Closes a session that was opened but never prompted.
    pub(crate) fn forget(&self, thread: ThreadId) {
        if let Some(opened) = self.shared.take_prepared(thread) {
            opened.session.close();
        }
    }

    /// Starts it now rather than with the first run, to report problems early.
    ///
    /// # Errors
    ///
    /// If it is not installed, does not start, or speaks another protocol version.
    pub async fn start(&self) -> Result<(), AcpError> {
        self.shared.peer().await.map(drop)
    }

    /// The agent's `initialize` result; `None` before it has started.
    /// was started.
    #[must_use]
    pub fn info(&self) -> Option<Value> {
        self.shared.peers().first().map(|peer| peer.info.clone())
    }

    /// How many of its processes are running.
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

    /// The protocol has no way to add to a prompt that is being answered; another prompt in the
    /// same session follows it.
    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities { inputs: RemoteInputs::FollowUp, resume: RemoteResume::NewParts }
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
    /// A process with room for a prompt: a running one, or a new one.
    async fn peer(&self) -> Result<(Arc<Peer>, Serving), AcpError> {
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let _starting = self.starting.lock().await;
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let client = lock(&self.client).clone();
        let peer = Arc::new(Peer::start(&self.config, &client, self.attending.clone()).await?);
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

    /// The session of a run: the one that its thread used or prepared, loaded again if
    /// necessary, or a new one.
    pub(super) async fn session(
        &self,
        request: &RemoteRequest,
        host: Option<&dyn Host>,
    ) -> Result<(Opened, Serving), AcpError> {
        let earlier = request.attached.as_ref().or(request.session.as_ref());
        let mut earlier = earlier.and_then(Handle::read);
        let mut wanted = self.wanted(request.request.cwd.as_deref(), &request.tools, host)?;
        let prepared = self.take_prepared(request.thread).filter(|_| request.attached.is_none());
        if let Some(opened) = prepared {
            if opened.session.fits(&wanted, earlier.as_ref()) {
                return Ok(begun(opened, request.run));
            }
            opened.session.close();
        }
        let kept = earlier.as_ref().and_then(|handle| self.take(handle));
        if let (Some(session), Some(handle)) = (kept, &earlier) {
            if session.fits(&wanted, Some(handle)) {
                let (before, said) = (super::prompt::Before::Continued, Value::Null);
                return Ok(begun(Opened { session, before, note: None, said }, request.run));
            }
            // If the tools or the directory changed, or the process died, the agent may load it again.
            // On another branch of the thread it may not: the session has seen this branch.
            let is_other_branch = handle.run != session.last_run;
            session.close();
            if is_other_branch {
                earlier = None;
            }
        }
        (wanted.run, wanted.is_read) = (Some(request.run), true);
        let (peer, serving) = self.peer().await?;
        let opened = Session::open(peer, &self.config, wanted, earlier.as_ref()).await?;
        Ok((opened, serving))
    }

    /// Opens the session of a thread before its first prompt, to learn what the agent
    /// offers.
    async fn prepare(
        &self,
        thread: ThreadId,
        wanted: Wanted<'_>,
        earlier: Option<Handle>,
    ) -> Result<(Arc<Link>, Value), AcpError> {
        if let Some(opened) = self.take_prepared(thread) {
            opened.session.close();
        }
        let rests = earlier.as_ref().and_then(|handle| self.link(handle));
        if let Some(link) = rests.filter(|link| link.peer.is_well()) {
            let said = link.said();
            return Ok((link, said));
        }
        let wanted = Wanted { run: earlier.as_ref().and_then(|handle| handle.run), ..wanted };
        let (peer, _serving) = self.peer().await?;
        let opened = Session::open(peer, &self.config, wanted, earlier.as_ref()).await?;
        let (link, said) = (Arc::clone(&opened.session.link), opened.said.clone());
        let surplus = {
            let mut prepared = lock(&self.prepared);
            prepared.push_back((thread, opened));
            if prepared.len() > SESSIONS_KEPT_MAX { prepared.pop_front() } else { None }
        };
        if let Some((_, opened)) = surplus {
            opened.session.close();
        }
        Ok((link, said))
    }

    /// The properties of a session.
    fn wanted<'a>(
        &self,
        cwd: Option<&str>,
        tools: &'a [Arc<dyn Tool>],
        host: Option<&dyn Host>,
    ) -> Result<Wanted<'a>, AcpError> {
        Ok(Wanted {
            tools,
            files: Files::open(&self.directory(cwd)?, self.config.files)?,
            directories: host.map(Host::directories).unwrap_or_default(),
            run: None,
            is_read: false,
            more: host.map(Host::opening).unwrap_or_default(),
            listener: host.map(Host::listener),
        })
    }

    /// Keeps a session for the next run of its thread.
    pub(super) fn keep(&self, mut session: Session) {
        session.queue.rest();
        if let Some(tools) = &session.tools {
            tools.rest();
        }
        let surplus = {
            let mut resting = lock(&self.resting);
            resting.push_back(session);
            if resting.len() > SESSIONS_KEPT_MAX { resting.pop_front() } else { None }
        };
        if let Some(session) = surplus {
            session.close();
        }
    }

    fn take(&self, handle: &Handle) -> Option<Session> {
        let mut resting = lock(&self.resting);
        let at = resting.iter().position(|session| session.link.id == handle.session)?;
        resting.remove(at)
    }

    fn link(&self, handle: &Handle) -> Option<Arc<Link>> {
        let resting = lock(&self.resting);
        let session = resting.iter().find(|session| session.link.id == handle.session)?;
        Some(Arc::clone(&session.link))
    }

    fn take_prepared(&self, thread: ThreadId) -> Option<Opened> {
        let mut prepared = lock(&self.prepared);
        let at = prepared.iter().position(|(of, _)| *of == thread)?;
        prepared.remove(at).map(|(_, opened)| opened)
    }

    fn directory(&self, asked: Option<&str>) -> Result<PathBuf, AcpError> {
        match asked.map(PathBuf::from).or_else(|| self.config.cwd.clone()) {
            Some(path) => Ok(path),
            None => std::env::current_dir()
                .map_err(|error| AcpError::directory(&PathBuf::from("."), &error)),
        }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        lock(&self.peers)
    }
}

/// The session that a run uses.
fn begun(mut opened: Opened, run: RunId) -> (Opened, Serving) {
    opened.session.last_run = Some(run);
    opened.session.queue.begin();
    let serving = opened.session.link.peer.serve();
    (opened, serving)
}
