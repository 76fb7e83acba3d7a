//! One turn of a script.

use std::time::Duration;

use serde_json::Value;
use wellspring_core::{
    Annotation, Event, Extended, FileProduced, Opaque, PartKind, RunsOn, Source, Stop, Usage,
};

use super::control::{Attempts, Failure, Gate};

/// Characters of a call's arguments per delta: short enough that most calls come in several,
/// and that cuts fall inside names and strings, as they do at real providers.
pub const ARGUMENT_FRAGMENT_CHARS: usize = 12;

/// The content of one model turn, in order.
///
/// Parts count from 0. A part is finished when the next part starts, unless it is left
/// [`unfinished`](Say::unfinished). A turn ends with a stop, unless it [`fail`](Say::fail)s,
/// [`break`](Say::break_off)s off or [`hang`](Say::hang)s.
///
/// Every chunk is its own batch, as a provider streams, except with [`burst`](Say::burst). The stop
/// is its own batch too.
#[derive(Clone, Debug, Default)]
pub struct Say {
    steps: Vec<Step>,
    stop: Option<Stop>,
    usage: Option<Usage>,
    parts: usize,
    /// The last part, while the next content may still belong to it.
    last: Option<usize>,
    burst: bool,
    wants_tools: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Between two batches; pauses and gates for every batch apply here.
    Cut,
    Start(PartKind),
    Delta(usize, Box<str>),
    Annotate(usize, Annotation),
    Finish(usize),
    Fact(Event),
    Connected,
    Wait(Duration),
    Pace(Duration),
    Gate(Gate),
    Each(Gate),
    Flaky(Attempts, u32, Failure),
    Fail(Failure),
    BreakOff,
    Hang,
}

impl Step {
    /// Whether it adds to the current batch. The batch is emitted before any other step.
    pub(super) fn speaks(&self) -> bool {
        match self {
            Self::Start(_)
            | Self::Delta(..)
            | Self::Annotate(..)
            | Self::Finish(_)
            | Self::Fact(_)
            | Self::Pace(_)
            | Self::Each(_) => true,
            Self::Cut
            | Self::Connected
            | Self::Wait(_)
            | Self::Gate(_)
            | Self::Flaky(..)
            | Self::Fail(_)
            | Self::BreakOff
            | Self::Hang => false,
        }
    }
}

impl Say {
    /// An empty turn.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Text for the user, one delta per word.
    #[must_use]
    pub fn text(self, text: impl AsRef<str>) -> Self {
        self.part(PartKind::TEXT, words(text.as_ref()))
    }

    /// Text for the user, in exactly these deltas.
    #[must_use]
    pub fn chunks<S: Into<Box<str>>>(self, chunks: impl IntoIterator<Item = S>) -> Self {
        self.part(PartKind::TEXT, chunks)
    }

    /// Reasoning, one delta per word.
    #[must_use]
    pub fn thought(self, text: impl AsRef<str>) -> Self {
        self.part(PartKind::Thought, words(text.as_ref()))
    }

    /// A tool call; the arguments' JSON is split into fragments.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers write `json!(..)` in place")]
    pub fn call(self, name: impl Into<Box<str>>, arguments: Value) -> Self {
        self.call_fragments(name, fragments(&arguments.to_string()))
    }

    /// A tool call, in exactly these fragments, which need not be valid JSON.
    #[must_use]
    pub fn call_fragments<S: Into<Box<str>>>(
        self,
        name: impl Into<Box<str>>,
        fragments: impl IntoIterator<Item = S>,
    ) -> Self {
        self.part(PartKind::call(name), fragments)
    }

    /// An opaque part, which only its origin can read.
    #[must_use]
    pub fn opaque(self, origin: impl Into<Box<str>>, raw: Value) -> Self {
        let kind = PartKind::Opaque(Box::new(Opaque { origin: origin.into(), raw }));
        self.part(kind, [""; 0])
    }

    /// A part of any kind, in exactly these deltas.
    #[must_use]
    pub fn part<S: Into<Box<str>>>(
        mut self,
        kind: PartKind,
        chunks: impl IntoIterator<Item = S>,
    ) -> Self {
        self.settle();
        self.wants_tools |= is_ours(&kind);
        let part = self.parts;
        self.parts += 1;
        self.steps.push(Step::Cut);
        self.steps.push(Step::Start(kind));
        for (place, chunk) in chunks.into_iter().enumerate() {
            self.delta(part, chunk.into(), place > 0);
        }
        self.last = Some(part);
        self
    }

