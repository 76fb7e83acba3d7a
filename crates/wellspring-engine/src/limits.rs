//! Every limit of a run, by name, and whether an agent has reached one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wellspring_core::{AgentOutline, Budget, Stop, Usage};

/// Turns of a run by default. Reaching the limit ends the run with
/// [`Stop::TurnLimit`](wellspring_core::Stop::TurnLimit).
pub const TURNS_DEFAULT: u32 = 10;

/// How many tools of one agent run at the same time: enough to hide waiting, too few to
/// starve the machine.
pub const TOOLS_AT_ONCE_DEFAULT: usize = 8;

/// How deeply agents may call agents. Deeper nesting is almost always a loop.
pub const AGENT_DEPTH_MAX: usize = 4;

/// How often an invalid or missing typed result goes back to the agent for repair.
pub const REPAIRS_DEFAULT: u32 = 3;

/// Attempts at one turn, including the first.
pub const ATTEMPTS_DEFAULT: u32 = 4;

/// Retries over all turns and agents of a run: occasional failures of a provider are
/// retried, but a provider that always fails is not asked for hours.
pub const RETRIES_DEFAULT: u32 = 10;

/// Parts that one attempt may open. No working model opens more.
pub const PARTS_PER_TURN_MAX: usize = 4096;

/// Bytes of arguments that one call may have; they are kept in every outline while it is open.
pub const ARGUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes, as JSON, of a call's result or of one progress report. Models cannot read more,
/// and the log stores it.
pub const TOOL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Calls by a remote agent that wait to run. When the queue is full, the agent waits.
pub const REMOTE_CALLS_WAITING_MAX: usize = 64;

/// How many runs of a thread a model is shown, newest first.
pub const HISTORY_RUNS_MAX: usize = 100;

/// Turns in a row that ask for the same calls and get the same results before the run is
/// stopped.
pub const REPETITIONS_MAX: usize = 4;

/// Budgets of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Turns of one agent.
    pub turns: u32,
    /// Tokens, in and out, over all turns.
    pub tokens: Option<u64>,
    /// Cost over all turns, in the currency that the provider reports.
    pub cost: Option<f64>,
    /// Time, checked at the end of each turn; [`Timeouts::run`] is the hard limit.
    pub time: Option<Duration>,
    /// Tools that run at the same time.
    pub tools_at_once: usize,
    /// Attempts at one turn.
    pub attempts: u32,
    /// Retries over all turns of the run and its sub-agents.
    pub retries: u32,
    /// How often an invalid typed result goes back to the agent for repair.
    pub repairs: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: TURNS_DEFAULT,
            tokens: None,
            cost: None,
            time: None,
            tools_at_once: TOOLS_AT_ONCE_DEFAULT,
            attempts: ATTEMPTS_DEFAULT,
            retries: RETRIES_DEFAULT,
            repairs: REPAIRS_DEFAULT,
        }
    }
}

impl Limits {
    /// Why an agent may not begin another turn, if it has reached a limit.
    pub(crate) fn reached(
        &self,
        agent: &AgentOutline,
        usage: &Usage,
        worked: Duration,
    ) -> Option<Stop> {
        let cost = usage.cost.as_ref().map(|cost| cost.amount);
        if agent.turn >= self.turns && !agent.in_turn {
            Some(Stop::TurnLimit)
        } else if self.tokens.is_some_and(|max| usage.input + usage.output >= max) {
            Some(Stop::Budget(Budget::Tokens))
        } else if self.cost.is_some_and(|max| cost.is_some_and(|cost| cost >= max)) {
            Some(Stop::Budget(Budget::Cost))
        } else if self.time.is_some_and(|max| worked >= max) {
            Some(Stop::Budget(Budget::Time))
        } else {
            None
        }
    }
}

/// A time limit for each kind of waiting. One limit for everything would be too long for
/// connecting and too short for a whole run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until the model has accepted the request. Provider clients have their own limit for
    /// connecting; reading a long prompt is not connecting.
    pub connect: Duration,
    /// From the acceptance of the request to the first content.
    pub first_content: Duration,
    /// The whole answer of a call that does not stream.
    pub whole_answer: Duration,
    /// Between two pieces of content.
    pub between_chunks: Duration,
    /// One whole attempt.
    pub turn: Duration,
    /// A tool without progress.
    pub tool_idle: Duration,
    /// A tool in total.
    pub tool_total: Duration,
    /// The whole run, without its pauses.
    pub run: Duration,
    /// A question, before it expires.
    pub question: Duration,
    /// A call that runs in the client, before it expires. The model gets the expiry as the call's
    /// result.
    pub client_call: Duration,
    /// How long tools and remote agents may take to end after a cancel. After that, they are
    /// dropped.
    pub cancel_grace: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            first_content: Duration::from_secs(120),
            whole_answer: Duration::from_secs(10 * 60),
            between_chunks: Duration::from_secs(60),
            turn: Duration::from_secs(15 * 60),
            tool_idle: Duration::from_secs(2 * 60),
            tool_total: Duration::from_secs(30 * 60),
            run: Duration::from_secs(6 * 60 * 60),
            question: Duration::from_secs(24 * 60 * 60),
            client_call: Duration::from_secs(24 * 60 * 60),
            cancel_grace: Duration::from_secs(2),
        }
    }
}
