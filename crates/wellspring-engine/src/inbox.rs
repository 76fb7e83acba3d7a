//! A run's inbox: durable commands from other processes and tasks. Each is applied once, and its
//! effect is recorded.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use futures::future::FutureExt as _;
use serde_json::Value;
use wellspring_core::{
    AgentNo, Answer, Answered, CancelWhen, Command, Event, InboxNo, Outcome, PartId, QuestionId,
    RunsOn,
};
use wellspring_log::InboxEntry;

use crate::calls::answers::{self, may_answer};
use crate::calls::arguments::parse_arguments;
use crate::calls::standing_approvals::StandingApproval;
use crate::run::Run;
use crate::runtime::close::finished;

/// Effects of inbox entries that the waiting code has not received yet.
#[derive(Debug, Default)]
pub(crate) struct InboxState {
    handled: BTreeSet<InboxNo>,
    answers: BTreeMap<QuestionId, Answer>,
    results: BTreeSet<PartId>,
    cancel: Option<Outcome>,
    cancel_after_turn: Option<Outcome>,
}

impl Run {
    /// Resumes a paused run, with the first amendment that a client sent. Later amendments are
    /// applied like any other entry.
    pub(crate) async fn resume(&self, entries: &[InboxEntry]) {
        let changes = entries.iter().find_map(|entry| match &entry.command {
            Command::Resume { amended, state, .. } => Some((entry.number, amended, state)),
            Command::Cancel { .. }
            | Command::Answer { .. }
            | Command::FinishCall { .. }
            | Command::AddInput { .. } => None,
        });
        // An answer is named in the record of its effect, not here, because it may have none.
        let inbox = changes.map(|(inbox, ..)| inbox);
        let wire_run = entries.first().and_then(|entry| wire_run(&entry.command));
        let amended = changes.map(|(_, amended, _)| amended.clone());
        let resumed = Event::RunResumed { inbox, wire_run, amended };
        self.push_with_state(resumed, changes.and_then(|(.., state)| state.clone()));
        self.inbox_state().handled.extend(inbox);
        self.commit().await;
    }

    /// Appends an event, and the client's state with it if that differs from the run's.
    fn push_with_state(&self, event: Event, state: Option<Box<Value>>) {
        self.owner.push_with(|transcript, mut waiting| {
            let sets = |event: &Event| {
                matches!(event, Event::StateSet { .. } | Event::StatePatched { .. })
            };
            let waits = Iterator::any(&mut waiting, sets);
            let changed =
                state.filter(|state| waits || transcript.state.as_ref() != Some(&**state));
            let state = changed.map(|state| Event::StateSet { state });
            std::iter::once(event).chain(state).map(|event| (AgentNo::ROOT, event)).collect()
        });
    }

    /// The outcome, if the run was cancelled immediately.
    pub(crate) fn cancelled(&self) -> Option<Outcome> {
        self.inbox_state().cancel.clone()
    }

    /// The outcome, if the run was cancelled immediately or after this turn.
    pub(crate) fn cancelled_at_edge(&self) -> Option<Outcome> {
        let state = self.inbox_state();
        state.cancel.clone().or_else(|| state.cancel_after_turn.clone())
    }

    /// Cancels the run from within the engine.
    pub(crate) fn cancel_now(&self, outcome: Outcome) {
        self.inbox_state().cancel.get_or_insert(outcome);
        self.signal.cancel();
        self.inbox_state_changed.notify_waiters();
    }

    /// Waits for the answer to a question.
    pub(crate) async fn answer(&self, question: QuestionId) -> Answer {
        self.state_until(|state| state.answers.get(&question).cloned()).await
    }

    /// Waits until a call that runs in the client has its result.
    pub(crate) async fn client_result(&self, call: PartId) {
        self.state_until(|state| state.results.contains(&call).then_some(())).await;
    }

    /// Refuses later results for a call that runs in the client; `false` if it has one already.
    pub(crate) fn close_client_call(&self, call: PartId) -> bool {
        self.inbox_state().results.insert(call)
    }

    /// Answers a question on behalf of the engine, unless it has an answer.
    pub(crate) fn answer_myself(&self, agent: AgentNo, question: QuestionId, answer: Answer) {
        let mut state = self.inbox_state();
        if let Entry::Vacant(open) = state.answers.entry(question) {
            open.insert(answer.clone());
            let answered = Answered { question, answer, by: None, inbox: None };
            self.push(agent, Event::QuestionAnswered(Box::new(answered)));
            drop(state);
            self.inbox_state_changed.notify_waiters();
        }
    }

    /// The last inbox entry that was read, with or without an effect.
    pub(crate) fn last_seen(&self) -> InboxNo {
        self.inbox_state().handled.last().copied().unwrap_or_default()
    }

    /// Reads all entries that have arrived. At the end of a turn, all entries that were accepted
    /// before must be read, however busy the run is.
    pub(crate) async fn look_into_inbox(&self) {
        if self.has_news() {
            self.take_inbox().await;
            self.commit().await;
        }
    }

    /// Whether there may be entries that have not been read.
    pub(crate) fn has_news(&self) -> bool {
        self.owner.inbox_changed().now_or_never().is_some()
    }

