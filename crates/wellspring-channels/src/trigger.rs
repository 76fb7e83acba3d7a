//! An agent's answer for another program: as a stream of states, or when it is complete.
//!
//! Both are views of the run's log. Dropping a view does not stop the run; cancel the run to stop
//! it.

use futures::stream::{self, BoxStream, StreamExt as _};
use wellspring_core::{Seq, Transcript};
use wellspring_engine::{Control, StartRun};
use wellspring_log::Cursor;
use wellspring_wire::stream_delta::StreamDelta;

/// Starts a run and yields the state of its answer whenever it is polled and the state has changed.
///
/// Every delta contains the whole answer so far. The last delta, and only the last, is
/// [`Final`](StreamDelta::Final) or [`Error`](StreamDelta::Error). Every failure is an error delta,
/// for example an unknown agent, an agent that is paused after many failures, or an agent that was
/// silent for too long.
///
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use futures::StreamExt as _;
/// use wellspring_channels::trigger_stream;
/// use wellspring_engine::{AgentDef, Runtime, StartRun};
/// use wellspring_log::Log;
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// let say = Say::new().pace(Duration::from_millis(500)).thought("Hm.").text("It is noon.");
/// runtime.register(AgentDef::model("clock", Arc::new(Scripted::new([say]))));
///
/// let mut deltas = trigger_stream(&runtime.local(), StartRun::text("clock", "What time is it?"));
/// let mut phases = Vec::new();
/// while let Some(delta) = deltas.next().await {
///     phases.push(serde_json::to_value(&delta)?["phase"].take());
/// }
/// phases.dedup();
/// assert_eq!(phases, ["thinking", "content", "final"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn trigger_stream(control: &Control, start: StartRun) -> BoxStream<'static, StreamDelta> {
    let begin = Step::Start(Box::new(start));
    let watching = Watching { control: control.clone(), transcript: Transcript::default() };
    stream::unfold((watching, begin), |(mut watching, step)| async move {
        let (delta, next) = match watching.next(step).await {
            Ok(None) => return None,
            Ok(Some((delta, next))) => (delta, next),
            Err(error) => (StreamDelta::Error { error }, Step::Done),
        };
        Some((delta, (watching, next)))
    })
    .boxed()
}

/// Starts a run and returns its complete answer: the last delta of [`trigger_stream`].
pub async fn trigger(control: &Control, start: StartRun) -> StreamDelta {
    let deltas = trigger_stream(control, start);
    let last = deltas.fold(None, |_, delta| async move { Some(delta) }).await;
    // The stream always ends with a final or error delta.
    last.unwrap_or_else(|| StreamDelta::Error { error: "there was no answer".into() })
}

struct Watching {
    control: Control,
    transcript: Transcript,
}

enum Step {
    Start(Box<StartRun>),
    Read(Box<Cursor>),
    Done,
}

impl Watching {
    /// The next delta and the next step; `None` after the last delta.
    async fn next(&mut self, step: Step) -> Result<Option<(StreamDelta, Step)>, String> {
        let mut cursor = match step {
            Step::Done => return Ok(None),
            Step::Read(cursor) => cursor,
            Step::Start(start) => {
                let started = self.control.start(*start).await.map_err(|it| it.to_string())?;
                let cursor = self.control.attach(started.run, Seq(0)).await;
                Box::new(cursor.map_err(|it| it.to_string())?)
            }
        };
        loop {
            let before = self.delta();
            let frames = cursor.next().await.map_err(|it| it.to_string())?;
            for frame in frames.ok_or("the run was deleted")? {
                self.transcript.extend(frame.records());
            }
            let now = self.delta();
            if self.transcript.outcome.is_some() {
                return Ok(now.map(|delta| (delta, Step::Done)));
            }
            if let Some(delta) = now.filter(|now| before.as_ref() != Some(now)) {
                return Ok(Some((delta, Step::Read(cursor))));
            }
        }
    }

