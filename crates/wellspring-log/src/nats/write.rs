//! Writes to the stream: runs, frames, snapshots, commands, names, documents and the audit log.

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wellspring_core::{InboxNo, RunId, Seq, ThreadId};

use super::api::{How, PublishError};
use super::projection::Projection;
use super::shared::{STALL, Shared};
use super::wire::{self, DeletedLine, Entry, FrameLine, InboxLine, NameLine, OVERHEAD_BYTES};
use crate::audit::NewAudit;
use crate::document::{Expected, Written, check_document};
use crate::inbox::{InboxEntry, NewCommand, Plan, PutAll};
use crate::lock;
use crate::store::{
    Append, AppendError, Created, ExternalId, NewFrame, NewRun, SnapshotKind, StoreError,
};
use crate::thread::ThreadChange;

/// Maximum size of a snapshot in bytes; a larger one is not stored.
const FOLD_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Shared {
    pub(super) async fn create(&self, new: NewRun, first: NewFrame) -> Result<Created, StoreError> {
        let too_large = |error| StoreError::failed("creating a run", error);
        first.check_size(self.frame_bytes_max()).map_err(too_large)?;
        self.has_room()?;
        let run = new.run;
        let line = Entry::Frame(Box::new(FrameLine::of_new(&new, &first)));
        let frame = self.outgoing(wire::run_subject(run), line, &[&first.body])?;
        let fence = |subject| self.outgoing(subject, Entry::Fence { run }, &[]);
        let mut batch = vec![(fence(wire::thread_subject(new.thread))?, None)];
        if let Some(name) = new.name.clone() {
            batch.push((fence(wire::name_subject(&name.into()))?, None));
        }
        batch.push((frame, None));
        let id = batch.last().map(|(frame, _)| frame.id.clone()).unwrap_or_default();
        let _alone = self.alone(&batch[0].0.subject).await;
        let _open = self.batches.acquire().await;
        let until = Instant::now() + self.api.settle;
        let mut is_current = false;
        loop {
            let refused = {
                let projection = lock(&self.projection);
                let here = projection.index.runs.get(&run);
                if here.is_some_and(|kept| kept.frames.created_by == id) {
                    return Ok(Created::New);
                }
                batch[0].1.get_or_insert(projection.thread_sequence(new.thread));
                projection.index.refuses(&new)
            };
            match refused {
                Some(refused) if is_current => return Ok(refused),
                Some(_) => {
                    self.current().await?;
                    is_current = true;
                    continue;
                }
                None => {}
            }
            for (_, expected) in &mut batch {
                expected.get_or_insert(0);
            }
            let failed = match self.api.publish_batch(&batch).await {
                Ok(sequence) => {
                    self.applied_to(sequence).await?;
                    continue;
                }
                Err(PublishError::Store(error)) => Some(error),
                Err(PublishError::Conflict) => None,
            };
            if Instant::now() >= until {
                let cause = || StoreError::failed("creating a run", "others create it, too");
                return Err(failed.unwrap_or_else(cause));
            }
            if failed.is_some() {
                sleep(STALL).await;
            }
            for (message, expected) in &mut batch {
                *expected = match self.last_of(&message.subject, &message.id).await? {
                    Ok(last) | Err(last) => Some(last),
                };
            }
            self.current().await?;
            is_current = true;
        }
    }

    pub(super) async fn append(&self, append: &Append) -> Result<(), AppendError> {
        append.frame.check_size(self.frame_bytes_max())?;
        let (run, subject) = (append.run, wire::run_subject(append.run));
        let _alone = self.deciding(&format!("append.{run}")).await;
        let mut is_current = false;
        let prev = loop {
            let judged = {
                let projection = lock(&self.projection);
                judge_append(&projection, append).map(|()| projection.whole(run).map(|it| it.sum))
            };
            match judged {
                Ok(sum) => break sum?,
                Err(refused) if is_current => return Err(refused),
                Err(_) => self.current().await?,
            }
            is_current = true;
        };
        let line = || Entry::Frame(Box::new(FrameLine::of_append(append, prev)));
        let body = &append.frame.body;
        let folded = append.frame.folded.as_ref().filter(|it| it.len() <= FOLD_BYTES_MAX);
        let room = self.frame_bytes_max() - body.len();
        let beside = folded.filter(|folded| folded.len() <= room);
        let bodies: &[&[u8]] = if let Some(beside) = beside { &[body, beside] } else { &[body] };
        let message = self.outgoing(subject, line(), bodies)?;
        if message.payload.len() + 1024 > self.payload_max {
            let bytes = message.payload.len();
            return Err(AppendError::TooLarge { bytes, max: self.frame_bytes_max() });
        }
        let judge = |projection: &Projection| {
            judge_append(projection, append)?;
            let places = projection.whole(run)?;
            // The message contains the checksum of the previous frame, so it is only valid after
            // that frame.
            if places.sum == prev {
                Ok(places.sequence)
            } else {
                Err(AppendError::Conflict { run, head: append.expected })
            }
        };
        let written = self.write(&message, How::default(), judge).await?;
        written?;
        if let (Some(folded), None) = (folded, beside) {
            let at = Seq(append.expected.0 + u64::from(append.frame.count));
            self.put_fold(run, SnapshotKind::Transcript, at, folded.clone()).await?;
        }
        Ok(())
    }

    pub(super) fn frame_bytes_max(&self) -> usize {
        self.payload_max - OVERHEAD_BYTES
    }

    /// Stores a snapshot in one step, however many parts it has.
    pub(super) async fn put_fold(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> Result<(), StoreError> {
        if body.len() > FOLD_BYTES_MAX {
            return Err(StoreError::Full {
                what: "a snapshot",
                max: FOLD_BYTES_MAX,
                remedy: "do without: more is folded then",
            });
        }
        let created = |projection: &Projection| Ok(projection.index.kept(run)?.frames.created);
        let known = created(&lock(&self.projection));
        let of = match known {
            Ok(of) => of,
            Err(StoreError::NoRun(_)) => {
                self.current().await?;
                created(&lock(&self.projection))?
            }
            Err(error) => return Err(error),
        };
        let size = self.frame_bytes_max();
        let parts = body.len().div_ceil(size).max(1);
        let part = |part: usize| {
            let body = &body[part * size..body.len().min((part + 1) * size)];
            let entry = Entry::Fold { of, kind: kind.into(), at, part, parts };
            self.outgoing(wire::fold_subject(run), entry, &[body])
        };
        if parts == 1 {
            return self.put(&part(0)?, How::default()).await.map(drop);
        }
        let batch = (0..parts).map(|number| Ok((part(number)?, None)));
        let batch = batch.collect::<Result<Vec<_>, StoreError>>()?;
        let _open = self.batches.acquire().await;
        match self.api.publish_batch(&batch).await {
            Ok(sequence) => self.applied_to(sequence).await,
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("keeping a snapshot", "a conflict without a fence"))
            }
        }
    }

    pub(super) async fn put_inbox(
        &self,
        run: RunId,
        commands: Vec<NewCommand>,
    ) -> Result<PutAll, StoreError> {
        let _alone = self.deciding(&format!("put.{run}")).await;
        let until = Instant::now() + self.api.settle;
        loop {
            // A taken key or a full inbox is only reported if the projection is current.
            self.current().await?;
            let (plan, of, sequence) = {
                let projection = lock(&self.projection);
                let places = &projection.index.kept(run)?.frames;
                let (of, sequence) = (places.created, places.inbox_sequence);
                (projection.index.plan_inbox(run, commands.clone())?, of, sequence)
            };
            let (puts, new) = match plan {
                Plan::KeyTaken { index, number } => return Ok(PutAll::KeyTaken { index, number }),
                Plan::Put { puts, new } if new.is_empty() => return Ok(PutAll::Done(puts)),
                Plan::Put { puts, new } => (puts, new),
            };
            self.has_room()?;
            // Written first, because the audit entry and the command cannot be written in one step.
            for audit in new.iter().filter_map(|(_, new)| new.audit.clone()) {
                self.put_audit(audit).await?;
            }
            let line = |(number, new): (InboxNo, NewCommand)| InboxLine {
                number,
                key: new.key,
                command: new.command,
            };
            let entries = new.into_iter().map(line).collect();
            let message =
                self.outgoing(wire::inbox_subject(run), Entry::Inbox { of, entries }, &[])?;
            if message.payload.len() + 1024 > self.payload_max {
                return Err(StoreError::Full {
                    what: "a message with commands",
                    max: self.payload_max,
                    remedy: "put fewer at once, or raise `max_payload` of the NATS server",
                });
            }
            let seen = |projection: &Projection| {
                let places = projection.index.runs.get(&run).map(|kept| &kept.frames);
                places
                    .filter(|places| places.created == of && places.inbox_sequence == sequence)
                    .map(|_| sequence)
                    .ok_or(())
            };
            match self.write(&message, How::default(), seen).await? {
                // The run may have ended just before. In that case every node ignores the commands,
                // and this returns the error.
                Ok(_) => {
                    lock(&self.projection).index.plan_inbox(run, commands)?;
                    return Ok(PutAll::Done(puts));
                }
                Err(()) if Instant::now() >= until => {
                    let cause = "others write to the same inbox all the time";
                    return Err(StoreError::failed("putting commands", cause));
                }
                // Another node wrote to the inbox first, so the commands are planned again.
                Err(()) => {}
            }
        }
    }

    /// Stores the inbox of a run that is being copied, with the original numbers. Each command is a
    /// message of its own, because commands may be large.
    pub(super) async fn import_inbox(
        &self,
        run: RunId,
        entries: Vec<InboxEntry>,
    ) -> Result<(), StoreError> {
        self.current().await?;
        for InboxEntry { number, key, command } in entries {
            self.has_room()?;
            let of = lock(&self.projection).index.kept(run)?.frames.created;
            let entries = vec![InboxLine { number, key, command }];
            let message =
                self.outgoing(wire::inbox_subject(run), Entry::Inbox { of, entries }, &[])?;
            self.put(&message, How::default()).await?;
        }
        Ok(())
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
        let sequence = self.put(&message, How::default()).await?;
        // Of two entries with the same key, the first one counts.
        let number = known().unwrap_or(sequence);
        let oldest = lock(&self.projection).index.audit_excess(&tenant);
        if let Some(oldest) = oldest {
            self.api.purge(&subject, oldest).await?;
        }
        Ok(number)
    }

    pub(super) async fn release(
        &self,
        run: RunId,
        node: &str,
        epoch: u64,
    ) -> Result<(), StoreError> {
        let message = self.outgoing(wire::run_subject(run), Entry::Released {}, &[])?;
        let judge = |projection: &Projection| {
            let kept = projection.index.runs.get(&run);
            let owned = kept.filter(|_| projection.index.is_owner(run, node, epoch));
            owned.map(|kept| kept.frames.sequence).ok_or(())
        };
        self.write(&message, How::default(), judge).await.map(drop)
    }

    pub(super) async fn bind(&self, external: ExternalId, run: RunId) -> Result<RunId, StoreError> {
        let name = NameLine::from(external.clone());
        let subject = wire::name_subject(&name);
        let message = self.outgoing(subject, Entry::Name { name, run }, &[])?;
        let judge = |projection: &Projection| match projection.index.resolve(&external) {
            Some(bound) => Err(Ok(bound)),
            None => projection.index.kept(run).map(|_| 0).map_err(Err),
        };
        match self.write(&message, How::default(), judge).await? {
            Ok(_) => Ok(run),
            Err(decided) => decided,
        }
    }

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
            return self.put(&message, how).await.map(Written::Done);
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
        let written = self.write(&message, how, judge).await?;
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
        self.put(&message, how).await.map(|_| true)
    }

    pub(super) async fn delete(&self, run: RunId) -> Result<bool, StoreError> {
        self.current().await?;
        let line = {
            let projection = lock(&self.projection);
            let Some(kept) = projection.index.runs.get(&run) else { return Ok(false) };
            let names = kept.names.iter().cloned().map(NameLine::from).collect();
            DeletedLine { thread: kept.info.thread, names, done: false }
        };
        let message = self.outgoing(wire::run_subject(run), Entry::Deleted(line.clone()), &[])?;
        let judge = |projection: &Projection| match projection.index.runs.get(&run) {
            None => Err(Ok(false)),
            // A damaged run cannot continue, so it can be deleted before it has ended.
            Some(kept) if !kept.info.state.is_final() && kept.frames.damage.is_none() => {
                Err(Err(StoreError::Unfinished(run)))
            }
            Some(kept) => Ok(kept.frames.sequence),
        };
        match self.write(&message, How::default(), judge).await? {
            Ok(sequence) => self.clean(run, sequence, &line).await.map(|()| true),
            Err(decided) => decided,
        }
    }

    /// Removes everything that belongs to a run whose deletion has the sequence `at`.
    pub(super) async fn clean(
        &self,
        run: RunId,
        at: u64,
        line: &DeletedLine,
    ) -> Result<(), StoreError> {
        self.api.purge(&wire::inbox_subject(run), at).await?;
        self.api.purge(&wire::fold_subject(run), at).await?;
        for name in &line.names {
            self.api.purge(&wire::name_subject(name), at).await?;
        }
        if !lock(&self.projection).index.has_thread(line.thread) {
            self.api.purge(&wire::thread_subject(line.thread), at).await?;
            self.api.purge(&wire::title_subject(line.thread), at).await?;
        }
        // The final deletion message replaces the frames, and expires after every node has received
        // it.
        let done = Entry::Deleted(DeletedLine { done: true, ..line.clone() });
        let message = self.outgoing(wire::run_subject(run), done, &[])?;
        let how = How { expected: Some(at), replaces: true, expires: true };
        match self.api.publish(&message, how).await {
            Ok(sequence) => self.applied_to(sequence).await,
            // Another node was first, or the id is in use again.
            Err(PublishError::Conflict) => Ok(()),
            Err(PublishError::Store(error)) => Err(error),
        }
    }

    /// Removes what remains of runs whose deletion was interrupted by the end of a process.
    pub(super) async fn sweep(&self) {
        let leftovers = std::mem::take(&mut lock(&self.projection).leftovers);
        for (run, at, line) in leftovers {
            if let Err(error) = self.clean(run, at, &line).await {
                tracing::warn!(%error, %run, "could not remove all that belonged to a deleted run");
            }
        }
    }
}

fn judge_append(projection: &Projection, append: &Append) -> Result<(), AppendError> {
    let run = append.run;
    let info = &projection.index.kept(run)?.info;
    projection.whole(run)?;
    if info.state.is_final() {
        return Err(AppendError::Closed(run));
    }
    if info.head != append.expected {
        return Err(AppendError::Conflict { run, head: info.head });
    }
    Ok(())
}
