//! The test suite for stores. Each case cites the numbers of the [contract](crate::Store) that
//! it tests.
//!
//! [`store_suite!`](crate::store_suite) generates a module of tests from it. Stores in other
//! crates use the same suite.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests: a panic is a failed one"
)]

mod audit;
mod damage;
mod documents;
mod keeping;
mod owners;
mod threads;
mod watching;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use uuid::Uuid;
use wellspring_core::{
    Answer, CancelWhen, Command, Content, InboxNo, Millis, QuestionId, RunId, Seq, ThreadId,
};

use crate::inbox::{
    INBOX_ANSWERS_MAX, INBOX_CANCELS_MAX, INBOX_MAX, InboxEntry, NewCommand, Put, PutAll,
};
use crate::store::{
    Append, AppendError, Created, ExternalId, HistoryQuery, LIST_MAX, NewFrame, NewRun, RunFilter,
    RunInfo, RunState, SnapshotKind, Store, StoreError, StoredFrame,
};

pub use self::audit::{an_audit_is_bounded, an_audit_outlives_its_runs};
pub use self::damage::nothing_damaged_is_served;
pub use self::documents::{
    documents_are_bounded, documents_are_listed_by_prefix,
    documents_are_written_by_compare_and_set, of_two_writers_of_a_document_one_wins,
};
pub use self::keeping::{a_backup_is_whole_or_refused, retention_takes_what_is_old_and_over};
pub use self::owners::{
    beats_are_counted_per_node, due_is_paged_without_a_window, owners_follow_appends_and_states,
    what_is_due_comes_in_order,
};
pub use self::threads::{threads_are_found_by_words, threads_are_listed_and_changed};
pub use self::watching::{a_deleted_run_wakes_its_watch, a_watch_is_woken_by_its_run_only};

/// A storage location that can be opened as a store more than once.
pub trait Subject {
    /// Opens the store as another process would.
    fn open(&self) -> Arc<dyn Store>;

    /// Opens a backup; `None` for a store without backups.
    fn open_backup(&self, _backup: &Path) -> Option<Arc<dyn Store>> {
        None
    }

    /// Damages the stored data of a run while the store is not open. Returns whether it could:
    /// a store in memory cannot be damaged.
    fn damage(&self, _run: RunId, _what: Damage) -> bool {
        false
    }
}

/// What to damage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// The bytes of its second frame.
    Frame,
    /// Its second frame is gone.
    Missing,
    /// Its second frame is that of another run.
    Foreign(RunId),
    /// Its state: it is kept as unfinished.
    State,
}

/// Generates a test for every case. The expression returns a fresh [`Subject`]; after `maybe:`
/// it returns an `Option`, which is `None` if the server is not installed.
///
/// ```
/// # use std::sync::Arc;
/// use wellspring_log::{MemoryStore, Store, suite::Subject};
///
/// struct Memory(MemoryStore);
///
/// impl Subject for Memory {
///     fn open(&self) -> Arc<dyn Store> {
///         Arc::new(self.0.reopen())
///     }
/// }
///
/// mod memory {
///     wellspring_log::store_suite!(super::Memory(wellspring_log::MemoryStore::default()));
/// }
/// ```
#[macro_export]
macro_rules! store_suite {
    (maybe: $subject:expr) => {
        $crate::store_suite!(@cases $subject;
            what_is_acknowledged_is_read_back
            only_the_head_can_be_continued
            of_two_writers_one_goes_on
            nothing_follows_a_terminal_append
            reads_are_dense_wherever_they_start
            every_failure_is_an_error_and_changes_nothing
            ids_and_threads_are_taken_once
            owners_follow_appends_and_states
            beats_are_counted_per_node
            what_is_due_comes_in_order
            due_is_paged_without_a_window
            an_inbox_takes_each_key_once
            commands_are_put_together_or_not_at_all
            an_inbox_is_bounded
            snapshots_are_found_by_place
            a_history_is_read_in_one_query
            external_ids_belong_to_a_tenant
            a_name_is_taken_with_the_run_or_not_at_all
            documents_are_written_by_compare_and_set
            of_two_writers_of_a_document_one_wins
            documents_are_listed_by_prefix
            documents_are_bounded
            lists_are_filtered_and_paged
            lists_are_bounded
            deletion_leaves_nothing
            retention_takes_what_is_old_and_over
            a_backup_is_whole_or_refused
            an_audit_outlives_its_runs
            an_audit_is_bounded
            threads_are_listed_and_changed
            threads_are_found_by_words
            a_watch_is_woken_by_its_run_only
            a_deleted_run_wakes_its_watch
            nothing_damaged_is_served
        );
    };
    (@cases $subject:expr; $($case:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            if let Some(subject) = $subject {
                $crate::suite::$case(&subject).await;
            }
        }
    )*};
    ($subject:expr) => {
        $crate::store_suite!(maybe: Some($subject));
    };
}

