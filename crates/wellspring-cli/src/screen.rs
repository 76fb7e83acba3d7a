//! What a run looks like in a terminal: records are folded into a [`Screen`], and a screen
//! is lines. Pure: no clock, no terminal.
//!
//! The screen is a queue of items. An item that cannot change any more is *settled*; settled
//! items at the head of the queue are [taken](Screen::take_settled) once and belong to the
//! terminal's own history from then on. What remains is the live region, painted again and
//! again.

mod item;
mod phrase;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wellspring_core::{
    AgentNo, Event, Millis, Outcome, Outline, PartId, PartKind, PartShape, PlanEntry, PlanStatus,
    QuestionId, RETURN_RESULT, Record, Role, Usage, VoidReason,
};

use crate::text::{Line, Style, clean_line, span};
use item::{Body, Item, Question, Tool, Words};
pub(crate) use phrase::{answer_phrase, duration, outcome_phrase, short_id};

/// Tools whose calls are not shown, because the plan, the question and the result have their own
/// events.
const QUIET_TOOLS: [&str; 3] = ["update_plan", "ask_user", RETURN_RESULT];

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How long each frame of the spinner is shown.
const SPINNER_MS: u64 = 80;

/// The parts of a run that were not yet printed permanently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    outline: Outline,
    items: VecDeque<Item>,
    /// The plan, while it is not complete.
    plan: Vec<PlanEntry>,
    /// Calls that wait for an answer; they become items when they start.
    waiting: BTreeMap<PartId, Tool>,
    started_at: Millis,
    updated_at: Millis,
    turns: u32,
    usage: Usage,
    /// The kind of the last printed item, which decides whether a blank line follows.
    printed: Option<item::Group>,
    /// Parts that were printed permanently although their turn may still be voided.
    printed_early: Vec<PartId>,
    /// The hint that is shown while the run is active.
    hint: &'static str,
    look: Look,
    shows: Shows,
}

/// Which items a screen shows. In a pipe, the answer and everything else are printed separately.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Shows {
    #[default]
    Everything,
    /// The text of the root agent.
    Answer,
    /// Everything but the answer.
    Rest,
}

/// The destination of the lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Look {
    /// A terminal: Markdown is rendered.
    #[default]
    Rich,
    /// A file or a pipe: text is printed unchanged.
    Plain,
}

impl Screen {
    /// An empty screen; `hint` is shown while the run is active.
    pub(crate) fn new(hint: &'static str) -> Self {
        Self { hint, ..Self::default() }
    }

    /// An empty screen for a pipe.
    pub(crate) fn plain(shows: Shows) -> Self {
        Self { look: Look::Plain, shows, ..Self::default() }
    }

    /// Whether lines were printed that cannot be removed.
    pub(crate) fn has_printed(&self) -> bool {
        self.printed.is_some()
    }

    /// Sets the hint for the user.
    pub(crate) fn set_hint(&mut self, hint: &'static str) {
        self.hint = hint;
    }

