//! Turns pushed events into frames, one append at a time.
//!
//! There is no task per run. A push starts an append if none is in flight; the store's callback
//! publishes the frame and starts the next append if events are waiting. So a frame holds
//! exactly the events that arrived while the previous frame was being committed.
//!
//! A record's time is the wall-clock time at which the owner started, plus the monotonic time
//! since then. So a clock that steps does not change a run's working time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use wellspring_core::{
    AgentNo, Event, EventBuffer, InboxNo, Millis, Record, RunId, Seq, Transcript, Wait,
};

use crate::append_retry::settle;
use crate::codec;
use crate::fold;
use crate::frame::Frame;
use crate::hot_tail::{Closes, Hot};
use crate::inbox::taken_by;
use crate::lock;
use crate::run_state::state_of;
use crate::store::{Adopt, Append, AppendError, NewFrame, RunState, SnapshotKind, StoreError};
use crate::thread::search_text;

pub(crate) struct Writer {
    pub(crate) hot: Arc<Hot>,
    pub(crate) epoch: u64,
    runtime: Option<Handle>,
    queue: Mutex<Queue>,
    /// Something was committed, or the owner is lost.
    progressed: Notify,
    /// The owner is lost. It is separate from `progressed`, because the code that drives a run
    /// always waits for this and need not be woken by every commit.
    lost: Notify,
}

struct Queue {
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    in_flight: Option<InFlight>,
    /// A thread is inside `Store::append`, and checks for more events when it returns.
    pumping: bool,
    /// Counts pushes. `commit` cannot wait for a sequence number, because those are only
    /// assigned when a frame is cut.
    pushes: u64,
    pushes_committed: u64,
    committed: Seq,
    /// The fold of all frames that were cut.
    transcript: Transcript,
    at: Millis,
    /// When this owner started: wall-clock time, and monotonic time.
    began: (Millis, Duration),
    /// Whether the last state that was cut is `Running`, so that the run has an owner.
    running: bool,
    /// Inbox entries without effect, to be taken by the next frame.
    dismissed: Vec<InboxNo>,
    outline_due: Due,
    transcript_due: Due,
    /// `run finished` was pushed; later events are ignored.
    finished: bool,
    /// The owner was dropped; another one may have replaced it.
    retired: bool,
    failure: Option<AppendError>,
}

struct Waiting {
    agent: AgentNo,
    event: Event,
    bytes: usize,
    push: u64,
    /// The deadline of a pause.
    deadline: Option<Millis>,
}

impl Waiting {
    fn new((agent, event): (AgentNo, Event)) -> Self {
        Self { bytes: codec::weight(&event), agent, event, push: 0, deadline: None }
    }

    fn is_end(&self) -> bool {
        matches!(self.event, Event::RunFinished { .. })
    }
}

/// Bytes appended since a snapshot was last taken.
#[derive(Default)]
struct Due(usize);

struct InFlight {
    bytes: usize,
    pushes: u64,
}

/// A frame between its cut and its commit.
struct Cut {
    append: Append,
    frame: Arc<Frame>,
    snapshots: Vec<(SnapshotKind, Vec<u8>)>,
}

impl Cut {
    fn bytes(&self) -> usize {
        kept_bytes(&self.frame, &self.append.frame.body)
    }
}

/// The memory use of a frame in a tail.
pub(crate) fn kept_bytes(frame: &Frame, body: &Bytes) -> usize {
    body.len() + std::mem::size_of_val(frame.records())
}

impl Writer {
    /// The writer of a run. `transcript` is the fold of its log up to its head.
    pub(crate) fn new(hot: Arc<Hot>, transcript: Transcript, runtime: Option<Handle>) -> Arc<Self> {
        let clock = &hot.shared.options.clock;
        let began = (clock.now().max(transcript.updated_at), clock.monotonic());
        Arc::new(Self {
            epoch: transcript.outline.epoch,
            runtime,
            progressed: Notify::new(),
            lost: Notify::new(),
            queue: Mutex::new(Queue {
                waiting: Vec::new(),
                waiting_bytes: 0,
                in_flight: None,
                pumping: false,
                pushes: 0,
                pushes_committed: 0,
                committed: transcript.outline.head,
                at: transcript.updated_at,
                began,
                running: true,
                dismissed: Vec::new(),
                transcript,
                outline_due: Due::default(),
                transcript_due: Due::default(),
                finished: false,
                retired: false,
                failure: None,
            }),
            hot,
        })
    }