    /// Reads new entries of the inbox and appends their effects. Returns the first entry that had
    /// one, with the run id that the client's own protocol uses from now on.
    pub(crate) async fn take_inbox(&self) -> Option<(InboxNo, Option<Box<str>>)> {
        let entries = match self.owner.inbox().await {
            Ok(entries) => entries,
            Err(error) => {
                // The entries are durable; the next change, or a take-over, reads them again.
                tracing::warn!(run = %self.id(), %error, "failed to read the inbox");
                return None;
            }
        };
        let mut first = None;
        for entry in entries {
            if self.inbox_state().handled.contains(&entry.number) {
                continue;
            }
            let wire_run = wire_run(&entry.command);
            if !self.take(entry.clone()).await {
                // Otherwise the paused run would become due again and again.
                self.owner.dismiss(entry.number);
            } else if first.is_none() {
                first = Some((entry.number, wire_run));
            }
            self.inbox_state().handled.insert(entry.number);
        }
        if first.is_some() {
            self.activity.stir();
        }
        self.inbox_state_changed.notify_waiters();
        first
    }

    /// Appends the effect of one entry. `false` if it has none, because it is too late or its
    /// sender has no permission.
    async fn take(&self, entry: InboxEntry) -> bool {
        let inbox = entry.number;
        match entry.command {
            Command::Cancel { when, by, why } => {
                let outcome = Outcome::Cancelled { by, why, inbox: Some(inbox) };
                match when {
                    CancelWhen::Now => self.cancel_now(outcome),
                    CancelWhen::AfterTurn => {
                        self.inbox_state().cancel_after_turn.get_or_insert(outcome);
                    }
                }
                true
            }
            Command::Answer { question, answer, by, .. } => {
                self.take_answer(inbox, question, answer, by).await
            }
            Command::FinishCall { call, outcome, mut result, .. } => {
                let waiting = self.folded(|transcript| {
                    let open = transcript.outline.call(call);
                    open.filter(|open| open.tool.runs_on == RunsOn::Client).map(|open| open.agent)
                });
                let Some(agent) = waiting else { return false };
                if !self.inbox_state().results.insert(call) {
                    return false;
                }
                result.inbox = Some(inbox);
                self.push(agent, finished(call, outcome, result));
                true
            }
            Command::Resume { amended, state, .. } => {
                let (content, amended) = (Vec::new(), Some(amended));
                let accepted = Event::InputAccepted { inbox, content, amended };
                self.push_with_state(accepted, state);
                true
            }
            Command::AddInput { .. } if !self.def.takes_input() => {
                tracing::warn!(run = %self.id(), "ignored added input: the agent takes none");
                false
            }
            Command::AddInput { content, message: _ } => {
                self.push(AgentNo::ROOT, Event::InputAccepted { inbox, content, amended: None });
                true
            }
        }
    }

    async fn take_answer(
        &self,
        inbox: InboxNo,
        question: QuestionId,
        answer: Answer,
        by: Option<Box<str>>,
    ) -> bool {
        let asked = self.folded(|transcript| {
            let open = transcript.outline.questions.get(&question)?;
            let tool = open.call.and_then(|call| transcript.outline.call(call));
            // A remote agent's tool names say too little for a standing approval; configure that in
            // the agent itself.
            let ours = tool.filter(|call| call.tool.runs_on.is_ours());
            let asker = transcript.agents.get(&open.agent).map(|agent| agent.name.clone());
            let tool = ours.map(|call| (call.tool.name.clone(), call.arguments.clone())).zip(asker);
            let outline = &transcript.outline;
            let editing = answers::check_editing(&self.def, outline, open, &answer, by.as_deref());
            Some((open.agent, tool, open.form.clone(), editing))
        });
        let Some((agent, tool, form, editing)) = asked else { return false };
        if self.inbox_state().answers.contains_key(&question) || !self.may_answer(by.as_deref()) {
            return false;
        }
        if let Err(why) = answers::check(&form, &answer).await.and(editing) {
            tracing::warn!(run = %self.id(), %question, why, "ignored an invalid answer");
            return false;
        }
        // With edited arguments, the approved call differs from the one that was shown, so the
        // approval applies only once.
        if let (Answer::Approve { scope, arguments: None }, Some(((tool, arguments), agent))) =
            (&answer, tool)
        {
            let approval = StandingApproval {
                by: by.clone(),
                agent,
                tool,
                arguments: parse_arguments(&arguments),
                thread: None,
                run: self.id(),
                question,
                at: self.now(),
            };
            self.remember_approval(*scope, approval).await;
        }
        self.inbox_state().answers.insert(question, answer.clone());
        let answered = Answered { question, answer, by, inbox: Some(inbox) };
        self.push(agent, Event::QuestionAnswered(Box::new(answered)));
        true
    }

    /// Whether an answer is valid: it must come from the principal that started the run, or from a
    /// named approver.
    pub(crate) fn may_answer(&self, by: Option<&str>) -> bool {
        may_answer(&self.def, self.started.request.by.as_deref(), by)
    }

    async fn state_until<T>(&self, found: impl Fn(&InboxState) -> Option<T>) -> T {
        loop {
            let changed = self.inbox_state_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let seen = found(&self.inbox_state());
            match seen {
                Some(value) => return value,
                None => changed.await,
            }
        }
    }

    fn inbox_state(&self) -> MutexGuard<'_, InboxState> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wire_run(command: &Command) -> Option<Box<str>> {
    match command {
        Command::Answer { wire_run, .. }
        | Command::FinishCall { wire_run, .. }
        | Command::Resume { wire_run, .. } => wire_run.clone(),
        Command::Cancel { .. } | Command::AddInput { .. } => None,
    }
}
