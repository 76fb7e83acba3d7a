//! Creates runs and appends to them.

use tokio::time::{Instant, sleep};
use wellspring_core::{RunId, Seq};

use super::api::{How, PublishError};
use super::catch_up::STALL;
use super::projection::Projection;
use super::shared::Shared;
use super::snapshots::FOLD_BYTES_MAX;
use super::wire::{self, Entry, FrameLine, OVERHEAD_BYTES};
use crate::lock;
use crate::store::{Append, AppendError, Created, NewFrame, NewRun, SnapshotKind, StoreError};

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
        let written = self.publish_fenced(&message, How::default(), judge).await?;
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
        self.publish_fenced(&message, How::default(), judge).await.map(drop)
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