    pub(crate) fn push_all(self: &Arc<Self>, events: impl IntoIterator<Item = (AgentNo, Event)>) {
        // Weighed outside the lock, because it may serialise.
        let events = events.into_iter().map(Waiting::new).collect();
        let ignored = lock(&self.queue).push(events);
        self.pushed(ignored);
    }

    pub(crate) fn push_with(
        self: &Arc<Self>,
        events: impl FnOnce(&Transcript, &mut dyn Iterator<Item = &Event>) -> Vec<(AgentNo, Event)>,
    ) {
        let mut queue = lock(&self.queue);
        let mut waiting = queue.waiting.iter().map(|waiting| &waiting.event);
        let events = events(&queue.transcript, &mut waiting);
        let ignored = queue.push(events.into_iter().map(Waiting::new).collect());
        drop(queue);
        self.pushed(ignored);
    }

    pub(crate) fn pause(self: &Arc<Self>, waits: Vec<Wait>, deadline: Option<Millis>) {
        let paused = Waiting::new((AgentNo::ROOT, Event::RunPaused { waits }));
        let ignored = lock(&self.queue).push(vec![Waiting { deadline, ..paused }]);
        self.pushed(ignored);
    }

    pub(crate) fn dismiss(&self, entry: InboxNo) {
        lock(&self.queue).dismissed.push(entry);
    }

    fn pushed(self: &Arc<Self>, ignored: usize) {
        if ignored > 0 {
            let run = self.hot.run;
            tracing::debug!(%run, ignored, "events pushed after the end, or without ownership");
        }
        self.pump();
    }

    /// Waits until everything pushed before is committed.
    pub(crate) async fn commit(&self) -> Result<Seq, AppendError> {
        let pushes = lock(&self.queue).pushes;
        let committed =
            |queue: &Queue| (queue.pushes_committed >= pushes).then_some(queue.committed);
        self.until(&self.progressed, committed).await
    }

    /// Waits until less than the maximum is uncommitted.
    pub(crate) async fn room(&self) -> Result<(), AppendError> {
        let max = self.hot.shared.options.uncommitted_bytes_max;
        self.until(&self.progressed, |queue| (queue.uncommitted() < max).then_some(())).await
    }

    /// Waits until ownership is lost.
    pub(crate) async fn lost(&self) -> AppendError {
        loop {
            if let Err(error) = self.until(&self.lost, |_| None::<()>).await {
                return error;
            }
        }
    }

    pub(crate) fn with_transcript<R>(&self, f: impl FnOnce(&Transcript) -> R) -> R {
        f(&lock(&self.queue).transcript)
    }

    /// Ends the writer. Pending events are still committed; then the run is released.
    pub(crate) fn retire(&self) {
        let (failure, idle) = {
            let mut queue = lock(&self.queue);
            queue.retired = true;
            let idle = queue.in_flight.is_none() && queue.waiting.is_empty();
            (queue.failure.clone(), idle)
        };
        match failure {
            None => {
                self.hot.shared.nodes.disown(self.hot.run);
                self.hot.disown(None);
                if idle {
                    self.release();
                }
            }
            // The owner has already given up its place in this process.
            Some(AppendError::Store(_) | AppendError::TooLarge { .. }) => self.release(),
            Some(AppendError::Conflict { .. } | AppendError::Closed(_)) => {}
        }
    }

    /// Releases the run in the store, unless its last frame did.
    fn release(&self) {
        if !lock(&self.queue).running {
            return;
        }
        let (store, node) = (&self.hot.shared.store, self.hot.shared.options.node.clone());
        let (run, epoch) = (self.hot.run, self.epoch);
        let Some(runtime) = &self.runtime else {
            // Without a runtime nothing can be awaited; local stores act at once.
            drop(store.release(run, node, epoch));
            return;
        };
        let store = Arc::clone(store);
        runtime.spawn(async move {
            if let Err(error) = store.release(run, node, epoch).await {
                tracing::warn!(%error, %run, "could not release a run");
            }
        });
    }