/// Contract 1: acknowledged data is read back, by every process.
pub async fn what_is_acknowledged_is_read_back(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    append(&*store, frame(run, 1, &["b", "c"])).await.unwrap();
    append(&*store, frame(run, 3, &["d"])).await.unwrap();
    let want = [stored(1, &["a"]), stored(2, &["b", "c"]), stored(4, &["d"])];
    for store in [store, subject.open()] {
        let page = store.read(run, Seq(0), usize::MAX).await.unwrap();
        assert_eq!((&page.frames[..], page.head, page.closed), (&want[..], Seq(4), false));
        assert_eq!(store.info(run).await.unwrap(), Some(info(run, 1, RunState::Running, 4)));
    }
}

/// Contract 2: an append whose `expected` is not the head changes nothing.
pub async fn only_the_head_can_be_continued(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    append(&*store, frame(run, 1, &["b"])).await.unwrap();
    for expected in [0, 1, 3, 7] {
        for store in [&store, &subject.open()] {
            let refused = append(&**store, frame(run, expected, &["x"])).await;
            let Err(AppendError::Conflict { run: named, head }) = refused else {
                panic!("expected {expected}: {refused:?}")
            };
            assert_eq!((named, head), (run, Seq(2)), "expected {expected}");
        }
    }
    assert_eq!(bodies(&*store, run).await, ["a", "b"]);
}

/// Contract 2: of two owners only one continues.
pub async fn of_two_writers_one_goes_on(subject: &impl Subject) {
    const APPENDS: u64 = 50;
    let stores = [subject.open(), subject.open()];
    let run = create(&*stores[0], 1).await;
    let race = |store: Arc<dyn Store>, name: &'static str| async move {
        let mut won = Vec::new();
        for expected in 1..=APPENDS {
            // Each waits until its append is decided, then tries the next position.
            match append(&*store, frame(run, expected, &[name])).await {
                Ok(()) => won.push(expected + 1),
                Err(AppendError::Conflict { head, .. }) => assert!(head > Seq(expected)),
                Err(error) => panic!("{error:?}"),
            }
        }
        won
    };
    let [first, second] = stores.clone();
    let (first, second) =
        tokio::join!(tokio::spawn(race(first, "first")), tokio::spawn(race(second, "second")));
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut won: Vec<_> = first.iter().chain(&second).copied().collect();
    won.sort_unstable();
    assert_eq!(won, (2..=APPENDS + 1).collect::<Vec<_>>());
    let first: BTreeSet<_> = first.into_iter().collect();
    let name = |place| if first.contains(&place) { "first" } else { "second" };
    let want: Vec<_> =
        std::iter::once("a").chain((2..=APPENDS + 1).map(name)).map(String::from).collect();
    assert_eq!(bodies(&*stores[1], run).await, want);
}

/// Contract 3: after a terminal append nothing is appended, and no new command is accepted.
pub async fn nothing_follows_a_terminal_append(subject: &impl Subject) {
    let store = subject.open();
    for state in [RunState::Completed, RunState::Cancelled, RunState::Failed] {
        let run = create(&*store, 1).await;
        let early = put_one(&*store, run, "early", "x").await;
        append(&*store, with_state(frame(run, 1, &["end"]), state)).await.unwrap();
        let other = subject.open();
        for store in [&store, &other] {
            let again = put(&**store, run, &[("early", "x")]).await.unwrap();
            assert_eq!(again, PutAll::Done(vec![Put { number: early, existed: true }]));
            let late = put(&**store, run, &[("early", "x"), ("late", "x")]).await;
            assert!(matches!(late, Err(StoreError::Finished(named)) if named == run), "{late:?}");
            for expected in [1, 2] {
                let refused = append(&**store, frame(run, expected, &["x"])).await;
                let closed = matches!(refused, Err(AppendError::Closed(named)) if named == run);
                assert!(closed, "{refused:?}");
            }
            let page = store.read(run, Seq(2), usize::MAX).await.unwrap();
            assert_eq!((page.frames, page.head, page.closed), (vec![], Seq(2), true));
            let mut want = info(run, 1, state, 2);
            (want.owner, want.updated_at) = (None, Millis(1002));
            assert_eq!(store.info(run).await.unwrap(), Some(want));
        }
    }
}

