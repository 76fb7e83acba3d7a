//! A call that the agent makes itself. Agents report calls in any order; this module turns the
//! reports into one call with one start and one end.

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, Batch, ContentChange, LocalPart, PartKind, RunsOn, ToolCall, ToolContent, ToolKind,
    ToolOutcome, ToolResult, ToolUpdate,
};

use super::content;
use crate::acp::unknown_members::{REST, left, merge};
use crate::acp::{RAW_INPUT, RAW_OUTPUT};

/// The members of an update that have their own event or field in the log.
const UNDERSTOOD: [&str; 10] = [
    "sessionUpdate",
    "toolCallId",
    "title",
    "name",
    "kind",
    "status",
    "content",
    "locations",
    "rawInput",
    "rawOutput",
];

/// Bytes of a call's raw input that become its arguments. Larger input is kept whole in an
/// extended event, because outlines hold the arguments of open calls.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Call {
    part: LocalPart,
    state: State,
    title: Box<str>,
    /// The kind from the latest report.
    kind: Value,
    name: Value,
    /// The latest input before the call starts: agents send an empty one first.
    input: Value,
    /// Progress from before the start, to be reported once it has started.
    held: ToolUpdate,
    denied: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Announced; its arguments may still change.
    Asked,
    /// Its arguments are final; it has not started.
    Complete,
    Running,
    Finished,
}

impl Call {
    pub(super) fn open(id: &str, update: &Value, batch: &mut Batch) -> Self {
        let title: Box<str> = update["title"].as_str().unwrap_or_default().into();
        let (kind, _) = kind(&update["kind"]);
        let own_name =
            update["name"].as_str().or(update["_meta"]["claudeCode"]["toolName"].as_str());
        let name = own_name.or(update["kind"].as_str()).unwrap_or("tool").into();
        let shown = Some(title.clone()).filter(|title| !title.is_empty());
        let own_id = Some(id.into());
        let tool = ToolCall { name, id: own_id, title: shown, kind, runs_on: RunsOn::Agent };
        let part = batch.start(PartKind::ToolCall(Box::new(tool)));
        batch.annotate(part, Annotation::ProviderId(id.into()));
        Self {
            part,
            state: State::Asked,
            title,
            kind: update["kind"].clone(),
            name: update["name"].clone(),
            input: Value::Null,
            held: ToolUpdate::default(),
            denied: false,
        }
    }

    pub(super) fn part(&self) -> LocalPart {
        self.part
    }

    /// The title for people.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// The call's part while it is running, so that output can be attached to it.
    pub(super) fn running_part(&self) -> Option<LocalPart> {
        (self.state == State::Running).then_some(self.part)
    }

    pub(super) fn deny(&mut self) {
        self.denied = true;
    }

    /// Reads a report. Returns whether everything in it was understood.
    pub(super) fn update(&mut self, update: &Value, batch: &mut Batch) -> bool {
        if self.state == State::Finished {
            return false;
        }
        let (status, status_known) = status(&update["status"]);
        let (_, kind_known) = kind(&update["kind"]);
        let (shown, content_known) = match update["content"].as_array() {
            Some(listed) => {
                let (shown, whole) = content::shown(listed);
                (Some(shown), whole)
            }
            None => (None, update["content"].is_null()),
        };
        let input = update.get("rawInput").filter(|input| !input.is_null());
        let (locations, locations_known) = content::locations(&update["locations"]);
        let mut whole = status_known && kind_known && content_known && locations_known;
        let optional = |name: &str| update[name].is_null() || update[name].is_string();
        whole &= content::has_sound_meta(update) && optional("title") && optional("name");
        let mut data = Map::new();
        if let Some(input) = input {
            if self.state == State::Asked {
                if input.to_string().len() <= ARGUMENTS_BYTES_MAX {
                    self.input = input.clone();
                } else {
                    whole = false;
                }
            } else if *input != self.input {
                data.insert(RAW_INPUT.into(), input.clone());
            }
        }
        // Content is shown at once, since it is often what a person is asked to approve.
        let begins =
            matches!(status, Some(Status::InProgress | Status::Completed | Status::Failed))
                || shown.as_ref().is_some_and(|shown| !shown.is_empty());
        let refused = self.denied && matches!(status, Some(Status::Failed));
        if begins && !refused {
            self.begin(batch);
        } else if begins {
            self.complete(batch);
        }
        let ends = match status {
            Some(Status::Completed) => Some(ToolOutcome::Ok),
            Some(Status::Failed) if self.denied => Some(ToolOutcome::Denied),
            Some(Status::Failed) => Some(ToolOutcome::Error),
            Some(Status::Pending | Status::InProgress) | None => None,
        };
        let output = update.get("rawOutput").filter(|output| !output.is_null());
        if let (Some(output), None) = (output, ends) {
            data.insert(RAW_OUTPUT.into(), output.clone());
        }
        let mut rest = left(update, &UNDERSTOOD);
        for (name, known) in [("kind", &mut self.kind), ("name", &mut self.name)] {
            // The kind was reported at the start; a new title is progress.
            let said = &update[name];
            if !said.is_null() && said != known {
                rest.insert(name.into(), said.clone());
                *known = said.clone();
            }
        }
        if whole && !rest.is_empty() {
            if ends.is_some() {
                super::rest_of_next(&json!({"sessionUpdate": "tool_call_update"}), rest, batch);
            } else if self.state == State::Asked {
                batch.annotate(self.part, super::rest_annotation(rest));
            } else {
                data.insert(REST.into(), rest.into());
            }
        }
        let title = update["title"].as_str().filter(|title| **title != *self.title);
        if let Some(title) = title {
            self.title = title.into();
        }
        let change = shown.clone().filter(|_| ends.is_none()).map(ContentChange::Replace);
        let progress = ToolUpdate {
            title: title.map(Into::into),
            locations,
            content: change,
            data: (!data.is_empty()).then_some(Value::Object(data)),
        };
        // A repeated report that a call is in progress counts as progress.
        let is_repeated = update["sessionUpdate"] == "tool_call_update"
            && matches!(status, Some(Status::InProgress));
        if is_repeated && self.state == State::Running && progress == ToolUpdate::default() {
            batch.tool_updated(self.part, progress);
        } else {
            self.report(progress, batch);
        }
        if let Some(outcome) = ends {
            self.finish(outcome, output.cloned(), shown.unwrap_or_default(), batch);
        }
        whole
    }

