//! A model of a stock client: its messages, its state and how the run ended. It follows what
//! `@ag-ui/client` 1.0 does with each event.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Messages, items outside their order, the state and the outcome.
pub(super) type Settled = (Vec<Value>, BTreeSet<String>, Value, Value);

/// A client's conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Client {
    pub(super) messages: Vec<Value>,
    pub(super) state: Value,
    pub(super) end: Value,
}

impl Client {
    /// A client that has these messages already.
    pub(super) fn with(messages: Vec<Value>) -> Self {
        Self { messages, ..Self::default() }
    }

    pub(super) fn fold<'a>(mut self, events: impl IntoIterator<Item = &'a Value>) -> Self {
        for event in events {
            self.apply(event);
        }
        self
    }

    pub(super) fn apply(&mut self, event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        match text("type").as_str() {
            "RUN_STARTED" => self.end = Value::Null,
            "RUN_FINISHED" | "RUN_ERROR" => self.end = event.clone(),
            "TEXT_MESSAGE_START" => {
                let role = event["role"].as_str().unwrap_or("assistant");
                self.create(event, &text("messageId"), role);
            }
            "REASONING_MESSAGE_START" => self.create(event, &text("messageId"), "reasoning"),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let message = self.message(&text("messageId")).unwrap();
                let content = message["content"].as_str().unwrap_or_default().to_owned();
                message["content"] = json!(content + &text("delta"));
            }
            "TOOL_CALL_START" => self.start_call(event),
            "TOOL_CALL_ARGS" => {
                let call = self.call(&text("toolCallId")).unwrap();
                let so_far = call["function"]["arguments"].as_str().unwrap().to_owned();
                call["function"]["arguments"] = json!(so_far + &text("delta"));
            }
            "TOOL_CALL_RESULT" => {
                let mut message = json!({
                    "id": event["messageId"], "role": "tool",
                    "toolCallId": event["toolCallId"], "content": event["content"],
                });
                copy(event, &mut message, &["subagentRunId", "metadata"]);
                let owner =
                    self.messages.iter().position(|owner| holds(owner, &text("toolCallId")));
                let place = owner.map_or(self.messages.len(), |owner| {
                    let after = &self.messages[owner + 1..];
                    owner + 1 + after.iter().take_while(|next| next["role"] == "tool").count()
                });
                self.messages.insert(place, message);
            }
            "REASONING_ENCRYPTED_VALUE" => {
                let id = text("entityId");
                let found = if event["subtype"] == "tool-call" {
                    self.call(&id)
                } else {
                    self.message(&id)
                };
                if let Some(found) = found {
                    found["encryptedValue"] = event["encryptedValue"].clone();
                }
            }
            "STATE_SNAPSHOT" => self.state = event["snapshot"].clone(),
            "STATE_DELTA" => patch(&mut self.state, &event["delta"]),
            "MESSAGES_SNAPSHOT" => self.snapshot(event),
            "ACTIVITY_SNAPSHOT" => {
                let mut message = json!({
                    "id": event["messageId"], "role": "activity",
                    "activityType": event["activityType"], "content": event["content"],
                });
                copy(event, &mut message, &["subagentRunId"]);
                match self.message(&text("messageId")) {
                    Some(known) if event["replace"] != false => *known = message,
                    Some(_) => {}
                    None => self.messages.push(message),
                }
            }
            "ACTIVITY_DELTA" => {
                let message = self.message(&text("messageId")).unwrap();
                patch(&mut message["content"], &event["patch"]);
            }
            _ => {}
        }
    }

    /// The final state, normalised where joining may order it differently: activities and
    /// steering inputs are separated from the messages, a call's results are in the order of
    /// their ids, and pieces of output are joined per stream. Empty thoughts are removed.
    pub(super) fn settled(self) -> Settled {
        let apart = |message: &Value| {
            let steering = message["id"].as_str().is_some_and(|id| id.contains("-input-"));
            steering || message["role"] == "activity"
        };
        let (apart, mut messages): (Vec<Value>, Vec<Value>) =
            self.messages.into_iter().partition(apart);
        messages.retain(|message| !(message["role"] == "reasoning" && message["content"] == ""));
        for tools in messages.chunk_by_mut(|a, b| a["role"] == "tool" && b["role"] == "tool") {
            tools.sort_by_key(|message| message["id"].to_string());
        }
        let apart = apart.into_iter().map(|mut message| {
            if let Some(output) = message["content"].get_mut("output") {
                *output = joined(output);
            }
            message.sort_all_objects();
            message.to_string()
        });
        (messages, apart.collect(), self.state, self.end)
    }

    fn message(&mut self, id: &str) -> Option<&mut Value> {
        self.messages.iter_mut().find(|message| message["id"] == id)
    }

    fn call(&mut self, id: &str) -> Option<&mut Value> {
        let calls = self.messages.iter_mut().filter_map(|message| message.get_mut("toolCalls"));
        calls.filter_map(Value::as_array_mut).flatten().find(|call| call["id"] == id)
    }

    fn create(&mut self, event: &Value, id: &str, role: &str) {
        if self.message(id).is_none() {
            let mut message = json!({"id": id, "role": role, "content": ""});
            copy(event, &mut message, &["subagentRunId"]);
            self.messages.push(message);
        }
    }

    fn start_call(&mut self, event: &Value) {
        let id = event["toolCallId"].as_str().unwrap().to_owned();
        if self.call(&id).is_some() {
            return;
        }
        let mut call = json!({
            "id": id, "type": "function",
            "function": {"name": event["toolCallName"], "arguments": ""},
        });
        copy(event, &mut call, &["metadata"]);
        let parent = event["parentMessageId"].as_str().map(str::to_owned);
        let is_new = parent.as_ref().is_none_or(|parent| self.message(parent).is_none());
        let parent = parent.unwrap_or(id);
        if is_new {
            assert_eq!(self.message(&parent), None, "two messages of one id");
            let mut message = json!({"id": parent, "role": "assistant"});
            copy(event, &mut message, &["subagentRunId"]);
            self.messages.push(message);
        }
        let message = self.message(&parent).unwrap();
        assert_eq!(message["role"], "assistant", "only an assistant message holds calls");
        let message = message.as_object_mut().unwrap();
        let calls = message.entry("toolCalls").or_insert_with(|| json!([]));
        calls.as_array_mut().unwrap().push(call);
    }

    fn snapshot(&mut self, event: &Value) {
        let new = event["messages"].as_array().unwrap();
        let find = |id: &Value| new.iter().find(|message| message["id"] == *id);
        let owned = &event["metadata"]["@ag-ui/client"]["authoritativeActivityTypes"];
        let is_owned = |kind: &Value| owned.as_array().is_some_and(|owned| owned.contains(kind));
        let has_reasoning = new.iter().any(|message| message["role"] == "reasoning");
        let kept = |message: &Value| {
            (message["role"] == "activity" && !is_owned(&message["activityType"]))
                || (message["role"] == "reasoning" && !has_reasoning)
        };
        self.messages.retain(|message| find(&message["id"]).is_some() || kept(message));
        for message in &mut self.messages {
            if let Some(new) = find(&message["id"]) {
                message.clone_from(new);
            }
        }
        for message in new {
            if self.message(message["id"].as_str().unwrap()).is_none() {
                self.messages.push(message.clone());
            }
        }
    }
}

fn holds(message: &Value, call: &str) -> bool {
    let mut calls = message["toolCalls"].as_array().into_iter().flatten();
    calls.any(|held| held["id"] == call)
}

fn copy(event: &Value, into: &mut Value, names: &[&str]) {
    for name in names {
        if let Some(value) = event.get(name) {
            into[name] = value.clone();
        }
    }
}

fn patch(value: &mut Value, operations: &Value) {
    let operations: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
    let mut patched = value.clone();
    if json_patch::patch(&mut patched, &operations).is_ok() {
        *value = patched;
    }
}

fn joined(output: &Value) -> Value {
    let mut streams = Map::new();
    for piece in output.as_array().into_iter().flatten() {
        let so_far = streams.entry(piece["stream"].as_str().unwrap()).or_insert_with(|| json!(""));
        *so_far = json!(format!("{}{}", so_far.as_str().unwrap(), piece["text"].as_str().unwrap()));
    }
    Value::Object(streams)
}
