//! Reads the events of a run on the gateway.

mod call;
mod end;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wellspring_core::{
    AgentNo, Annotation, Batch, Event as Fact, FileProduced, LocalPart, MediaSource, PartKind,
    Transcript, Usage, UsageScope, VoidReason,
};

use self::call::Call;
pub use self::end::End;
use self::end::{aborted, failure, stop};
use super::ORIGIN;
use super::types::{AgentEventPayload, AgentEventStream, EventFrame, InFlightRun, Response, text};

/// Calls of one run that are tracked. Further ones are kept as extended events.
const CALLS_MAX: usize = 65_536;

/// The separator where the gateway joins messages into one text.
const BETWEEN_MESSAGES: &str = "\n\n";

/// Reads the events of one run.
///
/// Text arrives as snapshots of a whole message. However the gateway cuts and coalesces them,
/// all text is emitted once.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::Batch;
/// use wellspring_wire::openclaw::{End, Frame, Reader};
///
/// let (mut reader, mut batch) = (Reader::default(), Batch::default());
/// for (stream, data) in [
///     ("thinking", json!({"text": "Hm."})),
///     ("assistant", json!({"text": "Hel", "itemId": "m1"})),
///     ("assistant", json!({"text": "Hello", "itemId": "m1"})),
///     ("lifecycle", json!({"phase": "end", "stopReason": "stop"})),
/// ] {
///     let payload = json!({"runId": "r", "stream": stream, "data": data});
///     let frame = json!({"type": "event", "event": "agent", "payload": payload});
///     if let Frame::Event(event) = Frame::of(frame) {
///         reader.event(event, &mut batch);
///     }
/// }
/// assert!(matches!(reader.end(), Some(End::Finished { .. })));
/// let events: Vec<String> = batch.into_events().map(|(_, event)| event.to_string()).collect();
/// assert_eq!(events, [
///     "part 0 started thought", "part 0 delta \"Hm.\"", "part 0 finished",
///     "part 1 started text", "part 1 annotated {\"provider_id\":\"m1\"}",
///     "part 1 delta \"Hel\"", "part 1 delta \"lo\"", "part 1 finished",
/// ]);
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    /// The last message of the answer.
    words: SnapshotText,
    /// Bytes of the earlier messages, as the gateway joins them.
    words_before: usize,
    /// The last thought.
    thought: SnapshotText,
    calls: BTreeMap<Box<str>, Call>,
    provider: Option<Box<str>>,
    model: Option<Box<str>>,
    usage: Option<Usage>,
    end: Option<End>,
}

/// Text that arrives as snapshots.
#[derive(Debug, Default)]
struct SnapshotText {
    /// The gateway's id of it.
    id: Option<Box<str>>,
    /// The whole text.
    text: String,
    /// Its part, while open.
    part: Option<LocalPart>,
}

impl SnapshotText {
    /// Updates the text to a snapshot. New text is a delta. If text was taken back, the open
    /// part is voided and a new one holds the snapshot.
    fn becomes(
        &mut self,
        snapshot: &str,
        start: impl FnOnce(&mut Batch) -> LocalPart,
        batch: &mut Batch,
    ) {
        if let Some(rest) = snapshot.strip_prefix(self.text.as_str()) {
            if !rest.is_empty() {
                let part = self.open(start, batch);
                batch.delta(part, rest);
                self.text.push_str(rest);
            }
            return;
        }
        // A closed part cannot be voided: a new one holds the current text.
        if let Some(part) = self.part.take() {
            batch.void(part, VoidReason::Replaced);
        }
        snapshot.clone_into(&mut self.text);
        if !snapshot.is_empty() {
            let part = self.open(start, batch);
            batch.delta(part, snapshot);
        }
    }

    fn open(
        &mut self,
        start: impl FnOnce(&mut Batch) -> LocalPart,
        batch: &mut Batch,
    ) -> LocalPart {
        if let Some(part) = self.part {
            return part;
        }
        let part = start(batch);
        if let Some(id) = &self.id {
            batch.annotate(part, Annotation::ProviderId(id.clone()));
        }
        self.part = Some(part);
        part
    }

    fn close(&mut self, batch: &mut Batch) {
        if let Some(part) = self.part.take() {
            batch.finish(part);
        }
    }
}