    /// Leaves the last part open, to be extended with [`more`](Say::more). It is finished by
    /// [`finish`](Say::finish) or by the turn's stop.
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.last = None;
        self
    }

    /// Extends a part that was left unfinished, one delta per word. This interleaves parts.
    #[must_use]
    pub fn more(mut self, part: usize, text: impl AsRef<str>) -> Self {
        self.settle();
        self.steps.push(Step::Cut);
        for (place, word) in words(text.as_ref()).enumerate() {
            self.delta(part, word.into(), place > 0);
        }
        self
    }

    /// Finishes a part that was left unfinished.
    #[must_use]
    pub fn finish(self, part: usize) -> Self {
        self.push(Step::Finish(part))
    }

    /// Annotates the last part before it is finished.
    #[must_use]
    pub fn annotate(mut self, annotation: Annotation) -> Self {
        let part = self.parts.saturating_sub(1);
        self.steps.push(Step::Annotate(part, annotation));
        self
    }

    /// Annotates an earlier part, which may be finished.
    #[must_use]
    pub fn annotate_part(self, part: usize, annotation: Annotation) -> Self {
        self.push(Step::Cut).push(Step::Annotate(part, annotation))
    }

    /// Annotates the last part with a signature.
    #[must_use]
    pub fn signature(self, signature: impl Into<Box<str>>) -> Self {
        self.annotate(Annotation::Signature(signature.into()))
    }

    /// Annotates the last part with the provider's id.
    #[must_use]
    pub fn provider_id(self, id: impl Into<Box<str>>) -> Self {
        self.annotate(Annotation::ProviderId(id.into()))
    }

    /// A source that the answer cites.
    #[must_use]
    pub fn source(self, source: Source) -> Self {
        self.fact(Event::SourceCited(Box::new(source)))
    }

    /// A file that the model generated.
    #[must_use]
    pub fn file(self, file: FileProduced) -> Self {
        self.fact(Event::FileProduced(Box::new(file)))
    }

    /// An extended event.
    #[must_use]
    pub fn extended(self, extended: Extended) -> Self {
        self.fact(Event::Extended(Box::new(extended)))
    }

    /// Reports the tokens used so far, in the middle of the turn.
    #[must_use]
    pub fn usage_so_far(self, usage: Usage) -> Self {
        self.fact(Event::UsageReported(Box::new(usage)))
    }

    /// The usage of the turn, reported with the stop.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The reason why the model stops [default: [`Stop::ToolCalls`] after a call, otherwise
    /// [`Stop::EndTurn`]].
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// From here on, all chunks of a part come in one batch.
    #[must_use]
    pub fn burst(mut self) -> Self {
        self.burst = true;
        self
    }

    /// Everything before this happens before the model answers: within
    /// [`Model::attempt`](wellspring_core::Model::attempt), not in its stream. Only waits and
    /// failures may precede it.
    #[must_use]
    pub fn connected(self) -> Self {
        self.push(Step::Connected)
    }

    /// Waits here, by Tokio's clock.
    #[must_use]
    pub fn wait(self, time: Duration) -> Self {
        self.push(Step::Wait(time))
    }

    /// From here on, waits before every batch, by Tokio's clock.
    #[must_use]
    pub fn pace(self, time: Duration) -> Self {
        self.push(Step::Pace(time))
    }

    /// Waits here until the gate lets it pass.
    #[must_use]
    pub fn gate(self, gate: &Gate) -> Self {
        self.push(Step::Gate(gate.clone()))
    }

    /// From here on, waits at the gate before every batch.
    #[must_use]
    pub fn gate_each(self, gate: &Gate) -> Self {
        self.push(Step::Each(gate.clone()))
    }

    /// Fails here.
    #[must_use]
    pub fn fail(self, failure: Failure) -> Self {
        self.push(Step::Fail(failure))
    }

    /// Fails here the first `times` times that a script gets here, as counted by `attempts`.
    #[must_use]
    pub fn fail_first(self, attempts: &Attempts, times: u32, failure: Failure) -> Self {
        self.push(Step::Flaky(attempts.clone(), times, failure))
    }

    /// Ends here without a stop, like a lost connection that was not noticed.
    #[must_use]
    pub fn break_off(self) -> Self {
        self.push(Step::BreakOff)
    }

    /// Waits here forever.
    #[must_use]
    pub fn hang(self) -> Self {
        self.push(Step::Hang)
    }

    /// All content, including thoughts and arguments, one line per part.
    #[must_use]
    pub fn said(&self) -> String {
        let mut parts = vec![String::new(); self.parts];
        for step in &self.steps {
            if let Step::Delta(part, chunk) = step {
                parts[*part].push_str(chunk);
            }
        }
        parts.join("\n")
    }

    pub(super) fn into_steps(mut self) -> (Vec<Step>, Stop, Option<Usage>) {
        self.settle();
        let stop = if self.wants_tools { Stop::ToolCalls } else { Stop::EndTurn };
        (self.steps, self.stop.unwrap_or(stop), self.usage)
    }

    fn fact(self, event: Event) -> Self {
        self.push(Step::Cut).push(Step::Fact(event))
    }

    fn push(mut self, step: Step) -> Self {
        self.settle();
        self.steps.push(step);
        self
    }

    fn delta(&mut self, part: usize, chunk: Box<str>, cut: bool) {
        if cut && !self.burst {
            self.steps.push(Step::Cut);
        }
        self.steps.push(Step::Delta(part, chunk));
    }

    /// Finishes the last part: later content starts another part.
    fn settle(&mut self) {
        if let Some(part) = self.last.take() {
            self.steps.push(Step::Finish(part));
        }
    }
}

/// Whether a part is a call of a tool that we, or the client, run.
fn is_ours(kind: &PartKind) -> bool {
    match kind {
        PartKind::ToolCall(tool) => match tool.runs_on {
            RunsOn::Here | RunsOn::Client => true,
            RunsOn::Provider | RunsOn::Agent => false,
        },
        PartKind::Text { .. }
        | PartKind::Thought
        | PartKind::Output { .. }
        | PartKind::Opaque(_) => false,
    }
}

/// Splits text into words, each with the space after it.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let space = rest[word..].find(|c: char| !c.is_whitespace()).unwrap_or(rest.len() - word);
        let (head, tail) = rest.split_at(word + space);
        rest = tail;
        (!head.is_empty()).then_some(head)
    })
}

fn fragments(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(ARGUMENT_FRAGMENT_CHARS).map_or(rest.len(), |(at, _)| at);
        let (head, tail) = rest.split_at(end);
        rest = tail;
        (!head.is_empty()).then_some(head)
    })
}
