//! The log: creates, adopts, reads and lists runs.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use wellspring_core::{Event, Millis, Outline, RunId, RunStarted, Seq, Transcript};

use crate::append_retry::{self, Retries};
use crate::clock::Clock;
use crate::cursor::Cursor;
use crate::due::{Due, DuePlace, DueQuery};
use crate::error::{AdoptError, CreateError, ReadError};
use crate::fold::{fold, read_snapshot};
use crate::heartbeat::NodeStats;
use crate::hot_tail::{Hot, Shared};
use crate::inbox::{NewCommand, PutAll};
use crate::memory::MemoryStore;
use crate::options::LogOptions;
use crate::owner::{InboxSeen, Owner};
use crate::store::{
    Adopt, Append, AppendError, Created, ExternalId, HistoryQuery, NewFrame, NewRun, RunFilter,
    RunInfo, RunState, Store, StoreError,
};
use crate::writer::{self, Writer};

/// How often an adoption is retried because the head moved. A dying owner's last appends settle
/// within a few attempts; more means that the owner is alive.
const ADOPT_RETRIES_MAX: u32 = 8;

/// Characters of the input that are used as a title: one line.
const TITLE_CHARS_MAX: usize = 80;

/// Creates, adopts and reads runs. It is cheap to clone; clones are the same log.
///
/// ```
/// # use wellspring_core::{RunId, RunRequest, RunStarted, Seq, ThreadId};
/// use wellspring_log::Log;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Log::in_memory();
/// let run = RunId::new(uuid::Uuid::now_v7());
/// let started = RunStarted {
///     run,
///     thread: ThreadId::new(uuid::Uuid::now_v7()),
///     agent: "demo".into(),
///     after: None,
///     request: RunRequest::text("hello"),
/// };
/// let owner = log.create("local", started).await?;
/// let mut cursor = log.cursor(run, Seq(0)).await?;
/// assert!(cursor.next().await?.is_some()); // `run started`
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