impl Reader {
    /// A reader for a run that another reader has read up to here. The batch must continue the
    /// transcript's numbering: see [`Batch::after`].
    #[must_use]
    pub fn resume(so_far: &Transcript) -> Self {
        let mut reader = Self::default();
        for (id, said) in so_far.parts.iter().filter(|(_, part)| part.agent.is_root()) {
            let part = LocalPart::resumed(AgentNo::ROOT, *id);
            let name = said.annotations.iter().find_map(provider_id);
            let open = (!said.finished).then_some(part);
            match &said.kind {
                PartKind::Text { role: wellspring_core::Role::Assistant } => {
                    let same = name.is_some() && reader.words.id.as_deref() == name;
                    if same {
                        reader.words.text.push_str(&said.text);
                    } else {
                        reader.next_message();
                        reader.words.text.clone_from(&said.text);
                    }
                    reader.words.id = name.map(Into::into);
                    reader.words.part = open;
                }
                PartKind::Thought => {
                    let text = said.text.clone();
                    reader.thought = SnapshotText { id: None, text, part: open };
                }
                PartKind::ToolCall(_) => {
                    reader.thought = SnapshotText::default();
                    if let Some(name) = name {
                        reader.calls.insert(name.into(), Call::resumed(part, said));
                    }
                }
                PartKind::Output { call, .. } => {
                    let mut calls = reader.calls.values_mut();
                    if let Some(call) = calls.find(|known| known.part.id() == *call) {
                        call.output =
                            SnapshotText { id: None, text: said.text.clone(), part: open };
                    }
                }
                PartKind::Text { .. } | PartKind::Opaque(_) => {}
            }
        }
        reader
    }

    /// How the run ended; `None` while it runs. After the end, only usage is read.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Reads an `agent` or `chat` event of the run.
    pub fn event(&mut self, event: EventFrame, batch: &mut Batch) {
        if self.end.is_some() {
            return;
        }
        match &*event.event {
            "agent" => self.agent(AgentEventPayload::of(event.payload), batch),
            "chat" => self.chat(&event.payload, batch),
            _ => batch.extended(ORIGIN, &event.event, event.payload),
        }
    }

    fn agent(&mut self, event: AgentEventPayload, batch: &mut Batch) {
        let AgentEventPayload { stream, data, .. } = event;
        match stream {
            AgentEventStream::Assistant => self.assistant(&data, batch),
            AgentEventStream::Thinking => self.thinking(&data, batch),
            AgentEventStream::Item if data_text(&data, "kind") == Some("preamble") => {
                self.preamble(data, batch);
            }
            AgentEventStream::Item if data_text(&data, "kind") == Some("tool") => {
                self.item(data, batch);
            }
            AgentEventStream::Tool => self.tool(data, batch),
            AgentEventStream::CommandOutput => self.command_output(data, batch),
            AgentEventStream::Usage => self.report_usage(&Value::Object(data), batch),
            AgentEventStream::Lifecycle => self.lifecycle(data, batch),
            AgentEventStream::Item | AgentEventStream::Error | AgentEventStream::Other(_) => {
                batch.extended(ORIGIN, stream.name(), Value::Object(data));
            }
        }
    }

    fn assistant(&mut self, data: &Map<String, Value>, batch: &mut Batch) {
        self.thought.close(batch);
        let id = data_text(data, "itemId");
        let other = match (&self.words.id, id) {
            (Some(before), Some(now)) => **before != *now,
            (None, Some(_)) => !self.words.text.is_empty(),
            // Without an id, a message ends where a call begins.
            (_, None) => self.words.part.is_none(),
        };
        if other {
            self.words.close(batch);
            self.next_message();
        }
        if self.words.id.is_none() {
            self.words.id = id.map(Into::into);
        }
        let snapshot = match data_text(data, "text") {
            Some(text) => text.to_owned(),
            None => {
                let delta = data_text(data, "delta").unwrap_or_default();
                format!("{}{delta}", self.words.text)
            }
        };
        self.words.becomes(&snapshot, |batch| batch.start(PartKind::TEXT), batch);
    }

    /// Counts the last message as an earlier one.
    fn next_message(&mut self) {
        let said = std::mem::take(&mut self.words);
        if !said.text.is_empty() {
            self.words_before += said.text.len() + BETWEEN_MESSAGES.len();
        }
    }

    fn thinking(&mut self, data: &Map<String, Value>, batch: &mut Batch) {
        let Some(snapshot) = data_text(data, "text") else {
            let delta = data_text(data, "delta").unwrap_or_default();
            let all = format!("{}{delta}", self.thought.text);
            return self.thought.becomes(&all, |batch| batch.start(PartKind::Thought), batch);
        };
        // Thoughts have no id: text that does not continue the last one starts another.
        if !snapshot.starts_with(self.thought.text.as_str()) {
            self.thought.close(batch);
            self.thought.text.clear();
        }
        self.thought.becomes(snapshot, |batch| batch.start(PartKind::Thought), batch);
    }

