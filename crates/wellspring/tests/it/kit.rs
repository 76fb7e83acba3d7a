//! Shared helpers of these tests.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use wellspring::crates::core::Checker;
use wellspring::prelude::*;
use wellspring::{Hooks, Outcome, Record, RunId, Seq, ThoughtStream, render};

/// Under paused time, the limit passes at once if all tasks wait, so a hang fails the test.
const LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Waits for a future that must resolve.
pub(crate) async fn soon<R>(future: impl Future<Output = R>) -> R {
    tokio::time::timeout(LIMIT, future).await.expect("it never came")
}

/// An event as its JSON, with the call's part, or the agent's own id, as its id.
pub(crate) fn line(event: &ThoughtEvent) -> String {
    let mut value = serde_json::to_value(event).unwrap();
    if let Some(id) = value.get_mut("id") {
        let part = id.as_str().unwrap().rsplit('-').next().unwrap();
        *id = Value::from(part);
    }
    value.to_string()
}

/// All events, one per line.
pub(crate) async fn lines(events: impl Stream<Item = ThoughtEvent>) -> Vec<String> {
    soon(events.map(|event| line(&event)).collect()).await
}

pub(crate) fn message(text: &str) -> ThoughtEvent {
    ThoughtEvent::Message { text: text.into() }
}

pub(crate) fn thought(text: &str) -> ThoughtEvent {
    ThoughtEvent::Thought { text: text.into() }
}

/// The records of a run that ends, checked.
pub(crate) async fn records<T>(stream: &ThoughtStream<T>) -> Vec<Record> {
    let records: Vec<Record> =
        soon(stream.records(Seq(0)).map(|record| record.unwrap()).collect()).await;
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    records
}

/// Resolves when a run has ended, without reading it.
pub(crate) struct Ended(mpsc::UnboundedSender<Outcome>);

impl Ended {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Outcome>) {
        let (tell, told) = mpsc::unbounded_channel();
        (Self(tell), told)
    }
}

impl Hooks for Ended {
    fn on_finish(&self, _: RunId, outcome: &Outcome) {
        let _ = self.0.send(outcome.clone());
    }

    fn on_abort(&self, _: RunId, outcome: &Outcome) {
        let _ = self.0.send(outcome.clone());
    }
}
