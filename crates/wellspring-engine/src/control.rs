//! The one way to act on runs.
//!
//! A surface turns its caller into a [`Principal`] and acts through its [`Control`]: start, attach,
//! read back, list, cancel, answer, finish client calls, add input, amend, delete. The decisions
//! whether an action is allowed and whether it was done before are made here, once for all
//! surfaces.
//!
//! # What is promised
//!
//! 1. Another tenant's run or thread is reported as not found.
//! 2. A command takes effect at most once, however often it is sent. A command that is not
//!    accepted is refused with a named error.
//! 3. All commands of one [`respond`](Control::respond) are one durable step: all or none.
//! 4. An answer, a cancellation or a deletion that takes effect has one audit entry, which is
//!    durable before.

pub(crate) mod admission;
mod audit;
mod documents;
mod errors;
mod feedback;
pub(crate) mod key;
mod start;
mod threads;

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;
use wellspring_core::{
    Amendment, Answer, CancelWhen, Command, Content, Event, InboxNo, Outline, PartId, QuestionId,
    RETURN_RESULT, RunId, RunStarted, RunsOn, Seq, ThreadId, ToolOutcome, ToolResult, Transcript,
};
use wellspring_log::{
    Cursor, HistoryQuery, Log, NewCommand, Put, PutAll, ReadError, RunFilter, RunInfo, StoreError,
};

pub use self::admission::AdmissionLimits;
use self::audit::Entry;
pub use self::documents::{Documents, SURFACE_DOCUMENTS_MAX};
pub use self::errors::{ControlError, StartError};
pub use self::feedback::{FEEDBACK_BYTES_MAX, Feedback};
use self::key::{Answered, Key};
pub use self::key::{ClientId, RequestKey, StartKey};
pub use self::start::{AgentRef, InThread, StartRun, Started, StartedAs};
pub use self::threads::RecentRuns;
use crate::agent::AgentDef;
use crate::calls::answers::{self, may_answer};
use crate::calls::check_edited;
use crate::principal::{Permission, Principal};
use crate::runtime::Runtime;

/// Acts on the runs of a [`Runtime`] for a principal. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_core::{AgentNo, Seq};
/// use wellspring_engine::{AgentDef, ControlError, Permission, Principal, Runtime, StartRun};
/// use wellspring_log::Log;
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// runtime.register(AgentDef::model("greeter", Arc::new(Scripted::new([Say::new().text("Hello.")]))));
/// let ada = runtime.control(Principal::new("acme", "ada", [Permission::Run, Permission::Read]));
/// let run = ada.start(StartRun::text("greeter", "Hi")).await?.run;
/// assert_eq!(ada.wait(run).await?.answer(AgentNo::ROOT), "Hello.");
///
/// let stranger = runtime.control(Principal::new("other", "eve", [Permission::Admin]));
/// assert!(matches!(stranger.attach(run, Seq(0)).await, Err(ControlError::NoRun(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    runtime: Runtime,
    who: Principal,
}

impl Runtime {
    /// Acts on the runs for a principal.
    #[must_use]
    pub fn control(&self, who: Principal) -> Control {
        Control { runtime: self.clone(), who }
    }

    /// Acts on the runs for the user of this machine: [`control`](Self::control) of
    /// [`Principal::local`].
    #[must_use]
    pub fn local(&self) -> Control {
        self.control(Principal::local())
    }
}

