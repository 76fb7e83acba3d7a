//! The conversation before a run.

use std::collections::BTreeMap;

use wellspring_core::{AgentNo, Message, RunId};
use wellspring_log::ReadError;

use super::Runtime;
use crate::limits::HISTORY_RUNS_MAX;

/// The conversation that leads to a run.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) messages: Vec<Message>,
    /// The handles of the remote sessions that it used, by origin.
    pub(crate) sessions: BTreeMap<Box<str>, serde_json::Value>,
}

impl Runtime {
    /// The conversation that leads to a run of this tenant that continues `after`.
    pub(crate) async fn past(&self, tenant: &str, after: Option<RunId>) -> Result<Past, ReadError> {
        let mut past = Past::default();
        let Some(after) = after else { return Ok(past) };
        let mut newest_first = Vec::new();
        for (info, transcript) in self.log().history(after, HISTORY_RUNS_MAX).await? {
            if *info.tenant != *tenant {
                break;
            }
            newest_first.push(transcript.messages(AgentNo::ROOT));
            for (origin, handle) in transcript.attached {
                past.sessions.entry(origin).or_insert(handle);
            }
        }
        past.messages = newest_first.into_iter().rev().flatten().collect();
        Ok(past)
    }
}