    async fn until<T>(
        &self,
        changed: &Notify,
        ready: impl Fn(&Queue) -> Option<T>,
    ) -> Result<T, AppendError> {
        let look = || {
            let queue = lock(&self.queue);
            match &queue.failure {
                Some(failure) => Some(Err(failure.clone())),
                None => ready(&queue).map(Ok),
            }
        };
        // Usually no waiting is needed.
        if let Some(found) = look() {
            return found;
        }
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            notified.await;
        }
    }

    /// Starts an append if none is in flight and events are waiting. A loop rather than a
    /// recursion, because a store may call back before its `append` returns.
    fn pump(self: &Arc<Self>) {
        loop {
            let cut = {
                let mut queue = lock(&self.queue);
                if queue.pumping || queue.in_flight.is_some() {
                    return;
                }
                match self.cut(&mut queue) {
                    None => return,
                    Some(Ok(cut)) => {
                        queue.pumping = true;
                        cut
                    }
                    Some(Err(error)) => {
                        drop(queue);
                        let error = StoreError::failed("encoding a frame", error);
                        return self.fail(error.into());
                    }
                }
            };
            let append = cut.append.clone();
            let writer = Arc::clone(self);
            self.hot.shared.store.append(append, Box::new(move |result| writer.done(cut, result)));
            lock(&self.queue).pumping = false;
        }
    }

    fn done(self: Arc<Self>, cut: Cut, result: Result<(), AppendError>) {
        match (result, &self.runtime) {
            (Ok(()), _) => {
                self.committed(cut);
                self.pump();
            }
            (Err(AppendError::Store(error @ StoreError::Failed { .. })), Some(runtime)) => {
                let writer = Arc::clone(&self);
                runtime.spawn(async move {
                    let store = &writer.hot.shared.store;
                    let limit = writer.hot.shared.options.settle;
                    match settle(&**store, &cut.append, error, limit).await {
                        Ok(()) => {
                            writer.committed(cut);
                            writer.pump();
                        }
                        Err(error) => writer.fail(error),
                    }
                });
            }
            (Err(error), _) => self.fail(error),
        }
    }

    fn committed(&self, cut: Cut) {
        let shared = &self.hot.shared;
        let state = cut.append.frame.state;
        let retired = lock(&self.queue).retired;
        match state {
            _ if retired => {}
            Some(RunState::Running) => {
                shared.nodes.own(shared, self.hot.run, self.runtime.as_ref());
            }
            // The frame released the owner.
            Some(_) => shared.nodes.disown(self.hot.run),
            None => {}
        }
        // Published while the frame still counts as in flight, so that frames are published in
        // order.
        let closes = if state.is_some_and(RunState::is_final) { Closes::Yes } else { Closes::No };
        self.hot.publish(&cut.frame, cut.bytes(), closes);
        let last = {
            let mut queue = lock(&self.queue);
            queue.committed = cut.frame.last();
            if let Some(in_flight) = queue.in_flight.take() {
                queue.pushes_committed = in_flight.pushes;
            }
            retired && queue.waiting.is_empty()
        };
        if last {
            self.release();
        }
        self.progressed.notify_waiters();
        let (run, at) = (self.hot.run, cut.frame.last());
        for (kind, body) in cut.snapshots {
            let Some(runtime) = &self.runtime else { continue };
            let store = Arc::clone(&shared.store);
            runtime.spawn(async move {
                // A snapshot only saves time: without it, more records are folded.
                if let Err(error) = store.put_snapshot(run, kind, at, body.into()).await {
                    tracing::debug!(%error, %run, ?kind, "could not keep a snapshot");
                }
            });
        }
    }

    fn fail(&self, error: AppendError) {
        tracing::warn!(%error, run = %self.hot.run, "this process no longer owns the run");
        // Another owner has taken over the run and ended it.
        let taken_over = matches!(error, AppendError::Conflict { .. } | AppendError::Closed(_));
        let failure = match &error {
            AppendError::Store(error) => Some(error.clone()),
            // The run continues on another node, and its readers follow it there.
            AppendError::Conflict { .. } | AppendError::Closed(_) => None,
            AppendError::TooLarge { .. } => Some(StoreError::failed("appending", error.clone())),
        };
        let retired = {
            let mut queue = lock(&self.queue);
            queue.failure = Some(error);
            queue.in_flight = None;
            queue.waiting = Vec::new();
            queue.waiting_bytes = 0;
            queue.retired
        };
        let nodes = &self.hot.shared.nodes;
        if retired {
            if failure.is_some() {
                self.release();
            }
        } else {
            nodes.disown(self.hot.run);
            if taken_over {
                nodes.lost(self.hot.run);
            }
            self.hot.disown(failure);
        }
        self.lost.notify_waiters();
        self.progressed.notify_waiters();
    }

    /// Cuts a frame from the waiting events: numbers, dates, folds and encodes them.
    fn cut(&self, queue: &mut Queue) -> Option<Result<Cut, codec::EncodeError>> {
        if queue.failure.is_some() {
            return None;
        }
        if queue.waiting.is_empty() {
            // Pushes without events are committed with the events before them.
            queue.pushes_committed = queue.pushes;
            return None;
        }
        let options = &self.hot.shared.options;
        // Weights are estimates, so an eighth is left as a margin.
        let frame_max = self.hot.shared.store.frame_bytes_max();
        let bytes_max = options.uncommitted_bytes_max.min(frame_max - frame_max / 8);
        let Taken { bytes, pushes, events, deadline } = queue.take_waiting(bytes_max);
        let events = if events.len() > options.join_past { join(events) } else { events };
        let (began, since) = queue.began;
        queue.at = queue.at.max(began.plus(options.clock.monotonic().saturating_sub(since)));
        let expected = queue.transcript.outline.head;
        let records: Vec<_> = events
            .into_iter()
            .zip(expected.0 + 1..)
            .map(|((agent, event), seq)| Record { seq: Seq(seq), agent, at: queue.at, event })
            .collect();
        let body: Bytes = match codec::encode(&records) {
            Ok(body) => body.into(),
            Err(error) => return Some(Err(error)),
        };
        let mut state = None;
        let mut adopt = None;
        for record in &records {
            queue.transcript.apply(record);
            state = state_of(&record.event).or(state);
            if matches!(record.event, Event::RunResumed { .. }) {
                // The pause released the owner; continuing adopts the run again.
                adopt = Some(Adopt { epoch: self.epoch, node: options.node.clone() });
            }
        }
        if state != Some(RunState::Running) {
            adopt = None;
        }
        let snapshots = queue.snapshots(self.hot.run, body.len(), state, options.outline_bytes);
        queue.in_flight = Some(InFlight { bytes, pushes });
        let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
        let taken = records.iter().filter_map(|record| taken_by(&record.event));
        let taken = taken.chain(std::mem::take(&mut queue.dismissed)).collect();
        queue.running = state.map_or(queue.running, |state| state == RunState::Running);
        let ends = state.is_some_and(RunState::is_final);
        let folded = ends.then(|| {
            let (kind, at) = (SnapshotKind::Transcript, queue.transcript.outline.head);
            fold::write_snapshot(self.hot.run, kind, at, &queue.transcript)
        });
        let folded = folded.flatten();
        let search = ends.then(|| search_text(&queue.transcript));
        let folded = folded.map(Bytes::from);
        let frame = NewFrame { count, body, at: queue.at, state, taken, deadline, folded, search };
        let append = Append { run: self.hot.run, expected, frame, adopt };
        let frame = Arc::new(Frame::new(expected.next(), records));
        Some(Ok(Cut { append, frame, snapshots }))
    }
}

