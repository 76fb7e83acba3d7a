//! The rules that the official client enforces, by numbers:
//!
//! 1. The first event is RUN_STARTED or RUN_ERROR.
//! 2. No RUN_STARTED inside a run.
//! 3. After RUN_FINISHED only RUN_ERROR or RUN_STARTED, after RUN_ERROR only RUN_STARTED.
//! 4. Nothing open is opened again.
//! 5. Content and ends need the thing open.
//! 6. Steps are unique per owner and name.
//! 7. RUN_FINISHED needs everything closed.
//! 8. A tag belongs to the agent that opened it.
//! 9. A sub-agent's id starts once per run.
//! 10. No `null` in an optional field.
//!
//! Messages and calls may interleave: there is no rule against it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

type Owner = Option<String>;

/// A client's view of what is open.
#[derive(Debug, Default)]
pub(super) struct Rules {
    begun: bool,
    running: bool,
    errored: bool,
    open: BTreeMap<(&'static str, String), Owner>,
    owners: BTreeMap<(&'static str, String), Owner>,
    steps: BTreeSet<(Owner, String)>,
    active: BTreeSet<String>,
    closed: BTreeSet<String>,
}

impl Rules {
    pub(super) fn check<'a>(events: impl IntoIterator<Item = &'a Value>) -> Result<Self, String> {
        let mut rules = Self::default();
        for (index, event) in events.into_iter().enumerate() {
            rules.push(event).map_err(|rule| format!("event {index}, {rule}: {event}"))?;
        }
        Ok(rules)
    }

    /// Whether a run is going on.
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    fn push(&mut self, event: &Value) -> Result<(), String> {
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let kind = text("type").ok_or("no type")?;
        no_null(event)?;
        if !self.begun && kind != "RUN_STARTED" && kind != "RUN_ERROR" {
            return Err("rule 1".into());
        }
        match (self.running, kind.as_str()) {
            (true, "RUN_STARTED") => return Err("rule 2".into()),
            (false, "RUN_STARTED") => {}
            (false, "RUN_ERROR") if !self.errored => {}
            (false, _) => return Err("rule 3".into()),
            (true, _) => {}
        }
        self.begun = true;
        let owner = text("subagentRunId");
        match kind.as_str() {
            "RUN_STARTED" => *self = Self { begun: true, running: true, ..Self::default() },
            "RUN_FINISHED" => {
                if !(self.open.is_empty() && self.steps.is_empty() && self.active.is_empty()) {
                    let (open, steps) = (&self.open, &self.steps);
                    return Err(format!("rule 7: {open:?} {steps:?} {:?}", self.active));
                }
                self.running = false;
            }
            "RUN_ERROR" => (self.running, self.errored) = (false, true),
            "TEXT_MESSAGE_START" => self.start("text", text("messageId"), owner)?,
            "TEXT_MESSAGE_CONTENT" => self.need("text", text("messageId"), owner)?,
            "TEXT_MESSAGE_END" => self.end("text", text("messageId"), owner)?,
            "TOOL_CALL_START" => {
                if let Some(parent) = text("parentMessageId") {
                    self.tag("text", &parent, &owner)?;
                }
                self.start("call", text("toolCallId"), owner)?;
            }
            "TOOL_CALL_ARGS" => self.need("call", text("toolCallId"), owner)?,
            "TOOL_CALL_END" => self.end("call", text("toolCallId"), owner)?,
            "TOOL_CALL_RESULT" => {
                let call = text("toolCallId").ok_or("no toolCallId")?;
                if self.open.contains_key(&("call", call)) {
                    return Err("a result before the call's end".into());
                }
            }
            "REASONING_START" => self.start("span", text("messageId"), owner)?,
            "REASONING_END" => self.end("span", text("messageId"), owner)?,
            "REASONING_MESSAGE_START" => self.start("reasoning", text("messageId"), owner)?,
            "REASONING_MESSAGE_CONTENT" => self.need("reasoning", text("messageId"), owner)?,
            "REASONING_MESSAGE_END" => self.end("reasoning", text("messageId"), owner)?,
            "REASONING_ENCRYPTED_VALUE" => {
                let id = text("entityId").ok_or("no entityId")?;
                for what in ["text", "call", "reasoning"] {
                    self.tag(what, &id, &owner)?;
                }
            }
            "STEP_STARTED" => {
                let name = text("stepName").ok_or("no stepName")?;
                if !self.steps.insert((owner, name)) {
                    return Err("rule 6".into());
                }
            }
            "STEP_FINISHED" => {
                let name = text("stepName").ok_or("no stepName")?;
                if !self.steps.remove(&(owner, name)) {
                    return Err("rule 5".into());
                }
            }
            "ACTIVITY_SNAPSHOT" => {
                let id = text("messageId").ok_or("no messageId")?;
                let known = self.owners.contains_key(&("activity", id.clone()));
                if !known || event["replace"] != Value::Bool(false) {
                    self.owners.insert(("activity", id), owner);
                }
            }
            "ACTIVITY_DELTA" => {
                let id = text("messageId").ok_or("no messageId")?;
                self.tag("activity", &id, &owner)?;
            }
            "SUBAGENT_STARTED" => {
                let id = owner.ok_or("no subagentRunId")?;
                if self.closed.contains(&id) || !self.active.insert(id) {
                    return Err("rule 9".into());
                }
                if let Some(parent) = text("parentSubagentRunId")
                    && !self.active.contains(&parent)
                    && !self.closed.contains(&parent)
                {
                    return Err("a parent that has not started".into());
                }
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                let id = owner.ok_or("no subagentRunId")?;
                if !self.active.remove(&id) {
                    return Err("rule 5".into());
                }
                self.closed.insert(id);
            }
            "STATE_SNAPSHOT" | "STATE_DELTA" | "MESSAGES_SNAPSHOT" | "RAW" | "CUSTOM" => {}
            other => return Err(format!("we never say {other}")),
        }
        Ok(())
    }

    fn start(
        &mut self,
        what: &'static str,
        id: Option<String>,
        owner: Owner,
    ) -> Result<(), String> {
        let id = id.ok_or("no id")?;
        self.tag(what, &id, &owner)?;
        self.owners.entry((what, id.clone())).or_insert_with(|| owner.clone());
        match self.open.insert((what, id), owner) {
            Some(_) => Err("rule 4".into()),
            None => Ok(()),
        }
    }

    fn need(&self, what: &'static str, id: Option<String>, owner: Owner) -> Result<(), String> {
        let id = id.ok_or("no id")?;
        match self.open.get(&(what, id)) {
            None => Err("rule 5".into()),
            Some(opener) if *opener != owner => Err("rule 8".into()),
            Some(_) => Ok(()),
        }
    }

    fn end(&mut self, what: &'static str, id: Option<String>, owner: Owner) -> Result<(), String> {
        self.need(what, id.clone(), owner)?;
        self.open.remove(&(what, id.unwrap_or_default()));
        Ok(())
    }

    fn tag(&self, what: &'static str, id: &str, owner: &Owner) -> Result<(), String> {
        match self.owners.get(&(what, id.to_owned())) {
            Some(opener) if opener != owner => Err("rule 8".into()),
            _ => Ok(()),
        }
    }
}

/// Rule 10, in the event and in the objects that the protocol describes.
fn no_null(event: &Value) -> Result<(), String> {
    let required = ["snapshot", "event", "value"];
    let objects = [&event["messages"], &event["outcome"]["interrupts"], &event["usage"]];
    let listed = objects.into_iter().filter_map(Value::as_array).flatten();
    let calls = event["messages"].as_array().into_iter().flatten();
    let calls = calls.filter_map(|message| message["toolCalls"].as_array()).flatten();
    let mut all = listed.chain(calls).chain([event, &event["outcome"]]);
    let has_null = |value: &Value| {
        let mut fields = value.as_object().into_iter().flatten();
        fields.any(|(name, value)| value.is_null() && !required.contains(&name.as_str()))
    };
    if all.any(has_null) { Err("rule 10".into()) } else { Ok(()) }
}
