//! Owners: failing stores, take-overs, zombies, leases and the inbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use wellspring_core::{
    CancelWhen, Command, Event, InboxNo, Millis, Outcome, Record, RunId, Seq, Transcript, render,
};
use wellspring_log::{
    AdoptError, AppendError, Log, LogOptions, MemoryStore, NewCommand, PutAll, ReadError, RunState,
    TokioClock,
};

use crate::fakes::{Fault, Faulty};
use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records, started};

fn named(node: &str) -> LogOptions {
    let clock = Arc::new(TokioClock::starting_at(Millis(1_000_000)));
    LogOptions { node: node.into(), clock, ..LogOptions::default() }
}

/// Two processes over the same runs; the first one's store can misbehave.
fn two_nodes() -> (Arc<Faulty>, Log, Log) {
    let memory = MemoryStore::default();
    let beside = memory.beside();
    let faulty = Arc::new(Faulty::new(memory));
    let first = Log::new(Arc::clone(&faulty) as _, named("first"));
    (faulty, first, Log::new(Arc::new(beside), named("second")))
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
    let Err(AdoptError::Owned { lease: Some(lease), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(&*lease.node, "first");
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
    // The zombie's own readers go on with what the heir writes.
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
    // Alive, it renews; nobody takes it, however long it takes.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(matches!(second.adopt(run).await, Err(AdoptError::Owned { .. })));
    faulty.frozen.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(45)).await;
    let expired = second.store().expired(second.clock().now(), 10).await.unwrap();
    assert_eq!(expired, [run]);
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
async fn a_dropped_owner_is_no_longer_renewed() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    drop(owner);
    assert!(!first.owner_is_here(run));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let heir = second.adopt(run).await.unwrap();
    // What was pushed before the drop is there.
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
    assert_eq!((info.state, info.lease), (RunState::Paused, None));
    drop(owner);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(second.store().expired(second.clock().now(), 9).await.unwrap(), []);
    let heir = second.adopt(run).await.unwrap();
    let info = second.store().info(run).await.unwrap().unwrap();
    assert_eq!((info.state, info.epoch), (RunState::Running, 1));
    // The same owner may pause and go on itself; its lease comes back with that.
    heir.push(ROOT, Event::RunPaused { waits: vec![] });
    heir.push(ROOT, Event::RunResumed { inbox: None, wire_run: None, amended: None });
    heir.commit().await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let info = first.store().info(run).await.unwrap().unwrap();
    assert_eq!(info.state, RunState::Running);
    assert!(info.lease.unwrap().until > first.clock().now());
}

#[tokio::test(start_paused = true)]
async fn an_inbox_wakes_its_owner_wherever_it_was_filled() {
    let (_, first, second) = two_nodes();
    let owner = create(&first).await;
    let run = owner.run();
    // Nothing can be in the inbox of a run that was just created.
    assert!(owner.inbox_changed().now_or_never().is_none());
    assert_eq!(owner.inbox().await.unwrap(), []);
    assert!(owner.inbox_changed().now_or_never().is_none());
    for log in [&first, &second] {
        let commands = vec![NewCommand { key: log.node().into(), command: cancel(), audit: None }];
        log.send(run, commands.clone()).await.unwrap();
        // Sent between the look and the wait: the wait ends at once.
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
    // Whoever adopts knows what was taken.
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
    // Repaired, the run goes on under a new owner, and the reader with it.
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
    // But somebody else's run of the same id is not ours.
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
    assert!(matches!(one.and(two), Err(AdoptError::Owned { lease: None, .. })));
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

    /// However appends fail, nothing is lost and nothing is there twice.
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
            // Never as many in a row as make an owner give up.
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
