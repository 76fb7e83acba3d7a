//! The owner of a run: the only handle that appends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use wellspring_core::{AgentNo, Event, InboxNo, Millis, RunId, Seq, Transcript, Wait};

use crate::hot::Hot;
use crate::inbox::InboxEntry;
use crate::lock;
use crate::store::{AppendError, StoreError};
use crate::watch::Watch;
use crate::writer::Writer;

/// The owner of a run, which alone appends to it.
///
/// Dropping it appends nothing. What was pushed is still committed, then the run is released, and
/// any node may adopt it.
///
/// ```
/// # use wellspring_core::{AgentNo, Event, Outcome, PartId, PartKind, RunId, RunRequest,
/// #     RunStarted, Seq, Stop, ThreadId};
/// # use wellspring_log::Log;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Log::in_memory();
/// # let run = RunId::new(uuid::Uuid::now_v7());
/// # let started = RunStarted {
/// #     run, thread: ThreadId::new(run.uuid()), agent: "demo".into(), after: None,
/// #     request: RunRequest::text("hello"),
/// # };
/// let owner = log.create("local", started).await?;
/// owner.push(AgentNo::ROOT, Event::PartStarted { part: PartId(0), kind: PartKind::TEXT });
/// owner.push(AgentNo::ROOT, Event::PartDelta { part: PartId(0), chunk: "hi".into() });
/// assert_eq!(owner.commit().await?, Seq(3));
/// assert_eq!(owner.with_transcript(|transcript| transcript.words(AgentNo::ROOT)), "hi");
/// # Ok(())
/// # }
/// ```
pub struct Owner {
    writer: Arc<Writer>,
    inbox_seen: InboxSeen,
}

/// The changes to its inbox that an owner has seen, by this process and by others.
pub(crate) struct InboxSeen {
    here: AtomicU64,
    elsewhere: Mutex<Watch>,
}

impl InboxSeen {
    /// Everything up to now.
    pub(crate) fn until_now(hot: &Hot) -> Self {
        let mut watch = hot.watch.clone();
        watch.mark_seen();
        let elsewhere = Mutex::new(watch);
        Self { here: AtomicU64::new(hot.inbox.load(Ordering::Acquire)), elsewhere }
    }

    /// Nothing: the first wait for the inbox ends at once.
    pub(crate) fn nothing(hot: &Hot) -> Self {
        // Zero is before any count.
        Self { here: AtomicU64::new(0), ..Self::until_now(hot) }
    }
}

impl Owner {
    pub(crate) fn new(writer: Arc<Writer>, inbox_seen: InboxSeen) -> Self {
        Self { writer, inbox_seen }
    }

    /// The run that it owns.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.writer.hot.run
    }

    /// How many owners there were before it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.writer.epoch
    }

    /// Queues an event for the next frame. Never blocks; see [`room`](Self::room). After
    /// `run finished`, or once the owner is [`lost`](Self::lost), it is ignored.
    pub fn push(&self, agent: AgentNo, event: Event) {
        self.push_all([(agent, event)]);
    }

    /// Queues events for the next frame, none between them.
    pub fn push_all(&self, events: impl IntoIterator<Item = (AgentNo, Event)>) {
        self.writer.push_all(events);
    }

    /// Queues events that depend on how the run stands: the fold up to the last frame that was
    /// cut, and the events that wait for the next one. Nobody pushes anything in between.
    pub fn push_with(
        &self,
        events: impl FnOnce(&Transcript, &mut dyn Iterator<Item = &Event>) -> Vec<(AgentNo, Event)>,
    ) {
        self.writer.push_with(events);
    }

    /// Waits while too much is uncommitted: whoever polls a source waits here first.
    ///
    /// # Errors
    ///
    /// When the owner is lost.
    pub async fn room(&self) -> Result<(), AppendError> {
        self.writer.room().await
    }

    /// Waits until everything that was pushed before is committed, and gives the head.
    ///
    /// # Errors
    ///
    /// When the owner is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing about what was pushed.
    pub async fn commit(&self) -> Result<Seq, AppendError> {
        self.writer.commit().await
    }

    /// Looks at the fold of the run up to the last frame that was cut; after a
    /// [`commit`](Self::commit) that is everything pushed before it. Pushing waits meanwhile.
    pub fn with_transcript<R>(&self, f: impl FnOnce(&Transcript) -> R) -> R {
        self.writer.with_transcript(f)
    }

    /// The commands that have not taken effect yet, oldest first.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn inbox(&self) -> Result<Vec<InboxEntry>, StoreError> {
        let hot = &self.writer.hot;
        // Before the store is asked: what comes after is a change again.
        self.inbox_seen.here.store(hot.inbox.load(Ordering::Acquire), Ordering::Release);
        lock(&self.inbox_seen.elsewhere).mark_seen();
        let mut entries = hot.shared.store.inbox(hot.run, InboxNo(0)).await?;
        // The store does not know yet what was pushed and is not committed.
        self.with_transcript(|transcript| {
            entries.retain(|entry| !transcript.outline.taken.contains(&entry.number));
        });
        Ok(entries)
    }

    /// Says that an inbox entry has no effect. It goes with the next frame; from then on the
    /// entry is not read again, by this owner or by a later one.
    pub fn dismiss(&self, entry: InboxNo) {
        self.writer.dismiss(entry);
    }

    /// Queues `run paused`. With the frame that holds it, the store keeps the deadline at which
    /// the run is [due](crate::DueQuery) although nothing came in.
    pub fn pause(&self, waits: Vec<Wait>, deadline: Option<Millis>) {
        self.writer.pause(waits, deadline);
    }

    /// Waits until something may be new since [`inbox`](Self::inbox) was last called, or, if it
    /// never was, since the run was created. Returns at once if something came since, or if the
    /// run was adopted and `inbox` was not called yet.
    pub async fn inbox_changed(&self) {
        let hot = &self.writer.hot;
        let local = hot.inbox_changed.notified();
        tokio::pin!(local);
        local.as_mut().enable();
        if hot.inbox.load(Ordering::Acquire) != self.inbox_seen.here.load(Ordering::Acquire) {
            return;
        }
        // The copy has seen what the original has.
        let mut foreign = lock(&self.inbox_seen.elsewhere).clone();
        tokio::select! {
            () = local => {}
            () = foreign.changed() => {}
        }
    }

    /// Waits until ownership is lost: another owner took over, or the store keeps failing.
    /// From then on pushes are ignored and everything else gives the same error.
    pub async fn lost(&self) -> AppendError {
        self.writer.lost().await
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.writer.retire();
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("run", &self.run())
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}
