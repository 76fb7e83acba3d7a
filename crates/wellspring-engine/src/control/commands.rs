//! Commands to a run: cancel, answer, finish client calls, add input, amend.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;
use wellspring_core::{
    Amendment, Answer, CancelWhen, Command, Content, InboxNo, PartId, QuestionId, QuestionOutline,
    RETURN_RESULT, RunId, RunsOn, ToolOutcome, ToolResult, Transcript,
};
use wellspring_log::{NewAudit, NewCommand, Put, PutAll, ReadError, RunInfo, StoreError};

use super::audit::Entry;
use super::key::{Answered, Key, RequestKey};
use super::{Control, ControlError};
use crate::agent::AgentDef;
use crate::calls::answers::{self, may_answer};
use crate::calls::arguments::check_edited;
use crate::principal::Permission;

impl Control {
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
        let request = self.request(run, &commands, key).await?;
        let (mut puts, mut indexes, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (index, mut command) in commands.into_iter().enumerate() {
            request.sign(&mut command)?;
            if let Some(number) = request.check(&command).await? {
                puts.push((index, Put { number, existed: true }));
                continue;
            }
            let key = request.key(&command, index);
            let audit = request.audit(&command, &key);
            indexes.push(index);
            new.push(NewCommand { key, command, audit });
        }
        let done = self.put_all(run, new).await?;
        puts.extend(indexes.into_iter().zip(done));
        puts.sort_by_key(|(index, _)| *index);
        Ok(puts.into_iter().map(|(_, put)| put).collect())
    }

    /// Checks that a run takes the commands of a request, from this principal.
    async fn request(
        &self,
        run: RunId,
        commands: &[Command],
        key: RequestKey,
    ) -> Result<Request<'_>, ControlError> {
        let info = self.find(run).await?;
        // Repeated input may have been applied before the run ended.
        let only_input = commands.iter().all(|it| matches!(it, Command::AddInput { .. }));
        if info.state.is_final() && !only_input {
            return Err(ControlError::Finished(Box::new(info)));
        }
        for command in commands {
            self.permit(permission(command))?;
        }
        let answered = commands.iter().find_map(answered);
        let run = match answered {
            Some(_) => Some(self.log().transcript(run).await?),
            None => None,
        };
        let def = self.runtime.def_of(&info);
        Ok(Request { control: self, info, def, answered, run, key, fresh: Uuid::now_v7() })
    }

    /// Puts commands into a run's inbox, all or none, and waits until the run has taken their
    /// input.
    async fn put_all(&self, run: RunId, new: Vec<NewCommand>) -> Result<Vec<Put>, ControlError> {
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
                Ok(done)
            }
            PutAll::KeyTaken { index, number } if answers[index] => {
                Err(ControlError::AlreadyAnswered { number })
            }
            PutAll::KeyTaken { number, .. } => Err(ControlError::KeyReused { number }),
        }
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
}

/// The commands of one request, for a run that takes them.
struct Request<'a> {
    control: &'a Control,
    info: RunInfo,
    /// The run's agent, if this process knows it.
    def: Option<Arc<AgentDef>>,
    /// The first question or call that is answered. It identifies the request.
    answered: Option<Answered>,
    /// The run, if there is something to answer.
    run: Option<Transcript>,
    key: RequestKey,
    /// Identifies a request without a key.
    fresh: Uuid,
}

