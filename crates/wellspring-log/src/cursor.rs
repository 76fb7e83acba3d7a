//! Reads a run from any position, at any pace.

use std::fmt;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use futures::stream::{self, Stream};
use wellspring_core::{Record, RunId, Seq};

use crate::error::ReadError;
use crate::fold::read_page;
use crate::frame::FrameSlice;
use crate::hot_tail::{Absent, Hot, Next};
use crate::store::StoreError;
use crate::watch::Watch;

/// Reads the records of a run after a position.
///
/// It returns every committed record once and in order, whether it is read at once, slowly, or
/// resumed in another process after the last position.
///
/// ```
/// # use futures::TryStreamExt;
/// # use wellspring_core::{AgentNo, Event, Outcome, RunId, RunRequest, RunStarted, Seq, Stop,
/// #     ThreadId, render};
/// # use wellspring_log::Log;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let log = Log::in_memory();
/// # let run = RunId::new(uuid::Uuid::now_v7());
/// # let started = RunStarted {
/// #     run, thread: ThreadId::new(run.uuid()), agent: "demo".into(), after: None,
/// #     request: RunRequest::text("hello"),
/// # };
/// # let owner = log.create("local", started).await?;
/// let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
/// owner.push(AgentNo::ROOT, Event::RunFinished { outcome });
/// let cursor = log.cursor(run, Seq(1)).await?;
/// let records: Vec<_> = cursor.into_records().try_collect().await?;
/// assert_eq!(render(&records), "run finished completed end_turn\n");
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    hot: Arc<Hot>,
    reader: u64,
    position: Seq,
    failures_seen: u64,
    foreign: Watch,
}

impl Cursor {
    pub(crate) fn new(hot: Arc<Hot>, after: Seq) -> Self {
        let reader = hot.attach(after);
        let failures_seen = hot.failures();
        let foreign = hot.watch.clone();
        Self { hot, reader, position: after, failures_seen, foreign }
    }

    /// The last record that was returned.
    #[must_use]
    pub fn position(&self) -> Seq {
        self.position
    }

    /// The run that it reads.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.hot.run
    }

    /// Waits for new records and returns all of them, or one page if the reader is far behind.
    /// `None` after the run's last record.
    ///
    /// # Errors
    ///
    /// If the store fails or the run was deleted. The position is kept, so calling again
    /// retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no records.
    pub async fn next(&mut self) -> Result<Option<Vec<FrameSlice>>, ReadError> {
        loop {
            // Usually there are new frames, and no waiting is needed.
            if let Break(taken) = self.take() {
                return taken;
            }
            // Both waits are registered before the state is checked again, so that no change is
            // missed.
            let hot = Arc::clone(&self.hot);
            let changed = hot.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.foreign.mark_seen();
            let may_be_elsewhere = match self.take() {
                Break(taken) => return taken,
                Continue(Absent::Yet) => {
                    changed.await;
                    continue;
                }
                Continue(Absent::FromTail) => false,
                Continue(Absent::Here) => true,
            };
            let page_bytes = hot.shared.options.page_bytes;
            let page = hot.shared.store.read(hot.run, self.position, page_bytes).await?;
            let frames = read_page(hot.run, self.position, &page)?.into_iter();
            let frames: Vec<_> = frames
                .filter_map(|frame| FrameSlice::after(Arc::new(frame), self.position))
                .collect();
            if let Some(last) = frames.last().map(FrameSlice::last) {
                hot.advance(self.reader, self.position, last);
                self.position = last;
                return Ok(Some(frames));
            }
            if page.closed {
                return Ok(None);
            }
            if !may_be_elsewhere {
                let (run, at) = (hot.run, self.position.next());
                let what = "the record was committed but is missing".into();
                return Err(StoreError::Damaged { run, at, what }.into());
            }
            tokio::select! {
                () = changed => {}
                () = self.foreign.changed() => {}
            }
        }
    }

    /// Takes the frames that this process has in memory.
    fn take(&mut self) -> ControlFlow<Result<Option<Vec<FrameSlice>>, ReadError>, Absent> {
        match self.hot.next(self.reader, self.position, self.failures_seen) {
            Next::Frames(frames) => {
                self.position = frames.last().map_or(self.position, FrameSlice::last);
                Break(Ok(Some(frames)))
            }
            Next::End => Break(Ok(None)),
            Next::Failed(error) => {
                self.failures_seen = self.hot.failures();
                Break(Err(ReadError::OwnerLost(error)))
            }
            Next::Absent(absent) => Continue(absent),
        }
    }

    /// A stream of single records, until the run's last one or the first error.
    pub fn into_records(self) -> impl Stream<Item = Result<Record, ReadError>> + Send {
        let start = (Some(self), Vec::<FrameSlice>::new().into_iter(), 0usize, None::<FrameSlice>);
        stream::unfold(start, |(mut cursor, mut slices, mut index, mut slice)| async move {
            loop {
                if let Some(record) = slice.as_ref().and_then(|slice| slice.get(index)) {
                    let record = record.clone();
                    return Some((Ok(record), (cursor, slices, index + 1, slice)));
                }
                index = 0;
                slice = slices.next();
                if slice.is_none() {
                    match cursor.as_mut()?.next().await {
                        Ok(more) => slices = more?.into_iter(),
                        Err(error) => return Some((Err(error), (None, slices, index, slice))),
                    }
                }
            }
        })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.hot.detach(self.reader);
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("run", &self.run())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
