//! Documents of a surface: data that it stores besides runs, such as positions and settings.

use wellspring_core::{QuestionId, RunId};
use wellspring_log::document::{all_documents, segment};
use wellspring_log::{Document, Expected, Written};

use super::audit::Entry;
use super::key::Key;
use super::{Control, ControlError};
use crate::principal::Permission;

/// Maximum number of documents that a surface may list at once: one per chat of a large bot.
pub const SURFACE_DOCUMENTS_MAX: usize = 100_000;

/// The documents of one surface in one tenant. Other surfaces and tenants cannot see them.
///
/// ```
/// use wellspring_engine::{Permission, Principal, Runtime};
/// use wellspring_log::{Expected, Log, Written};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// let documents = runtime.control(Principal::new("acme", "bot", [Permission::Run])).documents("bot")?;
/// let Written::Done(revision) = documents.put("position", Some("7"), Expected::Absent).await? else {
///     unreachable!("there was no document");
/// };
/// assert_eq!(documents.get("position").await?.map(|it| it.revision), Some(revision));
/// let stale = documents.put("position", Some("8"), Expected::Absent).await?;
/// assert!(matches!(stale, Written::Conflict(Some(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Documents {
    control: Control,
    prefix: Box<str>,
}

impl Control {
    /// The documents of a surface in the principal's tenant. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If the principal may not start runs.
    pub fn documents(&self, surface: &str) -> Result<Documents, ControlError> {
        self.permit(Permission::Run)?;
        let prefix = format!("surface/{}/{}/", segment(&self.who.tenant), segment(surface));
        Ok(Documents { control: self.clone(), prefix: prefix.into() })
    }

    /// Records in the audit log that the principal's attempt to answer a question was refused.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn audit_refusal(
        &self,
        run: RunId,
        question: QuestionId,
    ) -> Result<(), ControlError> {
        let info = self.find(run).await?;
        let key = Key::Refusal { question, by: &self.who.id }.encode();
        let entry = self.audited(&info, &key, Entry::refused(question));
        self.log().store().put_audit(entry).await?;
        Ok(())
    }
}

impl Documents {
    /// A document.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn get(&self, name: &str) -> Result<Option<Document>, ControlError> {
        let found = self.store().document(self.name(name)).await?;
        Ok(found.map(|document| self.relative(document)))
    }

    /// Writes a document, or deletes it, if the precondition holds.
    ///
    /// # Errors
    ///
    /// If the name or the text is not allowed, or the store fails.
    pub async fn put(
        &self,
        name: &str,
        text: Option<&str>,
        expected: Expected,
    ) -> Result<Written, ControlError> {
        let text = text.map(Into::into);
        let written = self.store().put_document(self.name(name), text, expected).await?;
        Ok(match written {
            Written::Conflict(found) => {
                Written::Conflict(found.map(|document| self.relative(document)))
            }
            Written::Done(revision) => Written::Done(revision),
        })
    }

    /// All documents whose name begins with a prefix of whole segments, ordered by name.
    ///
    /// # Errors
    ///
    /// If there are more than [`SURFACE_DOCUMENTS_MAX`], or the store fails.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Document>, ControlError> {
        let prefix = format!("{}{prefix}", self.prefix);
        let found = all_documents(&**self.store(), &prefix, SURFACE_DOCUMENTS_MAX).await?;
        Ok(found.into_iter().map(|document| self.relative(document)).collect())
    }

    fn store(&self) -> &std::sync::Arc<dyn wellspring_log::Store> {
        self.control.log().store()
    }

    fn name(&self, name: &str) -> Box<str> {
        format!("{}{name}", self.prefix).into()
    }

    fn relative(&self, document: Document) -> Document {
        let name = document.name.strip_prefix(&*self.prefix).unwrap_or(&document.name).into();
        Document { name, ..document }
    }
}