impl Request<'_> {
    fn by(&self) -> &str {
        &self.control.who.id
    }

    /// Names the sender in a command, and refuses a command that the agent cannot take.
    fn sign(&self, command: &mut Command) -> Result<(), ControlError> {
        match command {
            Command::Cancel { by, .. } | Command::Answer { by, .. } => {
                *by = Some(self.by().into());
            }
            Command::AddInput { .. } => {
                if self.def.as_ref().is_some_and(|def| !def.takes_input()) {
                    return Err(ControlError::NoInput { agent: self.info.agent.clone() });
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
        Ok(())
    }

    /// Checks a command that answers a question or a call. Returns the earlier entry with the same
    /// effect.
    async fn check(&self, command: &Command) -> Result<Option<InboxNo>, ControlError> {
        let Some(run) = &self.run else { return Ok(None) };
        match command {
            Command::Answer { question, answer, .. } => {
                let asked = run.questions.get(question);
                let given = asked.and_then(|asked| asked.answered.as_ref());
                let mine = given.filter(|given| given.by.as_deref() == Some(self.by()));
                if let Some((given, number)) = mine.and_then(|it| Some((it, it.inbox?))) {
                    return same_or_refused(given.answer == *answer, number);
                }
                let Some(open) = run.outline.questions.get(question) else {
                    return Err(ControlError::NoQuestion(*question));
                };
                self.check_answer(run, open, answer).await?;
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

    /// Checks the answer to an open question: whether the principal may give it, and whether it
    /// fits.
    async fn check_answer(
        &self,
        run: &Transcript,
        open: &QuestionOutline,
        answer: &Answer,
    ) -> Result<(), ControlError> {
        let bad = |why: String| ControlError::BadAnswer(why.into());
        let asker = run.started.as_ref().and_then(|it| it.request.by.as_deref());
        // A node that does not know the agent cannot run it either; the node that knows it decides
        // who may answer.
        if self.def.as_ref().is_some_and(|def| !may_answer(def, asker, Some(self.by()))) {
            return Err(ControlError::NotAnApprover);
        }
        answers::check(&open.form, answer).await.map_err(bad)?;
        if let Some(def) = &self.def {
            answers::check_editing(def, &run.outline, open, answer, Some(self.by()))
                .map_err(bad)?;
        }
        let Answer::Approve { arguments: Some(edited), .. } = answer else { return Ok(()) };
        let call = open.call.and_then(|call| run.outline.call(call));
        let asking = if open.agent.is_root() {
            self.def.clone()
        } else {
            let asking = run.agents.get(&open.agent);
            asking.and_then(|asking| self.control.runtime.agent(&asking.name))
        };
        // The run checks again, by the rules of the process that owns it.
        if let (Some(call), Some(asking)) = (call, asking) {
            check_edited(&asking, &call.tool.name, edited).await.map_err(bad)?;
        }
        Ok(())
    }

    /// The key under which a command is stored: of two commands with the same key, the first one
    /// counts.
    fn key(&self, command: &Command, index: usize) -> Box<str> {
        let by = self.by();
        let key = match command {
            Command::Cancel { when, .. } => Key::Cancel { when: *when, by },
            Command::Answer { question, .. } => {
                let by = Some(by).filter(|_| self.def.is_none());
                Key::Answer { question: *question, by }
            }
            Command::FinishCall { call, .. } => Key::Result { call: *call },
            Command::AddInput { message: Some(message), .. } => Key::Message { message, by },
            Command::Resume { .. } | Command::AddInput { .. } => match (self.answered, &self.key) {
                (Some(answered), _) => Key::With { answered, index, by },
                (None, RequestKey::Named(key)) => Key::Request { key, index, by },
                (None, RequestKey::Start(start)) => {
                    let name = start.external(&self.control.who);
                    Key::Start { kind: name.surface, id: name.id, index }
                }
                (None, RequestKey::Fresh) => Key::Fresh { id: self.fresh, index },
            },
        };
        key.encode()
    }

    fn audit(&self, command: &Command, key: &str) -> Option<NewAudit> {
        let entry = match (command, &self.run) {
            (Command::Cancel { why, .. }, _) => Entry::cancel(why.as_deref()),
            (Command::Answer { question, answer, .. }, Some(run)) => {
                Entry::answer(run, *question, answer)
            }
            (
                Command::Answer { .. }
                | Command::FinishCall { .. }
                | Command::Resume { .. }
                | Command::AddInput { .. },
                _,
            ) => return None,
        };
        Some(self.control.audited(&self.info, key, entry))
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
