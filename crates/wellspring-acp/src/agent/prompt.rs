//! A prompt: starts a run, sends its updates to the client, and passes on its questions.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde_json::{Value, json};
use wellspring_core::{
    Answer, CancelWhen, CancellationToken, Content, ContentChange, ContextNote, Event, Extended,
    Outcome, Outline, Question, QuestionId, Record, RemoteAgent, RunId, RunRequest, Seq,
    ToolContent, Usage,
};
use wellspring_engine::{AgentDef, Backend, ControlError, StartError, StartRun};
use wellspring_wire::acp::{Acp, Asked, Asking, ORIGIN, Offers, prompt_response};
use wellspring_wire::{Dialect as _, Out};

use super::host::ClientHost;
use super::session::{Running, Session};
use super::{Agent, Client, commands, sessions, tools};
use crate::client::{AcpAgent, PROMPTED};
use crate::rpc::{self, Peer, Reply, RpcError, Unasked};

impl Agent {
    pub(super) async fn prompt(
        self: Arc<Self>,
        running: Running,
        input: Vec<Content>,
    ) -> Result<Reply, RpcError> {
        let session = &running.session;
        self.say_notes(session).await?;
        if let Some(command) = commands::Command::of(&input, session) {
            self.obey(session, command).await?;
            return Ok(json!({"stopReason": "end_turn"}).into());
        }
        let run = self.start(session, input).await?;
        let follow = self.follow(session, run, &running.cancelled);
        // Concurrently with the reader, which may be waiting for a client that does not read.
        let cancel = async {
            running.cancelled.cancelled().await;
            if let Err(error) = self.control.stop(run, CancelWhen::Now, None).await {
                tracing::warn!(%run, %error, "failed to cancel the run");
            }
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            followed = follow => followed?,
            () = cancel => return Err(RpcError::new(RpcError::CANCELLED, "cancelled")),
        };
        let (outcome, theirs) = outcome;
        self.stopped(run, &outcome, theirs.as_ref()).await
    }

    /// Sends what could not be sent when the session was opened.
    async fn say_notes(&self, session: &Session) -> Result<(), RpcError> {
        let notes = std::mem::take(&mut session.state().notes);
        for note in notes {
            let content = json!({"type": "text", "text": format!("Note: {note}\n\n")});
            let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
            self.update(session, update).await?;
        }
        Ok(())
    }

    async fn start(&self, session: &Arc<Session>, input: Vec<Content>) -> Result<RunId, RpcError> {
        let is_first = self.latest(session.thread).await?.is_none();
        let def = self.def(session)?;
        let request = self.request(session, input, &def);
        let mut start = StartRun::new(def, request);
        start.thread = Some(session.thread);
        let run = loop {
            match self.control.start(start.clone()).await {
                Ok(started) => break started.run,
                Err(StartError::ThreadBusy(busy)) => self.supersede(busy).await?,
                Err(error) => return Err(RpcError::internal(&error)),
            }
        };
        if is_first && let Ok(info) = self.control.info(run).await {
            let mut update = json!({"sessionUpdate": "session_info_update", "title": info.title});
            if let Some(at) = sessions::iso_8601(info.updated_at) {
                update["updatedAt"] = at.into();
            }
            self.update(session, update).await?;
        }
        Ok(run)
    }

    fn request(&self, session: &Session, input: Vec<Content>, def: &AgentDef) -> RunRequest {
        let directory = |description: &str, path: &str| ContextNote {
            description: description.into(),
            value: path.into(),
        };
        let knows_others = session.state().link.as_ref().is_some_and(|it| it.knows_directories());
        let others = session.others.iter().filter(|_| !knows_others);
        let others = others.map(|path| directory("another directory", path));
        // A remote agent is started in that directory and need not be told.
        let here = match &def.backend {
            Backend::Model(_) => Some(directory("the working directory", &session.cwd)),
            Backend::Remote(_) => None,
        };
        let context = here.into_iter().chain(others);
        RunRequest {
            input,
            model: session.state().model.clone(),
            context: context.collect(),
            cwd: Some(session.cwd.clone()),
            ..RunRequest::default()
        }
    }