/// Contract 4: a read after `n` starts with `n + 1`, for any page size.
pub async fn reads_are_dense_wherever_they_start(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    let mut head = 1;
    for size in [1usize, 3, 1, 5, 2] {
        append(&*store, frame(run, head, &vec!["xxxx"; size])).await.unwrap();
        head += size as u64;
    }
    for after in 0..=head {
        for bytes_max in [0, 1, 10, 1000] {
            let mut next = after + 1;
            loop {
                let page = store.read(run, Seq(next - 1), bytes_max).await.unwrap();
                assert_eq!(page.head, Seq(head));
                let Some(first) = page.frames.first() else { break };
                let holds = first.first.0..first.first.0 + u64::from(first.count);
                assert!(holds.contains(&next), "after {}, got {first:?}", next - 1);
                for frame in &page.frames {
                    assert!(frame.first.0 <= next, "a gap before {frame:?}");
                    next = frame.first.0 + u64::from(frame.count);
                }
                let bytes = |frames: &[StoredFrame]| -> usize {
                    frames.iter().map(|frame| frame.body.len()).sum()
                };
                assert!(page.frames.len() == 1 || bytes(&page.frames) <= bytes_max);
            }
            assert_eq!(next, head + 1, "after {after}, pages of {bytes_max}");
        }
    }
    let beyond = store.read(run, Seq(head + 5), 1000).await.unwrap();
    assert_eq!((beyond.frames, beyond.head), (vec![], Seq(head)));
}

/// Contract 5: every failure is an error and changes nothing.
pub async fn every_failure_is_an_error_and_changes_nothing(subject: &impl Subject) {
    let store = subject.open();
    let none = run_id(77);
    let no_run = |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::NoRun(run)) if run == none), "{result:?}");
    };
    match append(&*store, frame(none, 0, &["x"])).await {
        Err(AppendError::Store(error)) => no_run(Err(error)),
        other => panic!("{other:?}"),
    }
    no_run(store.read(none, Seq(0), 1).await.map(drop));
    no_run(store.inbox(none, InboxNo(0)).await.map(drop));
    no_run(put(&*store, none, &[("key", "x")]).await.map(drop));
    no_run(store.put_snapshot(none, SnapshotKind::Outline, Seq(1), Bytes::new()).await);
    no_run(store.snapshot(none, SnapshotKind::Outline, Seq(1)).await.map(drop));
    no_run(store.bind(external("t", "s", "id"), none).await.map(drop));
    assert_eq!(store.info(none).await.unwrap(), None);
    assert!(!store.delete(none).await.unwrap());

    let run = create(&*store, 1).await;
    let max = store.frame_bytes_max();
    let mut large = frame(run, 1, &["x"]);
    large.frame.body = vec![0; max + 1].into();
    let refused = append(&*store, large).await;
    let too_large = AppendError::TooLarge { bytes: max + 1, max };
    assert_eq!(refused.unwrap_err().to_string(), too_large.to_string());
    assert!(matches!(store.delete(run).await, Err(StoreError::Unfinished(named)) if named == run));
    assert_eq!(bodies(&*store, run).await, ["a"]);

    let mut largest = frame(run, 1, &["x"]);
    largest.frame.body = vec![7; max].into();
    append(&*store, largest).await.unwrap();
    let page = store.read(run, Seq(1), 1).await.unwrap();
    assert_eq!(page.frames[0].body.len(), max);
}

