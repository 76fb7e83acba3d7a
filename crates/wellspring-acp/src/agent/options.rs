//! The modes and options of an agent behind us. Our own modes are the agents, so the modes of one
//! of them are an option of the session like its others.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wellspring_core::Extended;
use wellspring_wire::acp::ORIGIN;

use super::session::Session;
use super::{Agent, text};
use crate::client::{SESSION_OPENED, THEIR_MODE};
use crate::rpc::{Reply, RpcError};

/// What the agent of a session can be set to.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// As the protocol has them, each with its current value.
    listed: Vec<Value>,
    /// What the user chose, by the options' ids.
    chosen: BTreeMap<Box<str>, Value>,
}

impl Options {
    /// Learns from what an agent said. Says whether there is something new.
    pub(super) fn learn(&mut self, said: &Extended) -> bool {
        if &*said.origin != ORIGIN {
            return false;
        }
        let options = said.value["configOptions"].as_array();
        match &*said.name {
            SESSION_OPENED => {
                self.listed = options.cloned().unwrap_or_default();
                if self.listed.iter().all(|option| option["category"] != "mode") {
                    self.listed.extend(mode_option(&said.value["modes"]));
                }
                true
            }
            "config_option_update" => {
                let modes = self.listed.iter().find(|it| it["id"] == THEIR_MODE).cloned();
                self.listed = options.cloned().unwrap_or_default();
                self.listed.extend(modes);
                true
            }
            "current_mode_update" => self.set(THEIR_MODE, &said.value["currentModeId"]),
            _ => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// What the user chose.
    pub(super) fn choices(&self) -> Vec<(Box<str>, Value)> {
        self.chosen.iter().map(|(option, value)| (option.clone(), value.clone())).collect()
    }

    pub(super) fn update(&self) -> Value {
        json!({"sessionUpdate": "config_option_update", "configOptions": self.listed})
    }

    fn set(&mut self, option: &str, value: &Value) -> bool {
        let known = self.listed.iter_mut().find(|it| it["id"] == option);
        let Some(known) = known.filter(|known| known["currentValue"] != *value) else {
            return false;
        };
        known["currentValue"] = value.clone();
        true
    }

    /// Notes what the user chose; the agent hears of it before its next prompt.
    fn choose(&mut self, option: &str, value: &Value) -> Result<(), RpcError> {
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

impl Agent {
    pub(super) fn set_option(&self, params: &Value) -> Result<Reply, RpcError> {
        let session = self.session(params)?;
        let option = text(params, "configId")?;
        let mut state = session.state();
        state.options.choose(option, &params["value"])?;
        Ok(json!({"configOptions": state.options.listed}).into())
    }

    /// Tells the client what the options are, if an agent's words change them.
    pub(super) async fn learn(&self, session: &Session, said: &Extended) -> Result<(), RpcError> {
        let update = {
            let options = &mut session.state().options;
            options.learn(said).then(|| options.update())
        };
        match update {
            Some(update) => self.update(session, update).await,
            None => Ok(()),
        }
    }
}