    /// The session's agent, with the client's tools.
    pub(super) fn def(&self, session: &Arc<Session>) -> Result<Arc<AgentDef>, RpcError> {
        let name = session.state().agent.clone();
        let def = self.runtime.agent(&name).ok_or_else(|| {
            RpcError::new(RpcError::INTERNAL, format!("agent {name:?} is not there any more"))
        })?;
        Ok(Arc::new(with_client_tools(&self.peer, session, self.client(), &def)))
    }

    /// Cancels a run of the session whose process no longer exists.
    async fn supersede(&self, busy: RunId) -> Result<(), RpcError> {
        let is_owned = self.control.is_owned(busy).await;
        if is_owned.map_err(|error| RpcError::internal(&error))? {
            let message = format!(
                "the session is busy with run {busy}, which was started elsewhere; wait for its \
                 end, or stop it with `wellspring runs cancel {busy}`"
            );
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        let stop = async {
            self.control.stop(busy, CancelWhen::Now, Some("superseded")).await?;
            self.control.wait(busy).await
        };
        stop.await.map(drop).map_err(|error| RpcError::internal(&error))
    }

    /// Sends a run to the client until it ends. Updates are read from the log only when the
    /// previous ones are written.
    async fn follow(
        &self,
        session: &Session,
        run: RunId,
        cancelled: &CancellationToken,
    ) -> Result<(Outcome, Option<Value>), RpcError> {
        let failed = |error| RpcError::internal(&error);
        let mut cursor =
            self.control.attach(run, Seq(0)).await.map_err(|error| RpcError::internal(&error))?;
        let mut updates = Updates::default();
        if self.client().has_terminals {
            updates.acp = updates.acp.lending_terminals();
        }
        let mut open = Open::default();
        loop {
            tokio::select! {
                frames = cursor.next() => {
                    let Some(frames) = frames.map_err(failed)? else {
                        let message = format!("run {run} ended without an outcome");
                        return Err(RpcError::new(RpcError::INTERNAL, message));
                    };
                    for record in frames.iter().flat_map(|frame| frame.records()) {
                        if let Some(outcome) =
                            self.tell(session, run, record, &mut updates, &mut open, cancelled).await?
                        {
                            return Ok((outcome, updates.answered));
                        }
                    }
                    self.flush(session, &mut updates).await?;
                }
                (question, answer, said) = open.next() => {
                    if let Some(said) = said {
                        session.state().answers.keep(question, answer.clone(), said);
                    }
                    self.answer(run, question, answer).await;
                }
            }
        }
    }

    /// Sends one record to the client. Returns the outcome if it is the last.
    async fn tell(
        &self,
        session: &Session,
        run: RunId,
        record: &Record,
        updates: &mut Updates,
        open: &mut Open,
        cancelled: &CancellationToken,
    ) -> Result<Option<Outcome>, RpcError> {
        let mut outcome = None;
        open.offers.read(&record.event);
        if let Some(said) = theirs(record) {
            self.flush(session, updates).await?;
            self.learn(session, said).await?;
            if said.name.starts_with('_') {
                let mut params = said.value.clone();
                params["sessionId"] = (&*session.id).into();
                self.peer.notify(&said.name, &params).await?;
            } else if &*said.name == PROMPTED {
                updates.answered = Some(said.value.clone());
            }
        }
        if record.seq == Seq(1) {
            // The client knows its own prompt.
            updates.acp.encode((&updates.outline).into(), record, &mut Out::default());
        } else if Updates::is_for(self.client(), record) {
            updates.acp.encode((&updates.outline).into(), record, &mut updates.out);
        }
        if let Event::QuestionAsked(question) = &record.event {
            // The call that the question is about is sent first.
            self.flush(session, updates).await?;
            self.ask(session, run, question, &updates.outline, open).await?;
        } else if let Event::QuestionAnswered(answered) = &record.event {
            // The question was answered elsewhere. A client that cancels withdraws its own
            // questions.
            if let Some((_, answer)) = open.asked.remove(&answered.question)
                && !cancelled.is_cancelled()
            {
                answer.cancel().await;
            }
        } else if let Some(terminals) = terminals(record) {
            self.flush(session, updates).await?;
            terminals.for_each(|terminal| session.terminal_shown(terminal));
        } else if let Event::RunFinished { outcome: ended } = &record.event {
            self.flush(session, updates).await?;
            outcome = Some((**ended).clone());
        }
        updates.outline.apply(record);
        Ok(outcome)
    }

    async fn flush(&self, session: &Session, updates: &mut Updates) -> Result<(), RpcError> {
        if updates.out.is_empty() {
            return Ok(());
        }
        let lines = Updates::lines(session, &updates.out);
        updates.out.clear();
        Ok(self.peer.say(lines).await?)
    }

    async fn ask(
        &self,
        session: &Session,
        run: RunId,
        question: &Question,
        before: &Outline,
        open: &mut Open,
    ) -> Result<(), RpcError> {
        let asked = Asked::passed_on(question, before, &session.id, &mut open.offers);
        let asked = asked
            .unwrap_or_else(|| Asked::new(question, before, &session.id, self.client().has_forms))
            .with_more(question, before, &mut open.offers);
        match asked {
            Asked::Request(asking) => {
                match self.peer.request(asking.method, &asking.params).await {
                    Ok(answer) => {
                        open.asked.insert(question.question, (asking, answer));
                    }
                    Err(Unasked::Gone) => return Err(Unasked::Gone.into()),
                    Err(Unasked::TooMany) => {
                        let error = Unasked::TooMany.into();
                        self.answer(run, question.question, unasked(&error)).await;
                    }
                }
            }
            Asked::Unaskable(answer) => self.answer(run, question.question, answer).await,
        }
        Ok(())
    }

    async fn answer(&self, run: RunId, question: QuestionId, answer: Answer) {
        if self.peer.is_gone() {
            // The question was not declined, so it can still be answered elsewhere.
            return;
        }
        match self.control.answer(run, question, answer).await {
            // It was answered elsewhere, or the run has finished.
            Ok(_)
            | Err(
                ControlError::Finished(_)
                | ControlError::NoQuestion(_)
                | ControlError::AlreadyAnswered { .. },
            ) => {}
            Err(error) => tracing::warn!(%run, %error, "the answer could not be kept"),
        }
    }

    async fn stopped(
        &self,
        run: RunId,
        outcome: &Outcome,
        theirs: Option<&Value>,
    ) -> Result<Reply, RpcError> {
        if let Outcome::Failed { kind, message, retryable } = outcome {
            let mut data = json!({"run": run, "kind": kind, "retryable": retryable});
            // The client may know the proxied agent's id of the call.
            let theirs = theirs.and_then(|theirs| theirs.get("error"));
            let code = theirs.and_then(|error| error["code"].as_i64());
            if let Some(theirs) = theirs {
                data["error"] = theirs.clone();
            }
            let error = RpcError::new(code.unwrap_or(RpcError::INTERNAL), &**message);
            return Err(RpcError { data: Some(data), ..error });
        }
        let usage = match self.control.transcript(run).await {
            Ok(transcript) => transcript.usage,
            Err(_) => Usage::default(),
        };
        Ok(prompt_response(outcome, &usage, theirs).unwrap_or_default().into())
    }
}

/// Encodes a run as updates for the client.
#[derive(Debug, Default)]
pub(super) struct Updates {
    acp: Acp,
    outline: Outline,
    out: Out,
    /// A proxied agent's own answer to its prompt.
    answered: Option<Value>,
}

impl Updates {
    /// Whether a record is sent to the client. A proxied agent's messages are sent if the client
    /// can show them, except its own modes and options: our modes are the agents.
    pub(super) fn is_for(client: Client, record: &Record) -> bool {
        let Some(said) = theirs(record) else { return true };
        match &*said.name {
            // Their consequences are sent as other updates.
            "current_mode_update" | "config_option_update" | COMMANDS_UPDATE => false,
            "notice" => client.has_notices,
            "compaction_update" | "compaction_summary_chunk" => client.has_compaction,
            _ => true,
        }
    }

