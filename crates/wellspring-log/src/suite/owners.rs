//! Owners, heartbeats and due runs.

use wellspring_core::{InboxNo, Millis, RunId, Seq};

use super::{Subject, append, create, first_frame, frame, info, new_run, put, run_id, with_state};
use crate::due::{DUE_PAGE_MAX, Due, DueQuery, NodeBeat};
use crate::store::{Adopt, Append, Created, NewRun, RunInfo, RunState, Store};

fn paused(run: RunId, expected: u64, deadline: Option<u64>) -> Append {
    let mut append = with_state(frame(run, expected, &["wait"]), RunState::Paused);
    append.frame.deadline = deadline.map(Millis);
    append
}

fn adopted(run: RunId, expected: u64, epoch: u64, node: &str) -> Append {
    let adopt = Some(Adopt { epoch, node: node.into() });
    Append { adopt, ..with_state(frame(run, expected, &["mine"]), RunState::Running) }
}

async fn due(store: &dyn Store, now: u64, gone: &[&str]) -> Vec<(RunId, u64)> {
    let gone = gone.iter().map(|node| (*node).into()).collect();
    let query = DueQuery { now: Millis(now), gone, ..DueQuery::default() };
    let due = store.due(query).await.unwrap();
    due.into_iter().map(|due| (due.run, due.since.0)).collect()
}

/// Contract 7: a run has an owner until a frame pauses or ends it, or its owner releases it.
pub async fn owners_follow_appends_and_states(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let run = create(&*store, 1).await;
    let owner = async || other.info(run).await.unwrap().unwrap().owner;
    assert_eq!(owner().await.as_deref(), Some("node"));
    assert_eq!(due(&*other, u64::MAX, &["someone"]).await, [], "time does not end ownership");
    other.release(run, "thief".into(), 0).await.unwrap();
    store.release(run, "node".into(), 1).await.unwrap();
    store.release(run_id(99), "node".into(), 0).await.unwrap();
    assert_eq!(owner().await.as_deref(), Some("node"), "only its owner, in its epoch");
    store.release(run, "node".into(), 0).await.unwrap();
    assert_eq!((owner().await, due(&*other, 0, &[]).await), (None, vec![(run, 0)]));

    append(&*other, adopted(run, 1, 1, "other")).await.unwrap();
    let mut want = info(run, 1, RunState::Running, 2);
    (want.epoch, want.owner) = (1, Some("other".into()));
    assert_eq!(store.info(run).await.unwrap(), Some(want.clone()));
    assert_eq!(due(&*store, u64::MAX, &[]).await, []);

    append(&*other, paused(run, 2, None)).await.unwrap();
    want = RunInfo { state: RunState::Paused, head: Seq(3), updated_at: Millis(1003), ..want };
    want.owner = None;
    assert_eq!(store.info(run).await.unwrap(), Some(want.clone()));
    other.release(run, "other".into(), 1).await.unwrap();
    assert_eq!(store.info(run).await.unwrap(), Some(want));
    assert_eq!(due(&*store, u64::MAX, &["other"]).await, [], "it waits for an answer");
}

/// Contract 8: the nodes that own running runs are listed, and each heartbeat changes a number.
pub async fn beats_are_counted_per_node(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    assert_eq!(store.nodes().await.unwrap(), []);
    store.beat("idle".into()).await.unwrap();
    let mut runs = Vec::new();
    for (number, node) in [(1, "b"), (2, "a"), (3, "b"), (4, "c")] {
        let new = NewRun { node: node.into(), ..new_run(run_id(number), number) };
        assert_eq!(store.create(new, first_frame("x")).await.unwrap(), Created::New);
        runs.push(run_id(number));
    }
    append(&*store, with_state(frame(runs[3], 1, &["end"]), RunState::Completed)).await.unwrap();
    let beats = async |store: &dyn Store| {
        let mut nodes = store.nodes().await.unwrap();
        nodes.sort();
        let [a, b] = &nodes[..] else { panic!("{nodes:?}") };
        assert_eq!((&*a.node, &*b.node), ("a", "b"));
        (a.beat, b.beat)
    };
    assert_eq!(beats(&*other).await, (0, 0));
    let mut before = (0, 0);
    for _ in 0..3 {
        store.beat("a".into()).await.unwrap();
        let now = beats(&*other).await;
        assert!(now.0 != before.0 && now.1 == before.1, "{now:?} after {before:?}");
        before = now;
    }
    append(&*store, paused(runs[1], 1, None)).await.unwrap();
    let nodes = other.nodes().await.unwrap();
    assert_eq!(nodes, [NodeBeat { node: "b".into(), beat: 0 }], "a paused run has no owner");
}