impl Queue {
    /// Adds events to the queue. Returns how many were ignored.
    fn push(&mut self, mut events: Vec<Waiting>) -> usize {
        self.pushes += 1;
        let all = events.len();
        if self.finished || self.failure.is_some() {
            events.clear();
        } else if let Some(end) = events.iter().position(Waiting::is_end) {
            events.truncate(end + 1);
            self.finished = true;
        }
        let ignored = all - events.len();
        for waiting in &mut events {
            waiting.push = self.pushes;
            self.waiting_bytes += waiting.bytes;
        }
        if self.waiting.is_empty() {
            self.waiting = events;
        } else {
            self.waiting.append(&mut events);
        }
        ignored
    }

    /// Takes waiting events, up to `bytes_max` and at least one.
    fn take_waiting(&mut self, bytes_max: usize) -> Taken {
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.bytes;
            bytes <= bytes_max
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        let rest = self.waiting.split_off(count);
        let taken = std::mem::replace(&mut self.waiting, rest);
        let pushes = self.waiting.first().map_or(self.pushes, |next| next.push - 1);
        let bytes = taken.iter().map(|waiting| waiting.bytes).sum();
        self.waiting_bytes -= bytes;
        let deadline = taken.iter().rev().find_map(|waiting| waiting.deadline);
        let events = taken.into_iter().map(|waiting| (waiting.agent, waiting.event)).collect();
        Taken { bytes, pushes, events, deadline }
    }

