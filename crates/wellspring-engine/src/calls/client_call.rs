//! Calls that run in the client: waiting for their result, until they expire.

use wellspring_core::{Millis, PartId, ToolOutcome, ToolResult, Transcript};

use super::Verdict;
use crate::agent::AgentDef;
use crate::agent_loop::AgentWork;
use crate::run::activity::Busy;

impl AgentWork {
    /// Waits for the client's result.
    pub(super) async fn await_client(&self, call: PartId, busy: Busy) -> (Verdict, Busy) {
        drop(busy);
        let expires_at =
            self.run.folded(|transcript| client_call_expiry(transcript, call, &self.run.def));
        let verdict = tokio::select! {
            biased;
            () = self.run.client_result(call) => Verdict::Nothing,
            () = self.run.signal.cancelled() => Verdict::Nothing,
            () = self.run.until(expires_at) => self.expire_client_call(call),
        };
        (verdict, self.run.activity.busy())
    }

    /// The client gave no result in time. A later result is ignored.
    fn expire_client_call(&self, call: PartId) -> Verdict {
        if !self.run.close_client_call(call) {
            return Verdict::Nothing;
        }
        let limit = self.run.def.timeouts.client_call.as_secs_f32();
        let message = format!("timed out: the client gave no result within {limit} s");
        Verdict::Result(ToolOutcome::TimedOut, ToolResult::new(message))
    }
}

/// When a call that runs in a client expires: counted from when the call was complete.
pub(crate) fn client_call_expiry(
    transcript: &Transcript,
    call: PartId,
    def: &AgentDef,
) -> Option<Millis> {
    Some(transcript.parts.get(&call)?.updated_at.plus(def.timeouts.client_call))
}
