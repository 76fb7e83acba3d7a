//! Members of an update that we do not understand. They are kept with the understood members
//! and written again with them, so that a client gets everything that a proxied agent sent.

use serde_json::{Map, Value, json};

use super::read::{has_sound_meta, is_block};
use super::validate::{is_command, is_option};

/// The log's name for these members. As an annotation, they belong to the part's next delta; as
/// an extended event, to the next record that becomes an update of the same kind.
pub(super) const REST: &str = "rest";

/// Our own key in `_meta`.
pub(super) const OURS: &str = "wellspring";

/// The members of an object except these. Null counts as absent.
pub(super) fn left(of: &Value, understood: &[&str]) -> Map<String, Value> {
    let members = of.as_object().into_iter().flatten();
    let others =
        members.filter(|(name, value)| !understood.contains(&name.as_str()) && !value.is_null());
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The members of an object except these, without an invalid `_meta`.
#[must_use]
pub fn members_except(of: &Value, understood: &[&str]) -> Value {
    let mut others = left(of, understood);
    if !has_sound_meta(of) {
        others.shift_remove("_meta");
    }
    others.into()
}

/// Merges `rest` into an update. Objects are merged recursively; for other values, those in
/// `rest` win.
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

/// Adds a value to a message's `_meta`.
pub fn carry(into: &mut Value, odd: &Value) {
    if odd.as_object().is_some_and(|odd| !odd.is_empty()) {
        merge(into, &json!({"_meta": {OURS: odd}}));
    }
}

/// Wraps an update that the protocol does not define in one that it defines. Clients may reject
/// unknown updates, but `_meta` may hold anything.
pub(super) fn carried(update: &Value) -> Value {
    json!({"sessionUpdate": "session_info_update", "_meta": {OURS: {"update": update}}})
}

/// Returns whether an update can be sent unchanged: its kind is known and its shape is valid.
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
