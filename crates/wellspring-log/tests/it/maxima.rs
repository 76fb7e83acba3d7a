//! Every limit is reached once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::FutureExt;
use wellspring_core::{AgentNo, Event, RunRequest, Seq};
use wellspring_log::{
    AppendError, ENCODED_SLOTS, JOIN_PAST, Log, LogOptions, MemoryStore, OUTLINE_BYTES, PAGE_BYTES,
    RunFilter, SnapshotKind, StoreError, TAIL_BYTES_MAX, TAIL_BYTES_TOTAL_MAX,
    UNCOMMITTED_BYTES_MAX,
};
use wellspring_testkit::soak;

use crate::fakes::Faulty;
use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records, started};

fn faulty() -> (Arc<Faulty>, Log) {
    let store = Arc::new(Faulty::new(MemoryStore::default()));
    (Arc::clone(&store), Log::new(store, LogOptions::default()))
}

#[tokio::test]
async fn a_slow_store_stalls_its_agent_at_the_maximum() {
    let (store, log) = faulty();
    let owner = create(&log).await;
    store.hold();
    owner.push(ROOT, part_started(0));
    let piece = "x".repeat(1000);
    let mut pushed = 0;
    while owner.room().now_or_never().is_some() {
        owner.push(ROOT, delta(0, &piece));
        pushed += piece.len();
    }
    assert!((UNCOMMITTED_BYTES_MAX - 20_000..=UNCOMMITTED_BYTES_MAX).contains(&pushed), "{pushed}");
    store.release();
    owner.room().await.unwrap();
    owner.commit().await.unwrap();
    assert_eq!(owner.with_transcript(|transcript| transcript.words(ROOT).len()), pushed);
}