/// Contract 6: a run id is unique; a thread has at most one unfinished run.
pub async fn ids_and_threads_are_taken_once(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let run = create(&*store, 1).await;
    let same = other.create(new_run(run, 2), first_frame("x")).await.unwrap();
    assert_eq!(same, Created::Exists(Box::new(info(run, 1, RunState::Running, 1))));
    let second = run_id(200);
    let busy = other.create(new_run(second, 1), first_frame("x")).await.unwrap();
    assert_eq!(busy, Created::ThreadBusy(run));
    append(&*store, with_state(frame(run, 1, &["wait"]), RunState::Paused)).await.unwrap();
    let busy = other.create(new_run(second, 1), first_frame("x")).await.unwrap();
    assert_eq!(busy, Created::ThreadBusy(run));
    append(&*store, with_state(frame(run, 2, &["end"]), RunState::Completed)).await.unwrap();
    let first = |run, thread| NewRun { is_first: true, ..new_run(run, thread) };
    let not_first = other.create(first(second, 1), first_frame("x")).await.unwrap();
    assert_eq!(not_first, Created::NotFirst);
    assert_eq!(other.create(new_run(second, 1), first_frame("x")).await.unwrap(), Created::New);
    assert_eq!(bodies(&*store, second).await, ["x"]);
    let third = run_id(201);
    assert_eq!(other.create(first(third, 2), first_frame("x")).await.unwrap(), Created::New);
    let busy_too = other.create(first(run_id(202), 2), first_frame("x")).await.unwrap();
    assert_eq!(busy_too, Created::NotFirst);
}

/// Contract 11: commands are kept once per key, in order, for all processes.
pub async fn an_inbox_takes_each_key_once(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let (run, neighbour) = (create(&*store, 1).await, create(&*store, 2).await);
    let a = put_one(&*store, run, "a", "1").await;
    put_one(&*store, neighbour, "a", "x").await;
    let b = put_one(&*other, run, "b", "2").await;
    let again = put(&*other, run, &[("a", "1")]).await.unwrap();
    assert_eq!(again, PutAll::Done(vec![Put { number: a, existed: true }]));
    let taken = put(&*other, run, &[("a", "3")]).await.unwrap();
    assert_eq!(taken, PutAll::KeyTaken { index: 0, number: a });
    let c = put_one(&*store, run, "c", "4").await;
    assert!(InboxNo(0) < a && a < b && b < c, "{a:?}, {b:?}, {c:?}");
    let all = [entry(a, "a", "1"), entry(b, "b", "2"), entry(c, "c", "4")];
    assert_eq!(other.inbox(run, InboxNo(0)).await.unwrap(), all);
    assert_eq!(store.inbox(run, a).await.unwrap(), all[1..]);
    assert_eq!(store.inbox(run, c).await.unwrap(), []);
}

/// Contract 11: commands are put together or not at all.
pub async fn commands_are_put_together_or_not_at_all(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let run = create(&*store, 1).await;
    let a = put_one(&*store, run, "a", "1").await;
    let refused = put(&*other, run, &[("b", "2"), ("a", "other"), ("c", "3")]).await.unwrap();
    assert_eq!(refused, PutAll::KeyTaken { index: 1, number: a });
    assert_eq!(store.inbox(run, InboxNo(0)).await.unwrap(), [entry(a, "a", "1")]);
    let done = put(&*other, run, &[("b", "2"), ("a", "1"), ("c", "3"), ("c", "3")]).await.unwrap();
    let PutAll::Done(puts) = done else { panic!("{done:?}") };
    let (b, c) = (puts[0].number, puts[2].number);
    let done_as = |number, existed| Put { number, existed };
    assert_eq!(puts, [done_as(b, false), done_as(a, true), done_as(c, false), done_as(c, true)]);
    assert!(a < b && b < c, "{a:?}, {b:?}, {c:?}");
    let all = [entry(a, "a", "1"), entry(b, "b", "2"), entry(c, "c", "3")];
    assert_eq!(store.inbox(run, InboxNo(0)).await.unwrap(), all);
}

