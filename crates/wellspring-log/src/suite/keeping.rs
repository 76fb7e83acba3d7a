//! Retention and backups.

use wellspring_core::{InboxNo, Millis};

use super::{Subject, append, bodies, create, frame, info, put, with_state};
use crate::log::Log;
use crate::options::LogOptions;
use crate::store::{RunState, StoreError};

/// [`Log::purge`] deletes runs that ended before a time, up to a limit per call.
pub async fn retention_takes_what_is_old_and_over(subject: &impl Subject) {
    let store = subject.open();
    let ended = async |thread, at| {
        let run = create(&*store, thread).await;
        let mut end = with_state(frame(run, 1, &["b"]), RunState::Completed);
        end.frame.at = Millis(at);
        append(&*store, end).await.unwrap();
        run
    };
    let old = [ended(1, 1100).await, ended(2, 1200).await, ended(3, 1300).await];
    let (young, running) = (ended(4, 1400).await, create(&*store, 5).await);
    let log = Log::new(subject.open(), LogOptions::default());
    for purged in [2, 1, 0] {
        assert_eq!(log.purge(Millis(1400), 2).await.unwrap(), purged);
    }
    for run in old {
        assert_eq!(store.info(run).await.unwrap(), None);
    }
    assert_eq!(bodies(&*store, young).await, ["a", "b"]);
    assert_eq!(bodies(&*store, running).await, ["a"]);
}

/// A backup contains everything acknowledged before it, and overwrites no file. A store without
/// backups reports that, and leaves no file behind.
pub async fn a_backup_is_whole_or_refused(subject: &impl Subject) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("backup");
    let store = subject.open();
    let run = create(&*store, 1).await;
    append(&*store, frame(run, 1, &["b", "c"])).await.unwrap();
    put(&*store, run, &[("key", "x")]).await.unwrap();
    let made = store.backup(to.clone()).await;
    let Some(copy) = subject.open_backup(&to) else {
        assert!(matches!(made, Err(StoreError::Unsupported(_))), "{made:?}");
        assert!(!to.exists());
        return;
    };
    made.unwrap();
    append(&*store, frame(run, 3, &["d"])).await.unwrap();
    assert_eq!(bodies(&*copy, run).await, ["a", "bc"]);
    assert_eq!(copy.info(run).await.unwrap(), Some(info(run, 1, RunState::Running, 3)));
    assert_eq!(copy.inbox(run, InboxNo(0)).await.unwrap().len(), 1);
    assert!(store.backup(to).await.is_err(), "an old backup is not overwritten");
    assert_eq!(bodies(&*copy, run).await, ["a", "bc"]);
}