impl Control {
    /// The principal that acts.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.who
    }

    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A run's summary, as in lists. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the store fails.
    pub async fn info(&self, run: RunId) -> Result<RunInfo, ControlError> {
        self.permit(Permission::Read)?;
        self.find(run).await
    }

    /// Runs of the principal's tenant, newest first; the filter's own tenant is ignored. Requires
    /// [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If the principal may not read, or the store fails.
    pub async fn list(&self, filter: RunFilter) -> Result<Vec<RunInfo>, ControlError> {
        self.permit(Permission::Read)?;
        if let Some(run) = filter.after_run {
            self.find(run).await?;
        }
        let tenant = Some((*self.who.tenant).into());
        Ok(self.log().store().list(RunFilter { tenant, ..filter }).await?)
    }

    /// The whole run as committed so far. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the log cannot be read.
    pub async fn transcript(&self, run: RunId) -> Result<Transcript, ControlError> {
        self.permit(Permission::Read)?;
        self.find(run).await?;
        Ok(self.log().transcript(run).await?)
    }

    /// What is open in a run after a record. Requires what [`attach`](Self::attach) does.
    ///
    /// # Errors
    ///
    /// If there is no such run or record, the principal may not read it, or the log cannot be
    /// read.
    pub async fn outline_at(&self, run: RunId, seq: Seq) -> Result<Outline, ControlError> {
        self.attach(run, seq).await?;
        Ok(self.log().outline_before(run, seq).await?)
    }

    /// Whether a live process works on a run.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn is_owned(&self, run: RunId) -> Result<bool, ControlError> {
        let info = self.find(run).await?;
        Ok(self.runtime.is_live(run) || self.log().is_owned(&info))
    }

    /// The name of a run's agent.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn agent_of(&self, run: RunId) -> Result<Box<str>, ControlError> {
        Ok(self.find(run).await?.agent)
    }

    /// A run and the runs that it continues, newest first, at most `max`. If a run was deleted, the
    /// thread's next older run follows. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the store fails.
    pub async fn history(&self, run: RunId, max: usize) -> Result<Vec<RunInfo>, ControlError> {
        self.info(run).await?;
        let query = HistoryQuery { run, max, folded: false };
        let past = self.log().store().history(query).await?;
        Ok(past.into_iter().map(|past| past.info).collect())
    }

    /// Reads a run from after a record. Detaching changes nothing. Requires
    /// [`Permission::Read`], except for the principal that started the run.
    ///
    /// # Errors
    ///
    /// If there is no such run or record, the principal may not read it, or the store fails.
    pub async fn attach(&self, run: RunId, after: Seq) -> Result<Cursor, ControlError> {
        self.find(run).await?;
        if !self.who.may(Permission::Read) {
            let asker = self.request(run).await?.and_then(|started| started.request.by.clone());
            if asker.as_deref() != Some(&*self.who.id) {
                return Err(ControlError::NotPermitted(Permission::Read));
            }
        }
        Ok(self.log().cursor(run, after).await?)
    }

    /// The current state of a run, for a surface that checks a client's answers. Requires
    /// [`Permission::Run`]; do not show it to a caller that may not read.
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not answer it, or the log cannot be read.
    pub async fn waiting(&self, run: RunId) -> Result<Transcript, ControlError> {
        self.permit(Permission::Run)?;
        self.find(run).await?;
        Ok(self.log().transcript(run).await?)
    }

    /// Waits until a run has finished and returns its transcript. Requires what
    /// [`attach`](Self::attach) does.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub async fn wait(&self, run: RunId) -> Result<Transcript, ControlError> {
        let mut transcript = Transcript::default();
        let mut cursor = self.attach(run, Seq(0)).await?;
        while let Some(frames) = cursor.next().await? {
            for frame in &frames {
                transcript.extend(frame.records());
            }
        }
        Ok(transcript)
    }

    /// The thread that a client's id stands for. It need not have runs.
    #[must_use]
    pub fn thread(&self, id: &ClientId) -> ThreadId {
        id.thread(&self.who)
    }

    /// The run that a client's id is bound to, if there is one.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn resolve(&self, id: &ClientId) -> Result<Option<RunId>, ControlError> {
        Ok(self.log().store().resolve(id.external(&self.who)).await?)
    }

    /// Stops a run, in whichever process it runs. Durable when it returns; a second
    /// cancellation by the same principal is the first one. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, it has finished, the principal may not stop it, or the store fails.
    pub async fn cancel(
        &self,
        run: RunId,
        when: CancelWhen,
        why: Option<&str>,
    ) -> Result<Put, ControlError> {
        let command = Command::Cancel { when, by: None, why: why.map(Into::into) };
        match self.send_one(run, command, RequestKey::Fresh).await {
            // Only the reason can differ, and the run is cancelled anyway.
            Err(ControlError::KeyReused { number }) => Ok(Put { number, existed: true }),
            sent => sent,
        }
    }

    /// Stops a run like [`cancel`](Self::cancel); a run that has finished is not an error. Returns
    /// whether the run was still active.
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not stop it, or the store fails.
    pub async fn stop(
        &self,
        run: RunId,
        when: CancelWhen,
        why: Option<&str>,
    ) -> Result<bool, ControlError> {
        match self.cancel(run, when, why).await {
            Ok(_) => Ok(true),
            Err(ControlError::Finished(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Answers a question. The first answer wins. Requires [`Permission::Approve`].
    ///
    /// # Errors
    ///
    /// If there is no such run or open question, the answer does not fit, the principal may not
    /// answer or has answered otherwise, or the store fails.
    pub async fn answer(
        &self,
        run: RunId,
        question: QuestionId,
        answer: Answer,
    ) -> Result<Put, ControlError> {
        let command = Command::Answer { question, answer, by: None, wire_run: None };
        self.send_one(run, command, RequestKey::Fresh).await
    }

    /// Returns the result of a call that ran in the client. The first result counts. Requires
    /// [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the call does not wait for a result or has another one, the
    /// principal may not hand it in, or the store fails.
    pub async fn finish_call(
        &self,
        run: RunId,
        call: PartId,
        outcome: ToolOutcome,
        result: ToolResult,
    ) -> Result<Put, ControlError> {
        let command = Command::FinishCall { call, outcome, result, wire_run: None };
        self.send_one(run, command, RequestKey::Fresh).await
    }

    /// Adds input to a run, which the model gets from its next turn on. Resolves once the run has
    /// applied the input, or will certainly do so. If the run ends at the same moment, the call
    /// fails, and the caller can start the next run. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, it has finished, the key was used for another input, the principal
    /// may not add to it, or the store fails.
    pub async fn add_input(
        &self,
        run: RunId,
        key: RequestKey,
        content: Vec<Content>,
    ) -> Result<Put, ControlError> {
        self.send_one(run, Command::AddInput { content, message: None }, key).await
    }

    /// Changes the client's tools and context of a run, and the state it shares with the screen.
    /// The model sees the changes from its next turn on; a paused run continues with them. Requires
    /// [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// As [`add_input`](Self::add_input).
    pub async fn amend(
        &self,
        run: RunId,
        key: RequestKey,
        amended: Amendment,
        state: Option<Value>,
    ) -> Result<Put, ControlError> {
        let (amended, state) = (Box::new(amended), state.map(Box::new));
        self.send_one(run, Command::Resume { amended, state, wire_run: None }, key).await
    }

    /// Sends all commands of one request to a run, as one durable step: all or none. Requires
    /// [`Permission::Approve`] if there are answers, and [`Permission::Run`] for the other
    /// commands.
    ///
    /// Repeated commands have no further effect. A request with answers is identified by its
    /// answers, and `key` is ignored.
    ///
    /// # Errors
    ///
    /// As the methods for the single commands.
    pub async fn respond(
        &self,
        run: RunId,
        commands: Vec<Command>,
        key: RequestKey,
    ) -> Result<Vec<Put>, ControlError> {
        let info = self.find(run).await?;
        // Repeated input may have been applied before the run ended.
        let only_input = commands.iter().all(|it| matches!(it, Command::AddInput { .. }));
        if info.state.is_final() && !only_input {
            return Err(ControlError::Finished(Box::new(info)));
        }
        for command in &commands {
            self.permit(permission(command))?;
        }
        let by = &*self.who.id;
        let first = commands.iter().find_map(answered);
        let checked = match first {
            Some(_) => Some(self.log().transcript(run).await?),
            None => None,
        };
        let def = self.runtime.def_of(&info);
        let fresh = Uuid::now_v7();
        let (mut puts, mut indexes, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (index, mut command) in commands.into_iter().enumerate() {
            match &mut command {
                Command::Cancel { by: who, .. } | Command::Answer { by: who, .. } => {
                    *who = Some(by.into());
                }
                Command::AddInput { .. } => {
                    if def.as_ref().is_some_and(|def| !def.takes_input()) {
                        return Err(ControlError::NoInput { agent: info.agent });
                    }
                }
                Command::Resume { amended, .. } => {
                    let mut tools = amended.client_tools.iter().flatten();
                    if tools.any(|tool| &*tool.name == RETURN_RESULT) {
                        return Err(ControlError::ReservedTool);
                    }
                }
                Command::FinishCall { .. } => {}
            }
            if let Some(run) = &checked
                && let Some(number) = self.check(def.as_deref(), run, &command).await?
            {
                puts.push((index, Put { number, existed: true }));
                continue;
            }
            let key = match &command {
                Command::Cancel { when, .. } => Key::Cancel { when: *when, by },
                Command::Answer { question, .. } => {
                    let by = Some(by).filter(|_| def.is_none());
                    Key::Answer { question: *question, by }
                }
                Command::FinishCall { call, .. } => Key::Result { call: *call },
                Command::AddInput { message: Some(message), .. } => Key::Message { message, by },
                Command::Resume { .. } | Command::AddInput { .. } => match (first, &key) {
                    (Some(answered), _) => Key::With { answered, index, by },
                    (None, RequestKey::Named(key)) => Key::Request { key, index, by },
                    (None, RequestKey::Start(start)) => {
                        let name = start.external(&self.who);
                        Key::Start { kind: name.surface, id: name.id, index }
                    }
                    (None, RequestKey::Fresh) => Key::Fresh { id: fresh, index },
                },
            };
            let entry = match (&command, &checked) {
                (Command::Cancel { why, .. }, _) => Some(Entry::cancel(why.as_deref())),
                (Command::Answer { question, answer, .. }, Some(run)) => {
                    Some(Entry::answer(run, *question, answer))
                }
                (
                    Command::Answer { .. }
                    | Command::FinishCall { .. }
                    | Command::Resume { .. }
                    | Command::AddInput { .. },
                    _,
                ) => None,
            };
            let key = key.encode();
            let audit = entry.map(|entry| self.audited(&info, &key, entry));
            indexes.push(index);
            new.push(NewCommand { key, command, audit });
        }
        let answers: Vec<_> = new.iter().map(|new| answered(&new.command).is_some()).collect();
        let inputs: Vec<_> =
            new.iter().map(|new| matches!(new.command, Command::AddInput { .. })).collect();
        let sent = match self.log().send(run, new).await {
            Err(StoreError::Finished(_)) => return Err(self.finished(run).await),
            sent => sent?,
        };
        // Also if a key was taken: the earlier command may still wait for an owner.
        self.runtime.wake(run).await;
        match sent {
            PutAll::Done(done) => {
                let inputs = done.iter().zip(inputs).filter(|(_, is_input)| *is_input);
                let inputs: Vec<_> = inputs.map(|(put, _)| put.number).collect();
                self.until_taken(run, &inputs).await?;
                puts.extend(indexes.into_iter().zip(done));
            }
            PutAll::KeyTaken { index, number } if answers[index] => {
                return Err(ControlError::AlreadyAnswered { number });
            }
            PutAll::KeyTaken { number, .. } => return Err(ControlError::KeyReused { number }),
        }
        puts.sort_by_key(|(index, _)| *index);
        Ok(puts.into_iter().map(|(_, put)| put).collect())
    }

    /// Binds a client's id to a run, unless it is bound already. Returns the run that it is bound
    /// to. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn name(&self, id: &ClientId, run: RunId) -> Result<RunId, ControlError> {
        self.permit(Permission::Run)?;
        self.find(run).await?;
        Ok(self.log().store().bind(id.external(&self.who), run).await?)
    }

    /// Deletes a finished run. Its thread continues without it. Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If there is no such run, it is not over, the principal may not delete it, or the store
    /// fails.
    pub async fn delete(&self, run: RunId) -> Result<(), ControlError> {
        self.permit(Permission::Admin)?;
        let info = self.find(run).await?;
        if !info.state.is_final() && !self.is_damaged(run).await {
            return Err(ControlError::Unfinished(run));
        }
        let entry = self.audited(&info, &Key::Delete.encode(), Entry::delete());
        self.log().store().put_audit(entry).await?;
        self.log().store().delete(run).await?;
        self.forget_feedback(run).await
    }

    /// Whether a run is so damaged that it can neither continue nor be cancelled.
    async fn is_damaged(&self, run: RunId) -> bool {
        let read = self.log().transcript(run).await;
        matches!(read, Err(ReadError::Store(StoreError::Damaged { .. })))
    }

    async fn send_one(
        &self,
        run: RunId,
        command: Command,
        key: RequestKey,
    ) -> Result<Put, ControlError> {
        let puts = self.respond(run, vec![command], key).await?;
        puts.into_iter().next().ok_or(ControlError::NoRun(run))
    }

    /// Checks a command that answers a question or a call. Returns the earlier entry with the same
    /// effect.
    async fn check(
        &self,
        def: Option<&AgentDef>,
        run: &Transcript,
        command: &Command,
    ) -> Result<Option<InboxNo>, ControlError> {
        match command {
            Command::Answer { question, answer, .. } => {
                let asked = run.questions.get(question);
                let given = asked.and_then(|asked| asked.answered.as_ref());
                let mine = given.filter(|given| given.by.as_deref() == Some(&*self.who.id));
                if let Some((given, number)) = mine.and_then(|it| Some((it, it.inbox?))) {
                    return same_or_refused(given.answer == *answer, number);
                }
                let Some(open) = run.outline.questions.get(question) else {
                    return Err(ControlError::NoQuestion(*question));
                };
                let asker = run.started.as_ref().and_then(|it| it.request.by.as_deref());
                // A node that does not know the agent cannot run it either; the node that knows it
                // decides who may answer.
                if def.is_some_and(|def| !may_answer(def, asker, Some(&self.who.id))) {
                    return Err(ControlError::NotAnApprover);
                }
                let bad = |why: String| ControlError::BadAnswer(why.into());
                answers::check(&open.form, answer).await.map_err(bad)?;
                if let Some(def) = def {
                    let by = Some(&*self.who.id);
                    answers::check_editing(def, &run.outline, open, answer, by).map_err(bad)?;
                }
                if let Answer::Approve { arguments: Some(edited), .. } = answer {
                    let call = open.call.and_then(|call| run.outline.call(call));
                    let asking = run.agents.get(&open.agent);
                    let asking = asking.and_then(|asking| self.runtime.agent(&asking.name));
                    let asking = if open.agent.is_root() { def } else { asking.as_deref() };
                    // The run checks again, by the rules of the process that owns it.
                    if let (Some(call), Some(asking)) = (call, asking) {
                        check_edited(asking, &call.tool.name, edited).await.map_err(bad)?;
                    }
                }
            }
            Command::FinishCall { call, outcome, result, .. } => {
                let part = run.parts.get(call).and_then(|part| part.call.as_ref());
                if let Some((ended, given)) = part.and_then(|call| call.finished.as_ref())
                    && let Some(number) = given.inbox
                {
                    let same =
                        ended == outcome && ToolResult { inbox: None, ..given.clone() } == *result;
                    return same_or_refused(same, number);
                }
                let open = run.outline.call(*call);
                if !open.is_some_and(|open| open.tool.runs_on == RunsOn::Client) {
                    return Err(ControlError::NoCall(*call));
                }
            }
            Command::Cancel { .. } | Command::Resume { .. } | Command::AddInput { .. } => {}
        }
        Ok(None)
    }

    /// The first record of a run, with its request.
    async fn request(&self, run: RunId) -> Result<Option<Arc<RunStarted>>, ControlError> {
        let mut cursor = self.log().cursor(run, Seq(0)).await?;
        let frames = cursor.next().await?.unwrap_or_default();
        let first = frames.first().and_then(|frame| frame.records().first());
        let Some(Event::RunStarted(started)) = first.map(|record| &record.event) else {
            return Ok(None);
        };
        Ok(Some(Arc::clone(started)))
    }

    /// A run of the principal's tenant.
    async fn find(&self, run: RunId) -> Result<RunInfo, ControlError> {
        let info = self.log().store().info(run).await?;
        info.filter(|info| *info.tenant == *self.who.tenant).ok_or(ControlError::NoRun(run))
    }

    async fn unfinished(&self, run: RunId) -> Result<RunInfo, ControlError> {
        let info = self.find(run).await?;
        if info.state.is_final() { Err(ControlError::Finished(Box::new(info))) } else { Ok(info) }
    }

    /// Waits until a run has applied inputs, or cannot end without applying them: a run without an
    /// owner reads its inbox first when it is adopted. A run can end at the moment at which input
    /// is put into its inbox. In that case the input is never read, and its sender must get an
    /// error.
    async fn until_taken(&self, run: RunId, inputs: &[InboxNo]) -> Result<(), ControlError> {
        if inputs.is_empty() {
            return Ok(());
        }
        let info = self.find(run).await?;
        let mut outline = self.log().outline_before(run, info.head).await?;
        let mut cursor = self.log().cursor(run, outline.head).await?;
        loop {
            if inputs.iter().all(|input| outline.taken.contains(input)) {
                return Ok(());
            }
            let info = self.find(run).await?;
            if !info.state.is_final() && !self.log().is_owned(&info) {
                return Ok(());
            }
            match cursor.next().await {
                Ok(Some(frames)) => {
                    for record in frames.iter().flat_map(|frame| frame.records()) {
                        outline.apply(record);
                    }
                }
                Ok(None) => return Err(self.finished(run).await),
                // The next owner applies the inputs.
                Err(ReadError::OwnerLost(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The error for a finished run.
    async fn finished(&self, run: RunId) -> ControlError {
        match self.find(run).await {
            Ok(info) => ControlError::Finished(Box::new(info)),
            Err(error) => error,
        }
    }

    pub(crate) fn permit(&self, permission: Permission) -> Result<(), ControlError> {
        if self.who.may(permission) { Ok(()) } else { Err(ControlError::NotPermitted(permission)) }
    }

    fn log(&self) -> &Log {
        self.runtime.log()
    }
}

fn same_or_refused(same: bool, number: InboxNo) -> Result<Option<InboxNo>, ControlError> {
    if same { Ok(Some(number)) } else { Err(ControlError::AlreadyAnswered { number }) }
}

/// The permission that a command requires.
fn permission(command: &Command) -> Permission {
    match command {
        Command::Answer { .. } => Permission::Approve,
        Command::Cancel { .. }
        | Command::FinishCall { .. }
        | Command::Resume { .. }
        | Command::AddInput { .. } => Permission::Run,
    }
}

fn answered(command: &Command) -> Option<Answered> {
    match command {
        Command::Answer { question, .. } => Some(Answered::Question(*question)),
        Command::FinishCall { call, .. } => Some(Answered::Call(*call)),
        Command::Cancel { .. } | Command::Resume { .. } | Command::AddInput { .. } => None,
    }
}