/// Contracts 11 and 15: an inbox holds at most [`INBOX_MAX`] waiting inputs, and still accepts
/// answers and cancellations. Taken entries do not count and are not read; their keys stay.
pub async fn an_inbox_is_bounded(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    let keys: Vec<String> = (0..INBOX_MAX).map(|key| key.to_string()).collect();
    for keys in keys.chunks(512) {
        let inputs: Vec<_> = keys.iter().map(|key| (&**key, "")).collect();
        put(&*store, run, &inputs).await.unwrap();
    }
    let is_full = |put: Result<PutAll, StoreError>, max: usize| match put {
        Err(StoreError::Full { max: full, .. }) => full == max,
        _ => false,
    };
    assert!(is_full(put(&*store, run, &[("more", "")]).await, INBOX_MAX));
    assert!(is_full(put(&*store, run, &[("7", ""), ("more", "")]).await, INBOX_MAX));
    let entries = store.inbox(run, InboxNo(0)).await.unwrap();
    let seventh = entries[7].number;
    let known = PutAll::Done(vec![Put { number: seventh, existed: true }]);
    assert_eq!(put(&*store, run, &[("7", "")]).await.unwrap(), known);

    let answer = |question| Command::Answer {
        question: QuestionId(question),
        answer: Answer::yes(),
        by: None,
        wire_run: None,
    };
    let cancel = |why: usize| Command::Cancel {
        when: CancelWhen::Now,
        by: None,
        why: Some(why.to_string().into()),
    };
    let many = |commands: Vec<Command>| {
        let keyed = |command: Command| NewCommand {
            key: format!("{command:?}").into(),
            command,
            audit: None,
        };
        store.put_inbox(run, commands.into_iter().map(keyed).collect())
    };
    let answers = (0..INBOX_ANSWERS_MAX).map(|it| answer(u32::try_from(it).unwrap()));
    many(answers.collect()).await.unwrap();
    assert!(is_full(many(vec![answer(u32::MAX)]).await, INBOX_ANSWERS_MAX));
    many((0..INBOX_CANCELS_MAX).map(cancel).collect()).await.unwrap();
    assert!(is_full(many(vec![cancel(usize::MAX)]).await, INBOX_CANCELS_MAX));

    let mut taking = frame(run, 1, &["x"]);
    taking.frame.taken = entries[..10].iter().map(|entry| entry.number).collect();
    append(&*store, taking).await.unwrap();
    let all = INBOX_MAX + INBOX_ANSWERS_MAX + INBOX_CANCELS_MAX;
    let waiting = subject.open().inbox(run, InboxNo(0)).await.unwrap();
    assert_eq!((waiting.len(), waiting[0].number), (all - 10, entries[10].number));
    assert_eq!(put(&*store, run, &[("7", "")]).await.unwrap(), known);
    let other = put(&*store, run, &[("7", "other")]).await.unwrap();
    assert_eq!(other, PutAll::KeyTaken { index: 0, number: seventh });
    let more = put_one(&*store, run, "more", "").await;
    assert!(waiting.iter().all(|entry| entry.number < more));
}

/// A snapshot is found for its record and later ones, until there is a later snapshot.
pub async fn snapshots_are_found_by_place(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    let put = async |kind, at, body: &'static str| {
        store.put_snapshot(run, kind, Seq(at), body.into()).await.unwrap();
    };
    put(SnapshotKind::Outline, 10, "ten").await;
    put(SnapshotKind::Outline, 20, "old").await;
    put(SnapshotKind::Outline, 20, "twenty").await;
    put(SnapshotKind::Transcript, 15, "whole").await;
    for (kind, at_most, want) in [
        (SnapshotKind::Outline, 9, None),
        (SnapshotKind::Outline, 10, Some((10, "ten"))),
        (SnapshotKind::Outline, 19, Some((10, "ten"))),
        (SnapshotKind::Outline, u64::MAX, Some((20, "twenty"))),
        (SnapshotKind::Transcript, 14, None),
        (SnapshotKind::Transcript, 15, Some((15, "whole"))),
    ] {
        let found = subject.open().snapshot(run, kind, Seq(at_most)).await.unwrap();
        let want = want.map(|(at, body)| (Seq(at), Bytes::from(body)));
        assert_eq!(found, want, "{kind:?} at most {at_most}");
    }
}

