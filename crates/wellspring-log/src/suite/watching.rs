//! Watches are woken by other processes' changes to their runs.

use futures::FutureExt;
use wellspring_core::{InboxNo, Seq};

use super::{Subject, append, create, frame, put, with_state};
use crate::store::{RunState, Store};

/// Contract 10: a watch is woken by other processes' appends and inbox entries in its run, and
/// not by those in other runs.
pub async fn a_watch_is_woken_by_its_run_only(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let (run, idle) = (create(&*store, 1).await, create(&*store, 2).await);
    let mut watch = other.watch(run);
    let mut quiet = other.watch(idle);
    // A store may wake a new watch once, because it did not poll before.
    append(&*store, frame(run, 1, &["b"])).await.unwrap();
    watch.changed().await;
    settle(&*store, &*other, &mut watch, run).await;
    quiet.mark_seen();

    append(&*store, frame(run, 3, &["c"])).await.unwrap();
    watch.changed().await;
    watch.mark_seen();
    assert_eq!(other.read(run, Seq(0), 1).await.unwrap().head, Seq(4));
    put(&*store, run, &[("key", "x")]).await.unwrap();
    watch.changed().await;
    assert_eq!(other.inbox(run, InboxNo(0)).await.unwrap().len(), 2);
    assert!(quiet.changed().now_or_never().is_none(), "its run did not change");
    // A watch is not woken by its own process either.
    watch.mark_seen();
    append(&*other, frame(run, 4, &["own"])).await.unwrap();
    append(&*store, frame(idle, 1, &["b"])).await.unwrap();
    quiet.changed().await;
    assert!(watch.changed().now_or_never().is_none(), "its own process wrote this");
}

/// Waits until a first change was found by polling, whatever woke the watch before.
async fn settle(
    store: &dyn Store,
    other: &dyn Store,
    watch: &mut crate::watch::Watch,
    run: wellspring_core::RunId,
) {
    append(store, frame(run, 2, &["settled"])).await.unwrap();
    loop {
        watch.mark_seen();
        if other.read(run, Seq(0), 1).await.unwrap().head == Seq(3) {
            break;
        }
        watch.changed().await;
    }
    // The wake-up may still be pending. The last change is certain to be found before the next
    // one.
    let mut last = watch.clone();
    put(store, run, &[("settle", "x")]).await.unwrap();
    last.changed().await;
    watch.mark_seen();
}

/// Contract 10: deleting a run wakes its watch.
pub async fn a_deleted_run_wakes_its_watch(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let run = create(&*store, 1).await;
    let mut watch = other.watch(run);
    append(&*store, with_state(frame(run, 1, &["end"]), RunState::Completed)).await.unwrap();
    assert!(store.delete(run).await.unwrap());
    while other.info(run).await.unwrap().is_some() {
        watch.changed().await;
    }
    watch.changed().await;
}