    /// The updates as lines.
    pub(super) fn lines(session: &Session, out: &Out) -> Vec<u8> {
        // Everything but the update is the same each time.
        let around = rpc::notification("session/update", &session.update(json!(0))).to_string();
        let (before, after) = around.rsplit_once('0').unwrap_or((&around, ""));
        let mut lines = Vec::with_capacity(out.bytes_len() + out.len() * around.len());
        for (_, update) in out.events() {
            lines.extend_from_slice(before.as_bytes());
            lines.extend_from_slice(update);
            lines.extend_from_slice(after.as_bytes());
            lines.push(b'\n');
        }
        lines
    }
}

pub(super) const COMMANDS_UPDATE: &str = "available_commands_update";

/// A proxied agent's message that has no event of its own.
fn theirs(record: &Record) -> Option<&Extended> {
    let Event::Extended(said) = &record.event else { return None };
    (&*said.origin == ORIGIN && record.agent.is_root()).then_some(&**said)
}

/// The terminals in a call's content.
fn terminals(record: &Record) -> Option<impl Iterator<Item = &str>> {
    let Event::ToolUpdated { update, .. } = &record.event else { return None };
    let (ContentChange::Append(content) | ContentChange::Replace(content)) =
        update.content.as_ref()?;
    Some(content.iter().filter_map(|content| match content {
        ToolContent::Terminal { terminal_id } => Some(&**terminal_id),
        ToolContent::Content(_) | ToolContent::Diff { .. } => None,
    }))
}

/// Adapts an agent, and the agents that it calls, to the client's tools.
fn with_client_tools(
    peer: &Peer,
    session: &Arc<Session>,
    client: Client,
    def: &AgentDef,
) -> AgentDef {
    let mut offered: Vec<_> = session.mcp.iter().flat_map(|server| server.tools()).collect();
    let mut def = def.clone();
    match &def.backend {
        Backend::Model(_) => offered.extend(tools::client_tools(peer, session, client)),
        Backend::Remote(remote) => {
            if let Some(acp) = acp_agent(&**remote) {
                let (peer, session) = (peer.clone(), Arc::clone(session));
                let host = ClientHost { peer, session, client };
                def.backend = Backend::Remote(Arc::new(acp.hosted(Arc::new(host))));
            }
        }
    }
    // A tool of the client replaces our tool of the same name.
    def.tools.retain(|own| offered.iter().all(|tool| tool.spec().name != own.spec().name));
    def.tools.extend(offered);
    let (peer, session) = (peer.clone(), Arc::clone(session));
    def.adapt_sub_agents =
        Some(Arc::new(move |called| with_client_tools(&peer, &session, client, called)));
    def
}

/// A remote agent as an ACP agent, if it is one.
pub(super) fn acp_agent(remote: &dyn RemoteAgent) -> Option<&AcpAgent> {
    (remote as &dyn Any).downcast_ref()
}

fn unasked(error: &RpcError) -> Answer {
    Answer::no(format!("the user could not be asked: {}", error.message))
}

/// The questions of a run.
#[derive(Default)]
struct Open {
    /// The questions that the client was asked.
    asked: BTreeMap<QuestionId, (Asking, rpc::Answer)>,
    /// The options of a proxied agent's permission requests.
    offers: Offers,
}

impl Open {
    /// Waits for the next answer; with the client's own words.
    async fn next(&mut self) -> (QuestionId, Answer, Option<Value>) {
        let (question, result) = poll_fn(|cx| {
            for (question, (_, answer)) in &mut self.asked {
                if let Poll::Ready(result) = Pin::new(answer).poll(cx) {
                    return Poll::Ready((*question, result));
                }
            }
            Poll::Pending
        })
        .await;
        match (self.asked.remove(&question), result) {
            (Some((asking, _)), Ok(said)) => (question, asking.answer(&said), Some(said)),
            (_, Err(error)) => (question, unasked(&error), None),
            (None, Ok(_)) => (question, Answer::NO, None),
        }
    }
}
