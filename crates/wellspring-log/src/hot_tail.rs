//! The in-memory state of a run that this process writes or reads: its head, the positions of
//! its readers, and its tail (the frames that not all readers have passed).
//!
//! # Promised
//!
//! The tail is a contiguous end of the run's committed frames. A frame stays in the tail only
//! while an attached reader has not passed it, and never beyond the two limits: readers that
//! are farther behind read from the store.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use wellspring_core::{RunId, Seq};

use crate::frame::{Frame, FrameSlice};
use crate::heartbeat::Nodes;
use crate::lock;
use crate::options::LogOptions;
use crate::store::{Store, StoreError};
use crate::watch::Watch;

/// Shared by all handles of one log.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: LogOptions,
    pub(crate) nodes: Nodes,
    /// The runs that this process writes or reads. Do not upgrade an entry while holding the
    /// lock: dropping the last reference to a run takes the same lock.
    runs: Mutex<BTreeMap<RunId, Weak<Hot>>>,
    /// Bytes in all tails.
    tail_bytes: AtomicUsize,
    /// Numbers the frames that entered a tail, to find the oldest.
    stamps: AtomicU64,
}

impl Shared {
    pub(crate) fn new(store: Arc<dyn Store>, options: LogOptions) -> Self {
        Self {
            store,
            options,
            nodes: Nodes::default(),
            runs: Mutex::default(),
            tail_bytes: AtomicUsize::new(0),
            stamps: AtomicU64::new(0),
        }
    }

    /// The state of a run, if this process writes or reads it.
    pub(crate) fn find(&self, run: RunId) -> Option<Arc<Hot>> {
        let found = lock(&self.runs).get(&run).cloned();
        found.and_then(|hot| hot.upgrade())
    }

    /// The state of a run, created if necessary.
    pub(crate) fn hot(self: &Arc<Self>, run: RunId) -> Arc<Hot> {
        let mut runs = lock(&self.runs);
        // The only upgrade while holding the lock: the result is returned, and never dropped
        // here.
        if let Some(hot) = runs.get(&run).and_then(Weak::upgrade) {
            return hot;
        }
        let hot = Arc::new(Hot {
            run,
            shared: Arc::clone(self),
            state: Mutex::default(),
            changed: Notify::new(),
            inbox: AtomicU64::new(1),
            inbox_changed: Notify::new(),
            watch: self.store.watch(run),
        });
        runs.insert(run, Arc::downgrade(&hot));
        hot
    }

    /// The number of runs with a state in this process.
    pub(crate) fn hot_runs(&self) -> usize {
        lock(&self.runs).len()
    }

    pub(crate) fn tail_bytes(&self) -> usize {
        self.tail_bytes.load(Ordering::Relaxed)
    }

