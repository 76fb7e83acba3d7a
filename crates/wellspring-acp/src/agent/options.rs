//! The modes and options of a proxied agent. Our own modes are the agents, so a proxied agent's
//! modes become an option of the session.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wellspring_wire::acp::{carry, members_except, merge, part_offers};

use crate::client::{SESSION_OPENED, THEIR_MODE};
use crate::rpc::RpcError;

/// The modes and options of a session's agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    /// The options in the protocol's form, each with its current value.
    listed: Vec<Value>,
    /// The user's choices, by option id.
    chosen: BTreeMap<Box<str>, Value>,
    /// The agent's own modes, in the protocol's form.
    modes: Value,
    /// Options that do not have the protocol's form.
    odd: Value,
    /// Further members of the agent's last message about its options.
    more: Value,
}

impl Default for Options {
    fn default() -> Self {
        let (odd, more) = (json!({}), json!({}));
        Self { listed: Vec::new(), chosen: BTreeMap::new(), modes: Value::Null, odd, more }
    }
}

impl Options {
    /// Applies an agent's message, given by its name and parameters. Returns whether anything changed.
    pub(super) fn learn(&mut self, name: &str, said: &Value) -> bool {
        let before = self.clone();
        let (mut sound, odd) = part_offers(said);
        let options = sound["configOptions"].as_array().cloned();
        match name {
            SESSION_OPENED => {
                self.listed = options.unwrap_or_default();
                (self.modes, self.odd) = (sound["modes"].take(), odd);
                if self.listed.iter().all(|option| option["category"] != "mode") {
                    self.listed.extend(mode_option(&self.modes));
                }
            }
            "config_option_update" => {
                if let Some(options) = options {
                    let modes = self.listed.iter().find(|it| it["id"] == THEIR_MODE).cloned();
                    self.listed = options;
                    self.listed.extend(modes);
                }
                let others = members_except(&self.odd, &["configOptions"]);
                self.odd = members_except(&odd, &["modes", "availableCommands"]);
                merge(&mut self.odd, &others);
                self.more = members_except(said, &["sessionUpdate", "configOptions"]);
            }
            "current_mode_update" if said["currentModeId"].is_string() => {
                self.set(THEIR_MODE, &said["currentModeId"]);
            }
            _ => {}
        }
        before != *self
    }

    /// Options that do not have the protocol's form, by name. Usually empty.
    pub(super) fn odd(&self) -> &Value {
        &self.odd
    }

    /// Further members of the agent's modes.
    pub(super) fn about_modes(&self) -> Value {
        members_except(&self.modes, &["currentModeId", "availableModes"])
    }

    /// All options, in the protocol's form.
    pub(super) fn listed(&self) -> &[Value] {
        &self.listed
    }

    /// The agent's own modes.
    pub(super) fn modes(&self) -> &[Value] {
        self.modes["availableModes"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The agent's current mode among its own.
    pub(super) fn mode(&self) -> Option<&str> {
        self.modes["currentModeId"].as_str()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The user's choices.
    pub(super) fn choices(&self) -> Vec<(Box<str>, Value)> {
        self.chosen.iter().map(|(option, value)| (option.clone(), value.clone())).collect()
    }

    pub(super) fn update(&self) -> Value {
        let mut update =
            json!({"sessionUpdate": "config_option_update", "configOptions": self.listed});
        merge(&mut update, &self.more);
        carry(&mut update, &members_except(&self.odd, &["modes", "availableCommands"]));
        update
    }

    fn set(&mut self, option: &str, value: &Value) {
        if option == THEIR_MODE && self.modes.is_object() {
            self.modes["currentModeId"] = value.clone();
        }
        if let Some(known) = self.listed.iter_mut().find(|it| it["id"] == option) {
            known["currentValue"] = value.clone();
        }
    }

    /// Stores the user's choice of one of the agent's own modes.
    pub(super) fn choose_mode(&mut self, mode: &str) -> Result<(), RpcError> {
        if self.modes().iter().all(|it| it["id"] != mode) {
            return Err(RpcError::invalid(format!("the agent has no mode {mode:?}")));
        }
        self.set(THEIR_MODE, &mode.into());
        self.chosen.insert(THEIR_MODE.into(), mode.into());
        Ok(())
    }

    /// Forgets choices that the agent refused; the agent's own values count.
    pub(super) fn take_back(&mut self, option: &str, said: &Value) {
        self.chosen.remove(option);
        self.learn(SESSION_OPENED, said);
    }

    /// Stores the user's choice. The agent gets it immediately, or before its next prompt.
    pub(super) fn choose(&mut self, option: &str, value: &Value) -> Result<(), RpcError> {
        let Some(known) = self.listed.iter().find(|it| it["id"] == option) else {
            return Err(RpcError::invalid(format!("there is no option {option:?}")));
        };
        let values = known["options"].as_array();
        let is_there =
            values.map_or(value.is_boolean(), |values| values.iter().any(|it| has(it, value)));
        if !is_there {
            return Err(RpcError::invalid(format!("the option {option:?} cannot be {value}")));
        }
        self.set(option, value);
        self.chosen.insert(option.into(), value.clone());
        Ok(())
    }
}

/// Whether a value is listed, in a group or by itself.
fn has(listed: &Value, value: &Value) -> bool {
    let group = listed["options"].as_array().into_iter().flatten();
    listed["value"] == *value || group.into_iter().any(|it| it["value"] == *value)
}

/// An agent's modes as an option.
fn mode_option(modes: &Value) -> Option<Value> {
    let values = modes["availableModes"].as_array()?.iter().map(|mode| {
        let mut value = json!({"value": mode["id"], "name": mode["name"]});
        if let Some(description) = mode["description"].as_str() {
            value["description"] = description.into();
        }
        value
    });
    Some(json!({
        "id": THEIR_MODE, "name": "Mode of the agent", "type": "select",
        "currentValue": modes["currentModeId"], "options": values.collect::<Vec<_>>(),
    }))
}
