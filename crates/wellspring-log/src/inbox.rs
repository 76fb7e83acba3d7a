//! A run's inbox: its commands and its limits.

use std::collections::BTreeMap;

use wellspring_core::{Command, Event, InboxNo, RunId};

use crate::audit::NewAudit;
use crate::store::{RunState, StoreError};

/// Maximum number of inputs and amendments that wait in a run's inbox: far more than people
/// send, and few enough to read at once when a run is adopted.
pub const INBOX_MAX: usize = 4096;

/// Maximum number of answers and client results that wait in a run's inbox. They have a limit
/// of their own, so that waiting inputs never block an answer.
pub const INBOX_ANSWERS_MAX: usize = 1024;

/// Maximum number of cancellations that wait in a run's inbox. They have a limit of their own,
/// so that other commands never block a cancellation.
pub const INBOX_CANCELS_MAX: usize = 1024;

/// A command to put into an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCommand {
    /// The idempotency key, unique within the inbox.
    pub key: Box<str>,
    /// The command.
    pub command: Command,
    /// The audit entry about it, written in the same step if the command is new. A store that
    /// cannot do both in one step writes the audit entry first.
    pub audit: Option<NewAudit>,
}

/// A durable command whose effect is not in the log yet.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxEntry {
    /// Its number within the inbox.
    pub number: InboxNo,
    /// The idempotency key, unique within the inbox.
    pub key: Box<str>,
    /// The command.
    pub command: Command,
}

/// The result of putting several commands into an inbox together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PutAll {
    /// All are in the inbox, in the given order.
    Done(Vec<Put>),
    /// The key of one command belongs to a different command. Nothing was put.
    KeyTaken {
        /// The index of the command.
        index: usize,
        /// The entry that has the key.
        number: InboxNo,
    },
}

/// A command that is in an inbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Put {
    /// Its number within the inbox.
    pub number: InboxNo,
    /// Whether the same command was already there under the same key.
    pub existed: bool,
}

/// The commands that share a limit.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum InboxRoom {
    /// Inputs and amendments: [`INBOX_MAX`].
    Inputs,
    /// Answers and results of client calls: [`INBOX_ANSWERS_MAX`].
    Answers,
    /// Cancellations: [`INBOX_CANCELS_MAX`].
    Cancels,
}

impl InboxRoom {
    /// The group that a command belongs to.
    #[must_use]
    pub const fn of(command: &Command) -> Self {
        match command {
            Command::AddInput { .. } | Command::Resume { .. } => Self::Inputs,
            Command::Answer { .. } | Command::FinishCall { .. } => Self::Answers,
            Command::Cancel { .. } => Self::Cancels,
        }
    }

    const fn max(self) -> usize {
        match self {
            Self::Inputs => INBOX_MAX,
            Self::Answers => INBOX_ANSWERS_MAX,
            Self::Cancels => INBOX_CANCELS_MAX,
        }
    }
}

/// How to put commands together: the result for the caller, and which commands are new.
pub(crate) enum Plan {
    Put { puts: Vec<Put>, new: Vec<(InboxNo, NewCommand)> },
    KeyTaken { index: usize, number: InboxNo },
}

/// Plans how to put commands into an inbox. `find` returns the entry with a key, also if it has
/// taken effect; `waiting` counts the entries that have not.
pub(crate) fn plan<E: From<StoreError>>(
    run: RunId,
    state: RunState,
    commands: Vec<NewCommand>,
    last: InboxNo,
    mut find: impl FnMut(&str) -> Result<Option<(InboxNo, Command)>, E>,
    mut waiting: impl FnMut(InboxRoom) -> Result<usize, E>,
) -> Result<Plan, E> {
    let (mut puts, mut new) =
        (Vec::with_capacity(commands.len()), Vec::<(InboxNo, NewCommand)>::new());
    let mut added = BTreeMap::<InboxRoom, usize>::new();
    for (index, wanted) in commands.into_iter().enumerate() {
        let here = new.iter().find(|(_, new)| new.key == wanted.key);
        let found = match here {
            Some((number, new)) => Some((*number, new.command.clone())),
            None => find(&wanted.key)?,
        };
        match found {
            Some((number, command)) if command == wanted.command => {
                puts.push(Put { number, existed: true });
            }
            Some((number, _)) => return Ok(Plan::KeyTaken { index, number }),
            None => {
                let number = InboxNo(last.0 + new.len() as u64 + 1);
                *added.entry(InboxRoom::of(&wanted.command)).or_default() += 1;
                puts.push(Put { number, existed: false });
                new.push((number, wanted));
            }
        }
    }
    if !new.is_empty() && state.is_final() {
        return Err(StoreError::Finished(run).into());
    }
    for (room, added) in added {
        // Most inboxes never held that many entries, so nothing needs to be counted.
        if last.0 as usize + added > room.max() && waiting(room)? + added > room.max() {
            let remedy = "wait until the run has taken some, or has finished";
            return Err(
                StoreError::Full { what: "the run's inbox", max: room.max(), remedy }.into()
            );
        }
    }
    Ok(Plan::Put { puts, new })
}

/// The inbox entry whose effect this event is.
pub(crate) fn taken_by(event: &Event) -> Option<InboxNo> {
    if let Event::RunResumed { inbox, .. } = event {
        *inbox
    } else if let Event::ToolFinished { result, .. } = event {
        result.inbox
    } else if let Event::QuestionAnswered(answered) = event {
        answered.inbox
    } else if let Event::InputAccepted { inbox, .. } = event {
        Some(*inbox)
    } else {
        None
    }
}
