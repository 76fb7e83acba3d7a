//! How much and how long: every limit of a run, by name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Turns a run may take unless told otherwise. Reaching it ends the run with
/// [`Stop::TurnLimit`](wellspring_core::Stop::TurnLimit).
pub const TURNS_DEFAULT: u32 = 10;

/// How many tools of one agent run at the same time: enough to hide waiting, too few to
/// starve the machine.
pub const TOOLS_AT_ONCE_DEFAULT: usize = 8;

/// How deeply agents may call agents: deeper nests are loops in disguise.
pub const AGENT_DEPTH_MAX: usize = 4;

/// How often an invalid or missing typed result goes back to the agent.
pub const REPAIRS_DEFAULT: u32 = 3;

/// Attempts at one turn, the first included.
pub const ATTEMPTS_DEFAULT: u32 = 4;

/// Attempts beyond the first ones, over all turns and agents of a run: a provider that fails
/// now and then is borne with, one that fails all the time is not asked for hours.
pub const RETRIES_DEFAULT: u32 = 10;

/// Parts that one attempt may open: a model that opens more is broken.
pub const PARTS_PER_TURN_MAX: usize = 4096;

/// Bytes of arguments that one call may have; they are kept in every outline while it is open.
pub const ARGUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes, as JSON, that a call's result or one report of its progress may have. A model could
/// not read more, and a log keeps it for ever.
pub const TOOL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Calls of our tools by a remote agent that wait for a place to run: beyond, the agent waits.
pub const REMOTE_CALLS_WAITING_MAX: usize = 64;

/// Runs of a thread that a model is shown, the newest ones.
pub const HISTORY_RUNS_MAX: usize = 100;

/// Turns in a row that ask for the same calls and get the same results before the run is
/// stopped.
pub const REPETITIONS_MAX: usize = 4;

/// What a run may spend.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Turns of one agent.
    pub turns: u32,
    /// Tokens, in and out, over all turns.
    pub tokens: Option<u64>,
    /// Money, over all turns, in the currency the provider reports.
    pub cost: Option<f64>,
    /// Time, checked at each turn's edge; [`Timeouts::run`] is the hard limit.
    pub time: Option<Duration>,
    /// Tools at the same time.
    pub tools_at_once: usize,
    /// Attempts at one turn.
    pub attempts: u32,
    /// Attempts beyond the first ones, over all turns of the run and its sub-agents.
    pub retries: u32,
    /// How often an invalid typed result goes back.
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

/// How long each kind of waiting may take. Each has its own limit, because one limit over
/// all is always too long for the first and too short for the last.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until the model has taken the request. A provider's client connects within a limit of
    /// its own; what its server needs to read a long prompt is not connecting.
    pub connect: Duration,
    /// From there to the first content, the head of the answer included.
    pub first_content: Duration,
    /// Between two pieces of content.
    pub between_chunks: Duration,
    /// One attempt in all.
    pub turn: Duration,
    /// A tool without progress.
    pub tool_idle: Duration,
    /// A tool in all.
    pub tool_total: Duration,
    /// The whole run, paused time not counted.
    pub run: Duration,
    /// A question without an answer.
    pub question: Duration,
    /// How long tools and remote agents have to end once cancelled; then they are dropped.
    pub cancel_grace: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            first_content: Duration::from_secs(120),
            between_chunks: Duration::from_secs(60),
            turn: Duration::from_secs(15 * 60),
            tool_idle: Duration::from_secs(2 * 60),
            tool_total: Duration::from_secs(30 * 60),
            run: Duration::from_secs(6 * 60 * 60),
            question: Duration::from_secs(24 * 60 * 60),
            cancel_grace: Duration::from_secs(2),
        }
    }
}
