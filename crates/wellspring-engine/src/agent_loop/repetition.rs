//! Stops an agent that repeats itself: the same calls with the same results, turn after turn.

use wellspring_core::{AgentNo, FailureKind, Outcome, Transcript};

use super::{calls, turns};
use crate::limits::REPETITIONS_MAX;

/// The outcome if the agent's last turns all made the same calls and got the same results.
pub(super) fn repetition(transcript: &Transcript, agent: AgentNo) -> Option<Outcome> {
    repeats_itself(transcript, agent).then(|| Outcome::Failed {
        kind: FailureKind::Repetition,
        message: format!(
            "the agent made the same calls with the same results {REPETITIONS_MAX} times in a row"
        )
        .into(),
        retryable: false,
    })
}

fn repeats_itself(transcript: &Transcript, agent: AgentNo) -> bool {
    let mut said = turns(transcript, agent).map(|turn| {
        calls(transcript, turn)
            .map(|(call, part)| {
                let result = part.call.as_ref().and_then(|call| call.finished.as_ref());
                (&call.name, &part.text, result.map(|(_, result)| &result.output))
            })
            .collect::<Vec<_>>()
    });
    let Some(last) = said.next().filter(|calls| !calls.is_empty()) else { return false };
    let same = said.take(REPETITIONS_MAX - 1).filter(|earlier| *earlier == last).count();
    same == REPETITIONS_MAX - 1
}