    /// Applies a record.
    pub(crate) fn apply(&mut self, record: &Record) {
        let at = record.at;
        self.updated_at = at;
        match &record.event {
            Event::RunStarted(started) => {
                self.started_at = at;
                let input = started.request.input.iter();
                let said: Vec<_> = input.map(phrase::content_phrase).collect();
                self.push(record, Body::Input(said.join("\n")));
            }
            // Every resume after a pause adopts the run, so that is not worth a note.
            Event::RunAdopted { .. } if self.outline.paused.is_some() => {}
            Event::RunAdopted { .. } => {
                self.note(record, Style::YELLOW, "↻ its process ended; another one continues");
            }
            Event::TurnStarted(turn) => {
                self.turns += u32::from(turn.attempt == 1);
                if turn.attempt > 1 {
                    let note = format!("↻ broken off; attempt {}", turn.attempt);
                    self.note(record, Style::YELLOW, &note);
                }
            }
            Event::TurnFinished { usage, .. } => {
                if let Some(usage) = usage {
                    self.usage.add(usage);
                }
                self.settle_turn(record.agent);
            }
            Event::PartStarted { part, kind } => self.start(record, *part, kind),
            Event::PartDelta { part, chunk } => self.grow(*part, chunk, at),
            Event::PartFinished { part } => self.finish_part(record, *part),
            Event::PartsVoided { parts, why } => self.void(record, parts, *why),
            Event::ToolQueued { .. } => {}
            Event::ToolStarted { call, arguments, .. } => {
                if let Some(tool) = self.waiting.remove(call) {
                    self.push(record, Body::Tool(Box::new(tool)));
                }
                if let Some(tool) = self.tool(*call) {
                    tool.start(at);
                    if let Some(edited) = arguments {
                        tool.arguments = edited.to_string();
                    }
                }
            }
            Event::ToolUpdated { call, update } => {
                if let Some(tool) = self.tool(*call) {
                    tool.update(update);
                }
            }
            Event::ToolFinished { call, outcome, result } => {
                if let Some(tool) = self.waiting.remove(call) {
                    self.push(record, Body::Tool(Box::new(tool)));
                }
                if let Some(tool) = self.tool(*call) {
                    tool.finish(*outcome, result, at);
                }
                let in_turn = self.in_turn(record.agent);
                self.settle(|item| !in_turn && item.is_call(*call));
            }
            Event::QuestionAsked(question) => self.ask(record, question),
            Event::QuestionAnswered(answered) => {
                let id = answered.question;
                if let Some(item) = self.question(id) {
                    item.answered = Some(answered.answer.clone());
                }
                self.settle(|item| matches!(&item.body, Body::Question(it) if it.id == id));
            }
            Event::AgentStarted { parent, name, .. } => {
                let heard_by = Record { agent: *parent, ..record.clone() };
                self.note(&heard_by, Style::CYAN, &format!("▾ {}", clean_line(name)));
            }
            Event::AgentFinished { outcome } => {
                self.settle_turn(record.agent);
                if !matches!(**outcome, Outcome::Completed { .. }) {
                    self.note(record, Style::RED, &format!("▴ {}", outcome_phrase(outcome)));
                }
            }
            Event::PlanUpdated { entries } => {
                self.plan.clone_from(entries);
                if entries.iter().all(|entry| entry.status == PlanStatus::Completed) {
                    self.settle_plan(record);
                }
            }
            Event::SourceCited(source) => {
                let named = source.title.as_ref().or(source.url.as_ref()).or(source.id.as_ref());
                let name = named.map_or_else(|| "a source".into(), |name| clean_line(name));
                self.note(record, Style::DIM, &format!("source: {name}"));
            }
            Event::FileProduced(file) => {
                let name = file.name.as_ref().unwrap_or(&file.media_type);
                self.note(record, Style::CYAN, &format!("file: {}", clean_line(name)));
            }
            Event::InputAccepted { content, .. } if content.is_empty() => {}
            Event::InputAccepted { content, .. } => {
                let said: Vec<_> = content.iter().map(phrase::content_phrase).collect();
                self.push(record, Body::Input(said.join("\n")));
            }
            Event::RunFinished { outcome } => {
                self.settle(|_| true);
                if !self.plan.is_empty() {
                    self.settle_plan(record);
                }
                let end = item::End {
                    outcome: (**outcome).clone(),
                    took: at.since(self.started_at),
                    turns: self.turns,
                    usage: self.usage.clone(),
                    run: self.outline.run.as_ref().map(|head| head.run),
                };
                self.push(record, Body::End(Box::new(end)));
            }
            Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::PartAnnotated { .. }
            | Event::StateSet { .. }
            | Event::StatePatched { .. }
            | Event::UsageReported(_)
            | Event::InputApplied { .. }
            | Event::ResultReady { .. }
            | Event::Attached { .. }
            | Event::Extended(_) => {}
        }
        self.outline.apply(record);
    }

    /// The lines of items that cannot change any more. Each line is returned once.
    pub(crate) fn take_settled(&mut self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(item) = self.items.pop_front_if(|item| item.settled) {
            let shown = item.lines(width, "", self.updated_at);
            if !shown.is_empty() {
                lines.extend(gap(self.printed, &item));
                lines.extend(shown);
                self.printed = Some(item.group());
            }
        }
        lines
    }

    /// The lines that do not fit into a live region of `height`, given once: of what has
    /// ended, and complete ones of the text that is being written.
    pub(crate) fn take_overflow(&mut self, width: usize, height: usize, now: Millis) -> Vec<Line> {
        let mut over = self.live(width, now).len().saturating_sub(height);
        let mut lines = Vec::new();
        while over > 0 {
            let Some(item) = self.items.front_mut() else { break };
            let space = gap(self.printed, item);
            let group = item.group();
            let taken = match item.take_line(width) {
                Some(taken) => taken,
                None if item.is_finished() => {
                    self.printed_early.extend(item.part());
                    let taken = item.lines(width, "", now);
                    self.items.pop_front();
                    taken
                }
                None => break,
            };
            if !taken.is_empty() {
                self.printed = Some(group);
                over = over.saturating_sub(taken.len() + space.iter().len());
                lines.extend(space);
                lines.extend(taken);
            }
        }
        lines
    }