    fn delta(&self) -> Option<StreamDelta> {
        // Uses the time of the records, so that a delta does not change only because time has
        // passed.
        StreamDelta::of(&self.transcript, self.transcript.updated_at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use wellspring_core::{FailureKind, Millis};
    use wellspring_engine::{AgentDef, Runtime};
    use wellspring_log::{Log, LogOptions, MemoryStore, RunFilter, TokioClock};
    use wellspring_models::{Failure, Gate, Say, Scripted};

    use super::*;

    fn runtime(say: Say) -> Runtime {
        let clock = Arc::new(TokioClock::starting_at(Millis(1_000_000)));
        let options = LogOptions { clock, ..LogOptions::default() };
        let runtime = Runtime::new(Log::new(Arc::new(MemoryStore::default()), options));
        runtime.register(AgentDef::model("agent", Arc::new(Scripted::new([say]))));
        runtime
    }

    fn ask() -> StartRun {
        StartRun::text("agent", "go")
    }

    fn thinking(text: &str, ms: u64) -> StreamDelta {
        StreamDelta::Thinking { thinking: text.into(), thinking_elapsed_ms: ms }
    }

    fn content(text: &str) -> StreamDelta {
        let (thinking, thinking_duration_ms) = (Some("Hm, well.".into()), Some(500));
        StreamDelta::Content { content: text.into(), thinking, thinking_duration_ms }
    }

    fn finished(text: &str) -> StreamDelta {
        let (thinking, thinking_duration_ms) = (Some("Hm, well.".into()), Some(500));
        StreamDelta::Final { content: text.into(), thinking, thinking_duration_ms }
    }

    /// Thinking becomes content, which keeps the text and the time. There is exactly one final
    /// delta.
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_told_as_it_grows() {
        let say =
            Say::new().pace(Duration::from_millis(500)).thought("Hm, well.").text("It is noon.");
        let deltas: Vec<_> = trigger_stream(&runtime(say.clone()).local(), ask()).collect().await;
        assert_eq!(
            deltas,
            [
                thinking("Hm, ", 0),
                thinking("Hm, well.", 500),
                content("It "),
                content("It is "),
                finished("It is noon."),
            ]
        );
        assert_eq!(trigger(&runtime(say).local(), ask()).await, finished("It is noon."));
    }

    /// A failure is the last delta, whether it happens before the run or during it.
    #[tokio::test(start_paused = true)]
    async fn what_goes_wrong_is_the_last_delta() {
        let failure = Failure::new(FailureKind::Refused, "no more money");
        let runtime = runtime(Say::new().text("It is").fail(failure));
        let deltas: Vec<_> = trigger_stream(&runtime.local(), ask()).collect().await;
        let errors: Vec<_> =
            deltas.iter().filter(|it| matches!(it, StreamDelta::Error { .. })).collect();
        assert_eq!(errors.len(), 1, "{deltas:?}");
        assert!(
            matches!(deltas.last(), Some(StreamDelta::Error { error }) if error.contains("money"))
        );
        let unknown = trigger(&runtime.local(), StartRun::text("nobody", "go")).await;
        assert!(
            matches!(&unknown, StreamDelta::Error { error } if error.contains("nobody")),
            "{unknown:?}"
        );
    }

    /// Dropping a view does not stop the run.
    #[tokio::test(start_paused = true)]
    async fn a_dropped_view_leaves_the_run() {
        let gate = Gate::new();
        let runtime = runtime(Say::new().text("One").gate(&gate).text("two."));
        let mut deltas = trigger_stream(&runtime.local(), ask());
        assert!(deltas.next().await.is_some());
        drop(deltas);
        gate.open();
        let run = runtime.local().list(RunFilter::default()).await.unwrap()[0].run;
        let transcript = runtime.local().wait(run).await.unwrap();
        assert_eq!(transcript.words(wellspring_core::AgentNo::ROOT), "Onetwo.");
    }
}
