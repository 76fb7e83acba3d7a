//! Owners: failing stores, adoptions, zombies, leases and the inbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use wellspring_core::{
    CancelWhen, Command, Event, InboxNo, Millis, Outcome, Record, RunId, Seq, Transcript, render,
};
use wellspring_log::{
    AdoptError, AppendError, Clock, Log, LogOptions, MemoryStore, NewCommand, PutAll, ReadError,
    RunState, TokioClock,
};

use crate::fakes::{Fault, Faulty};
use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records, started};

fn named(node: &str) -> LogOptions {
    let clock = Arc::new(TokioClock::starting_at(Millis(1_000_000)));
    LogOptions { node: node.into(), clock, ..LogOptions::default() }
}

/// Two processes over the same runs; the first one's store can be made to fail.
fn two_nodes() -> (Arc<Faulty>, Log, Log) {
    let memory = MemoryStore::default();
    let reopened = memory.reopen();
    let faulty = Arc::new(Faulty::new(memory));
    let first = Log::new(Arc::clone(&faulty) as _, named("first"));
    (faulty, first, Log::new(Arc::new(reopened), named("second")))
}

/// The runs that a log would adopt now.
async fn due(log: &Log) -> Vec<RunId> {
    let page = log.due(None, 10).await.unwrap();
    page.runs.into_iter().map(|due| due.run).collect()
}

fn cancel() -> Command {
    Command::Cancel { when: CancelWhen::Now, by: None, why: None }
}

fn texts(records: &[Record]) -> String {
    let mut texts = String::new();
    for record in records {
        if let Event::PartDelta { chunk, .. } = &record.event {
            texts.push_str(chunk);
        }
    }
    texts
}

