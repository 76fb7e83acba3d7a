//! What an update says besides what we have words for. It is kept beside what was understood, and
//! said again with it, so that an agent behind us reaches a client whole.

use serde_json::{Map, Value, json};

use super::read::{has_sound_meta, is_block};
use super::sound::{is_command, is_option};

/// What the log calls the rest of an update: as an annotation, of the part's next words; as an
/// extended fact, of the next record that becomes an update of its kind.
pub(super) const REST: &str = "rest";

/// Our own name among the members of `_meta`.
pub(super) const OURS: &str = "wellspring";

/// What an object says besides these members. A null says nothing.
pub(super) fn left(of: &Value, understood: &[&str]) -> Map<String, Value> {
    let members = of.as_object().into_iter().flatten();
    let others =
        members.filter(|(name, value)| !understood.contains(&name.as_str()) && !value.is_null());
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The same, where it can be said: a `_meta` that is none is left out.
#[must_use]
pub fn besides(of: &Value, understood: &[&str]) -> Value {
    let mut others = left(of, understood);
    if !has_sound_meta(of) {
        others.remove("_meta");
    }
    others.into()
}

/// Says the rest with what was understood: members of objects are joined, and of two that are
/// no objects the rest's counts.
pub fn merge(into: &mut Value, rest: &Value) {
    match (into, rest) {
        (Value::Object(into), Value::Object(rest)) => {
            for (name, value) in rest {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, rest) => *into = rest.clone(),
    }
}

/// Has a message say something in its `_meta` that it cannot say in the protocol's words.
pub fn carry(into: &mut Value, odd: &Value) {
    if odd.as_object().is_some_and(|odd| !odd.is_empty()) {
        merge(into, &json!({"_meta": {OURS: odd}}));
    }
}

/// An update that the protocol has no word for, in an update that it has: clients may be strict,
/// and `_meta` is where anything may be.
pub(super) fn carried(update: &Value) -> Value {
    json!({"sessionUpdate": "session_info_update", "_meta": {OURS: {"update": update}}})
}

/// Whether a client can be told an update as it is: one that the protocol knows, in its shape.
pub(super) fn is_sayable(update: &Value) -> bool {
    let all = |name: &str, fits: &dyn Fn(&Value) -> bool| {
        update[name].as_array().is_some_and(|it| it.iter().all(|it| fits(it) && has_sound_meta(it)))
    };
    let text = |name: &str| update[name].is_string();
    let optional = |name: &str| update[name].is_null() || text(name);
    let is_known = match update["sessionUpdate"].as_str() {
        Some("user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk") => {
            is_block(&update["content"]) && optional("messageId")
        }
        Some("session_info_update") => optional("title") && optional("updatedAt"),
        Some("available_commands_update") => all("availableCommands", &is_command),
        Some("current_mode_update") => text("currentModeId"),
        Some("config_option_update") => all("configOptions", &is_option),
        Some("notice") => {
            let title = update["title"].as_str().is_some_and(|title| !title.is_empty());
            text("severity") && title && optional("description")
        }
        Some("compaction_update") => {
            let summary = update["summary"].is_null() || all("summary", &is_block);
            text("compactionId") && text("status") && optional("error") && summary
        }
        Some("compaction_summary_chunk") => text("compactionId") && is_block(&update["content"]),
        Some(_) | None => false,
    };
    is_known && has_sound_meta(update)
}
