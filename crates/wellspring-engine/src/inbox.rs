//! A run's inbox: durable commands from outside, taken once, and the effect each one had.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use futures::future::FutureExt as _;
use wellspring_core::{
    AgentNo, Answer, Answered, CancelWhen, Command, Event, InboxNo, Outcome, PartId, QuestionId,
    RunsOn,
};
use wellspring_log::InboxEntry;

use crate::calls::answers::{self, may_answer};
use crate::calls::approvals::StandingApproval;
use crate::run::Run;
use crate::runtime::close::finished;
use crate::turn::parse_arguments;

/// The effects of inbox entries that the code waiting for them has not picked up yet.
#[derive(Debug, Default)]
pub(crate) struct InboxState {
    handled: BTreeSet<InboxNo>,
    answers: BTreeMap<QuestionId, Answer>,
    results: BTreeSet<PartId>,
    cancel: Option<Outcome>,
    cancel_after_turn: Option<Outcome>,
}

impl Run {
    /// Goes on from a pause, with what the asker says anew.
    pub(crate) async fn resume(&self, entries: &[InboxEntry]) {
        let anew = entries.iter().rev().find_map(|entry| match &entry.command {
            Command::Resume { amended, state, .. } => Some((entry.number, amended, state)),
            Command::Cancel { .. }
            | Command::Answer { .. }
            | Command::FinishCall { .. }
            | Command::AddInput { .. } => None,
        });
        // An answer is named by its effect, not here: it may turn out to have none.
        let inbox = anew.map(|(inbox, ..)| inbox);
        let wire_run = entries.first().and_then(|entry| wire_run(&entry.command));
        let amended = anew.map(|(_, amended, _)| amended.clone());
        let mut events = vec![(AgentNo::ROOT, Event::RunResumed { inbox, wire_run, amended })];
        if let Some(state) = anew.and_then(|(.., state)| state.clone())
            && self.folded(|transcript| transcript.state.as_ref() != Some(&*state))
        {
            events.push((AgentNo::ROOT, Event::StateSet { state }));
        }
        self.owner.push_all(events);
        self.commit().await;
        if anew.is_some()
            && let Some(request) =
                self.folded(|transcript| Some(transcript.started.as_ref()?.request.clone()))
        {
            // A run is taken up once by each owner.
            let _ = self.amended.set(request);
        }
    }

    /// How the run was told to stop at once, if it was.
    pub(crate) fn cancelled(&self) -> Option<Outcome> {
        self.inbox_state().cancel.clone()
    }

    /// How the run was told to stop at this turn's edge, if it was.
    pub(crate) fn cancelled_at_edge(&self) -> Option<Outcome> {
        let state = self.inbox_state();
        state.cancel.clone().or_else(|| state.cancel_after_turn.clone())
    }

    /// Stops the run at once, on the engine's own account.
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

    /// Takes no result for a call that runs in the client any more; `false` if it has one.
    pub(crate) fn close_client_call(&self, call: PartId) -> bool {
        self.inbox_state().results.insert(call)
    }

    /// Answers a question on the engine's own account, unless it has an answer.
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

    /// The last inbox entry that was looked at, whether or not it had an effect.
    pub(crate) fn last_seen(&self) -> InboxNo {
        self.inbox_state().handled.last().copied().unwrap_or_default()
    }

    /// Takes what came in before now. At a turn's edge nothing that was accepted before may
    /// be overlooked, however busy the run is.
    pub(crate) async fn look_into_inbox(&self) {
        if self.has_news() {
            self.take_inbox().await;
            self.commit().await;
        }
    }

    /// Whether something may have come in that nobody has looked at.
    pub(crate) fn has_news(&self) -> bool {
        self.owner.inbox_changed().now_or_never().is_some()
    }

    /// Takes what is new in the inbox and appends its effects. Returns the first entry that
    /// had one, with the id under which the asker's own protocol goes on.
    pub(crate) async fn take_inbox(&self) -> Option<(InboxNo, Option<Box<str>>)> {
        let entries = match self.owner.inbox().await {
            Ok(entries) => entries,
            Err(error) => {
                // The entries are durable; the next change, or a take-over, reads them again.
                tracing::warn!(run = %self.id(), %error, "the inbox could not be read");
                return None;
            }
        };
        let mut first = None;
        for entry in entries {
            if self.inbox_state().handled.contains(&entry.number) {
                continue;
            }
            let wire_run = wire_run(&entry.command);
            if self.take(entry.clone()).await && first.is_none() {
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

    /// Appends the effect of one entry; `false` if it has none: it came too late, or from
    /// someone who has no say.
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
            // It only says how to go on, and the run does already.
            Command::Resume { .. } => false,
            Command::AddInput { .. } if !self.def.takes_input() => {
                tracing::warn!(run = %self.id(), "ignored added input: the agent takes none");
                false
            }
            Command::AddInput { content } => {
                self.push(AgentNo::ROOT, Event::InputAccepted { inbox, content });
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
            // What a remote agent calls a tool says too little to allow it for ever; whoever
            // wants that tells the agent.
            let ours = tool.filter(|call| call.tool.runs_on.is_ours());
            let asker = transcript.agents.get(&open.agent).map(|agent| agent.name.clone());
            let tool = ours.map(|call| (call.tool.name.clone(), call.arguments.clone())).zip(asker);
            let outline = &transcript.outline;
            let fits = answers::check(&open.form, &answer).and_then(|()| {
                answers::check_editing(&self.def, outline, open, &answer, by.as_deref())
            });
            Some((open.agent, tool, fits))
        });
        let Some((agent, tool, fits)) = asked else { return false };
        if self.inbox_state().answers.contains_key(&question) || !self.may_answer(by.as_deref()) {
            return false;
        }
        if let Err(why) = fits {
            tracing::warn!(run = %self.id(), %question, why, "ignored an invalid answer");
            return false;
        }
        // With edited arguments, what was shown is not what was approved: that holds once.
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

    /// An answer counts from the person who asked, or from a named approver.
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