    /// The lines of what can still change, at a moment, and below them how things stand.
    pub(crate) fn live(&self, width: usize, now: Millis) -> Vec<Line> {
        let mut lines = self.open(width, now);
        lines.extend(self.foot(width, now));
        lines
    }

    /// The lines of what can still change, at a moment.
    pub(crate) fn open(&self, width: usize, now: Millis) -> Vec<Line> {
        let spinner = spinner(now);
        let mut lines = Vec::new();
        let mut before = self.printed;
        for item in &self.items {
            let shown = item.lines(width, spinner, now);
            if !shown.is_empty() {
                lines.extend(gap(before, item));
                lines.extend(shown);
                before = Some(item.group());
            }
        }
        lines
    }

    /// The plan and the status line of an active run.
    fn foot(&self, width: usize, now: Millis) -> Vec<Line> {
        let spinner = spinner(now);
        let mut lines = Vec::new();
        if self.outline.run.is_none() || self.outline.finished {
            return lines;
        }
        if !self.plan.is_empty() {
            lines.push(Line::default());
            lines.extend(item::plan_lines(&self.plan, spinner, width));
        }
        lines.push(Line::default());
        lines.push(self.status(spinner, now).truncated(width));
        lines
    }

    /// All lines of a run that is not being followed, with its current state.
    pub(crate) fn all(mut self, width: usize, now: Millis) -> Vec<Line> {
        let mut lines = self.take_settled(width);
        lines.extend(self.live(width, now));
        lines
    }

    fn status(&self, spinner: &str, now: Millis) -> Line {
        let what = self.doing();
        let mut figures = vec![duration(now.since(self.started_at))];
        if self.usage.input + self.usage.output > 0 {
            figures.push(format!("{} tokens", self.usage.input + self.usage.output));
        }
        let mark = if self.outline.questions.is_empty() {
            span(format!("{spinner} "), Style::CYAN)
        } else {
            span("? ", Style::YELLOW)
        };
        let mut rest = format!("  {}", figures.join(" · "));
        if !self.hint.is_empty() {
            rest.push_str(&format!(" · {}", self.hint));
        }
        Line::of([mark, span(what, Style::PLAIN), span(rest, Style::DIM)])
    }

