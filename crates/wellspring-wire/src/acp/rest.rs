//! What an update says besides what we have words for. It is kept beside what was understood, and
//! said again with it, so that an agent behind us reaches a client whole.

use serde_json::{Map, Value, json};

use super::read::is_block;

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

/// Says the rest with what was understood.
pub(super) fn merge(into: &mut Value, rest: &Value) {
    match (into, rest) {
        (Value::Object(into), Value::Object(rest)) => {
            for (name, value) in rest {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, rest) => *into = rest.clone(),
    }
}

/// An update that the protocol has no word for, in an update that it has: clients may be strict,
/// and `_meta` is where anything may be.
pub(super) fn carried(update: &Value) -> Value {
    json!({"sessionUpdate": "session_info_update", "_meta": {OURS: {"update": update}}})
}

/// Whether a client can be told an update as it is: one that the protocol knows, in its shape.
pub(super) fn is_sayable(update: &Value) -> bool {
    let text = |name: &str| update[name].is_string();
    let optional = |name: &str| update[name].is_null() || text(name);
    let list_of = |name: &str, members: &[&str]| {
        let listed = update[name].as_array();
        listed
            .is_some_and(|it| it.iter().all(|it| members.iter().all(|name| it[*name].is_string())))
    };
    let is_known = match update["sessionUpdate"].as_str() {
        Some("user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk") => {
            is_block(&update["content"]) && optional("messageId")
        }
        Some("session_info_update") => optional("title") && optional("updatedAt"),
        Some("available_commands_update") => list_of("availableCommands", &["name", "description"]),
        Some("current_mode_update") => text("currentModeId"),
        Some("config_option_update") => list_of("configOptions", &["id", "name", "type"]),
        Some("notice") => {
            text("severity") && update["title"].as_str().is_some_and(|it| !it.is_empty())
        }
        Some("compaction_update") => text("compactionId") && text("status"),
        Some("compaction_summary_chunk") => text("compactionId") && is_block(&update["content"]),
        Some(_) | None => false,
    };
    is_known && (update["_meta"].is_null() || update["_meta"].is_object())
}