    /// Reserves bytes for a tail. Returns `false` if the limit would be exceeded.
    fn reserve(&self, bytes: usize) -> bool {
        let max = self.options.tail_bytes_total_max;
        let more = |total: usize| total.checked_add(bytes).filter(|sum| *sum <= max);
        self.tail_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Drops the oldest frames of all tails until an eighth of the limit is free, so that this
    /// walk over all runs is rare.
    fn shed(&self) {
        let max = self.options.tail_bytes_total_max;
        let weak: Vec<_> = lock(&self.runs).values().cloned().collect();
        let runs: Vec<_> = weak.iter().filter_map(Weak::upgrade).collect();
        let mut oldest: BinaryHeap<_> = runs
            .iter()
            .enumerate()
            .filter_map(|(index, hot)| Some(Reverse((lock(&hot.state).oldest()?, index))))
            .collect();
        while self.tail_bytes() > max - max / 8 {
            let Some(Reverse((_, index))) = oldest.pop() else { break };
            let Some(hot) = runs.get(index) else { break };
            let mut state = lock(&hot.state);
            state.evict(&self.tail_bytes);
            if let Some(stamp) = state.oldest() {
                oldest.push(Reverse((stamp, index)));
            }
        }
    }
}

/// The state of one run that this process writes or reads.
pub(crate) struct Hot {
    pub(crate) run: RunId,
    pub(crate) shared: Arc<Shared>,
    state: Mutex<HotState>,
    /// Wakes readers: a frame was committed, or the owner came or went.
    pub(crate) changed: Notify,
    /// Counts the commands that this process put into the inbox.
    pub(crate) inbox: AtomicU64,
    pub(crate) inbox_changed: Notify,
    /// Wakes up when another process changes the run. Readers and owners clone it.
    pub(crate) watch: Watch,
}

#[derive(Default)]
struct HotState {
    /// The last record that this process committed.
    head: Seq,
    closed: bool,
    /// This process has an owner, or is about to have one.
    claimed: bool,
    /// This process has the owner, so `head` is the run's head.
    owned: bool,
    /// How often the store failed an owner here, and how the last time.
    failures: u64,
    failure: Option<StoreError>,
    tail: VecDeque<Kept>,
    tail_bytes: usize,
    readers: BTreeMap<u64, Seq>,
    next_reader: u64,
}

struct Kept {
    frame: Arc<Frame>,
    bytes: usize,
    stamp: u64,
    /// The number of readers that have not passed it. It never increases towards the end of the
    /// tail, so frames that no reader needs are at the front.
    waiting: usize,
}

/// What a reader does next.
pub(crate) enum Next {
    /// Take these.
    Frames(Vec<FrameSlice>),
    /// The run has ended.
    End,
    /// The store failed for the owner in this process.
    Failed(StoreError),
    /// There are no frames in memory for this reader.
    Absent(Absent),
}

/// Why there are no frames for a reader.
pub(crate) enum Absent {
    /// Wait for the owner in this process.
    Yet,
    /// Read from the store, which has more records.
    FromTail,
    /// Ask the store. If it has no more records either, also wait for other processes.
    Here,
}

impl HotState {
    fn oldest(&self) -> Option<u64> {
        self.tail.front().map(|kept| kept.stamp)
    }

    fn evict(&mut self, total: &AtomicUsize) {
        if let Some(kept) = self.tail.pop_front() {
            self.tail_bytes -= kept.bytes;
            total.fetch_sub(kept.bytes, Ordering::Relaxed);
        }
    }

    fn evict_passed(&mut self, total: &AtomicUsize) {
        while self.tail.front().is_some_and(|kept| kept.waiting == 0) {
            self.evict(total);
        }
    }

