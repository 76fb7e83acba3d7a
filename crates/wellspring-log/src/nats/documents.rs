//! Writes documents, titles of threads, names of runs, and the audit log.

use wellspring_core::{RunId, ThreadId};

use super::api::How;
use super::projection::Projection;
use super::shared::Shared;
use super::wire::{self, Entry, NameLine};
use crate::audit::NewAudit;
use crate::document::{Expected, Written, check_document};
use crate::lock;
use crate::store::{ExternalId, StoreError};
use crate::thread::ThreadChange;

impl Shared {
    pub(super) async fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        check_document(&name, text.as_deref())?;
        if text.is_some() {
            self.has_room()?;
        }
        let subject = wire::document_subject(&name);
        let how = How { replaces: true, expires: text.is_none(), expected: None };
        let message = self.outgoing(subject, Entry::Document { name: name.clone(), text }, &[])?;
        if expected == Expected::Anything {
            return self.publish(&message, how).await.map(Written::Done);
        }
        let judge = |projection: &Projection| {
            let found = projection.index.documents.get(&name);
            let revision = found.map(|document| document.revision);
            if expected.matches(revision) {
                Ok(revision.unwrap_or_default())
            } else {
                Err(Written::Conflict(found.cloned()))
            }
        };
        let written = self.publish_fenced(&message, how, judge).await?;
        Ok(written.map_or_else(|conflict| conflict, Written::Done))
    }

    pub(super) async fn change_thread(
        &self,
        tenant: &str,
        thread: ThreadId,
        change: ThreadChange,
    ) -> Result<bool, StoreError> {
        change.check()?;
        let _alone = self.deciding(&format!("change.{thread}")).await;
        self.current().await?;
        let changed = lock(&self.projection).index.changed_thread(tenant, thread, change);
        let Some((title, archived)) = changed else { return Ok(false) };
        let entry = Entry::Title { title, archived };
        let message = self.outgoing(wire::title_subject(thread), entry, &[])?;
        let how = How { replaces: true, ..How::default() };
        self.publish(&message, how).await.map(|_| true)
    }

    pub(super) async fn bind(&self, external: ExternalId, run: RunId) -> Result<RunId, StoreError> {
        let name = NameLine::from(external.clone());
        let subject = wire::name_subject(&name);
        let message = self.outgoing(subject, Entry::Name { name, run }, &[])?;
        let judge = |projection: &Projection| match projection.index.resolve(&external) {
            Some(bound) => Err(Ok(bound)),
            None => projection.index.kept(run).map(|_| 0).map_err(Err),
        };
        match self.publish_fenced(&message, How::default(), judge).await? {
            Ok(_) => Ok(run),
            Err(decided) => decided,
        }
    }

    pub(super) async fn put_audit(&self, new: NewAudit) -> Result<u64, StoreError> {
        let (tenant, key) = (new.tenant.clone(), new.key.clone());
        let known = || lock(&self.projection).index.audit_number(&tenant, &key);
        if let Some(number) = known() {
            return Ok(number);
        }
        self.has_room()?;
        let subject = wire::audit_subject(&tenant);
        let message = self.outgoing(subject.clone(), Entry::Audit(Box::new(new.into())), &[])?;
        let sequence = self.publish(&message, How::default()).await?;
        // Of two entries with the same key, the first one counts.
        let number = known().unwrap_or(sequence);
        let oldest = lock(&self.projection).index.audit_excess(&tenant);
        if let Some(oldest) = oldest {
            self.api.purge(&subject, oldest).await?;
        }
        Ok(number)
    }
}
