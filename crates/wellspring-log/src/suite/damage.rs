//! Damaged data is reported, and never returned.

use futures::TryStreamExt as _;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Event, Outcome, PartId, PartKind, RunId, RunRequest, RunStarted, Seq, Stop, ThreadId,
};

use super::{Damage, Subject};
use crate::error::{AdoptError, ReadError};
use crate::log::Log;
use crate::options::LogOptions;
use crate::store::StoreError;

/// Contract 16: damaged data is a named error, for readers and for an owner that would continue
/// the run; no data of another run is returned; everything else stays readable; and a damaged
/// run can be deleted.
pub async fn nothing_damaged_is_served(subject: &impl Subject) {
    let open = || Log::new(subject.open(), LogOptions::default());
    let other = finished_run(&open(), "other").await;
    let kinds = [Damage::Frame, Damage::Missing, Damage::Foreign(other), Damage::State];
    for what in kinds {
        let run = finished_run(&open(), "one").await;
        if !subject.damage(run, what) {
            return;
        }
        let log = open();
        let read = async {
            let cursor = log.cursor(run, Seq(0)).await?;
            cursor.into_records().try_collect::<Vec<_>>().await
        };
        let read = read.await.map(|records| records.len());
        let damaged = |error: &StoreError| matches!(error, StoreError::Damaged { .. });
        assert!(matches!(&read, Err(ReadError::Store(it)) if damaged(it)), "{what:?}: {read:?}");
        // A store with an intact stored transcript may return that.
        match log.transcript(run).await {
            Ok(folded) => assert_eq!(folded.words(AgentNo::ROOT), "one one", "{what:?}"),
            Err(ReadError::Store(error)) => assert!(damaged(&error), "{what:?}: {error:?}"),
            Err(error) => panic!("{what:?}: {error:?}"),
        }
        let adopted = log.take_over(run).await.map(drop);
        let refused = match &adopted {
            Err(AdoptError::Store(error)) => damaged(error),
            Err(AdoptError::Finished(_)) => true,
            Ok(()) | Err(_) => false,
        };
        assert!(refused, "{what:?}: {adopted:?}");
        assert_eq!(log.transcript(other).await.unwrap().words(AgentNo::ROOT), "other other");
        let found = log.store().check().await.unwrap();
        assert!(found.iter().any(|finding| finding.run == Some(run)), "{what:?}: {found:?}");
        assert!(!found.iter().any(|finding| finding.run == Some(other)), "{what:?}: {found:?}");
        assert!(log.store().delete(run).await.unwrap(), "{what:?}");
        assert!(log.store().info(run).await.unwrap().is_none(), "{what:?}");
    }
}

/// A run of four frames that contains a word twice.
async fn finished_run(log: &Log, word: &str) -> RunId {
    let started = RunStarted {
        run: RunId::new(Uuid::now_v7()),
        thread: ThreadId::new(Uuid::now_v7()),
        agent: "demo".into(),
        after: None,
        request: RunRequest::text("hello"),
    };
    let owner = log.create("tenant", started).await.unwrap();
    let part = PartId(0);
    let delta = |text: &str| Event::PartDelta { part, chunk: text.into() };
    let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
    for events in [
        vec![Event::PartStarted { part, kind: PartKind::TEXT }, delta(word)],
        vec![delta(&format!(" {word}"))],
        vec![Event::PartFinished { part }, Event::RunFinished { outcome }],
    ] {
        owner.push_all(events.into_iter().map(|event| (AgentNo::ROOT, event)));
        owner.commit().await.unwrap();
    }
    owner.run()
}
