//! What was said before a run.

use std::collections::BTreeMap;

use wellspring_core::{AgentNo, Message, RunId};
use wellspring_log::{ReadError, RunFilter, RunInfo, StoreError};

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
        let Some(latest) = self.log().store().info(after).await? else { return Ok(past) };
        if *latest.tenant != *tenant {
            return Ok(past);
        }
        let mut newest_first = Vec::new();
        for info in self.ancestors(latest, HISTORY_RUNS_MAX).await? {
            let transcript = match self.log().transcript(info.run).await {
                Ok(transcript) => transcript,
                // Deleted just now.
                Err(ReadError::NoRun(_)) => continue,
                Err(error) => return Err(error),
            };
            newest_first.push(transcript.messages(AgentNo::ROOT));
            for (origin, handle) in transcript.attached {
                past.sessions.entry(origin).or_insert(handle);
            }
        }
        past.messages = newest_first.into_iter().rev().flatten().collect();
        Ok(past)
    }

    /// A run and those that it continues, newest first, at most `max`. Where one was deleted,
    /// the thread's next older run follows.
    pub(crate) async fn ancestors(
        &self,
        latest: RunInfo,
        max: usize,
    ) -> Result<Vec<RunInfo>, StoreError> {
        let store = self.log().store();
        let mut newest_first: Vec<RunInfo> = Vec::new();
        let mut next = Some(latest);
        while let Some(info) = next.filter(|_| newest_first.len() < max) {
            next = match info.after {
                None => None,
                Some(after) => match store.info(after).await? {
                    Some(found) => Some(found),
                    None => {
                        let filter = RunFilter {
                            tenant: Some(info.tenant.clone()),
                            thread: Some(info.thread),
                            after_run: Some(after),
                            limit: 1,
                            ..RunFilter::default()
                        };
                        store.list(filter).await?.pop()
                    }
                },
            }
            .filter(|found| found.tenant == info.tenant);
            newest_first.push(info);
        }
        Ok(newest_first)
    }
}
