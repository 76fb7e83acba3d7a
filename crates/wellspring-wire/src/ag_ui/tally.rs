//! What the end of a run says of all of it: the answer, the typed result and the costs.
//!
//! A reader that has seen every record knows these by itself; one that began in the middle,
//! or whose answer grew too long to hold, takes them from the transcript.

use std::collections::BTreeMap;

use serde_json::Value;
use wellspring_core::{
    AgentNo, Event, Item, Outline, PartId, PartKind, PartOutline, PartShape, Record, Role, Seq,
    Transcript, Usage,
};

use super::types::TokenUsage;

/// Bytes of answer and result that a reader holds. Most answers are shorter, and a thousand
/// readers of one that is not must not hold a copy each.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// The largest number that survives JSON's readers.
const SAFE_MAX: u64 = (1 << 53) - 1;

/// The answer, the typed result and the costs, as far as the records were seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The last record that was seen.
    seen: Seq,
    /// Whether something is missing.
    incomplete: bool,
    models: BTreeMap<AgentNo, Box<str>>,
    usage: BTreeMap<Payee, TokenUsage>,
    answer: Answer,
    result: Option<Value>,
}

/// A provider and a model.
type Payee = (Option<Box<str>>, Option<Box<str>>);

/// The root's words: what [`Transcript::answer`] says of them.
#[derive(Debug, Default)]
struct Answer {
    /// The turn that is going on, and its texts.
    turn: Option<(u32, Vec<(PartId, String)>)>,
    /// Whether nothing came after that turn.
    at_turn: bool,
    /// The words of the last turn before it that said any.
    before: String,
    /// Words outside any turn.
    loose: Vec<(PartId, String)>,
    bytes: usize,
}

impl Tally {
    /// What a transcript says.
    pub(super) fn of(transcript: &Transcript) -> Self {
        let mut tally = Self { seen: transcript.outline.head, ..Self::default() };
        for (number, agent) in &transcript.agents {
            for item in &agent.items {
                let Item::Turn(turn) = item else { continue };
                tally.models.insert(*number, turn.model.clone());
                if let Some(usage) = &turn.usage {
                    tally.spend(Some(&turn.model), usage);
                }
            }
        }
        tally.result.clone_from(&transcript.result);
        let text = |part: &PartId| match transcript.parts.get(part) {
            Some(found) if found.kind == PartKind::TEXT => Some((*part, found.text.clone())),
            _ => None,
        };
        for item in transcript.agents.get(&AgentNo::ROOT).iter().flat_map(|root| &root.items) {
            match item {
                Item::Turn(turn) => {
                    tally.answer.at_turn = false;
                    tally.answer.start_turn(turn.turn);
                    let texts = turn.parts.iter().filter_map(text).collect();
                    tally.answer.turn = Some((turn.turn, texts));
                }
                Item::Part(part) => {
                    tally.answer.at_turn = false;
                    tally.answer.loose.extend(text(part));
                }
                Item::Input(_) => tally.answer.at_turn = false,
            }
        }
        let root = transcript.parts.values().filter(|part| part.agent.is_root());
        tally.answer.bytes = root.map(|part| part.text.len()).sum();
        tally
    }

    /// Whether it knows all up to this record.
    pub(super) fn is_complete(&self, head: Seq) -> bool {
        !self.incomplete && self.seen == head
    }

    /// What the run's end says: the typed result, or else the answer, unless it is empty.
    pub(super) fn result(&self) -> Option<Value> {
        match &self.result {
            // The protocol takes no `null` here.
            Some(Value::Null) => None,
            Some(value) => Some(value.clone()),
            None => Some(self.answer.words()).filter(|text| !text.is_empty()).map(Value::String),
        }
    }

    /// What each model cost.
    pub(super) fn usage(&self) -> Vec<TokenUsage> {
        self.usage.values().cloned().collect()
    }

    /// Sees a delta, of the part that has this outline. Apart, because most records are one.
    pub(super) fn grow(&mut self, head: Seq, record: &Record, of: Option<&PartOutline>) {
        self.incomplete |= self.seen != head;
        self.seen = record.seq;
        let Event::PartDelta { part, chunk } = &record.event else { return };
        let is_answer = |part: &PartOutline| {
            part.agent.is_root() && part.shape == PartShape::Text(Role::Assistant)
        };
        if !self.incomplete && of.is_some_and(is_answer) {
            self.incomplete = !self.answer.grow(*part, chunk);
            self.hold_less();
        }
    }