impl Log {
    /// Creates a log over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: LogOptions) -> Self {
        Self { shared: Arc::new(Shared::new(store, options)) }
    }

    /// A log in memory, which does not outlive the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Arc::new(MemoryStore::default()), LogOptions::default())
    }

    /// A log in a SQLite file. If this process dies, the next process that recovers runs adopts
    /// its runs at once.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened as a store.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(
        path: impl AsRef<std::path::Path>,
        options: crate::SqliteOptions,
    ) -> Result<Self, crate::OpenError> {
        let store = crate::SqliteStore::open(path, options)?;
        let options = LogOptions { node: store.node().into(), ..LogOptions::default() };
        Ok(Self::new(Arc::new(store), options))
    }

    /// The store of the runs.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The source of time.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    /// The name of this process as an owner.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.shared.options.node
    }

    /// What is known here of the nodes that own runs.
    #[must_use]
    pub fn nodes(&self) -> NodeStats {
        self.shared.nodes.stats(self.shared.options.lease)
    }

    /// Creates a run and appends `run started`, its first record.
    ///
    /// # Errors
    ///
    /// If the id is used already, the thread has an unfinished run, or the store fails.
    pub async fn create(
        &self,
        tenant: &str,
        started: impl Into<Arc<RunStarted>>,
    ) -> Result<Owner, CreateError> {
        self.begin(tenant, started.into(), Beginning::default()).await
    }

    /// Creates a run with more than its first record, in one step: see [`Beginning`].
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and if its name is used already.
    pub async fn begin(
        &self,
        tenant: &str,
        started: Arc<RunStarted>,
        beginning: Beginning,
    ) -> Result<Owner, CreateError> {
        let options = &self.shared.options;
        let new = NewRun {
            run: started.run,
            thread: started.thread,
            agent: started.agent.clone(),
            tenant: tenant.into(),
            after: started.after,
            title: title(&started),
            name: beginning.name,
            is_first: beginning.is_first,
            node: options.node.clone(),
        };
        let run = started.run;
        let Some(claim) = Claim::of(self.shared.hot(run)) else {
            let info = self.shared.store.info(run).await?;
            let racing = || StoreError::failed("creating a run", "it is being created already");
            return Err(CreateError::Exists(Box::new(info.ok_or_else(racing)?)));
        };
        let events = [Event::RunStarted(started)].into_iter().chain(beginning.then);
        let (frame, first) = writer::first_frame(events, options.clock.now(), Seq(0))?;
        // No command can be put into the inbox of a run that does not exist, so every later
        // entry is a change.
        let inbox_seen = InboxSeen::until_now(&claim.hot);
        match self.create_settled(new, &first).await? {
            Created::Exists(info) => return Err(CreateError::Exists(info)),
            Created::Named(run) => return Err(CreateError::Named(run)),
            Created::ThreadBusy(run) => return Err(CreateError::ThreadBusy(run)),
            Created::NotFirst => return Err(CreateError::NotFirst),
            Created::New => {}
        }
        let transcript = Transcript::fold(frame.records());
        let bytes = writer::kept_bytes(&frame, &first.body);
        Ok(self.own(claim, transcript, inbox_seen, |hot| hot.own(&frame, bytes)))
    }

    /// Takes over a run that has no owner, or whose owner's node has been silent for the length
    /// of a lease. This process must have read the heartbeats for that long: see
    /// [`due`](Self::due).
    ///
    /// # Errors
    ///
    /// If the run does not exist, is finished or has an owner, or the store fails.
    pub async fn adopt(&self, run: RunId) -> Result<Owner, AdoptError> {
        self.adopt_with(run, LeasePolicy::Respect).await
    }

    /// Takes over a run from any other node, even one that counts as alive. That node's next
    /// append fails.
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt), except that owners on other nodes do not matter.
    pub async fn take_over(&self, run: RunId) -> Result<Owner, AdoptError> {
        self.adopt_with(run, LeasePolicy::Ignore).await
    }

    /// A page of the runs that are due, in order; `after` is the end of the previous page. From
    /// the first call on, this process reads the heartbeats of other nodes; the runs of a node
    /// that has been silent for the length of a lease are due.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn due(&self, after: Option<DuePlace>, limit: usize) -> Result<DuePage, StoreError> {
        let (shared, options) = (&self.shared, &self.shared.options);
        shared.nodes.look(shared).await?;
        let gone = shared.nodes.silent(options.lease);
        let query = DueQuery { now: options.clock.now(), gone, after, limit };
        let (limit, mut runs) = (query.limit_or_max(), shared.store.due(query).await?);
        let next = runs.last().filter(|_| runs.len() == limit).map(Due::place);
        runs.retain(|due| {
            due.owner
                .as_ref()
                .is_none_or(|owner| shared.nodes.may_take(due.run, owner, options.lease))
        });
        Ok(DuePage { runs, next })
    }

    /// Paused runs whose deadline is still to come, the next one first.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn upcoming(&self, limit: usize) -> Result<Vec<Due>, StoreError> {
        let last = RunId::new(uuid::Uuid::max());
        let after = Some(DuePlace { since: self.clock().now(), run: last });
        let query = DueQuery { now: Millis(u64::MAX), gone: Vec::new(), after, limit };
        self.shared.store.due(query).await
    }

    /// Whether a run has an owner that does not count as silent.
    #[must_use]
    pub fn is_owned(&self, info: &RunInfo) -> bool {
        let options = &self.shared.options;
        info.owner.as_ref().is_some_and(|owner| {
            *owner == options.node || !self.shared.nodes.may_take(info.run, owner, options.lease)
        })
    }

    /// A cursor over the records after a position; `Seq(0)` is before the first.
    ///
    /// # Errors
    ///
    /// If the run does not exist, the position does not exist yet, or the store fails.
    pub async fn cursor(&self, run: RunId, after: Seq) -> Result<Cursor, ReadError> {
        let hot = self.shared.hot(run);
        if hot.owned_head().is_none_or(|head| after > head) {
            let info = self.shared.store.info(run).await?.ok_or(ReadError::NoRun(run))?;
            if after > info.head {
                return Err(ReadError::Future { run, after, head: info.head });
            }
        }
        Ok(Cursor::new(hot, after))
    }

    /// A cursor over a run that is about to be created. A cursor that is attached before the
    /// first record never has to read from the store.
    #[must_use]
    pub fn cursor_ahead(&self, run: RunId) -> Cursor {
        Cursor::new(self.shared.hot(run), Seq(0))
    }

    /// The whole run as committed so far, folded.
    ///
    /// # Errors
    ///
    /// If the run does not exist, or the store fails.
    pub async fn transcript(&self, run: RunId) -> Result<Transcript, ReadError> {
        fold(&*self.shared.store, run, None, self.shared.options.page_bytes).await
    }

    /// A run and the runs that it continues, newest first, at most `max`, each folded. Stored
    /// folds are used if there are any.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn history(
        &self,
        run: RunId,
        max: usize,
    ) -> Result<Vec<(RunInfo, Transcript)>, ReadError> {
        let query = HistoryQuery { run, max, folded: true };
        let mut history = Vec::new();
        for past in self.shared.store.history(query).await? {
            let kept = past.folded.filter(|(at, _)| *at == past.info.head);
            let kept = kept.and_then(|(at, body)| read_snapshot(past.info.run, at, &body));
            let transcript = match kept {
                Some(transcript) => transcript,
                None => match self.transcript(past.info.run).await {
                    Ok(transcript) => transcript,
                    // It was deleted in the meantime.
                    Err(ReadError::NoRun(_)) => continue,
                    Err(error) => return Err(error),
                },
            };
            history.push((past.info, transcript));
        }
        Ok(history)
    }

    /// The run up to and including a record, folded.
    ///
    /// # Errors
    ///
    /// If the run does not exist, the record does not exist yet, or the store fails.
    pub async fn transcript_before(&self, run: RunId, seq: Seq) -> Result<Transcript, ReadError> {
        let page_bytes = self.shared.options.page_bytes;
        let transcript: Transcript = fold(&*self.shared.store, run, Some(seq), page_bytes).await?;
        let head = transcript.outline.head;
        if head < seq { Err(ReadError::Future { run, after: seq, head }) } else { Ok(transcript) }
    }

    /// What is open after a record: the state that a dialect needs to continue from there.
    ///
    /// # Errors
    ///
    /// If the run does not exist, the record does not exist yet, or the store fails.
    pub async fn outline_before(&self, run: RunId, seq: Seq) -> Result<Outline, ReadError> {
        let page_bytes = self.shared.options.page_bytes;
        let outline: Outline = fold(&*self.shared.store, run, Some(seq), page_bytes).await?;
        if outline.head < seq {
            return Err(ReadError::Future { run, after: seq, head: outline.head });
        }
        Ok(outline)
    }

    /// Puts commands into a run's inbox in one step, each once per key, and wakes the run's
    /// owner. They are durable when the future resolves.
    ///
    /// # Errors
    ///
    /// If the run does not exist, its inbox is full, or the store fails.
    pub async fn send(&self, run: RunId, commands: Vec<NewCommand>) -> Result<PutAll, StoreError> {
        let put = self.shared.store.put_inbox(run, commands).await?;
        if let Some(hot) = self.shared.find(run) {
            hot.wake_inbox();
        }
        Ok(put)
    }

    /// Whether this process owns the run.
    #[must_use]
    pub fn owner_is_here(&self, run: RunId) -> bool {
        self.shared.find(run).is_some_and(|hot| hot.is_owned())
    }

    /// Deletes at most `limit` finished runs that have not changed since `before`. Returns
    /// their number.
    ///
    /// # Errors
    ///
    /// If the store fails. Runs that were deleted before stay deleted.
    pub async fn purge(&self, before: Millis, limit: usize) -> Result<usize, StoreError> {
        let states = vec![RunState::Completed, RunState::Cancelled, RunState::Failed];
        let mut filter = RunFilter { states, before: Some(before), ..RunFilter::default() };
        let mut deleted = 0;
        loop {
            let page = self.shared.store.list(filter.clone()).await?;
            let Some(last) = page.last() else { return Ok(deleted) };
            filter.after_run = Some(last.run);
            for info in page.iter().filter(|info| info.updated_at < before) {
                if deleted == limit {
                    return Ok(deleted);
                }
                deleted += usize::from(self.shared.store.delete(info.run).await?);
            }
        }
    }

    /// The number of runs with an owner or a cursor in this process.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.shared.hot_runs()
    }

    /// Bytes of frames that are kept in memory for readers.
    #[must_use]
    pub fn tail_bytes(&self) -> usize {
        self.shared.tail_bytes()
    }

    /// Creates a run. If a failure leaves the outcome unknown, it is retried.
    async fn create_settled(&self, new: NewRun, first: &NewFrame) -> Result<Created, StoreError> {
        let store = &self.shared.store;
        let mut retries = Retries::new(self.shared.options.settle);
        let mut tried = false;
        loop {
            match store.create(new.clone(), first.clone()).await {
                Err(error @ StoreError::Failed { .. }) if Handle::try_current().is_ok() => {
                    tried = true;
                    if !retries.pause().await {
                        return Err(error);
                    }
                }
                Ok(Created::Exists(info)) if tried => {
                    // It may be our own run, from an attempt whose outcome was unknown.
                    let page = store.read(new.run, Seq(0), 1).await?;
                    let ours = page.frames.first().is_some_and(|frame| frame.body == first.body);
                    return Ok(if ours { Created::New } else { Created::Exists(info) });
                }
                decided => return decided,
            }
        }
    }

    async fn adopt_with(&self, run: RunId, policy: LeasePolicy) -> Result<Owner, AdoptError> {
        let shared = &self.shared;
        let options = &shared.options;
        let claim = Claim::of(shared.hot(run)).ok_or(AdoptError::Owned { run, owner: None })?;
        let mut head = Seq(0);
        for _ in 0..=ADOPT_RETRIES_MAX {
            let info = shared.store.info(run).await?.ok_or(AdoptError::NoRun(run))?;
            if info.state.is_final() {
                return Err(AdoptError::Finished(Box::new(info)));
            }
            let other = info.owner.as_ref().filter(|owner| **owner != options.node);
            if let (Some(owner), LeasePolicy::Respect) = (other, policy) {
                shared.nodes.look(shared).await?;
                if !shared.nodes.may_take(run, owner, options.lease) {
                    return Err(AdoptError::Owned { run, owner: info.owner });
                }
            }
            let mut transcript: Transcript =
                match fold(&*shared.store, run, None, options.page_bytes).await {
                    Ok(transcript) => transcript,
                    Err(ReadError::Store(error) | ReadError::OwnerLost(error)) => {
                        return Err(error.into());
                    }
                    Err(ReadError::NoRun(_) | ReadError::Future { .. }) => {
                        return Err(AdoptError::NoRun(run));
                    }
                };
            head = transcript.outline.head;
            let epoch = transcript.outline.epoch + 1;
            let event = Event::RunAdopted { node: options.node.clone(), epoch };
            let at = options.clock.now().max(transcript.updated_at);
            let (frame, new) = writer::first_frame([event], at, head)?;
            let bytes = writer::kept_bytes(&frame, &new.body);
            let adopt = Some(Adopt { epoch, node: options.node.clone() });
            let append = Append { run, expected: head, frame: new, adopt };
            match append_retry::append(&*shared.store, &append, options.settle).await {
                Ok(()) => {
                    if other.is_some() {
                        shared.nodes.taken_over();
                    }
                    transcript.extend(frame.records());
                    let unseen = InboxSeen::nothing(&claim.hot);
                    return Ok(self.own(claim, transcript, unseen, |hot| hot.own(&frame, bytes)));
                }
                // The head moved: the old owner appended once more, or another node adopts the
                // run.
                Err(AppendError::Conflict { .. } | AppendError::Closed(_)) => {}
                Err(AppendError::Store(error)) => return Err(error.into()),
                Err(error @ AppendError::TooLarge { .. }) => {
                    return Err(StoreError::failed("adopting a run", error).into());
                }
            }
        }
        Err(AdoptError::Contended { run, head })
    }

    fn own(
        &self,
        claim: Claim,
        transcript: Transcript,
        inbox_seen: InboxSeen,
        show: impl FnOnce(&Hot),
    ) -> Owner {
        let hot = claim.keep();
        let runtime = Handle::try_current().ok();
        self.shared.nodes.own(&self.shared, hot.run, runtime.as_ref());
        show(&hot);
        Owner::new(Writer::new(hot, transcript, runtime), inbox_seen)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// A page of the runs that are due.
#[derive(Clone, Debug, PartialEq)]
pub struct DuePage {
    /// The runs, in order.
    pub runs: Vec<Due>,
    /// The start of the next page, if there may be one.
    pub next: Option<DuePlace>,
}

/// What a run begins with besides its first record.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// A surface's own id of the run, bound in the same step.
    pub name: Option<ExternalId>,
    /// Whether the run must be its thread's first one. Otherwise it is not created.
    pub is_first: bool,
    /// Events after `run started` in the same frame.
    pub then: Vec<Event>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LeasePolicy {
    Respect,
    Ignore,
}

/// The right to become a run's owner in this process. Dropping it releases the claim.
struct Claim {
    hot: Arc<Hot>,
    kept: bool,
}

impl Claim {
    fn of(hot: Arc<Hot>) -> Option<Self> {
        hot.claim().then(|| Self { hot, kept: false })
    }

    fn keep(mut self) -> Arc<Hot> {
        self.kept = true;
        Arc::clone(&self.hot)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.hot.disown(None);
        }
    }
}

fn title(started: &RunStarted) -> Box<str> {
    let text = started.request.input.iter().find_map(|content| content.as_text());
    let line = text.unwrap_or_default().trim().lines().next().unwrap_or_default();
    line.chars().take(TITLE_CHARS_MAX).collect::<String>().into()
}