    /// The frames of the tail that end after a record.
    fn kept_after(&mut self, after: Seq) -> impl DoubleEndedIterator<Item = &mut Kept> {
        let from = self.tail.partition_point(|kept| kept.frame.last() <= after);
        self.tail.range_mut(from..)
    }
}

impl Hot {
    /// Claims the right to become the owner in this process. `false` if it is taken.
    pub(crate) fn claim(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).claimed, true)
    }

    /// Releases the claim, whether or not it led to ownership.
    pub(crate) fn disown(&self, failure: Option<StoreError>) {
        let mut state = lock(&self.state);
        state.claimed = false;
        state.owned = false;
        if failure.is_some() {
            state.failures += 1;
            state.failure = failure;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The claimant is now the owner, and this is its first frame.
    pub(crate) fn own(&self, frame: &Arc<Frame>, bytes: usize) {
        let mut state = lock(&self.state);
        state.owned = true;
        state.failure = None;
        drop(state);
        self.publish(frame, bytes, Closes::No);
    }

    pub(crate) fn is_owned(&self) -> bool {
        lock(&self.state).owned
    }

    /// The head, if this process has the owner.
    pub(crate) fn owned_head(&self) -> Option<Seq> {
        let state = lock(&self.state);
        state.owned.then_some(state.head)
    }

    /// Makes a committed frame visible to all readers and wakes them once.
    pub(crate) fn publish(&self, frame: &Arc<Frame>, bytes: usize, closes: Closes) {
        let total = &self.shared.tail_bytes;
        let mut state = lock(&self.state);
        if frame.first <= state.head {
            // A late frame of an owner that was dropped and has a successor.
            return;
        }
        if frame.first != state.head.next() {
            // Other processes have appended in between, so the tail would have a gap.
            while !state.tail.is_empty() {
                state.evict(total);
            }
        }
        state.head = frame.last();
        state.closed |= closes == Closes::Yes;
        let waiting = state.readers.values().filter(|position| **position < frame.last()).count();
        let mut full = false;
        if waiting > 0 {
            // Space is freed before the frame is added, so that the limits always hold.
            let max = self.shared.options.tail_bytes_max;
            while !state.tail.is_empty() && state.tail_bytes + bytes > max {
                state.evict(total);
            }
            full = bytes <= max && !self.shared.reserve(bytes);
            if bytes <= max && !full {
                let stamp = self.shared.stamps.fetch_add(1, Ordering::Relaxed);
                state.tail.push_back(Kept { frame: Arc::clone(frame), bytes, stamp, waiting });
                state.tail_bytes += bytes;
            } else {
                // The tail must end with the head, or be empty.
                while !state.tail.is_empty() {
                    state.evict(total);
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
        if full {
            self.shared.shed();
        }
    }

    /// Attaches a reader that has read everything up to a record. Returns its id.
    pub(crate) fn attach(&self, after: Seq) -> u64 {
        let mut state = lock(&self.state);
        let reader = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(reader, after);
        state.kept_after(after).for_each(|kept| kept.waiting += 1);
        reader
    }

    pub(crate) fn detach(&self, reader: u64) {
        let mut state = lock(&self.state);
        if let Some(position) = state.readers.remove(&reader) {
            state.kept_after(position).for_each(|kept| kept.waiting -= 1);
            state.evict_passed(&self.shared.tail_bytes);
        }
    }

    /// How many times the store has failed for an owner in this process.
    pub(crate) fn failures(&self) -> u64 {
        lock(&self.state).failures
    }

    /// What a reader at a position does next. Frames that are returned count as passed.
    pub(crate) fn next(&self, reader: u64, position: Seq, failures_seen: u64) -> Next {
        let mut state = lock(&self.state);
        if position < state.head {
            let reaches =
                state.tail.front().is_some_and(|kept| kept.frame.first <= position.next());
            if !reaches {
                return Next::Absent(Absent::FromTail);
            }
            let frames: Vec<_> = state
                .kept_after(position)
                .filter_map(|kept| FrameSlice::after(Arc::clone(&kept.frame), position))
                .collect();
            let head = state.head;
            self.pass(&mut state, reader, position, head);
            return Next::Frames(frames);
        }
        if state.closed {
            return Next::End;
        }
        if state.failures > failures_seen
            && let Some(failure) = &state.failure
        {
            return Next::Failed(failure.clone());
        }
        Next::Absent(if state.owned { Absent::Yet } else { Absent::Here })
    }

    /// Records that a reader has read from the store up to a record.
    pub(crate) fn advance(&self, reader: u64, from: Seq, to: Seq) {
        self.pass(&mut lock(&self.state), reader, from, to);
    }

    fn pass(&self, state: &mut HotState, reader: u64, from: Seq, to: Seq) {
        state.readers.insert(reader, to);
        state
            .kept_after(from)
            .take_while(|kept| kept.frame.last() <= to)
            .for_each(|kept| kept.waiting -= 1);
        state.evict_passed(&self.shared.tail_bytes);
    }

    /// Notifies the owner that the inbox may have new entries.
    pub(crate) fn wake_inbox(&self) {
        self.inbox.fetch_add(1, Ordering::Release);
        self.inbox_changed.notify_waiters();
    }
}

/// Whether a frame is the run's last one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Closes {
    Yes,
    No,
}

impl Drop for Hot {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        while !state.tail.is_empty() {
            state.evict(&self.shared.tail_bytes);
        }
        let mut runs = lock(&self.shared.runs);
        // The run may have been opened again in between; then the entry is not ours.
        if runs.get(&self.run).is_some_and(|hot| hot.strong_count() == 0) {
            runs.remove(&self.run);
        }
    }
}
