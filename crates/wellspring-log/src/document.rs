//! Small named values with compare-and-set: tokens, standing approvals, thread titles,
//! positions of channels.
//!
//! A name is a path of segments, such as `token/ci`. Documents are listed by a prefix of whole
//! segments, so that a store whose keys are split into segments can answer the same question.

use crate::store::{Store, StoreError};

/// The most bytes of a document's text. A document is read and replaced as a whole; what is
/// larger belongs into a run or a file.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// The most bytes of a document's name: a few ids and names of people in a row.
pub const DOCUMENT_NAME_BYTES_MAX: usize = 512;

/// The most documents that one listing returns: 64 MiB if every one is as large as possible,
/// and usually less than one.
pub const DOCUMENTS_PAGE_MAX: usize = 1000;

/// A small named value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Document {
    /// Segments separated by `/`. See [`segment`] for segments that contain any text.
    pub name: Box<str>,
    /// Changes with every write and grows; a revision is never used twice for one name, not
    /// even after the document was deleted and created again.
    pub revision: u64,
    /// The value, usually JSON.
    pub text: Box<str>,
}

/// What a write to a document expects to find.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// Anything: the last write wins.
    Anything,
    /// No document of this name.
    Absent,
    /// The document at this revision.
    Revision(u64),
}

impl Expected {
    /// Whether a document at `found`, or no document, is what was expected.
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
    /// The document has this revision now. After a deletion this is the revision that the
    /// deletion had.
    Done(u64),
    /// Something else was found, and nothing changed.
    Conflict(Option<Document>),
}

/// Which documents to list, ordered by name (byte by byte).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DocumentFilter {
    /// Whole segments: empty for all documents, or a text that ends with `/`.
    pub prefix: Box<str>,
    /// Only names after this one: the last name of the page before.
    pub after: Option<Box<str>>,
    /// The most documents to return; [`DOCUMENTS_PAGE_MAX`] if it is zero or larger than that.
    pub limit: usize,
}

impl DocumentFilter {
    /// All documents below a prefix, the first page.
    #[must_use]
    pub fn below(prefix: impl Into<Box<str>>) -> Self {
        Self { prefix: prefix.into(), after: None, limit: 0 }
    }

    /// The most documents that a store returns for this filter.
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
/// When the store fails, or there are more than `max`.
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

/// A segment of a document's name that stands for any text. `/`, `%` and characters that are
/// not printable ASCII are percent-encoded, so that different texts give different segments.
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
    // An empty segment is not allowed; `%` alone never comes from a text.
    if segment.is_empty() { "%".into() } else { segment }
}

/// Checks the name and the size of a document before it is written.
///
/// # Errors
///
/// [`StoreError::BadDocument`] for a name that is not allowed, [`StoreError::Full`] for a text
/// or a name that is too long.
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
