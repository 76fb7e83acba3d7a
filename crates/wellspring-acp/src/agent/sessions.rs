//! Opens, loads, lists and closes sessions.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;
use wellspring_core::{Event, Millis, RunId, RunStarted, Seq, ThreadId};
use wellspring_log::{RunFilter, RunInfo};
use wellspring_wire::acp::members_except;

use super::session::{News, Place, SESSIONS_MAX, Session};
use super::{Agent, mcp, text, thread};
use crate::lock;
use crate::rpc::{Reply, RpcError};

/// Maximum number of sessions in one answer to `session/list`.
pub const LIST_PAGE: usize = 50;

/// Maximum number of runs that are read for one answer to `session/list`. The next page continues
/// there.
pub const LIST_SCANNED_MAX: usize = 1000;

/// Maximum number of directories in addition to the working directory: the instructions list each
/// of them.
pub const DIRECTORIES_MAX: usize = 64;

impl Agent {
    pub(super) async fn new_session(&self, params: &Value) -> Result<Reply, RpcError> {
        let place = self.place(params).await?;
        let thread = ThreadId::new(Uuid::now_v7());
        let session = self.open(thread, self.default_agent.clone(), place)?;
        self.reach_or_log_in(&session).await?;
        Ok(self.opened(&session, json!({"sessionId": session.id})))
    }

    pub(super) async fn load(&self, params: &Value) -> Result<Reply, RpcError> {
        let session = self.reopen(params).await?;
        self.replay(&session).await?;
        Ok(self.opened(&session, json!({})))
    }

    pub(super) async fn resume(&self, params: &Value) -> Result<Reply, RpcError> {
        let session = self.reopen(params).await?;
        Ok(self.opened(&session, json!({})))
    }

    pub(super) async fn list(&self, params: &Value) -> Result<Reply, RpcError> {
        let wanted = params["cwd"].as_str();
        let mut after_run = match params["cursor"].as_str() {
            None => None,
            Some(cursor) => Some(
                cursor
                    .parse::<RunId>()
                    .map_err(|_| RpcError::invalid("`cursor` is not from an earlier response"))?,
            ),
        };
        let (mut sessions, mut scanned) = (Vec::new(), 0);
        let mut more = true;
        while more && sessions.len() < LIST_PAGE && scanned < LIST_SCANNED_MAX {
            let filter = RunFilter { after_run, limit: LIST_PAGE, ..RunFilter::default() };
            let runs = self.runs(filter).await?;
            more = runs.len() == LIST_PAGE;
            for info in runs {
                if sessions.len() == LIST_PAGE {
                    more = true;
                    break;
                }
                after_run = Some(info.run);
                scanned += 1;
                sessions.extend(self.listed(&info, wanted).await?);
            }
        }
        let mut result = json!({"sessions": sessions});
        if let (true, Some(run)) = (more, after_run) {
            result["nextCursor"] = run.to_string().into();
        }
        Ok(result.into())
    }

