//! Validates what an agent offers in a session: its modes, options and commands. Clients may
//! reject invalid entries, so these are separated from valid ones.

use serde_json::{Map, Value};

use super::read::has_sound_meta;

/// Splits an agent's offers into two objects with the same members (`modes`, `configOptions`,
/// `availableCommands`): the first holds the valid entries, the second the invalid ones.
///
/// ```
/// use serde_json::json;
/// use wellspring_wire::acp::part_offers;
///
/// let command = json!({"name": "compact", "description": "Makes room"});
/// let said = json!({"availableCommands": [command, {"name": 3}]});
/// let (sound, odd) = part_offers(&said);
/// assert_eq!(sound, json!({"availableCommands": [command]}));
/// assert_eq!(odd, json!({"availableCommands": [{"name": 3}]}));
/// ```
#[must_use]
pub fn part_offers(said: &Value) -> (Value, Value) {
    let (mut sound, mut odd) = (Map::new(), Map::new());
    let lists = [("configOptions", is_option as Fits), ("availableCommands", is_command)];
    for (name, fits) in lists {
        if let Some(listed) = said[name].as_array() {
            let (fit, rest) = part(listed, fits);
            sound.insert(name.into(), fit.into());
            if !rest.is_empty() {
                odd.insert(name.into(), rest.into());
            }
        } else if !said[name].is_null() {
            odd.insert(name.into(), said[name].clone());
        }
    }
    let modes = &said["modes"];
    let listed = modes["availableModes"].as_array();
    if let (Some(listed), true, true) =
        (listed, is_text(modes, "currentModeId"), has_sound_meta(modes))
    {
        let (fit, rest) = part(listed, is_mode);
        let mut modes = modes.clone();
        modes["availableModes"] = fit.into();
        sound.insert("modes".into(), modes);
        if !rest.is_empty() {
            odd.insert("modes".into(), rest.into());
        }
    } else if !modes.is_null() {
        odd.insert("modes".into(), modes.clone());
    }
    (sound.into(), odd.into())
}

/// Whether an entry is valid.
type Fits = fn(&Value) -> bool;

fn part(listed: &[Value], fits: Fits) -> (Vec<Value>, Vec<Value>) {
    listed.iter().cloned().partition(|it| fits(it) && has_sound_meta(it))
}

fn is_text(of: &Value, name: &str) -> bool {
    of[name].is_string()
}

fn is_text_or_none(of: &Value, name: &str) -> bool {
    of[name].is_null() || is_text(of, name)
}

fn is_mode(mode: &Value) -> bool {
    is_text(mode, "id") && is_text(mode, "name") && is_text_or_none(mode, "description")
}

pub(super) fn is_command(command: &Value) -> bool {
    let input = &command["input"];
    let input = input.is_null() || is_text(input, "hint") && has_sound_meta(input);
    is_text(command, "name") && is_text(command, "description") && input
}

/// Whether an option is valid for its type.
pub(super) fn is_option(option: &Value) -> bool {
    let is_value = |it: &Value| {
        is_text(it, "value")
            && is_text(it, "name")
            && is_text_or_none(it, "description")
            && has_sound_meta(it)
    };
    let is_group = |it: &Value| {
        let values = it["options"].as_array();
        let values = values.is_some_and(|it| it.iter().all(is_value));
        is_text(it, "group") && is_text(it, "name") && values && has_sound_meta(it)
    };
    let shape = match option["type"].as_str() {
        Some("select") => {
            let listed = option["options"].as_array();
            is_text(option, "currentValue")
                && listed.is_some_and(|it| it.iter().all(is_value) || it.iter().all(is_group))
        }
        Some("boolean") => option["currentValue"].is_boolean(),
        Some(_) | None => false,
    };
    let about = ["description", "category"].iter().all(|name| is_text_or_none(option, name));
    shape && about && is_text(option, "id") && is_text(option, "name")
}