    /// Text before a call is commentary, and not part of the answer.
    fn preamble(&mut self, data: Map<String, Value>, batch: &mut Batch) {
        let Some(snapshot) = data_text(&data, "progressText").filter(|it| !it.is_empty()) else {
            return batch.extended(ORIGIN, "item", Value::Object(data));
        };
        let is_end = data_text(&data, "phase") == Some("end");
        let said = self.words.text.as_str();
        let is_words = self.words.part.is_some()
            && !said.is_empty()
            && (snapshot.starts_with(said) || said.starts_with(snapshot));
        if is_words {
            if is_end {
                if snapshot.len() > said.len() {
                    self.words.becomes(snapshot, |batch| batch.start(PartKind::TEXT), batch);
                }
                if let Some(part) = self.words.part {
                    batch.annotate(part, Annotation::Preamble);
                }
                self.words.close(batch);
            }
        } else if is_end && said.trim_end() != snapshot.trim_end() {
            // The preamble was never sent as text.
            self.thought.close(batch);
            let part = batch.start(PartKind::TEXT);
            batch.annotate(part, Annotation::Preamble);
            batch.delta(part, snapshot);
            batch.finish(part);
        }
    }

    /// Reports the usage of the run so far. Events and the last response use different names.
    fn report_usage(&mut self, usage: &Value, batch: &mut Batch) {
        let number = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64());
        let before = self.usage.take().unwrap_or_default();
        let cost = usage["cost"]["total"].as_f64().filter(|amount| *amount > 0.0);
        let now = Usage {
            scope: UsageScope::Run,
            provider: self.provider.clone(),
            model: self.model.clone(),
            input: number(["input", "inputTokens"]).unwrap_or(before.input),
            output: number(["output", "outputTokens"]).unwrap_or(before.output),
            reasoning: number(["reasoning", "reasoningTokens"]).or(before.reasoning),
            cached_input: number(["cacheRead", "cacheReadTokens"]).or(before.cached_input),
            cache_write: number(["cacheWrite", "cacheWriteTokens"]).or(before.cache_write),
            cost: cost
                .map(|amount| wellspring_core::Cost { amount, currency: "USD".into() })
                .or(before.cost),
            context: None,
        };
        batch.event(Fact::UsageReported(Box::new(now.clone())));
        self.usage = Some(now);
    }

    fn lifecycle(&mut self, data: Map<String, Value>, batch: &mut Batch) {
        match data_text(&data, "phase") {
            Some("model") => {
                if let Some(model) = data_text(&data, "model") {
                    self.model = Some(model.into());
                    self.provider = data_text(&data, "provider").map(Into::into);
                    // Another model call starts another thought.
                    self.thought.close(batch);
                    self.thought.text.clear();
                }
            }
            Some("end" | "error") => {
                let data = Value::Object(data);
                let end = if aborted(&data) {
                    End::Aborted
                } else if data["phase"] == "error" {
                    failure(&data["error"], &data["errorObservation"])
                } else {
                    let reply = &data["terminalReply"];
                    if reply["disposition"].as_str().is_none_or(|it| it == "visible") {
                        self.reply(reply["text"].as_str().unwrap_or_default(), batch);
                    }
                    End::Finished { stop: stop(data["stopReason"].as_str()) }
                };
                self.ended(end, batch);
            }
            Some(_) | None => batch.extended(ORIGIN, "lifecycle", Value::Object(data)),
        }
    }

    fn chat(&mut self, payload: &Value, batch: &mut Batch) {
        let end = match payload["state"].as_str() {
            Some("final") => End::Finished { stop: stop(payload["stopReason"].as_str()) },
            Some("aborted") => End::Aborted,
            Some("error") if aborted(payload) => End::Aborted,
            Some("error") => {
                let mut detail = payload["errorDetail"].clone();
                if detail.is_null() {
                    detail = payload.clone();
                }
                failure(&payload["errorMessage"], &detail)
            }
            // Deltas repeat agent events.
            Some(_) | None => return,
        };
        self.all_words(&message_text(&payload["message"]), batch);
        self.ended(end, batch);
    }

    /// Reads a response to `agent` or `agent.wait`. Interim responses are ignored. The last one
    /// ends the run, if no event did, and holds its usage and its files.
    pub fn response(&mut self, response: &Response, batch: &mut Batch) {
        if response.is_interim() {
            return;
        }
        let payload = &response.payload;
        if self.end.is_none() {
            if let Some(reply) = payload["terminalReply"]["text"].as_str() {
                self.reply(reply, batch);
            } else {
                let payloads = payload["result"]["payloads"].as_array();
                let texts = payloads.into_iter().flatten().filter_map(|it| it["text"].as_str());
                let texts: Vec<&str> = texts.collect();
                // The last payload is the last message. Earlier payloads were sent as events.
                let last = texts.last().filter(|it| it.starts_with(self.words.text.as_str()));
                match last {
                    Some(last) if !self.words.text.is_empty() => self.reply(last, batch),
                    Some(_) => self.reply(&texts.join(BETWEEN_MESSAGES), batch),
                    None => {}
                }
            }
            let end = if aborted(payload) || payload["summary"] == "aborted" {
                End::Aborted
            } else if let Some(error) = response.error.as_ref().filter(|_| !response.ok) {
                End::of_error(error)
            } else if payload["error"].is_string() || response.status() == "error" {
                failure(&payload["error"], payload)
            } else if response.status() == "timeout" {
                failure(&"the gateway's own time limit was reached".into(), payload)
            } else {
                End::Finished { stop: stop(payload["stopReason"].as_str()) }
            };
            self.ended(end, batch);
        }
        let meta = &payload["result"]["meta"]["agentMeta"];
        if meta["usage"].is_object() {
            self.model = text(meta, "model").or_else(|| self.model.take());
            self.provider = text(meta, "provider").or_else(|| self.provider.take());
            self.report_usage(&meta["usage"], batch);
        }
        for produced in payload["result"]["payloads"].as_array().into_iter().flatten() {
            let one = produced["mediaUrl"].as_str();
            let several = produced["mediaUrls"].as_array();
            let several = several.into_iter().flatten().filter_map(Value::as_str);
            for url in one.into_iter().filter(|_| produced["mediaUrls"].is_null()).chain(several) {
                batch.event(Fact::FileProduced(Box::new(FileProduced {
                    media_type: "application/octet-stream".into(),
                    source: MediaSource::Url(url.into()),
                    name: None,
                })));
            }
        }
    }

    /// Continues a run after a reconnect, with the text that the gateway has of it.
    pub fn adopt(&mut self, run: &InFlightRun, batch: &mut Batch) {
        self.all_words(&run.text, batch);
    }

    /// Adds the missing end of the last message, given its whole text.
    fn reply(&mut self, all: &str, batch: &mut Batch) {
        let said = self.words.text.trim_end();
        if all.is_empty() || !said.is_empty() && all.trim_end().ends_with(said) {
            return;
        }
        if self.words.part.is_none() && !said.is_empty() && !all.starts_with(said) {
            // The last message was closed, so this is another one.
            self.next_message();
        }
        self.thought.close(batch);
        self.words.becomes(all, |batch| batch.start(PartKind::TEXT), batch);
    }

    /// Adds the missing end, given the whole text of the run. If that contradicts the events,
    /// the events are kept: they are more precise.
    fn all_words(&mut self, all: &str, batch: &mut Batch) {
        let Some(last) = all.get(self.words_before.min(all.len())..) else { return };
        let Some(rest) = last.strip_prefix(self.words.text.as_str()) else { return };
        if rest.is_empty() {
            return;
        }
        self.thought.close(batch);
        match rest.strip_prefix(BETWEEN_MESSAGES).filter(|_| self.words.part.is_none()) {
            Some(next) if !self.words.text.is_empty() => {
                self.next_message();
                self.words.becomes(next, |batch| batch.start(PartKind::TEXT), batch);
            }
            Some(_) | None => self.words.becomes(last, |batch| batch.start(PartKind::TEXT), batch),
        }
    }

    fn ended(&mut self, end: End, batch: &mut Batch) {
        self.close(batch);
        self.end = Some(end);
    }

    /// Closes everything that is open, because the run ended or nothing more will arrive.
    pub fn close(&mut self, batch: &mut Batch) {
        self.thought.close(batch);
        self.words.close(batch);
        for call in self.calls.values_mut() {
            call.interrupt(batch);
        }
    }
}

fn provider_id(annotation: &Annotation) -> Option<&str> {
    match annotation {
        Annotation::ProviderId(id) => Some(id),
        Annotation::Signature(_)
        | Annotation::Encrypted(_)
        | Annotation::Citation(_)
        | Annotation::Preamble
        | Annotation::Other(_) => None,
    }
}

/// The text blocks of a message.
fn message_text(message: &Value) -> String {
    if let Some(text) = message["content"].as_str().or(message.as_str()) {
        return text.to_owned();
    }
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter(|block| block["type"] == "text").filter_map(|it| it["text"].as_str()).collect()
}

fn data_text<'a>(data: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    data.get(name).and_then(Value::as_str)
}