    pub(super) async fn delete(&self, params: &Value) -> Result<Reply, RpcError> {
        let thread = thread(params)?;
        let open = lock(&self.sessions).get(&thread).cloned();
        if open.as_ref().is_some_and(|session| session.is_running()) {
            let message = "the session is busy with a prompt; cancel it first";
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        lock(&self.sessions).remove(&thread);
        loop {
            let runs =
                self.runs(RunFilter { thread: Some(thread), ..RunFilter::default() }).await?;
            if runs.is_empty() {
                return Ok(json!({}).into());
            }
            for info in runs {
                if !info.state.is_final() {
                    let message =
                        format!("run {} of the session is not over; cancel it first", info.run);
                    return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
                }
                let deleted = self.control.delete(info.run).await;
                deleted.map_err(|error| RpcError::internal(&error))?;
            }
        }
    }

    /// The answer to a request that opened a session, and the notifications that follow it.
    fn opened(&self, session: &Arc<Session>, result: Value) -> Reply {
        let result = self.offered(session, result);
        session.state().news = News { commands: true, ..News::default() };
        let updates = session.take_news().into_iter();
        let mut after: Vec<_> =
            updates.map(|update| ("session/update", session.update(update))).collect();
        if self.client().has_notices {
            for note in std::mem::take(&mut session.state().notes) {
                let title = "Something cannot be used";
                let notice = json!({
                    "sessionUpdate": "notice", "severity": "warning",
                    "title": title, "description": note,
                });
                after.push(("session/update", session.update(notice)));
            }
        }
        Reply { result, after, then: Some(self.announcing(session)) }
    }

    /// Finds a session that is open, or whose runs are in the log.
    async fn reopen(&self, params: &Value) -> Result<Arc<Session>, RpcError> {
        let thread = thread(params)?;
        let open = lock(&self.sessions).get(&thread).cloned();
        if open.as_ref().is_some_and(|session| session.is_running()) {
            let message = "the session is open and busy with a prompt";
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        let agent = match (&open, self.latest(thread).await?) {
            (Some(session), _) => session.state().agent.clone(),
            (None, Some(run)) if self.runtime.agent(&run.agent).is_some() => run.agent,
            // Its agent no longer exists, so the session continues with another one.
            (None, Some(_)) => self.default_agent.clone(),
            (None, None) => {
                let message = format!("there is no session {thread}");
                return Err(RpcError::new(RpcError::NOT_FOUND, message));
            }
        };
        let place = self.place(params).await?;
        let session = self.open(thread, agent, place)?;
        self.reach(&session).await;
        Ok(session)
    }

    fn open(
        &self,
        thread: ThreadId,
        agent: Box<str>,
        place: Place,
    ) -> Result<Arc<Session>, RpcError> {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&thread) {
            let message = format!("{SESSIONS_MAX} sessions are open; close one first");
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        let session = Arc::new(Session::new(thread, agent, place));
        sessions.insert(thread, Arc::clone(&session));
        Ok(session)
    }

    /// Reads the directories and MCP servers of a session from its parameters.
    async fn place(&self, params: &Value) -> Result<Place, RpcError> {
        let cwd = text(params, "cwd")?;
        let absolute = |path: &str| match Path::new(path).is_absolute() {
            true => Ok(Box::<str>::from(path)),
            false => Err(RpcError::invalid(format!("{path:?} is not an absolute path"))),
        };
        let others = params["additionalDirectories"].as_array().into_iter().flatten();
        let others = others.filter_map(Value::as_str).map(absolute);
        let others = others.collect::<Result<Vec<_>, _>>()?;
        if others.len() > DIRECTORIES_MAX {
            let message = format!(
                "{} additional directories exceed the maximum of {DIRECTORIES_MAX}",
                others.len()
            );
            return Err(RpcError::invalid(message));
        }
        let cwd = absolute(cwd)?;
        let configs = mcp::configs(&params["mcpServers"], &cwd)?;
        let (mcp, notes) = mcp::connect(configs).await;
        let members = ["sessionId", "cwd", "additionalDirectories", "mcpServers"];
        let opening = members_except(params, &members);
        Ok(Place { cwd, others, mcp, opening, notes })
    }

    /// A session for a list, titled by its latest run. `None` if `info` is another run, or if the
    /// session has no directory or not the one that the list is for.
    async fn listed(&self, info: &RunInfo, cwd: Option<&str>) -> Result<Option<Value>, RpcError> {
        let latest = self.latest(info.thread).await?;
        if latest.is_none_or(|latest| latest.run != info.run) {
            return Ok(None);
        }
        let started = self.started(info.run).await?;
        let here = started.and_then(|started| started.request.cwd);
        let Some(here) = here.filter(|here| cwd.is_none_or(|cwd| cwd == &**here)) else {
            return Ok(None);
        };
        let mut session = json!({"sessionId": info.thread.to_string(), "cwd": here});
        if !info.title.is_empty() {
            session["title"] = (&*info.title).into();
        }
        if let Some(at) = iso_8601(info.updated_at) {
            session["updatedAt"] = at.into();
        }
        Ok(Some(session))
    }

    async fn started(&self, run: RunId) -> Result<Option<RunStarted>, RpcError> {
        let failed = |error| RpcError::internal(&error);
        let cursor = self.control.attach(run, Seq(0)).await;
        let mut cursor = cursor.map_err(|error| RpcError::internal(&error))?;
        let frames = cursor.next().await.map_err(failed)?.unwrap_or_default();
        let first = frames.first().and_then(|frame| frame.records().first());
        let Some(Event::RunStarted(started)) = first.map(|record| &record.event) else {
            return Ok(None);
        };
        Ok(Some((**started).clone()))
    }

    pub(super) async fn latest(&self, thread: ThreadId) -> Result<Option<RunInfo>, RpcError> {
        let filter = RunFilter { thread: Some(thread), limit: 1, ..RunFilter::default() };
        Ok(self.runs(filter).await?.pop())
    }

    pub(super) async fn runs(&self, filter: RunFilter) -> Result<Vec<RunInfo>, RpcError> {
        let runs = self.control.list(filter).await;
        runs.map_err(|error| RpcError::internal(&error))
    }
}

pub(super) fn iso_8601(at: Millis) -> Option<String> {
    let at = i64::try_from(at.0).ok()?;
    Some(jiff::Timestamp::from_millisecond(at).ok()?.to_string())
}
