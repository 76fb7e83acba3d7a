//! For any interleaving of pushes, commits and readers, every reader gets the same records, in
//! order, once.

use std::sync::Arc;

use futures::{FutureExt, TryStreamExt};
use proptest::prelude::*;
use wellspring_core::{Checker, Event, Record, RunId, Seq, Transcript};
use wellspring_log::{Cursor, Durability, Log, LogOptions, MemoryStore, Owner};
use wellspring_testkit::soak;

use crate::fakes::Faulty;
use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records};
use crate::stores::Sqlite;

/// One step of an interleaving.
#[derive(Clone, Debug)]
enum Step {
    /// A delta for one of the two parts, perhaps with others in the same push.
    Push(Vec<(u32, String)>),
    /// The store commits one append.
    Commit,
    /// A reader reads the available records.
    Read(usize),
    /// A reader disconnects and resumes after its last record.
    Resume(usize),
    /// A reader joins between the start and the head.
    Join(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let deltas = prop::collection::vec((0..2u32, "[a-zé]{1,4}"), 1..60);
    prop_oneof![
        3 => deltas.prop_map(Step::Push),
        3 => Just(Step::Commit),
        3 => (0..8usize).prop_map(Step::Read),
        1 => (0..8usize).prop_map(Step::Resume),
        1 => any::<prop::sample::Index>().prop_map(Step::Join),
    ]
}

/// A reader, its start and the records that it read.
struct Reader {
    cursor: Cursor,
    start: Seq,
    seen: Vec<Record>,
}

impl Reader {
    async fn join(log: &Log, run: RunId, after: Seq) -> Self {
        Self { cursor: log.cursor(run, after).await.unwrap(), start: after, seen: Vec::new() }
    }

    /// Reads the available records without waiting.
    fn read(&mut self) {
        if let Some(frames) = self.cursor.next().now_or_never() {
            for slice in frames.unwrap().unwrap_or_default() {
                self.seen.extend_from_slice(&slice);
            }
        }
    }

    async fn read_to_end(&mut self) {
        while let Some(frames) = self.cursor.next().await.unwrap() {
            for slice in frames {
                self.seen.extend_from_slice(&slice);
            }
        }
    }
}

/// Small limits, so that a short test reaches all of them.
fn small() -> LogOptions {
    LogOptions {
        tail_bytes_max: 4000,
        tail_bytes_total_max: 6000,
        page_bytes: 300,
        outline_bytes: 500,
        ..LogOptions::default()
    }
}

/// The text of each part.
fn said(events: impl IntoIterator<Item = Event>) -> [String; 2] {
    let mut texts = [String::new(), String::new()];
    for event in events {
        if let Event::PartDelta { part, chunk } = event {
            texts[part.0 as usize].push_str(&chunk);
        }
    }
    texts
}

async fn start(log: &Log) -> Owner {
    let owner = create(log).await;
    owner.push_all([(ROOT, part_started(0)), (ROOT, part_started(1))]);
    owner
}

fn finish(owner: &Owner) {
    let end = [part_finished(0), part_finished(1), finished()];
    owner.push_all(end.map(|event| (ROOT, event)));
}

/// Asserts that every reader has the records after its start.
async fn check(log: &Log, run: RunId, pushed: &[Event], readers: &[Reader]) {
    let all = records(log, run, Seq(0)).await;
    Checker::check(&all).unwrap();
    assert_eq!(said(all.iter().map(|record| record.event.clone())), said(pushed.to_vec()));
    for reader in readers {
        let start = usize::try_from(reader.start.0).unwrap();
        assert_eq!(reader.seen, all[start..], "a reader that started after {start}");
    }
    let whole = Transcript::fold(&all);
    assert_eq!(log.transcript(run).await.unwrap(), whole);
    // Several positions, as a resuming reader would use them.
    for (place, record) in all.iter().enumerate().step_by(all.len() / 8 + 1) {
        let outline = log.outline_before(run, record.seq).await.unwrap();
        assert_eq!(outline, Transcript::fold(&all[..=place]).outline);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Over a store that commits on command, step by step.
    #[test]
    fn any_interleaving_in_steps(steps in prop::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(Faulty::new(MemoryStore::default()));
            let log = Log::new(Arc::clone(&store) as _, small());
            let owner = start(&log).await;
            let run = owner.run();
            let mut pushed = Vec::new();
            let mut readers = vec![Reader::join(&log, run, Seq(0)).await];
            store.hold();
            for step in steps {
                match step {
                    Step::Push(deltas) => {
                        let events = deltas.iter().map(|(part, text)| delta(*part, text));
                        let events: Vec<_> = events.collect();
                        owner.push_all(events.iter().map(|event| (ROOT, event.clone())));
                        pushed.extend(events);
                    }
                    Step::Commit => {
                        store.release_one();
                    }
                    Step::Read(index) => {
                        let index = index % readers.len();
                        readers[index].read();
                        let kept = log.store().info(run).await.unwrap().unwrap().head;
                        assert!(readers[index].cursor.position() <= kept, "read before it was committed");
                    }
                    Step::Resume(index) => {
                        let index = index % readers.len();
                        let position = readers[index].cursor.position();
                        readers[index].cursor = log.cursor(run, position).await.unwrap();
                    }
                    Step::Join(place) => {
                        let head = log.store().info(run).await.unwrap().unwrap().head;
                        let after = Seq(place.index(usize::try_from(head.0).unwrap() + 1) as u64);
                        readers.push(Reader::join(&log, run, after).await);
                    }
                }
                assert!(log.tail_bytes() <= 4000, "the tail is larger than allowed");
            }
            finish(&owner);
            store.release();
            owner.commit().await.unwrap();
            for reader in &mut readers {
                reader.read_to_end().await;
            }
            assert_eq!(log.tail_bytes(), 0, "a frame stays although everyone has passed it");
            check(&log, run, &pushed, &readers).await;
            drop((owner, readers));
            assert_eq!(log.live_runs(), 0);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak(12, 500), failure_persistence: None,
        ..ProptestConfig::default() })]

