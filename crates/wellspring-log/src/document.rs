//! Small named values with compare-and-set: tokens, standing approvals, thread titles,
//! positions of channels.
//!
//! A name is a path of segments, such as `token/ci`. Documents are listed by a prefix of whole
//! segments, so that a store whose keys are split into segments can answer the same question.

use crate::store::{Store, StoreError};

/// Maximum size of a document's text. A document is read and replaced as a whole; larger data
/// belongs in a run or a file.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a document's name: several ids and user names in a row.
pub const DOCUMENT_NAME_BYTES_MAX: usize = 512;

/// Maximum number of documents per listing: 64 MiB if every document has the maximum size, and
/// usually less than 1 MiB.
pub const DOCUMENTS_PAGE_MAX: usize = 1000;

/// The prefix of documents whose text is the name of the node that holds something. A store may
/// delete such a document if it knows for certain that the node has ended.
pub const HELD: &str = "held/";

/// A small named value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Document {
    /// Segments separated by `/`. See [`segment`] for segments that contain any text.
    pub name: Box<str>,
    /// Increases with every write. A name never gets the same revision twice, not even if the
    /// document was deleted and created again.
    pub revision: u64,
    /// The value, usually JSON.
    pub text: Box<str>,
}

/// The precondition of a write to a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// None: the last write wins.
    Anything,
    /// The document does not exist.
    Absent,
    /// The document has this revision.
    Revision(u64),
}

impl Expected {
    /// Whether a document with revision `found`, or no document, meets the precondition.
    #[must_use]
    pub fn matches(self, found: Option<u64>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => found.is_none(),
            Self::Revision(revision) => found == Some(revision),
        }
    }
}

/// The result of a write to a document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Written {
    /// The document's new revision. For a deletion, the revision of the deletion itself.
    Done(u64),
    /// The precondition failed, and nothing changed. Holds the current document.
    Conflict(Option<Document>),
}

/// Selects documents, ordered by name (byte by byte).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DocumentFilter {
    /// A prefix of whole segments: empty for all documents, or a text that ends with `/`.
    pub prefix: Box<str>,
    /// Only names after this one: the last name of the previous page.
    pub after: Option<Box<str>>,
    /// Maximum number of documents; [`DOCUMENTS_PAGE_MAX`] if zero or larger.
    pub limit: usize,
}

impl DocumentFilter {
    /// The first page of all documents below a prefix.
    #[must_use]
    pub fn below(prefix: impl Into<Box<str>>) -> Self {
        Self { prefix: prefix.into(), after: None, limit: 0 }
    }

    /// The effective maximum for this filter.
    #[must_use]
    pub fn limit_or_max(&self) -> usize {
        if self.limit == 0 { DOCUMENTS_PAGE_MAX } else { self.limit.min(DOCUMENTS_PAGE_MAX) }
    }

    /// Checks the prefix.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadDocument`] if the prefix is not made of whole segments.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.prefix.strip_suffix('/') {
            Some(name) => check_name(name),
            None if self.prefix.is_empty() => Ok(()),
            None => Err(bad(&self.prefix, "a prefix has to end with `/`")),
        }
    }
}

/// Every document below a prefix, page by page.
///
/// Documents that change meanwhile may appear in their old or in their new form.
///
/// # Errors
///
/// If the store fails, or if there are more than `max` documents.
pub async fn all_documents(
    store: &dyn Store,
    prefix: &str,
    max: usize,
) -> Result<Vec<Document>, StoreError> {
    let mut filter = DocumentFilter::below(prefix);
    let mut all = Vec::new();
    loop {
        let page = store.documents(filter.clone()).await?;
        let is_last = page.len() < filter.limit_or_max();
        filter.after = page.last().map(|document| document.name.clone());
        all.extend(page);
        if all.len() > max {
            return Err(StoreError::Full {
                what: "the list of documents",
                max,
                remedy: "delete some of them",
            });
        }
        if is_last {
            return Ok(all);
        }
    }
}

/// Encodes any text as one segment of a document's name. `/`, `%` and characters that are not
/// printable ASCII are percent-encoded, so that different texts give different segments.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'/' && byte != b'%' {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    // An empty segment is not allowed; a lone `%` never results from another text.
    if segment.is_empty() { "%".into() } else { segment }
}

/// Checks the name and the size of a document before it is written.
///
/// # Errors
///
/// [`StoreError::BadDocument`] for an invalid name, [`StoreError::Full`] for a text or a name
/// that is too long.
pub fn check_document(name: &str, text: Option<&str>) -> Result<(), StoreError> {
    check_name(name)?;
    if text.is_some_and(|text| text.len() > DOCUMENT_BYTES_MAX) {
        return Err(StoreError::Full {
            what: "a document",
            max: DOCUMENT_BYTES_MAX,
            remedy: "keep a shorter text",
        });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), StoreError> {
    if name.len() > DOCUMENT_NAME_BYTES_MAX {
        return Err(StoreError::Full {
            what: "the name of a document",
            max: DOCUMENT_NAME_BYTES_MAX,
            remedy: "choose a shorter name",
        });
    }
    if name.split('/').any(str::is_empty) {
        return Err(bad(name, "a segment is empty"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad(name, "a name has printable ASCII characters only"));
    }
    Ok(())
}

fn bad(name: &str, what: &'static str) -> StoreError {
    StoreError::BadDocument { name: name.chars().take(80).collect::<String>().into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_texts_are_different_segments() {
        for (text, want) in [
            ("ci", "ci"),
            ("", "%"),
            ("%", "%25"),
            ("a/b", "a%2Fb"),
            ("a b", "a%20b"),
            ("é", "%C3%A9"),
            ("a%2Fb", "a%252Fb"),
        ] {
            assert_eq!(segment(text), want, "{text}");
            assert!(check_name(&segment(text)).is_ok(), "{text}");
        }
    }
}