#[tokio::test]
async fn a_frame_is_cut_no_larger_than_what_may_be_uncommitted() {
    let (store, log) = faulty();
    let owner = create(&log).await;
    let run = owner.run();
    // Different parts, so that deltas are not joined.
    let large = |part| delta(part, &"x".repeat(300_000));
    owner.push_all((0..10).map(|part| (ROOT, large(part))));
    assert_eq!(owner.commit().await.unwrap(), Seq(11));
    let page = log.store().read(run, Seq(0), usize::MAX).await.unwrap();
    assert_eq!(page.frames.iter().map(|frame| frame.count).collect::<Vec<_>>(), [1, 3, 3, 3, 1]);
    assert!(page.frames.iter().all(|frame| frame.body.len() <= UNCOMMITTED_BYTES_MAX));
    // A single event may be larger, up to the store's maximum.
    let largest = log.store().frame_bytes_max();
    owner.push(ROOT, delta(0, &"x".repeat(largest + 1)));
    let lost = owner.lost().await;
    assert!(matches!(lost, AppendError::TooLarge { max, .. } if max == largest), "{lost:?}");
    assert_eq!(store.appends.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn deltas_are_joined_only_past_the_maximum() {
    for (waiting, want) in [(JOIN_PAST, JOIN_PAST), (JOIN_PAST + 1, 2)] {
        let (store, log) = faulty();
        let owner = create(&log).await;
        store.hold();
        owner.push_all([(ROOT, part_started(0)), (ROOT, part_started(1))]);
        // All of one part, except for the last one.
        let events = (1..waiting).map(|_| delta(0, "ab")).chain([delta(1, "é")]);
        owner.push_all(events.map(|event| (ROOT, event)));
        store.release();
        assert_eq!(owner.commit().await.unwrap(), Seq(3 + want as u64), "{waiting} waited");
        owner.with_transcript(|transcript| {
            assert_eq!(transcript.words(ROOT), "ab".repeat(waiting - 1) + "é");
        });
    }
}

#[tokio::test]
async fn a_tail_is_bounded_per_run_and_per_process() {
    let options = LogOptions { tail_bytes_total_max: 3 * TAIL_BYTES_MAX, ..LogOptions::default() };
    assert!(TAIL_BYTES_TOTAL_MAX > options.tail_bytes_total_max);
    let log = Log::new(Arc::new(MemoryStore::default()), options);
    let mut runs = Vec::new();
    let mut largest = 0;
    for number in 0..5 {
        let owner = create(&log).await;
        let reader = log.cursor(owner.run(), Seq(0)).await.unwrap();
        owner.push(ROOT, part_started(0));
        let before = log.tail_bytes();
        for _ in 0..60 {
            owner.push(ROOT, delta(0, &"x".repeat(10_000)));
            largest = largest.max(log.tail_bytes());
            assert!(log.tail_bytes() <= 3 * TAIL_BYTES_MAX);
            assert!(number > 0 || log.tail_bytes() <= TAIL_BYTES_MAX);
        }
        assert!(number > 2 || log.tail_bytes() > before + TAIL_BYTES_MAX - 20_000);
        runs.push((owner, reader));
    }
    assert!(largest > 3 * TAIL_BYTES_MAX - 30_000, "the total was never reached: {largest}");
    for (owner, mut reader) in runs {
        owner.push_all([(ROOT, part_finished(0)), (ROOT, finished())]);
        let mut seen = Vec::new();
        while let Some(frames) = reader.next().await.unwrap() {
            frames.iter().for_each(|slice| seen.extend_from_slice(slice));
        }
        assert_eq!(seen, records(&log, owner.run(), Seq(0)).await);
        assert_eq!(seen.len(), 64);
    }
    assert_eq!((log.tail_bytes(), log.live_runs()), (0, 0));
}

#[tokio::test]
async fn far_reads_come_in_pages() {
    let (_, log) = faulty();
    let owner = create(&log).await;
    owner.push(ROOT, part_started(0));
    for _ in 0..100 {
        owner.push(ROOT, delta(0, &"x".repeat(10_000)));
    }
    let mut late = log.cursor(owner.run(), Seq(2)).await.unwrap();
    let mut pages = Vec::new();
    while late.position() < Seq(102) {
        pages.push(late.next().await.unwrap().unwrap().len());
    }
    let per_page = PAGE_BYTES / 10_000;
    assert_eq!(pages.iter().sum::<usize>(), 100);
    assert!(pages.iter().all(|frames| *frames <= per_page), "{pages:?}");
    assert_eq!(pages[0], per_page);
}

#[tokio::test]
async fn an_outline_is_kept_every_so_many_bytes() {
    let (store, log) = faulty();
    let owner = create(&log).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    for _ in 0..20 {
        owner.push(ROOT, delta(0, &"x".repeat(OUTLINE_BYTES / 4)));
    }
    owner.push_all([(ROOT, part_finished(0)), (ROOT, finished())]);
    owner.commit().await.unwrap();
    while store.snapshots.lock().unwrap().len() < 5 {
        tokio::task::yield_now().await; // the tasks that put them
    }
    let mut kept = store.snapshots.lock().unwrap().clone();
    kept.sort_unstable();
    let outlines = [6, 10, 14, 18, 22].map(|at| (SnapshotKind::Outline, Seq(at)));
    assert_eq!(kept, outlines);
    // The transcript is stored with the run's last frame.
    let whole = log.store().snapshot(run, SnapshotKind::Transcript, Seq(99)).await.unwrap();
    assert_eq!(whole.map(|(at, _)| at), Some(Seq(24)));
    let outline = log.outline_before(run, Seq(19)).await.unwrap();
    assert_eq!(outline.head, Seq(19));
    let words = log.transcript(run).await.unwrap().words(ROOT);
    assert_eq!(words.len(), 20 * (OUTLINE_BYTES / 4));
    // A snapshot that cannot be read is ignored.
    for body in ["", "\u{1}", "\u{1}{}", "\u{2}{}", "x"] {
        log.store().put_snapshot(run, SnapshotKind::Outline, Seq(20), body.into()).await.unwrap();
        assert_eq!(log.outline_before(run, Seq(21)).await.unwrap().head, Seq(21));
    }
}

/// Finished runs are dropped, the oldest first; running ones stay complete.
#[tokio::test]
async fn memory_forgets_finished_runs_at_its_maximum() {
    let log = Log::new(Arc::new(MemoryStore::with_bytes_max(200_000)), LogOptions::default());
    let going_on = create(&log).await;
    going_on.push_all([part_started(0), delta(0, &"y".repeat(20_000))].map(|event| (ROOT, event)));
    going_on.commit().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        let owner = create(&log).await;
        let words = delta(0, &"x".repeat(30_000));
        let events = [part_started(0), words, part_finished(0), finished()];
        owner.push_all(events.map(|event| (ROOT, event)));
        owner.commit().await.unwrap();
        runs.push(owner.run());
    }
    let mut kept = Vec::new();
    for run in &runs {
        kept.push(log.store().info(*run).await.unwrap().is_some());
    }
    assert_eq!(kept, [false, false, false, true, true]);
    assert_eq!(going_on.with_transcript(|it| it.words(ROOT).len()), 20_000);
    going_on.push_all([part_finished(0), finished()].map(|event| (ROOT, event)));
    going_on.commit().await.unwrap();
}

#[tokio::test]
async fn memory_refuses_to_grow_past_its_maximum() {
    let log = Log::new(Arc::new(MemoryStore::with_bytes_max(100_000)), LogOptions::default());
    let first = create(&log).await;
    first.push_all(
        [part_started(0), delta(0, &"x".repeat(40_000)), part_finished(0)]
            .map(|event| (ROOT, event)),
    );
    first.commit().await.unwrap();
    let owner = create(&log).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    owner.commit().await.unwrap();
    owner.push(ROOT, delta(0, &"x".repeat(80_000)));
    let lost = owner.lost().await;
    assert_eq!(
        lost.to_string(),
        "the store in memory is full: at most 100000; wait until a run has finished, or keep runs \
         on disk"
    );
    assert!(matches!(lost, AppendError::Store(StoreError::Full { max: 100_000, .. })));
    // After the remedy, writes succeed again and no data is lost.
    first.push(ROOT, finished());
    first.commit().await.unwrap();
    let heir = log.adopt(run).await.unwrap();
    heir.push(ROOT, delta(0, &"x".repeat(80_000)));
    heir.commit().await.unwrap();
    assert_eq!(heir.with_transcript(|transcript| transcript.words(ROOT).len()), 80_000);
}

#[tokio::test]
async fn an_encoding_is_made_once_and_slots_are_bounded() {
    let (_, log) = faulty();
    let owner = create(&log).await;
    let mut cursor = log.cursor(owner.run(), Seq(0)).await.unwrap();
    let frames = cursor.next().await.unwrap().unwrap();
    let frame = frames[0].frame();
    for (slot, made_again) in
        [(ENCODED_SLOTS, "second"), (0, "first"), (ENCODED_SLOTS - 1, "first")]
    {
        assert_eq!(frame.encoded(slot, || Bytes::from("first")), "first");
        assert_eq!(frame.encoded(slot, || Bytes::from("second")), made_again);
    }
    assert_eq!((frames[0].skip(), frame.last()), (0, Seq(1)));
}

#[tokio::test]
async fn a_title_is_a_line() {
    let log = Log::in_memory();
    let mut started = started();
    started.request = RunRequest::text("  é".to_owned() + &"x".repeat(200) + "\nmore");
    let _owner = log.create("tenant", started).await.unwrap();
    let found = log.store().list(RunFilter::default()).await.unwrap();
    assert_eq!(*found[0].title, *("é".to_owned() + &"x".repeat(79)));
}

#[tokio::test]
async fn an_event_that_nests_too_deep_is_an_error_and_one_from_a_wire_is_not() {
    for (depth, fits) in [(127, true), (500, true), (513, false)] {
        let (_, log) = faulty();
        let owner = create(&log).await;
        let mut value = serde_json::Value::Null;
        for _ in 0..depth {
            value = serde_json::Value::Array(vec![value]);
        }
        let event = Event::ResultReady { value: Box::new(value) };
        owner.push(AgentNo(0), event.clone());
        if fits {
            owner.commit().await.unwrap();
            let mut cursor = log.cursor(owner.run(), Seq(1)).await.unwrap();
            assert_eq!(cursor.next().await.unwrap().unwrap()[0][0].event, event);
        } else {
            let source = std::error::Error::source(&owner.lost().await).unwrap().to_string();
            assert_eq!(source, "record 2 nests deeper than 512 levels");
        }
    }
}

/// A sleeping reader costs its share of the tail and no more, however many records arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeping_reader_grows_nothing_and_misses_nothing() {
    let deltas = soak(100_000, 1_000_000) as usize;
    let sqlite = crate::stores::Sqlite::new(wellspring_log::Durability::ProcessCrash);
    let log = Log::new(Arc::new(sqlite.store()), LogOptions::default());
    let owner = create(&log).await;
    let mut sleeper = log.cursor(owner.run(), Seq(0)).await.unwrap();
    owner.push(ROOT, part_started(0));
    for number in 0..deltas / 50 {
        owner.room().await.unwrap();
        owner.push_all((0..50).map(|place| (ROOT, delta(0, &format!(" {}", number * 50 + place)))));
        assert!(log.tail_bytes() <= TAIL_BYTES_MAX);
        tokio::task::yield_now().await;
    }
    owner.push_all([(ROOT, part_finished(0)), (ROOT, finished())]);
    let mut text = String::new();
    while let Some(frames) = sleeper.next().await.unwrap() {
        for record in frames.iter().flat_map(|slice| slice.records()) {
            if let Event::PartDelta { chunk, .. } = &record.event {
                text.push_str(chunk);
            }
        }
    }
    assert_eq!(text, (0..deltas).map(|number| format!(" {number}")).collect::<String>());
}
