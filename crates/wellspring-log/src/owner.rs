//! The owner of a run: the only handle that appends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use wellspring_core::{AgentNo, Event, InboxNo, Millis, RunId, Seq, Transcript, Wait};

use crate::hot_tail::Hot;
use crate::inbox::InboxEntry;
use crate::lock;
use crate::store::{AppendError, StoreError};
use crate::watch::Watch;
use crate::writer::Writer;

/// The owner of a run, which alone appends to it.
///
/// Dropping it appends nothing: pending events are still committed, then the run is released,
/// and any node may adopt it.
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

/// The inbox changes that an owner has seen, made by this process and by others.
pub(crate) struct InboxSeen {
    here: AtomicU64,
    foreign: Mutex<Watch>,
}

impl InboxSeen {
    /// Everything up to now has been seen.
    pub(crate) fn until_now(hot: &Hot) -> Self {
        let mut watch = hot.watch.clone();
        watch.mark_seen();
        let foreign = Mutex::new(watch);
        Self { here: AtomicU64::new(hot.inbox.load(Ordering::Acquire)), foreign }
    }

    /// Nothing has been seen: the first wait for the inbox ends at once.
    pub(crate) fn nothing(hot: &Hot) -> Self {
        // Zero is before every count.
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

    /// The number of owners before this one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.writer.epoch
    }

    /// Queues an event for the next frame. Never blocks; see [`room`](Self::room). Ignored
    /// after `run finished`, or once the owner is [`lost`](Self::lost).
    pub fn push(&self, agent: AgentNo, event: Event) {
        self.push_all([(agent, event)]);
    }

    /// Queues several events together, with no other event between them.
    pub fn push_all(&self, events: impl IntoIterator<Item = (AgentNo, Event)>) {
        self.writer.push_all(events);
    }

    /// Queues events that depend on the run's current state: the fold up to the last frame, and
    /// the events that wait for the next one. No other push happens in between.
    pub fn push_with(
        &self,
        events: impl FnOnce(&Transcript, &mut dyn Iterator<Item = &Event>) -> Vec<(AgentNo, Event)>,
    ) {
        self.writer.push_with(events);
    }

    /// Waits while too many bytes are uncommitted. Call it before polling a source.
    ///
    /// # Errors
    ///
    /// If the owner lost the run.
    pub async fn room(&self) -> Result<(), AppendError> {
        self.writer.room().await
    }

    /// Waits until everything that was pushed before is committed. Returns the head.
    ///
    /// # Errors
    ///
    /// If the owner lost the run.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not affect the pushed events.
    pub async fn commit(&self) -> Result<Seq, AppendError> {
        self.writer.commit().await
    }

    /// Calls `f` with the fold of the run up to the last frame; after a
    /// [`commit`](Self::commit), that includes everything pushed before it. Pushes wait in the
    /// meantime.
    pub fn with_transcript<R>(&self, f: impl FnOnce(&Transcript) -> R) -> R {
        self.writer.with_transcript(f)
    }

    /// The commands that have not taken effect yet, oldest first.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn inbox(&self) -> Result<Vec<InboxEntry>, StoreError> {
        let hot = &self.writer.hot;
        // Before the store is asked, so that later entries count as changes.
        self.inbox_seen.here.store(hot.inbox.load(Ordering::Acquire), Ordering::Release);
        lock(&self.inbox_seen.foreign).mark_seen();
        let mut entries = hot.shared.store.inbox(hot.run, InboxNo(0)).await?;
        // The store does not know about effects that are not committed yet.
        self.with_transcript(|transcript| {
            entries.retain(|entry| !transcript.outline.taken.contains(&entry.number));
        });
        Ok(entries)
    }

    /// Marks an inbox entry as having no effect, with the next frame. From then on no owner
    /// reads the entry again.
    pub fn dismiss(&self, entry: InboxNo) {
        self.writer.dismiss(entry);
    }

    /// Queues `run paused`. With that frame, the store keeps the deadline at which the run is
    /// [due](crate::DueQuery) if no command arrives before.
    pub fn pause(&self, waits: Vec<Wait>, deadline: Option<Millis>) {
        self.writer.pause(waits, deadline);
    }

    /// Waits until the inbox may have changed since [`inbox`](Self::inbox) was last called, or
    /// since the run was created. Returns at once if it has, or if the run was adopted and
    /// `inbox` was not called yet.
    pub async fn inbox_changed(&self) {
        let hot = &self.writer.hot;
        let local = hot.inbox_changed.notified();
        tokio::pin!(local);
        local.as_mut().enable();
        if hot.inbox.load(Ordering::Acquire) != self.inbox_seen.here.load(Ordering::Acquire) {
            return;
        }
        // A clone has seen the same changes as the original.
        let mut foreign = lock(&self.inbox_seen.foreign).clone();
        tokio::select! {
            () = local => {}
            () = foreign.changed() => {}
        }
    }

    /// Waits until this owner loses the run: another owner took it over, or the store keeps
    /// failing. From then on pushes are ignored and all other methods return the same error.
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
