//! One run from start to end.

use wellspring_core::{Checker, Seq, Transcript, render};
use wellspring_log::{AdoptError, CreateError, Log, ReadError};

use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records, started};

#[tokio::test]
async fn what_is_pushed_is_read_by_everyone() {
    let log = Log::in_memory();
    let owner = create(&log).await;
    let run = owner.run();
    let mut live = log.cursor(run, Seq(0)).await.unwrap();
    owner.push(ROOT, part_started(0));
    owner.push_all([(ROOT, delta(0, "a")), (ROOT, delta(0, "b"))]);
    assert_eq!(owner.commit().await.unwrap(), Seq(4));
    let seen: Vec<_> = live.next().await.unwrap().unwrap();
    assert_eq!(live.position(), Seq(4));
    owner.push_all([(ROOT, part_finished(0)), (ROOT, finished())]);
    let rest = live.next().await.unwrap().unwrap();
    assert!(live.next().await.unwrap().is_none());
    let seen: Vec<_> = seen.iter().chain(&rest).flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(seen, records(&log, run, Seq(0)).await);
    assert_eq!(seen[3..], records(&log, run, Seq(3)).await);
    Checker::check(&seen).unwrap();
    assert_eq!(log.transcript(run).await.unwrap(), Transcript::fold(&seen));
    assert_eq!(
        render(&seen),
        "run started by demo {\"text\":\"hello\"}\n\
         part 0 started text\n\
         part 0 delta \"a\"\n\
         part 0 delta \"b\"\n\
         part 0 finished\n\
         run finished completed end_turn\n"
    );
}

#[tokio::test]
async fn what_does_not_fit_is_a_clear_error() {
    let log = Log::in_memory();
    let started = started();
    let run = started.run;
    assert_eq!(
        log.cursor(run, Seq(0)).await.unwrap_err().to_string(),
        format!("there is no run {run}")
    );
    let owner = log.create("tenant", started.clone()).await.unwrap();
    assert!(
        matches!(log.create("tenant", started.clone()).await, Err(CreateError::Exists(info)) if info.run == run)
    );
    let mut other = crate::runs::started();
    other.thread = started.thread;
    assert!(
        matches!(log.create("tenant", other.clone()).await, Err(CreateError::ThreadBusy(busy)) if busy == run)
    );
    assert!(matches!(log.cursor(run, Seq(7)).await, Err(ReadError::Future { head: Seq(1), .. })));
    assert!(matches!(log.adopt(run).await, Err(AdoptError::Owned { owner: None, .. })));
    owner.push(ROOT, finished());
    owner.commit().await.unwrap();
    drop(owner);
    assert!(matches!(log.adopt(run).await, Err(AdoptError::Finished(_))));
    assert!(log.create("tenant", other).await.is_ok());
    assert_eq!(log.live_runs(), 0);
}