/// Contracts 4 and 15: a run and the runs that it continues are read together, with their
/// stored transcripts. Deleted runs are skipped, and a run of another tenant ends the history.
pub async fn a_history_is_read_in_one_query(subject: &impl Subject) {
    let store = subject.open();
    let chain = [(1, None, "tenant"), (2, Some(1), "tenant"), (3, Some(2), "tenant")];
    let other = [(4, Some(3), "other"), (5, Some(4), "tenant")];
    for (number, after, tenant) in chain.into_iter().chain(other) {
        let new = NewRun {
            after: after.map(run_id),
            tenant: tenant.into(),
            ..new_run(run_id(number), 1)
        };
        store.create(new, first_frame("a")).await.unwrap();
        let mut end = with_state(frame(run_id(number), 1, &["end"]), RunState::Completed);
        end.frame.folded = (number != 2).then(|| Bytes::from(format!("folded {number}")));
        append(&*store, end).await.unwrap();
    }
    let history = async |run, max, folded| {
        let query = HistoryQuery { run: run_id(run), max, folded };
        let past = subject.open().history(query).await.unwrap();
        let past = past.into_iter().map(|past| (past.info.run, past.info.head, past.folded));
        past.collect::<Vec<_>>()
    };
    let past = |number: u128, folded: bool| {
        let folded = folded.then(|| (Seq(2), Bytes::from(format!("folded {number}"))));
        (run_id(number), Seq(2), folded)
    };
    assert_eq!(history(3, 9, true).await, [past(3, true), past(2, false), past(1, true)]);
    assert_eq!(history(3, 2, false).await, [past(3, false), past(2, false)]);
    assert_eq!(history(5, 9, true).await, [past(5, true)], "run 4 belongs to another tenant");
    assert_eq!(history(77, 9, true).await, []);
    store.delete(run_id(2)).await.unwrap();
    assert_eq!(history(3, 9, true).await, [past(3, true), past(1, true)]);
    let kept = store.snapshot(run_id(3), SnapshotKind::Transcript, Seq(9)).await.unwrap();
    assert_eq!(kept, past(3, true).2, "it is a regular snapshot");
}

/// The first binding of an external id wins; the same id of another tenant is independent.
pub async fn external_ids_belong_to_a_tenant(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let (first, second) = (create(&*store, 1).await, create(&*store, 2).await);
    let id = external("tenant", "ag-ui", "run");
    assert_eq!(store.resolve(id.clone()).await.unwrap(), None);
    assert_eq!(store.bind(id.clone(), first).await.unwrap(), first);
    assert_eq!(other.bind(id.clone(), second).await.unwrap(), first);
    assert_eq!(other.resolve(id).await.unwrap(), Some(first));
    for id in [external("other", "ag-ui", "run"), external("tenant", "ai-sdk", "run")] {
        assert_eq!(other.resolve(id.clone()).await.unwrap(), None);
        assert_eq!(other.bind(id, second).await.unwrap(), second);
    }
}

/// A run that is created with a name is found by it at once. If the name is used, nothing is
/// created.
pub async fn a_name_is_taken_with_the_run_or_not_at_all(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let id = external("tenant", "ag-ui", "run");
    let (first, second) = (run_id(1), run_id(2));
    let named = |run, thread| NewRun { name: Some(id.clone()), ..new_run(run, thread) };
    assert_eq!(store.create(named(first, 1), first_frame("a")).await.unwrap(), Created::New);
    assert_eq!(other.resolve(id.clone()).await.unwrap(), Some(first));
    let taken = other.create(named(second, 2), first_frame("a")).await.unwrap();
    assert_eq!(taken, Created::Named(first));
    assert_eq!(other.info(second).await.unwrap(), None);
    // Creating the same run again reports the existing run, whatever its name.
    let again = other.create(named(first, 1), first_frame("a")).await.unwrap();
    assert_eq!(again, Created::Exists(Box::new(info(first, 1, RunState::Running, 1))));
    // Deleting the run deletes its name.
    append(&*store, with_state(frame(first, 1, &["end"]), RunState::Completed)).await.unwrap();
    assert!(store.delete(first).await.unwrap());
    assert_eq!(other.create(named(second, 2), first_frame("a")).await.unwrap(), Created::New);
    assert_eq!(store.resolve(id).await.unwrap(), Some(second));
}