    /// The agent asks for permission: the arguments are final now.
    pub(super) fn await_permission(&mut self, batch: &mut Batch) -> Option<LocalPart> {
        if self.state == State::Finished {
            return None;
        }
        self.complete(batch);
        Some(self.part)
    }

    /// Ends a call for which the agent never reported an end.
    pub(super) fn give_up(&mut self, batch: &mut Batch) {
        if self.state == State::Finished {
            return;
        }
        let (outcome, why) = if self.denied {
            (ToolOutcome::Denied, "it was not permitted")
        } else {
            (ToolOutcome::Interrupted, "the agent did not say how it ended")
        };
        self.complete(batch);
        self.finish(outcome, Some(why.into()), Vec::new(), batch);
    }

    /// Writes the arguments and closes the part.
    fn complete(&mut self, batch: &mut Batch) {
        if self.state == State::Asked {
            self.state = State::Complete;
            if self.input.is_null() {
                self.input = json!({});
            }
            batch.delta(self.part, &self.input.to_string());
            batch.finish(self.part);
        }
    }

    fn begin(&mut self, batch: &mut Batch) {
        self.complete(batch);
        if self.state == State::Complete {
            self.state = State::Running;
            batch.tool_started(self.part);
            let held = std::mem::take(&mut self.held);
            self.report(held, batch);
        }
    }

    /// Reports progress. The grammar allows progress only for running calls, so earlier
    /// progress is held until the call starts.
    fn report(&mut self, update: ToolUpdate, batch: &mut Batch) {
        if update == ToolUpdate::default() {
            return;
        }
        if self.state != State::Running {
            let held = &mut self.held;
            held.title = update.title.or(held.title.take());
            held.data = match (held.data.take(), update.data) {
                (Some(mut held), Some(more)) => {
                    merge(&mut held, &more);
                    Some(held)
                }
                (held, more) => more.or(held),
            };
            if !update.locations.is_empty() {
                held.locations = update.locations;
            }
            return;
        }
        batch.tool_updated(self.part, update);
    }

    fn finish(
        &mut self,
        outcome: ToolOutcome,
        output: Option<Value>,
        content: Vec<ToolContent>,
        batch: &mut Batch,
    ) {
        self.state = State::Finished;
        self.input = Value::Null;
        let output = output.or_else(|| content::words(&content).map(Value::String));
        let result =
            ToolResult { output: output.unwrap_or_default(), content, ..ToolResult::default() };
        batch.tool_finished(self.part, outcome, result);
    }
}

#[derive(Clone, Copy, Debug)]
enum Status {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// The status, and whether we know it.
fn status(value: &Value) -> (Option<Status>, bool) {
    match value.as_str() {
        Some("pending") => (Some(Status::Pending), true),
        Some("in_progress") => (Some(Status::InProgress), true),
        Some("completed") => (Some(Status::Completed), true),
        Some("failed") => (Some(Status::Failed), true),
        Some(_) => (None, false),
        None => (None, value.is_null()),
    }
}

/// The kind, and whether we know it.
fn kind(value: &Value) -> (ToolKind, bool) {
    let known = match value.as_str() {
        Some("read") => ToolKind::Read,
        Some("edit") => ToolKind::Edit,
        Some("delete") => ToolKind::Delete,
        Some("move") => ToolKind::Move,
        Some("search") => ToolKind::Search,
        Some("execute") => ToolKind::Execute,
        Some("think") => ToolKind::Think,
        Some("fetch") => ToolKind::Fetch,
        Some("switch_mode") => ToolKind::SwitchMode,
        Some("other") => ToolKind::Other,
        Some(_) => return (ToolKind::Other, false),
        None => return (ToolKind::Other, value.is_null()),
    };
    (known, true)
}
