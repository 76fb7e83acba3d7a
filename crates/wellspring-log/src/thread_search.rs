//! Search over threads: the words of a text, and the text of a run that is searched.
//!
//! A word is found by its beginning, whatever its case. SQLite keeps its own full-text index
//! (`sqlite/threads.rs`); the other stores use [`has_words`].

use wellspring_core::{AgentNo, Transcript};

/// Maximum bytes of a run's searchable text: the question and the start of a long answer. More
/// would make the index larger than the runs.
pub const SEARCH_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of words per search; further ones are ignored.
pub const SEARCH_WORDS_MAX: usize = 16;

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
pub(crate) fn search_text(transcript: &Transcript) -> Box<str> {
    let started = transcript.started.as_ref();
    let input = started.iter().flat_map(|started| &started.request.input);
    let mut text = String::new();
    for content in input.filter_map(|content| content.as_text()) {
        text.push_str(content);
        text.push('\n');
    }
    text.push_str(&transcript.words(AgentNo::ROOT));
    let end = text.floor_char_boundary(SEARCH_BYTES_MAX);
    text.truncate(end);
    text.into()
}
