//! Runs for tests.

use futures::TryStreamExt;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Event, Outcome, PartId, PartKind, Record, RunId, RunRequest, RunStarted, Seq, Stop,
    ThreadId,
};
use wellspring_log::{Log, Owner};

pub(crate) const ROOT: AgentNo = AgentNo::ROOT;

/// A run of its own thread.
pub(crate) fn started() -> RunStarted {
    RunStarted {
        run: RunId::new(Uuid::now_v7()),
        thread: ThreadId::new(Uuid::now_v7()),
        agent: "demo".into(),
        after: None,
        request: RunRequest::text("hello"),
    }
}

pub(crate) async fn create(log: &Log) -> Owner {
    log.create("tenant", started()).await.unwrap()
}

pub(crate) fn part_started(part: u32) -> Event {
    Event::PartStarted { part: PartId(part), kind: PartKind::TEXT }
}

pub(crate) fn delta(part: u32, text: &str) -> Event {
    Event::PartDelta { part: PartId(part), chunk: text.into() }
}

pub(crate) fn part_finished(part: u32) -> Event {
    Event::PartFinished { part: PartId(part) }
}

pub(crate) fn finished() -> Event {
    Event::RunFinished { outcome: Box::new(Outcome::Completed { stop: Stop::EndTurn }) }
}

/// All records of a finished run after a position.
pub(crate) async fn records(log: &Log, run: RunId, after: Seq) -> Vec<Record> {
    log.cursor(run, after).await.unwrap().into_records().try_collect().await.unwrap()
}
