//! Reads what is not in the projection: older frames, and the history of a run.

use tokio::time::Instant;
use wellspring_core::{RunId, Seq};

use super::shared::Shared;
use super::wire::{self, Entry};
use crate::lock;
use crate::store::{HistoryQuery, Page, PastRun, SnapshotKind, StoreError, StoredFrame};

impl Shared {
    pub(super) async fn read(
        &self,
        run: RunId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.current().await?;
        let until = Instant::now() + self.api.settle;
        let (mut page, mut from) = {
            let projection = lock(&self.projection);
            let places = projection.whole(run)?;
            let info = &projection.index.kept(run)?.info;
            let page = Page { frames: Vec::new(), head: info.head, closed: info.state.is_final() };
            if after >= info.head {
                return Ok(page);
            }
            if let Some(frames) = projection.recent(run, after) {
                return Ok(Page { frames: cut(frames, after, bytes_max), ..page });
            }
            (page, places.before(after.next()))
        };
        let subject = wire::run_subject(run);
        let (mut frames, mut bytes) = (Vec::<StoredFrame>::new(), 0);
        let mut next = None;
        // The first messages may be before the requested record.
        while bytes <= bytes_max && frames.last().is_none_or(|last| last.last() < page.head) {
            let found = self.api.read_from(&subject, from, bytes_max.max(64 * 1024)).await?;
            let before = from;
            for message in found {
                let damaged = |at, what| StoreError::Damaged { run, at, what };
                let at = next.unwrap_or(after.next());
                let incoming = message.decode().map_err(|what| damaged(at, what))?;
                from = message.sequence + 1;
                let Entry::Frame(line) = incoming.line.entry else { continue };
                if next.is_some_and(|next| next != line.first) || line.bytes > incoming.body.len() {
                    return Err(damaged(at, format!("record {} follows", line.first)));
                }
                next = Some(Seq(line.first.0 + u64::from(line.count)));
                let body = incoming.body.slice(..line.bytes);
                let frame = StoredFrame { first: line.first, count: line.count, body };
                if frame.last() <= after || frame.first > page.head {
                    continue;
                }
                bytes += frame.body.len();
                frames.push(frame);
            }
            if from == before {
                // The run was deleted in the meantime, or the replica that answered does not have
                // the message yet.
                self.current().await?;
                lock(&self.projection).whole(run)?;
                if self.missing(&subject, from, Instant::now() >= until).await? {
                    let at = next.unwrap_or(after.next());
                    return Err(StoreError::Damaged { run, at, what: "it is missing".into() });
                }
            }
        }
        page.frames = cut(frames, after, bytes_max);
        Ok(page)
    }

    /// Whether the leader, too, has no message of a subject from a sequence on.
    pub(super) async fn missing(
        &self,
        subject: &str,
        from: u64,
        over: bool,
    ) -> Result<bool, StoreError> {
        let last = self.api.last_of(subject).await?;
        if over && last.as_ref().is_some_and(|last| last.sequence >= from) {
            return Err(StoreError::failed("reading frames", "no replica has what the leader has"));
        }
        Ok(last.is_none_or(|last| last.sequence < from))
    }

    pub(super) async fn history(&self, query: &HistoryQuery) -> Result<Vec<PastRun>, StoreError> {
        self.current().await?;
        let found: Vec<_> = {
            let projection = lock(&self.projection);
            let past = projection.index.history(query).into_iter().map(|kept| {
                let places =
                    (SnapshotKind::Transcript, Seq(0))..=(SnapshotKind::Transcript, kept.info.head);
                let fold = kept.frames.folds.range(places).next_back();
                let fold = fold.filter(|_| query.folded);
                (kept.info.clone(), fold.map(|((_, at), it)| (*at, it.clone())))
            });
            past.collect()
        };
        // The snapshots are read concurrently, so that a long conversation does not take a round
        // trip per run.
        let past = found.into_iter().map(async |(info, fold)| {
            let Some((at, sequences)) = fold else { return Ok(PastRun { info, folded: None }) };
            let folded = self.fold(&sequences).await?.map(|body| (at, body));
            Ok(PastRun { info, folded })
        });
        futures::future::try_join_all(past).await
    }
}

/// The frames from the one with record `after + 1` on, up to `bytes_max` bytes but at least one
/// frame.
fn cut(frames: Vec<StoredFrame>, after: Seq, bytes_max: usize) -> Vec<StoredFrame> {
    let mut bytes = 0;
    let within = |frame: &StoredFrame| {
        let is_first = bytes == 0;
        bytes += frame.body.len();
        is_first || bytes <= bytes_max
    };
    frames.into_iter().filter(|frame| frame.last() > after).take_while(within).collect()
}