    fn uncommitted(&self) -> usize {
        self.waiting_bytes + self.in_flight.as_ref().map_or(0, |in_flight| in_flight.bytes)
    }

    /// The snapshots to store once the frame that was just folded is committed: an outline
    /// every [`OUTLINE_BYTES`](crate::OUTLINE_BYTES), and the transcript at a pause, unless
    /// folding the log is as fast. The transcript of a run that ends is stored with its last
    /// frame instead.
    fn snapshots(
        &mut self,
        run: RunId,
        bytes: usize,
        state: Option<RunState>,
        every: usize,
    ) -> Vec<(SnapshotKind, Vec<u8>)> {
        let mut snapshots = Vec::new();
        let at = self.transcript.outline.head;
        self.outline_due.0 += bytes;
        self.transcript_due.0 += bytes;
        if self.outline_due.0 >= every {
            self.outline_due.0 = 0;
            let kind = SnapshotKind::Outline;
            let body = fold::write_snapshot(run, kind, at, &self.transcript.outline);
            snapshots.extend(body.map(|body| (kind, body)));
        }
        if state == Some(RunState::Paused) && self.transcript_due.0 >= every {
            self.transcript_due.0 = 0;
            let kind = SnapshotKind::Transcript;
            let body = fold::write_snapshot(run, kind, at, &self.transcript);
            snapshots.extend(body.map(|body| (kind, body)));
        }
        snapshots
    }
}

/// The events taken for a frame.
struct Taken {
    bytes: usize,
    /// The pushes that are complete with it.
    pushes: u64,
    events: Vec<(AgentNo, Event)>,
    /// The deadline of the pause among the events.
    deadline: Option<Millis>,
}

/// Joins neighbouring deltas of one part, with all their text in one buffer.
fn join(events: Vec<(AgentNo, Event)>) -> Vec<(AgentNo, Event)> {
    let mut joined = EventBuffer::default();
    for (agent, event) in events {
        if let Event::PartDelta { part, chunk } = &event {
            joined.join(agent, *part, chunk, |last, next| last == next);
        } else {
            joined.event(agent, event);
        }
    }
    joined.into_events().collect()
}

/// The first frame of a new owner.
pub(crate) fn first_frame(
    events: impl IntoIterator<Item = Event>,
    at: Millis,
    expected: Seq,
) -> Result<(Arc<Frame>, NewFrame), StoreError> {
    let numbered = events.into_iter().zip(expected.0 + 1..);
    let record = |(event, seq)| Record { seq: Seq(seq), agent: AgentNo::ROOT, at, event };
    let records: Vec<_> = numbered.map(record).collect();
    let state = records.iter().filter_map(|record| state_of(&record.event)).next_back();
    let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let body = codec::encode(&records)
        .map_err(|error| StoreError::failed("encoding a frame", error))?
        .into();
    let frame = Arc::new(Frame::new(expected.next(), records));
    Ok((frame, NewFrame { count, body, at, state, ..NewFrame::default() }))
}
