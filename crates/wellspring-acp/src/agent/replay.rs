//! Replays a session from the log when a client loads it.

use wellspring_core::{Event, EventBuffer, Outline, Record, RunId, Seq};
use wellspring_wire::acp::Acp;
use wellspring_wire::{Dialect as _, Out};

use super::Agent;
use super::prompt::Updates;
use super::session::Session;
use crate::rpc::RpcError;

/// Maximum number of a session's runs that are replayed, the latest ones: more than users scroll
/// through.
pub const REPLAY_RUNS_MAX: usize = 1000;

impl Agent {
    /// Sends the client the session's history.
    pub(super) async fn replay(&self, session: &Session) -> Result<(), RpcError> {
        let Some(latest) = self.latest(session.thread).await? else { return Ok(()) };
        let newest_first = self.control.history(latest.run, REPLAY_RUNS_MAX).await;
        let newest_first = newest_first.map_err(|error| RpcError::internal(&error))?;
        for info in newest_first.into_iter().rev() {
            self.replay_run(session, info.run, info.head).await?;
        }
        Ok(())
    }

    async fn replay_run(&self, session: &Session, run: RunId, head: Seq) -> Result<(), RpcError> {
        let failed = |error| RpcError::internal(&error);
        let cursor = self.control.attach(run, Seq(0)).await;
        let mut cursor = cursor.map_err(|error| RpcError::internal(&error))?;
        let (mut acp, mut outline, mut out) = (Acp::default(), Outline::default(), Out::default());
        while cursor.position() < head {
            let Some(frames) = cursor.next().await.map_err(failed)? else { break };
            let records = frames.iter().flat_map(|frame| frame.records());
            for record in joined(records) {
                if Updates::is_for(self.client(), &record) {
                    acp.encode((&outline).into(), &record, &mut out);
                }
                outline.apply(&record);
            }
            self.peer.say(Updates::lines(session, &out)).await?;
            out.clear();
        }
        Ok(())
    }
}

/// Joins adjacent deltas of one part: history need not be sent word by word.
fn joined<'a>(records: impl Iterator<Item = &'a Record>) -> impl Iterator<Item = Record> {
    let mut joined = EventBuffer::default();
    for Record { seq, agent, at, event } in records {
        let place = (*seq, *agent, *at);
        if let Event::PartDelta { part, chunk } = event {
            joined.join(place, *part, chunk, |last, next| {
                last.0 = next.0;
                true
            });
        } else {
            joined.event(place, event.clone());
        }
    }
    joined.into_events().map(|((seq, agent, at), event)| Record { seq, agent, at, event })
}
