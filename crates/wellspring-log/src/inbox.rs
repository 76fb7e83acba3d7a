//! A run's inbox: what it takes, and how much of it.

use std::collections::BTreeMap;

use wellspring_core::{Command, Event, InboxNo, RunId};

use crate::audit::NewAudit;
use crate::store::{RunState, StoreError};

/// The most inputs and amendments that wait in a run's inbox: far more than people send, and
/// few enough to read at once at a take-over.
pub const INBOX_MAX: usize = 4096;

/// The most answers and results of client calls that wait in a run's inbox. They have room of
/// their own, so that waiting inputs never keep an answer out.
pub const INBOX_ANSWERS_MAX: usize = 1024;

/// The most cancellations that wait in a run's inbox. They have room of their own, so that
/// nothing else ever keeps a cancellation out.
pub const INBOX_CANCELS_MAX: usize = 1024;

/// A command on its way into an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCommand {
    /// What makes it unique in its inbox.
    pub key: Box<str>,
    /// The command.
    pub command: Command,
    /// The audit entry about it, kept in the same step if the command is new. A store that
    /// cannot do both in one step keeps the entry first.
    pub audit: Option<NewAudit>,
}

/// A command that is durable and whose effect is not in the log yet.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxEntry {
    /// Its place.
    pub number: InboxNo,
    /// What makes it unique in its inbox.
    pub key: Box<str>,
    /// The command.
    pub command: Command,
}

/// The result of putting commands into an inbox together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PutAll {
    /// All are there, in the order they were given.
    Done(Vec<Put>),
    /// The key of one of them holds a different command. Nothing was put.
    KeyTaken {
        /// Which of the commands.
        index: usize,
        /// The entry that has its key.
        number: InboxNo,
    },
}

/// A command that is in an inbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Put {
    /// Its place.
    pub number: InboxNo,
    /// Whether the same command was there before, under the same key.
    pub existed: bool,
}

/// The commands that share a maximum.
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
    /// The room that a command takes.
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

/// What to do to put commands together: what the caller is told, and which are new.
pub(crate) enum Plan {
    Put { puts: Vec<Put>, new: Vec<(InboxNo, NewCommand)> },
    KeyTaken { index: usize, number: InboxNo },
}

/// Decides what putting commands means for an inbox. `find` gives the entry of a key, whether
/// or not it has taken effect; `waiting` counts the entries that have not.
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
        // Most inboxes never held that many: then nothing is counted.
        if last.0 as usize + added > room.max() && waiting(room)? + added > room.max() {
            let remedy = "wait until the run has taken some, or has finished";
            return Err(
                StoreError::Full { what: "the run's inbox", max: room.max(), remedy }.into()
            );
        }
    }
    Ok(Plan::Put { puts, new })
}

/// The inbox entry whose effect an event is.
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