#[tokio::test(start_paused = true)]
async fn a_zombie_writes_nothing() {
    let (_, first, second) = two_nodes();
    let zombie = create(&first).await;
    let run = zombie.run();
    zombie.push(ROOT, part_started(0));
    zombie.commit().await.unwrap();
    let mut reader = first.cursor(run, Seq(2)).await.unwrap();

    let refused = second.adopt(run).await;
    let Err(AdoptError::Owned { owner: Some(owner), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(&*owner, "first");
    let heir = second.take_over(run).await.unwrap();
    assert_eq!((heir.epoch(), zombie.epoch()), (1, 0));
    zombie.push(ROOT, delta(0, "from the grave"));
    let lost = zombie.lost().await;
    assert!(matches!(lost, AppendError::Conflict { head: Seq(3), .. }), "{lost:?}");
    zombie.push(ROOT, delta(0, "again"));
    assert_eq!(zombie.commit().await.unwrap_err().to_string(), lost.to_string());
    assert_eq!(zombie.room().await.unwrap_err().to_string(), lost.to_string());
    assert!(!first.owner_is_here(run) && second.owner_is_here(run));

    heir.push_all([delta(0, "heir"), part_finished(0), finished()].map(|event| (ROOT, event)));
    heir.commit().await.unwrap();
    // The zombie's own readers continue with the successor's records.
    let mut seen = Vec::new();
    while let Some(frames) = reader.next().await.unwrap() {
        frames.iter().for_each(|slice| seen.extend_from_slice(slice));
    }
    assert_eq!(seen, records(&second, run, Seq(2)).await);
    assert_eq!(
        render(&seen),
        "run adopted by second, epoch 1\npart 0 delta \"heir\"\npart 0 finished\n\
         run finished completed end_turn\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frozen_owner_is_succeeded_and_thaws_in_vain() {
    let (faulty, first, second) = two_nodes();
    let frozen = create(&first).await;
    let run = frozen.run();
    // It writes heartbeats while it is alive, so no other node takes the run, however long it
    // works.
    assert_eq!(due(&second).await, []);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(due(&second).await, []);
    assert!(matches!(second.adopt(run).await, Err(AdoptError::Owned { .. })));
    faulty.frozen.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(due(&second).await, [run]);
    let heir = second.adopt(run).await.unwrap();
    faulty.frozen.store(false, Ordering::SeqCst);
    frozen.push(ROOT, part_started(7));
    assert!(matches!(frozen.commit().await, Err(AppendError::Conflict { .. })));
    heir.push(ROOT, finished());
    heir.commit().await.unwrap();
    let want = "run started by demo {\"text\":\"hello\"}\nrun adopted by second, epoch 1\n\
                run finished completed end_turn\n";
    assert_eq!(render(&records(&first, run, Seq(0)).await), want);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_owner_releases_its_run_at_once() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    drop(owner);
    assert!(!first.owner_is_here(run));
    while due(&second).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let heir = second.adopt(run).await.unwrap();
    // What was pushed before the drop is committed.
    assert!(heir.with_transcript(|transcript| transcript.outline.parts.len()) == 1);
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_has_no_owner_and_anyone_may_adopt_it() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    owner.push(ROOT, Event::RunPaused { waits: vec![] });
    owner.commit().await.unwrap();
    let info = second.store().info(run).await.unwrap().unwrap();
    assert_eq!((info.state, info.owner), (RunState::Paused, None));
    drop(owner);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(due(&second).await, []);
    let heir = second.adopt(run).await.unwrap();
    let info = second.store().info(run).await.unwrap().unwrap();
    assert_eq!((info.state, info.epoch), (RunState::Running, 1));
    // The same owner may pause and continue; that makes it the owner again.
    heir.push(ROOT, Event::RunPaused { waits: vec![] });
    heir.push(ROOT, Event::RunResumed { inbox: None, wire_run: None, amended: None });
    heir.commit().await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let info = first.store().info(run).await.unwrap().unwrap();
    assert_eq!(info.state, RunState::Running);
    assert_eq!(info.owner.as_deref(), Some("second"));
    assert_eq!(due(&first).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_wakes_its_owner_wherever_it_was_filled() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    // The inbox of a run that was just created is empty.
    assert!(owner.inbox_changed().now_or_never().is_none());
    assert_eq!(owner.inbox().await.unwrap(), []);
    assert!(owner.inbox_changed().now_or_never().is_none());
    for log in [&first, &second] {
        let commands = vec![NewCommand { key: log.node().into(), command: cancel(), audit: None }];
        log.send(run, commands.clone()).await.unwrap();
        // Sent between the read and the wait: the wait ends at once.
        owner.inbox_changed().await;
        let PutAll::Done(again) = log.send(run, commands).await.unwrap() else { unreachable!() };
        assert!(again[0].existed);
        owner.inbox().await.unwrap();
    }
    let keys = |entries: Vec<wellspring_log::InboxEntry>| -> Vec<String> {
        entries.into_iter().map(|entry| entry.key.to_string()).collect()
    };
    assert_eq!(keys(owner.inbox().await.unwrap()), ["first", "second"]);
    owner.push(ROOT, Event::RunResumed { inbox: Some(InboxNo(1)), wire_run: None, amended: None });
    assert_eq!(keys(owner.inbox().await.unwrap()), ["second"]);
    assert!(owner.inbox_changed().now_or_never().is_none());
    drop(owner);
    // The next owner knows which entries were taken.
    let heir = first.adopt(run).await.unwrap();
    heir.inbox_changed().await;
    assert_eq!(keys(heir.inbox().await.unwrap()), ["second"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_failing_loses_the_owner_and_tells_the_readers() {
    let (faulty, first, _) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    let mut reader = first.cursor(run, Seq(0)).await.unwrap();
    reader.next().await.unwrap();
    faulty.broken.store(true, Ordering::SeqCst);
    owner.push(ROOT, part_started(0));
    let lost = owner.lost().await;
    assert!(matches!(lost, AppendError::Store(_)), "{lost:?}");
    assert!(matches!(reader.next().await, Err(ReadError::OwnerLost(_))));
    assert_eq!(reader.position(), Seq(1));
    assert!(matches!(first.adopt(run).await, Err(AdoptError::Store(_))));
    // After the repair, the run continues under a new owner, and so does the reader.
    faulty.broken.store(false, Ordering::SeqCst);
    let heir = first.adopt(run).await.unwrap();
    heir.push(ROOT, finished());
    heir.commit().await.unwrap();
    let mut seen = Vec::new();
    while let Some(frames) = reader.next().await.unwrap() {
        frames.iter().for_each(|slice| seen.extend_from_slice(slice));
    }
    assert_eq!(seen, records(&first, run, Seq(1)).await);
    assert_eq!(seen.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_is_found_again() {
    for fault in [Fault::Lost, Fault::Stored] {
        let (faulty, first, second) = two_nodes();
        faulty.plan([fault]);
        let owner = create(&first).await;
        assert_eq!(owner.commit().await.unwrap(), Seq(1));
        assert_eq!(second.transcript(owner.run()).await.unwrap().outline.head, Seq(1));
    }
    // A run of the same id that another process created is not ours.
    let (faulty, first, second) = two_nodes();
    let started = started();
    let other = wellspring_core::RunStarted { agent: "other".into(), ..started.clone() };
    let _owner = second.create("tenant", other).await.unwrap();
    faulty.plan([Fault::Lost]);
    assert!(first.create("tenant", started).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn adopting_one_run_twice_gives_one_owner() {
    let (_, first, _) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    drop(owner);
    let (one, two) = tokio::join!(first.adopt(run), first.adopt(run));
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1);
    assert!(matches!(one.and(two), Err(AdoptError::Owned { owner: None, .. })));
    let none = RunId::new(uuid::Uuid::nil());
    assert!(matches!(first.adopt(none).await, Err(AdoptError::NoRun(named)) if named == none));
}

#[tokio::test(start_paused = true)]
async fn an_adoption_gives_up_when_the_head_never_rests() {
    let (faulty, first, second) = two_nodes();
    let owner = create(&second).await;
    let run = owner.run();
    faulty.racing.store(true, Ordering::SeqCst);
    let refused = first.take_over(run).await;
    let Err(AdoptError::Contended { head, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(head, Seq(9));
    faulty.racing.store(false, Ordering::SeqCst);
    assert_eq!(first.take_over(run).await.unwrap().epoch(), 1);
}

#[tokio::test(start_paused = true)]
async fn times_never_go_back_and_the_end_is_the_end() {
    let (_, first, second) = two_nodes();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let owner = create(&first).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    tokio::time::sleep(Duration::from_millis(250)).await;
    owner.push(ROOT, part_finished(0));
    let outcome = Box::new(Outcome::Cancelled { by: None, why: None, inbox: None });
    owner.push_all([(ROOT, Event::RunFinished { outcome }), (ROOT, part_started(1))]);
    owner.push(ROOT, part_started(2));
    assert_eq!(owner.commit().await.unwrap(), Seq(4));
    let records = records(&second, run, Seq(0)).await;
    let times: Vec<_> = records.iter().map(|record| record.at.0 - 1_000_000).collect();
    assert_eq!(times, [7000, 7000, 7250, 7250]);
    let info = first.store().info(run).await.unwrap().unwrap();
    assert_eq!((info.state, info.updated_at), (RunState::Cancelled, Millis(1_007_250)));
    assert_eq!(first.purge(Millis(1_007_250), 10).await.unwrap(), 0);
    assert_eq!(first.purge(Millis(1_007_251), 10).await.unwrap(), 1);
    assert_eq!(first.store().info(run).await.unwrap(), None);
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        1 => Just(Fault::Lost),
        1 => Just(Fault::Stored),
        1 => Just(Fault::Late),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However appends fail, nothing is lost and nothing is duplicated.
    #[test]
    fn ambiguous_appends_neither_lose_nor_double(
        faults in prop::collection::vec(fault(), 0..40),
        pushes in prop::collection::vec("[a-z]{1,5}", 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (faulty, first, second) = two_nodes();
            let owner = create(&first).await;
            let run = owner.run();
            let mut reader = first.cursor(run, Seq(0)).await.unwrap();
            // Never as many in a row as would make an owner give up.
            let mut row = 0;
            faulty.plan(faults.into_iter().map(|fault| {
                row = if fault == Fault::None { 0 } else { row + 1 };
                if row > 3 { row = 0; Fault::None } else { fault }
            }));
            owner.push(ROOT, part_started(0));
            for text in &pushes {
                owner.push(ROOT, delta(0, text));
                tokio::task::yield_now().await;
            }
            owner.push_all([part_finished(0), finished()].map(|event| (ROOT, event)));
            owner.commit().await.unwrap();
            let all = records(&second, run, Seq(0)).await;
            wellspring_core::Checker::check(&all).unwrap();
            assert_eq!(texts(&all), pushes.concat());
            let mut seen = Vec::new();
            while let Some(frames) = reader.next().await.unwrap() {
                frames.iter().for_each(|slice| seen.extend_from_slice(slice));
            }
            assert_eq!(seen, all);
            owner.with_transcript(|transcript| assert_eq!(*transcript, Transcript::fold(&all)));
        });
    }
}

/// A clock whose wall-clock time steps.
struct Stepping {
    tokio: TokioClock,
    step: std::sync::atomic::AtomicI64,
}

impl Clock for Stepping {
    fn now(&self) -> Millis {
        let step = self.step.load(Ordering::SeqCst);
        Millis(self.tokio.now().0.saturating_add_signed(step))
    }

    fn monotonic(&self) -> Duration {
        self.tokio.monotonic()
    }
}

/// However the clocks of two nodes step, even by a year, neither takes the other's run, and the
/// owner's working time is correct.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_takes_no_run_and_no_time() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;
    for steps in [[YEAR, 0], [0, YEAR], [-YEAR, 0], [0, -YEAR], [YEAR, -YEAR]] {
        let memory = MemoryStore::default();
        let start = Millis(2 * YEAR.unsigned_abs());
        let clocks = [(); 2].map(|()| {
            let tokio = TokioClock::starting_at(start);
            Arc::new(Stepping { tokio, step: 0.into() })
        });
        let log = |node: &str, clock: &Arc<Stepping>| {
            let clock = Arc::clone(clock) as Arc<dyn Clock>;
            let options = LogOptions { node: node.into(), clock, ..LogOptions::default() };
            Log::new(Arc::new(memory.reopen()), options)
        };
        let (first, second) = (log("first", &clocks[0]), log("second", &clocks[1]));
        let owner = create(&first).await;
        assert_eq!(due(&second).await, []);
        tokio::time::sleep(Duration::from_secs(60)).await;
        for (clock, step) in clocks.iter().zip(steps) {
            clock.step.store(step, Ordering::SeqCst);
        }
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(due(&second).await, [], "{steps:?}");
        }
        assert!(second.adopt(owner.run()).await.is_err());
        owner.push(ROOT, Event::RunPaused { waits: vec![] });
        owner.commit().await.unwrap();
        let worked = owner.with_transcript(|transcript| transcript.worked);
        assert_eq!(worked, Duration::from_secs(120), "{steps:?}");
    }
}

/// Two nodes that cannot read each other's heartbeats take a run from each other less and less
/// often: a few times per day, not thousands of times.
#[tokio::test(start_paused = true)]
async fn a_run_that_keeps_changing_owners_is_left_with_one() {
    let memory = MemoryStore::default();
    let node = |name: &str| {
        let store = Arc::new(Faulty::new(memory.reopen()));
        store.frozen.store(true, Ordering::SeqCst);
        Log::new(store, named(name))
    };
    let logs = [node("first"), node("second")];
    let mut owner = create(&logs[0]).await;
    let run = owner.run();
    let mut taken = 0;
    for _ in 0..24 * 60 * 6 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        for log in &logs {
            if due(log).await == [run] && log.node() != owner_of(&logs[0], run).await {
                let heir = log.adopt(run).await.unwrap();
                // The other node notices when it appends next.
                owner.push(ROOT, part_started(100 + taken));
                owner.lost().await;
                owner = heir;
                taken += 1;
            }
        }
    }
    assert!((1..60).contains(&taken), "taken {taken} times");
}

async fn owner_of(log: &Log, run: RunId) -> String {
    log.store().info(run).await.unwrap().unwrap().owner.unwrap().into()
}

/// After a process was frozen, missed heartbeats do not count as silence.
#[tokio::test(start_paused = true)]
async fn silence_is_not_counted_while_nobody_listens() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    assert_eq!(due(&second).await, []);
    // Both processes are frozen: no task of theirs runs while time passes.
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(due(&second).await, []);
    assert!(second.adopt(owner.run()).await.is_err());
}

/// An append with a late outcome does not cost an owner its run, if the log may wait for it.
#[tokio::test(start_paused = true)]
async fn how_long_an_append_may_settle_is_an_option() {
    for (settle, survives) in [(5, false), (20, true)] {
        let faulty = Arc::new(Faulty::new(MemoryStore::default()));
        let settle = Duration::from_secs(settle);
        let log = Log::new(Arc::clone(&faulty) as _, LogOptions { settle, ..named("first") });
        let owner = create(&log).await;
        faulty.broken.store(true, Ordering::SeqCst);
        owner.push(ROOT, part_started(0));
        // As long as a store may need to elect a leader.
        tokio::time::sleep(Duration::from_secs(7)).await;
        faulty.broken.store(false, Ordering::SeqCst);
        assert_eq!(owner.commit().await.is_ok(), survives, "{settle:?}");
    }
}

/// An entry without effect is taken by the next frame, and does not make a paused run due.
#[tokio::test(start_paused = true)]
async fn a_dismissed_entry_is_not_read_again() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    let new = |key: &str| NewCommand { key: key.into(), command: cancel(), audit: None };
    second.send(run, vec![new("a"), new("b")]).await.unwrap();
    let entries = owner.inbox().await.unwrap();
    owner.dismiss(entries[0].number);
    owner.pause(vec![], Some(Millis(u64::MAX)));
    owner.commit().await.unwrap();
    assert_eq!(owner.inbox().await.unwrap(), entries[1..]);
    assert_eq!(due(&second).await, [run], "the other entry waits");
    let heir = second.adopt(run).await.unwrap();
    heir.dismiss(entries[1].number);
    heir.pause(vec![], Some(Millis(2_000_000)));
    heir.commit().await.unwrap();
    assert_eq!(due(&first).await, []);
    tokio::time::sleep(Duration::from_secs(999)).await;
    assert_eq!(due(&first).await, []);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(due(&first).await, [run], "its deadline");
}

/// Readers of idle runs read nothing when another run changes.
#[tokio::test(start_paused = true)]
async fn an_idle_reader_costs_no_reads() {
    let memory = MemoryStore::default();
    let here = Log::new(Arc::new(memory.reopen()), named("first"));
    let store = Arc::new(Faulty::new(memory));
    let there = Log::new(Arc::clone(&store) as _, named("second"));
    let busy = create(&here).await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        let owner = create(&here).await;
        let mut reader = there.cursor(owner.run(), Seq(1)).await.unwrap();
        let waits = tokio::spawn(async move { reader.next().await.map(drop) });
        idle.push((owner, waits));
    }
    let mut reader = there.cursor(busy.run(), Seq(1)).await.unwrap();
    assert!(reader.next().now_or_never().is_none());
    let reads = || store.reads.load(Ordering::SeqCst);
    // Each reads once, finds nothing and waits.
    while reads() < 101 {
        tokio::task::yield_now().await;
    }
    for part in 0..10 {
        busy.push(ROOT, part_started(part));
        busy.commit().await.unwrap();
        reader.next().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(reads() - 101 <= 20, "{} reads for 10 commits", reads() - 101);
    assert!(idle.iter().all(|(_, waits)| !waits.is_finished()));
}

/// A node writes one heartbeat for all its runs, and none while it has no runs.
#[tokio::test(start_paused = true)]
async fn a_node_beats_once_for_all_its_runs() {
    let (faulty, first, _) = two_nodes();
    let mut owners = Vec::new();
    for _ in 0..50 {
        owners.push(create(&first).await);
    }
    let beats = || faulty.beats.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(beats(), 31, "one at once, then one every ten seconds");
    drop(owners);
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(beats(), 31);
}
