//! Threads in lists: titles, order, and search.

use serde::Serialize;
use wellspring_core::{Millis, RunId, ThreadId};

use crate::store::{RunState, StoreError};

/// Maximum number of threads per list.
pub const THREADS_PAGE_MAX: usize = 200;

/// Maximum length of a thread's title: one long line.
pub const THREAD_TITLE_CHARS_MAX: usize = 200;

/// Maximum bytes of a run's searchable text: the question and the start of a long answer. More
/// would make the index larger than the runs.
pub const SEARCH_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of words per search; further ones are ignored.
pub const SEARCH_WORDS_MAX: usize = 16;

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

/// The words of a text, in lower case.
pub(crate) fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Whether a text has a word that begins with each of these.
pub(crate) fn has_words(text: &str, wanted: &[String]) -> bool {
    let words = words(text);
    wanted.iter().all(|wanted| words.iter().any(|word| word.starts_with(&**wanted)))
}

/// The searchable text of a finished run.
pub(crate) fn search_text(transcript: &wellspring_core::Transcript) -> Box<str> {
    let started = transcript.started.as_ref();
    let input = started.iter().flat_map(|started| &started.request.input);
    let mut text = String::new();
    for content in input.filter_map(|content| content.as_text()) {
        text.push_str(content);
        text.push('\n');
    }
    text.push_str(&transcript.words(wellspring_core::AgentNo::ROOT));
    let end = text.floor_char_boundary(SEARCH_BYTES_MAX);
    text.truncate(end);
    text.into()
}
