//! The log: one handle for everything that happens to runs in a process.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use wellspring_core::{Event, Millis, Outline, RunId, RunStarted, Seq, Transcript};

use crate::clock::Clock;
use crate::cursor::Cursor;
use crate::error::{AdoptError, CreateError, ReadError};
use crate::fold::fold;
use crate::hot::{Hot, Shared};
use crate::inbox::{NewCommand, PutAll};
use crate::memory::MemoryStore;
use crate::options::LogOptions;
use crate::owner::{InboxSeen, Owner};
use crate::store::{
    Adopt, Append, AppendError, Created, ExternalId, Lease, NewFrame, NewRun, RunFilter, RunState,
    Store, StoreError,
};
use crate::writer::{self, RETRIES_MAX, RETRY_PAUSE, Writer};

/// How often an adoption is tried again because the head moved: a dying owner's last appends
/// settle within a few; more means that somebody is alive.
const ADOPT_RETRIES_MAX: u32 = 8;

/// Characters of the input that a list shows: a line.
const TITLE_CHARS_MAX: usize = 80;

/// Runs: created, adopted, read. A cheap handle; clones are the same log.
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
    /// A log over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: LogOptions) -> Self {
        Self { shared: Arc::new(Shared::new(store, options)) }
    }

    /// A log that is gone with the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Arc::new(MemoryStore::default()), LogOptions::default())
    }

    /// A log in a SQLite file. When this process dies, whoever recovers next adopts its runs
    /// at once.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened as a store.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(
        path: impl AsRef<std::path::Path>,
        options: crate::SqliteOptions,
    ) -> Result<Self, crate::OpenError> {
        let store = crate::SqliteStore::open(path, options)?;
        let options = LogOptions { node: store.node().into(), ..LogOptions::default() };
        Ok(Self::new(Arc::new(store), options))
    }

    /// Where the runs are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Where times come from.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    /// What this process is called.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.shared.options.node
    }

    /// Creates a run and appends `run started`, its first record.
    ///
    /// # Errors
    ///
    /// When the id is taken, the thread has an unfinished run, or the store fails.
    pub async fn create(
        &self,
        tenant: &str,
        started: impl Into<Arc<RunStarted>>,
    ) -> Result<Owner, CreateError> {
        self.begin(tenant, started.into(), Beginning::default()).await
    }

    /// Creates a run with more than its first record, in one step.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and when its name is taken.
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
            lease: options.new_lease(),
        };
        let run = started.run;
        let Some(claim) = Claim::of(self.shared.hot(run)) else {
            let info = self.shared.store.info(run).await?;
            let racing = || StoreError::failed("creating a run", "it is being created already");
            return Err(CreateError::Exists(Box::new(info.ok_or_else(racing)?)));
        };
        let events = [Event::RunStarted(started)].into_iter().chain(beginning.then);
        let (frame, first) = writer::first_frame(events, options.clock.now(), Seq(0))?;
        // Nobody can put anything into the inbox of a run that is not there: what comes later
        // is a change since this moment.
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

    /// Takes over a run that has no owner: one that is paused, or whose owner's lease ended.
    ///
    /// # Errors
    ///
    /// When there is no such run, it is finished or owned, or the store fails.
    pub async fn adopt(&self, run: RunId) -> Result<Owner, AdoptError> {
        self.adopt_with(run, LeasePolicy::Respect).await
    }

    /// Takes over a run from any other node, even one that is believed alive. That node's
    /// next append fails.
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt), except for leases of other nodes.
    pub async fn take_over(&self, run: RunId) -> Result<Owner, AdoptError> {
        self.adopt_with(run, LeasePolicy::Ignore).await
    }

    /// A cursor over what comes after a record; `Seq(0)` is before the first.
    ///
    /// # Errors
    ///
    /// When there is no such run, the record is not there yet, or the store fails.
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

    /// A cursor over a run that is about to be created. What is attached before the first
    /// record never has to ask the store for it.
    #[must_use]
    pub fn cursor_ahead(&self, run: RunId) -> Cursor {
        Cursor::new(self.shared.hot(run), Seq(0))
    }

    /// The whole run as committed so far, folded.
    ///
    /// # Errors
    ///
    /// When there is no such run, or the store fails.
    pub async fn transcript(&self, run: RunId) -> Result<Transcript, ReadError> {
        fold(&*self.shared.store, run, None, self.shared.options.page_bytes).await
    }

    /// The run up to and including a record, folded.
    ///
    /// # Errors
    ///
    /// When there is no such run, the record is not there yet, or the store fails.
    pub async fn transcript_before(&self, run: RunId, seq: Seq) -> Result<Transcript, ReadError> {
        let page_bytes = self.shared.options.page_bytes;
        let transcript: Transcript = fold(&*self.shared.store, run, Some(seq), page_bytes).await?;
        let head = transcript.outline.head;
        if head < seq { Err(ReadError::Future { run, after: seq, head }) } else { Ok(transcript) }
    }

    /// What is open after a record: what a dialect needs to go on from there.
    ///
    /// # Errors
    ///
    /// When there is no such run, the record is not there yet, or the store fails.
    pub async fn outline_before(&self, run: RunId, seq: Seq) -> Result<Outline, ReadError> {
        let page_bytes = self.shared.options.page_bytes;
        let outline: Outline = fold(&*self.shared.store, run, Some(seq), page_bytes).await?;
        if outline.head < seq {
            return Err(ReadError::Future { run, after: seq, head: outline.head });
        }
        Ok(outline)
    }

    /// Puts commands into a run's inbox in one step, each once per key, and wakes the run's
    /// owner. Durable when it resolves.
    ///
    /// # Errors
    ///
    /// When there is no such run, its inbox is full, or the store fails.
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

    /// Deletes finished runs that have not changed since `before`, at most `limit` of them,
    /// and says how many.
    ///
    /// # Errors
    ///
    /// When the store fails; what was deleted is.
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

    /// How many runs have an owner or a cursor in this process.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.shared.hot_runs()
    }

    /// Bytes of frames kept for readers that have not passed them.
    #[must_use]
    pub fn tail_bytes(&self) -> usize {
        self.shared.tail_bytes()
    }

    /// Creates; a failure that leaves its fate open is settled by looking and trying again.
    async fn create_settled(&self, new: NewRun, first: &NewFrame) -> Result<Created, StoreError> {
        let store = &self.shared.store;
        let mut pause = RETRY_PAUSE;
        for retries_left in (0..=RETRIES_MAX).rev() {
            match store.create(new.clone(), first.clone()).await {
                Err(StoreError::Failed { .. })
                    if retries_left > 0 && Handle::try_current().is_ok() =>
                {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Ok(Created::Exists(info)) if retries_left < RETRIES_MAX => {
                    // Perhaps it is ours, from the attempt whose fate was open.
                    let page = store.read(new.run, Seq(0), 1).await?;
                    let ours = page.frames.first().is_some_and(|frame| frame.body == first.body);
                    return Ok(if ours { Created::New } else { Created::Exists(info) });
                }
                decided => return decided,
            }
        }
        Err(StoreError::failed("creating a run", "every attempt failed"))
    }

    async fn adopt_with(&self, run: RunId, policy: LeasePolicy) -> Result<Owner, AdoptError> {
        let shared = &self.shared;
        let options = &shared.options;
        let claim = Claim::of(shared.hot(run)).ok_or(AdoptError::Owned { run, lease: None })?;
        let mut head = Seq(0);
        for _ in 0..=ADOPT_RETRIES_MAX {
            let info = shared.store.info(run).await?.ok_or(AdoptError::NoRun(run))?;
            if info.state.is_final() {
                return Err(AdoptError::Finished(Box::new(info)));
            }
            let now = options.clock.now();
            let alive = |lease: &Lease| lease.until > now && lease.node != options.node;
            if policy == LeasePolicy::Respect && info.lease.as_ref().is_some_and(alive) {
                return Err(AdoptError::Owned { run, lease: info.lease });
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
            let adopt = Some(Adopt { epoch, lease: options.new_lease() });
            let append = Append { run, expected: head, frame: new, adopt };
            match writer::append(&*shared.store, &append).await {
                Ok(()) => {
                    transcript.extend(frame.records());
                    let unseen = InboxSeen::nothing(&claim.hot);
                    return Ok(self.own(claim, transcript, unseen, |hot| hot.own(&frame, bytes)));
                }
                // The head moved: a last append of the old owner, or another one adopting.
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
        self.shared.leases.keep(&self.shared, hot.run, runtime.as_ref());
        show(&hot);
        Owner::new(Writer::new(hot, transcript, runtime), inbox_seen)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// What a run begins with besides its first record.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// What a surface calls it. From the first moment on that name means this run.
    pub name: Option<ExternalId>,
    /// Whether it is only to begin as its thread's first run: then nobody has to look whether
    /// there are others.
    pub is_first: bool,
    /// What follows `run started` in the same frame.
    pub then: Vec<Event>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LeasePolicy {
    Respect,
    Ignore,
}

/// The right to become a run's owner in this process, given back unless it is kept.
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