    /// Over SQLite, with threads: readers of different speed, some of which disconnect.
    #[test]
    fn any_interleaving_in_parallel(
        pushes in prop::collection::vec(prop::collection::vec((0..2u32, "[a-zé]{1,40}"), 1..90), 1..60),
        patience in prop::collection::vec((0..20u64, 0..3usize), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let sqlite = Sqlite::new(Durability::ProcessCrash);
            let log = Log::new(Arc::new(sqlite.store()), small());
            let owner = start(&log).await;
            let run = owner.run();
            let readers: Vec<_> = patience
                .into_iter()
                .map(|(yields, breaks)| {
                    let log = log.clone();
                    tokio::spawn(async move {
                        let mut reader = Reader::join(&log, run, Seq(0)).await;
                        let mut frames_seen = 0;
                        while let Some(frames) = reader.cursor.next().await.unwrap() {
                            for slice in frames {
                                reader.seen.extend_from_slice(&slice);
                            }
                            frames_seen += 1;
                            for _ in 0..yields {
                                tokio::task::yield_now().await;
                            }
                            if breaks > 0 && frames_seen % breaks == 0 {
                                let position = reader.cursor.position();
                                reader.cursor = log.cursor(run, position).await.unwrap();
                            }
                        }
                        reader
                    })
                })
                .collect();
            let mut pushed = Vec::new();
            for deltas in &pushes {
                let events: Vec<_> =
                    deltas.iter().map(|(part, text)| delta(*part, text)).collect();
                owner.push_all(events.iter().map(|event| (ROOT, event.clone())));
                pushed.extend(events);
                tokio::task::yield_now().await;
            }
            finish(&owner);
            let readers = futures::future::try_join_all(readers).await.unwrap();
            check(&log, run, &pushed, &readers).await;
        });
    }
}

/// A reader that joins while records arrive misses none and gets none twice, ten thousand
/// times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reader_misses_nothing() {
    let log = Log::in_memory();
    let owner = start(&log).await;
    let run = owner.run();
    let pusher = tokio::spawn(async move {
        for number in 0..10_000u32 {
            owner.push(ROOT, delta(number % 2, "x"));
            if number % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        finish(&owner);
        owner.commit().await.unwrap()
    });
    let mut after = Seq(0);
    let mut seen = Vec::new();
    loop {
        // A new cursor for every read: each one races with the pusher.
        let mut cursor = log.cursor(run, after).await.unwrap();
        let Some(frames) = cursor.next().await.unwrap() else { break };
        for slice in frames {
            seen.extend_from_slice(&slice);
        }
        after = cursor.position();
    }
    let head = pusher.await.unwrap();
    assert_eq!(
        seen.iter().map(|record| record.seq.0).collect::<Vec<_>>(),
        (1..=head.0).collect::<Vec<_>>()
    );
    let all: Vec<_> =
        log.cursor(run, Seq(0)).await.unwrap().into_records().try_collect().await.unwrap();
    assert_eq!(seen, all);
}