    /// Sees any other record; `before` is the outline before it.
    pub(super) fn follow(&mut self, before: &Outline, record: &Record) {
        self.incomplete |= self.seen != before.head;
        self.seen = record.seq;
        if self.incomplete {
            return;
        }
        match &record.event {
            Event::PartStarted { part, kind } if record.agent.is_root() => {
                let in_turn = before.agents.get(&AgentNo::ROOT).is_some_and(|root| root.in_turn);
                self.answer.start_part(*part, *kind == PartKind::TEXT, in_turn);
            }
            Event::TurnStarted(turn) => {
                self.models.insert(record.agent, turn.model.clone());
                if record.agent.is_root() {
                    self.answer.start_turn(turn.turn);
                }
            }
            Event::TurnFinished { usage: Some(usage), .. } => {
                let model = self.models.get(&record.agent).cloned();
                self.spend(model.as_deref(), usage);
            }
            Event::InputApplied { .. } if record.agent.is_root() => self.answer.at_turn = false,
            Event::PartsVoided { .. } => self.incomplete = true,
            Event::ResultReady { value } => {
                self.result = Some((**value).clone());
                // What a typed result weighs is known only when it is written.
                let bytes = serde_json::to_string(value).map_or(0, |json| json.len());
                self.incomplete = bytes > HELD_BYTES_MAX;
            }
            Event::PartDelta { .. }
            | Event::PartStarted { .. }
            | Event::TurnFinished { .. }
            | Event::InputApplied { .. }
            | Event::RunStarted(_)
            | Event::RunAdopted { .. }
            | Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::PartAnnotated { .. }
            | Event::PartFinished { .. }
            | Event::ToolQueued { .. }
            | Event::ToolStarted { .. }
            | Event::ToolUpdated { .. }
            | Event::ToolFinished { .. }
            | Event::QuestionAsked(_)
            | Event::QuestionAnswered(_)
            | Event::AgentStarted { .. }
            | Event::AgentFinished { .. }
            | Event::PlanUpdated { .. }
            | Event::StateSet { .. }
            | Event::StatePatched { .. }
            | Event::SourceCited(_)
            | Event::FileProduced(_)
            | Event::UsageReported(_)
            | Event::InputAccepted { .. }
            | Event::Attached { .. }
            | Event::Extended(_)
            | Event::RunFinished { .. } => {}
        }
        self.hold_less();
    }

    fn hold_less(&mut self) {
        if self.incomplete || self.answer.bytes > HELD_BYTES_MAX {
            self.incomplete = true;
            self.answer = Answer::default();
            self.result = None;
        }
    }

    fn spend(&mut self, model: Option<&str>, usage: &Usage) {
        let model = usage.model.as_deref().or(model).map(Into::into);
        let entry = self.usage.entry((usage.provider.clone(), model.clone())).or_default();
        entry.provider.clone_from(&usage.provider);
        entry.model = model;
        let more = token_usage(usage);
        let add = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more).min(SAFE_MAX));
            }
        };
        add(&mut entry.input_tokens, more.input_tokens);
        add(&mut entry.output_tokens, more.output_tokens);
        add(&mut entry.total_tokens, more.total_tokens);
        add(&mut entry.reasoning_tokens, more.reasoning_tokens);
        add(&mut entry.cached_input_tokens, more.cached_input_tokens);
        add(&mut entry.cache_write_input_tokens, more.cache_write_input_tokens);
    }
}

impl Answer {
    fn start_turn(&mut self, turn: u32) {
        let same = self.at_turn && self.turn.as_ref().is_some_and(|(number, _)| *number == turn);
        if !same {
            let words = self.turn.take().map(|(_, texts)| join(&texts)).unwrap_or_default();
            if !words.is_empty() {
                self.bytes = self.bytes.saturating_sub(self.before.len());
                self.before = words;
            }
            self.turn = Some((turn, Vec::new()));
        }
        self.at_turn = true;
    }

    fn start_part(&mut self, part: PartId, is_text: bool, in_turn: bool) {
        match &mut self.turn {
            Some((_, texts)) if in_turn => texts.extend(is_text.then(|| (part, String::new()))),
            _ => {
                self.at_turn = false;
                self.loose.extend(is_text.then(|| (part, String::new())));
            }
        }
    }

    /// Whether the part was known.
    fn grow(&mut self, part: PartId, chunk: &str) -> bool {
        let turn = self.turn.iter_mut().flat_map(|(_, texts)| texts);
        match turn.chain(&mut self.loose).find(|(id, _)| *id == part) {
            Some((_, text)) => text.push_str(chunk),
            None => return false,
        }
        self.bytes += chunk.len();
        true
    }

    fn words(&self) -> String {
        let turn = self.turn.as_ref().map(|(_, texts)| join(texts)).unwrap_or_default();
        match (turn.is_empty(), self.before.is_empty()) {
            (false, _) => turn,
            (true, false) => self.before.clone(),
            (true, true) => join(&self.loose),
        }
    }
}

fn join(texts: &[(PartId, String)]) -> String {
    texts.iter().map(|(_, text)| text.as_str()).collect()
}

/// A usage in the protocol's words.
pub(super) fn token_usage(usage: &Usage) -> TokenUsage {
    let safe = |tokens: u64| tokens.min(SAFE_MAX);
    TokenUsage {
        provider: usage.provider.clone(),
        model: usage.model.clone(),
        input_tokens: Some(safe(usage.input)),
        output_tokens: Some(safe(usage.output)),
        total_tokens: Some(safe(usage.input.saturating_add(usage.output))),
        reasoning_tokens: usage.reasoning.map(safe),
        cached_input_tokens: usage.cached_input.map(safe),
        cache_write_input_tokens: usage.cache_write.map(safe),
    }
}