/// Lists return matching runs, newest first, page by page.
pub async fn lists_are_filtered_and_paged(subject: &impl Subject) {
    let store = subject.open();
    let mut runs = Vec::new();
    for number in 0..6u128 {
        let mut new = new_run(run_id(number), number);
        new.tenant = if number < 4 { "a".into() } else { "b".into() };
        new.agent = if number % 2 == 0 { "even".into() } else { "odd".into() };
        let mut first = first_frame("x");
        first.at = Millis(1000 + number as u64 * 10);
        assert_eq!(store.create(new, first).await.unwrap(), Created::New);
        runs.push(run_id(number));
    }
    let ended = |run, state| with_state(frame(run, 1, &["end"]), state);
    append(&*store, ended(runs[1], RunState::Failed)).await.unwrap();
    append(&*store, ended(runs[2], RunState::Paused)).await.unwrap();
    let all = RunFilter::default();
    let a = Some("a".into());
    for (filter, want) in [
        (all.clone(), vec![5, 4, 3, 2, 1, 0]),
        (RunFilter { tenant: a.clone(), ..all.clone() }, vec![3, 2, 1, 0]),
        (RunFilter { thread: Some(thread_id(2)), ..all.clone() }, vec![2]),
        (RunFilter { agent: Some("odd".into()), ..all.clone() }, vec![5, 3, 1]),
        (RunFilter { states: vec![RunState::Paused, RunState::Failed], ..all.clone() }, vec![2, 1]),
        (RunFilter { since: Some(Millis(1030)), ..all.clone() }, vec![5, 4, 3]),
        (RunFilter { before: Some(Millis(1030)), ..all.clone() }, vec![2, 1, 0]),
        (RunFilter { limit: 2, ..all.clone() }, vec![5, 4]),
        (RunFilter { limit: 2, after_run: Some(runs[4]), ..all.clone() }, vec![3, 2]),
        (RunFilter { tenant: a, agent: Some("even".into()), limit: 1, ..all.clone() }, vec![2]),
        (RunFilter { tenant: Some("nobody".into()), ..all }, vec![]),
    ] {
        let found = subject.open().list(filter.clone()).await.unwrap();
        let found: Vec<_> = found.into_iter().map(|info| info.run).collect();
        let want: Vec<_> = want.into_iter().map(run_id).collect();
        assert_eq!(found, want, "{filter:?}");
    }
}

/// Contract 15: a list returns at most [`LIST_MAX`] runs, whatever is requested.
pub async fn lists_are_bounded(subject: &impl Subject) {
    let store = subject.open();
    let create = |number| store.create(new_run(run_id(number), number), first_frame("x"));
    for created in (0..=LIST_MAX as u128).map(create).collect::<Vec<_>>() {
        assert_eq!(created.await.unwrap(), Created::New);
    }
    for limit in [0, LIST_MAX, LIST_MAX + 1, usize::MAX] {
        let found = store.list(RunFilter { limit, ..RunFilter::default() }).await.unwrap();
        assert_eq!(found.len(), LIST_MAX);
    }
}

/// Deleting a finished run removes all of its data, and changes nothing else.
pub async fn deletion_leaves_nothing(subject: &impl Subject) {
    let store = subject.open();
    let (run, neighbour) = (create(&*store, 1).await, create(&*store, 2).await);
    for expected in 1..600 {
        append(&*store, frame(run, expected, &["x"])).await.unwrap();
    }
    let id = external("tenant", "ag-ui", "run");
    for run in [run, neighbour] {
        put(&*store, run, &[("key", "x")]).await.unwrap();
        store.put_snapshot(run, SnapshotKind::Outline, Seq(1), "x".into()).await.unwrap();
    }
    append(&*store, with_state(frame(run, 600, &["end"]), RunState::Completed)).await.unwrap();
    store.bind(id.clone(), run).await.unwrap();
    assert!(store.delete(run).await.unwrap());
    assert!(!store.delete(run).await.unwrap());
    let other = subject.open();
    assert_eq!(other.info(run).await.unwrap(), None);
    assert!(matches!(other.read(run, Seq(0), 1).await, Err(StoreError::NoRun(_))));
    assert_eq!(other.resolve(id).await.unwrap(), None);
    assert!(matches!(append(&*other, frame(run, 601, &["x"])).await, Err(AppendError::Store(_))));

    let anew = store.create(new_run(run, 1), first_frame("anew")).await.unwrap();
    assert_eq!(anew, Created::New);
    assert_eq!(bodies(&*other, run).await, ["anew"]);
    assert_eq!(other.inbox(run, InboxNo(0)).await.unwrap(), []);
    assert_eq!(other.snapshot(run, SnapshotKind::Outline, Seq(9)).await.unwrap(), None);
    assert_eq!(bodies(&*other, neighbour).await, ["a"]);
    assert_eq!(other.inbox(neighbour, InboxNo(0)).await.unwrap().len(), 1);
}