    fn doing(&self) -> &'static str {
        let open = |shape: fn(PartShape) -> bool| {
            self.outline.parts.values().any(|part| part.open && shape(part.shape))
        };
        if !self.outline.questions.is_empty() {
            "waiting for an answer"
        } else if open(|shape| matches!(shape, PartShape::Text(Role::Assistant))) {
            "answering"
        } else if open(|shape| shape == PartShape::Thought) {
            "thinking"
        } else if open(|shape| shape == PartShape::Call) {
            "reaching for a tool"
        } else if self.outline.agents.values().any(|agent| agent.in_turn) {
            "waiting for the model"
        } else if !self.outline.calls.is_empty() {
            "working"
        } else {
            "under way"
        }
    }

    fn start(&mut self, record: &Record, part: PartId, kind: &PartKind) {
        match kind {
            PartKind::Text { role: Role::Assistant } => {
                let depth = self.depth(record.agent);
                self.push(record, Body::Text(Words::new(part, record.at, depth, self.look)));
            }
            PartKind::Thought => {
                let depth = self.depth(record.agent);
                self.push(record, Body::Thought(Words::new(part, record.at, depth, self.look)));
            }
            PartKind::ToolCall(call) => {
                let quiet = QUIET_TOOLS.contains(&&*call.name);
                self.push(record, Body::Tool(Box::new(Tool::new(part, call, quiet))));
            }
            PartKind::Text { role: Role::User } | PartKind::Output { .. } | PartKind::Opaque(_) => {
            }
        }
    }

    fn grow(&mut self, part: PartId, chunk: &str, at: Millis) {
        if let Some(PartShape::Output(call, _)) = self.outline.part(part).map(|part| part.shape) {
            if let Some(tool) = self.tool(call) {
                tool.output(chunk);
            }
            return;
        }
        for item in self.items.iter_mut().rev() {
            match &mut item.body {
                Body::Text(words) | Body::Thought(words) if words.part == part => {
                    return words.push(chunk, at);
                }
                Body::Tool(tool) if tool.part == part => return tool.arguments.push_str(chunk),
                Body::Input(_)
                | Body::Text(_)
                | Body::Thought(_)
                | Body::Tool(_)
                | Body::Question(_)
                | Body::Plan(_)
                | Body::Note(..)
                | Body::End(_) => {}
            }
        }
    }

    fn finish_part(&mut self, record: &Record, part: PartId) {
        for item in &mut self.items {
            if let Body::Text(words) | Body::Thought(words) = &mut item.body
                && words.part == part
            {
                words.finish(record.at);
            }
        }
        // Outside a turn nothing can be voided.
        let in_turn = self.in_turn(record.agent);
        self.settle(|item| !in_turn && item.is_words(part));
    }

    fn void(&mut self, record: &Record, parts: &[PartId], why: VoidReason) {
        let gone =
            |item: &Item| parts.iter().any(|part| item.is_words(*part) || item.is_call(*part));
        let early = parts.iter().any(|part| self.printed_early.contains(part));
        let shown = early || self.items.iter().any(|item| gone(item) && item.is_partly_printed());
        self.items.retain(|item| !gone(item));
        self.waiting.retain(|call, _| !parts.contains(call));
        if shown && why != VoidReason::Abandoned {
            self.note(record, Style::YELLOW, "the text above was taken back");
        }
    }

    fn ask(&mut self, record: &Record, question: &wellspring_core::Question) {
        let call = question.call.and_then(|call| self.outline.call(call));
        let what = Question {
            id: question.question,
            prompt: clean_line(&question.prompt),
            form: question.form.clone(),
            tool: call.map(|call| {
                let name = call.tool.title.as_ref().unwrap_or(&call.tool.name);
                (clean_line(name), call.arguments.clone())
            }),
            answered: None,
        };
        // A call that waits is shown where it starts, after the question about it.
        if let Some(call) = question.call
            && let Some(at) =
                self.items.iter().position(|item| item.is_call(call) && item.is_unstarted())
            && let Some(Item { body: Body::Tool(tool), .. }) = self.items.remove(at)
        {
            self.waiting.insert(call, *tool);
        }
        self.push(record, Body::Question(Box::new(what)));
    }

    fn settle_plan(&mut self, record: &Record) {
        let plan = std::mem::take(&mut self.plan);
        self.push(record, Body::Plan(plan));
    }

    /// The parts of a turn that has ended cannot be voided.
    fn settle_turn(&mut self, agent: AgentNo) {
        self.printed_early.clear();
        self.settle(|item| item.agent == agent && item.is_finished());
    }

    fn settle(&mut self, which: impl Fn(&Item) -> bool) {
        for item in &mut self.items {
            if which(item) {
                item.settled = true;
            }
        }
    }

    fn push(&mut self, record: &Record, body: Body) {
        let settled = match &body {
            Body::Input(_) | Body::Plan(_) | Body::Note(..) | Body::End(_) => true,
            Body::Text(_) | Body::Thought(_) | Body::Tool(_) | Body::Question(_) => false,
        };
        let is_answer = matches!(body, Body::Text(_)) && record.agent.is_root();
        let shown = match self.shows {
            Shows::Everything => true,
            Shows::Answer => is_answer,
            Shows::Rest => !is_answer,
        };
        if !shown {
            return;
        }
        let depth = self.depth(record.agent);
        self.items.push_back(Item { agent: record.agent, depth, body, settled });
    }

    fn note(&mut self, record: &Record, style: Style, text: &str) {
        self.push(record, Body::Note(style, text.into()));
    }

    fn tool(&mut self, call: PartId) -> Option<&mut Tool> {
        self.items.iter_mut().rev().find_map(|item| {
            let Body::Tool(tool) = &mut item.body else { return None };
            (tool.part == call).then_some(&mut **tool)
        })
    }

    fn question(&mut self, id: QuestionId) -> Option<&mut Question> {
        self.items.iter_mut().rev().find_map(|item| {
            let Body::Question(question) = &mut item.body else { return None };
            (question.id == id).then_some(&mut **question)
        })
    }

    fn in_turn(&self, agent: AgentNo) -> bool {
        self.outline.agents.get(&agent).is_some_and(|agent| agent.in_turn)
    }

    /// The nesting depth of an agent.
    fn depth(&self, agent: AgentNo) -> usize {
        let mut depth = 0;
        let mut agent = agent;
        while let Some(outline) = self.outline.agents.get(&agent).filter(|_| !agent.is_root()) {
            depth += 1;
            agent = outline.parent;
        }
        depth
    }
}

fn spinner(now: Millis) -> &'static str {
    let frame = usize::try_from(now.0 / SPINNER_MS).unwrap_or(0) % SPINNER.len();
    SPINNER[frame]
}

/// Items of one kind are printed without a blank line between them.
fn gap(before: Option<item::Group>, item: &Item) -> Option<Line> {
    let group = item.group();
    let apart = before.is_some_and(|before| before != group || group == item::Group::Words);
    (apart && !item.is_partly_printed()).then(Line::default)
}

/// How long ago, in words.
pub(crate) fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