/// Contract 9: due runs are ordered by time and then by run.
pub async fn what_is_due_comes_in_order(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    for number in 1..=6 {
        let node = if number == 2 { "gone" } else { "node" };
        let new = NewRun { node: node.into(), ..new_run(run_id(number), number) };
        store.create(new, first_frame("x")).await.unwrap();
    }
    let run = run_id;
    append(&*store, paused(run(1), 1, Some(9000))).await.unwrap();
    append(&*store, paused(run(3), 1, Some(5000))).await.unwrap();
    append(&*store, paused(run(4), 1, None)).await.unwrap();
    // An entry that arrives before the pause and is not taken also makes the run due.
    put(&*store, run(5), &[("early", "x")]).await.unwrap();
    append(&*store, paused(run(5), 1, Some(7000))).await.unwrap();
    assert_eq!(due(&*other, 4999, &[]).await, [(run(5), 0)]);
    assert_eq!(due(&*other, 5000, &["gone"]).await, [(run(2), 0), (run(5), 0), (run(3), 5000)]);
    // An answer through another process is found by all.
    put(&*other, run(4), &[("answer", "x")]).await.unwrap();
    put(&*other, run(1), &[("answer", "x")]).await.unwrap();
    let want = [(run(1), 0), (run(4), 0), (run(5), 0), (run(3), 5000)];
    assert_eq!(due(&*store, 9999, &[]).await, want);
    // An owner that adopts it and takes the entry before the next pause makes it wait again.
    append(&*other, adopted(run(4), 2, 1, "other")).await.unwrap();
    assert_eq!(due(&*store, 9999, &[]).await.len(), 3);
    let number = store.inbox(run(4), InboxNo(0)).await.unwrap()[0].number;
    let mut again = paused(run(4), 3, None);
    again.frame.taken = vec![number];
    append(&*other, again).await.unwrap();
    append(&*store, with_state(frame(run(1), 2, &["end"]), RunState::Cancelled)).await.unwrap();
    assert_eq!(due(&*store, 9999, &[]).await, [(run(5), 0), (run(3), 5000)]);
}

/// Contracts 9 and 15: paging returns every due run, however many there are.
pub async fn due_is_paged_without_a_window(subject: &impl Subject) {
    const RUNS: u128 = DUE_PAGE_MAX as u128 + 101;
    let store = subject.open();
    let create = |number| store.create(new_run(run_id(number), number), first_frame("x"));
    for created in (1..=RUNS).map(create).collect::<Vec<_>>() {
        assert_eq!(created.await.unwrap(), Created::New);
    }
    // The oldest runs are due last.
    let mut want = Vec::new();
    for number in (1..=RUNS).rev() {
        let since = 10_000 - u64::try_from(number).unwrap();
        append(&*store, paused(run_id(number), 1, Some(since))).await.unwrap();
        want.push((run_id(number), since));
    }
    for limit in [0, 1, 1000, usize::MAX] {
        let mut found = Vec::new();
        let mut query = DueQuery { now: Millis(20_000), limit, ..DueQuery::default() };
        loop {
            let page = store.due(query.clone()).await.unwrap();
            assert!(page.len() <= query.limit_or_max());
            query.after = page.last().map(Due::place);
            found.extend(page.iter().map(|due| (due.run, due.since.0)));
            if page.len() < query.limit_or_max() {
                break;
            }
        }
        assert_eq!(found, want, "pages of {limit}");
    }
}