fn run_id(number: u128) -> RunId {
    RunId::new(Uuid::from_u128(number))
}

fn thread_id(number: u128) -> ThreadId {
    ThreadId::new(Uuid::from_u128(number))
}

/// Creates a run in a thread, with its first frame at 1001, owned by `node`.
async fn create(store: &dyn Store, thread: u128) -> RunId {
    let run = RunId::new(Uuid::now_v7());
    let created = store.create(new_run(run, thread), first_frame("a")).await.unwrap();
    assert_eq!(created, Created::New);
    run
}

fn new_run(run: RunId, thread: u128) -> NewRun {
    NewRun {
        run,
        thread: thread_id(thread),
        agent: "demo".into(),
        tenant: "tenant".into(),
        after: Some(run_id(12)),
        title: "a title".into(),
        name: None,
        is_first: false,
        node: "node".into(),
    }
}

fn first_frame(body: &'static str) -> NewFrame {
    NewFrame {
        count: 1,
        body: body.into(),
        at: Millis(1001),
        state: Some(RunState::Running),
        ..NewFrame::default()
    }
}

/// The expected info of a run made by [`create`].
fn info(run: RunId, thread: u128, state: RunState, head: u64) -> RunInfo {
    let new = new_run(run, thread);
    RunInfo {
        run,
        thread: new.thread,
        agent: new.agent,
        tenant: new.tenant,
        after: new.after,
        title: new.title,
        state,
        head: Seq(head),
        epoch: 0,
        owner: Some(new.node),
        created_at: Millis(1001),
        updated_at: Millis(1001),
    }
}

fn frame(run: RunId, expected: u64, records: &[&str]) -> Append {
    let frame = NewFrame {
        count: u32::try_from(records.len()).unwrap(),
        body: records.concat().into(),
        at: Millis(1001 + expected),
        ..NewFrame::default()
    };
    Append { run, expected: Seq(expected), frame, adopt: None }
}

fn with_state(mut append: Append, state: RunState) -> Append {
    append.frame.state = Some(state);
    append
}

fn stored(first: u64, records: &[&str]) -> StoredFrame {
    let count = u32::try_from(records.len()).unwrap();
    StoredFrame { first: Seq(first), count, body: records.concat().into() }
}

async fn put(
    store: &dyn Store,
    run: RunId,
    commands: &[(&str, &str)],
) -> Result<PutAll, StoreError> {
    let new = |(key, text): &(&str, &str)| NewCommand {
        key: (*key).into(),
        command: command(text),
        audit: None,
    };
    store.put_inbox(run, commands.iter().map(new).collect()).await
}

/// Puts a new command and returns its number.
async fn put_one(store: &dyn Store, run: RunId, key: &str, text: &str) -> InboxNo {
    let done = put(store, run, &[(key, text)]).await.unwrap();
    let PutAll::Done(puts) = done else { panic!("{done:?}") };
    assert!(!puts[0].existed, "{key} was there");
    puts[0].number
}

fn entry(number: InboxNo, key: &str, text: &str) -> InboxEntry {
    InboxEntry { number, key: key.into(), command: command(text) }
}

async fn append(store: &dyn Store, append: Append) -> Result<(), AppendError> {
    let (decided, decision) = oneshot::channel();
    let done = Box::new(move |result| {
        let _ = decided.send(result);
    });
    store.append(append, done);
    decision.await.unwrap()
}

async fn bodies(store: &dyn Store, run: RunId) -> Vec<String> {
    let page = store.read(run, Seq(0), usize::MAX).await.unwrap();
    page.frames.iter().map(|frame| String::from_utf8(frame.body.to_vec()).unwrap()).collect()
}

fn command(text: &str) -> Command {
    Command::AddInput { content: vec![Content::text(text)], message: None }
}

fn external(tenant: &str, surface: &str, id: &str) -> ExternalId {
    ExternalId { tenant: tenant.into(), surface: surface.into(), id: id.into() }
}
