//! Threads in lists: titles and order.

use serde::Serialize;
use wellspring_core::{Millis, RunId, ThreadId};

use crate::store::{RunState, StoreError};
use crate::thread_search::{SEARCH_WORDS_MAX, words};

/// Maximum number of threads per list.
pub const THREADS_PAGE_MAX: usize = 200;

/// Maximum length of a thread's title: one long line.
pub const THREAD_TITLE_CHARS_MAX: usize = 200;

/// A thread in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadInfo {
    /// Its id.
    pub thread: ThreadId,
    /// The tenant that it belongs to.
    pub tenant: Box<str>,
    /// The title that was set, otherwise the title of its first run.
    pub title: Box<str>,
    /// Whether it is archived.
    pub archived: bool,
    /// The number of its runs.
    pub runs: u64,
    /// Its newest run.
    pub latest: RunId,
    /// The agent of its newest run.
    pub agent: Box<str>,
    /// The state of its newest run.
    pub state: RunState,
    /// When its first run began.
    pub created_at: Millis,
    /// When the state of its newest run last changed.
    pub updated_at: Millis,
}

/// Selects threads, ordered by their newest runs, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadFilter {
    /// Only threads of this tenant.
    pub tenant: Box<str>,
    /// Only this thread.
    pub thread: Option<ThreadId>,
    /// `true` for archived threads only, `false` for others only; both if `None`.
    pub archived: Option<bool>,
    /// Only threads whose title or finished runs contain, for each of these words, a word that
    /// starts with it; all threads if empty. Case does not matter.
    pub search: Box<str>,
    /// Only threads whose newest run is older than this one: the last one of the previous page.
    pub after: Option<RunId>,
    /// Maximum number of threads; [`THREADS_PAGE_MAX`] if zero or larger.
    pub limit: usize,
}

impl ThreadFilter {
    /// The effective maximum of this page.
    #[must_use]
    pub fn limit_or_max(&self) -> usize {
        if self.limit == 0 { THREADS_PAGE_MAX } else { self.limit.min(THREADS_PAGE_MAX) }
    }

    /// The words to search for, in lower case.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = words(&self.search);
        words.truncate(SEARCH_WORDS_MAX);
        words
    }
}

/// Changes to a thread. Members that are `None` do not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadChange {
    /// The new title. If empty, the title of the first run is used again.
    pub title: Option<Box<str>>,
    /// Whether it is archived.
    pub archived: Option<bool>,
}

impl ThreadChange {
    /// Checks the title.
    ///
    /// # Errors
    ///
    /// If it has more than [`THREAD_TITLE_CHARS_MAX`] characters, or a control character.
    pub fn check(&self) -> Result<(), StoreError> {
        let Some(title) = &self.title else { return Ok(()) };
        if title.chars().count() > THREAD_TITLE_CHARS_MAX {
            return Err(StoreError::BadTitle("it is longer than 200 characters"));
        }
        if title.chars().any(char::is_control) {
            return Err(StoreError::BadTitle("it has a line break or another control character"));
        }
        Ok(())
    }
}
