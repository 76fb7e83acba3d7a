//! The handle of a run: its events to iterate over, and its result to await.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt as _};
use serde::de::DeserializeOwned;
use wellspring_core::{
    Answer, CancelWhen, Outcome, Outline, Question, QuestionId, Record, RunId, Seq, Transcript,
};
use wellspring_engine::{RuntimeUi, WorkerResult};
use wellspring_log::ReadError;
use wellspring_wire::agent_event::{AgentEvent, AgentEvents};
use wellspring_wire::stream_delta::StreamDelta;
use wellspring_wire::streaming_event::{self, StreamingEvent};
use wellspring_wire::thought_event::ThoughtEvent;
use wellspring_wire::turn_event::{TurnError, TurnEvent, TurnEvents};

use crate::error::ThinkError;
use crate::events::{Filter, Reading, Step, ThoughtKind};
use crate::follow::Following;

/// A run to watch, and its result.
///
/// The run continues independently of this handle. Iterating yields its [`ThoughtEvent`]s until
/// it ends; [`result`](Self::result) resolves as soon as there is a result. The two are
/// independent: use either, or both at once, or stop iterating and still await the result.
/// Dropping the stream does not affect the run.
///
/// Events that were not read yet stay in the log, not in this handle: a slow reader delays
/// nothing and loses nothing.
///
/// ```
/// use wellspring::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// let model = Scripted::new([
///     Say::new().thought("Seven times six.").call("return_result", json!({"value": 42})),
/// ]);
/// let mut stream = Agent::model(model).think::<u32>().text("What is 7 × 6?").stream();
///
/// let mut thoughts = String::new();
/// while let Some(event) = stream.next().await {
///     if let ThoughtEvent::Thought { text } = event {
///         thoughts.push_str(&text);
///     }
/// }
/// assert_eq!(thoughts, "Seven times six.");
/// assert_eq!(stream.result().await?, 42);
/// # Ok(())
/// # }
/// ```
pub struct ThoughtStream<T> {
    following: Following,
    filter: Filter,
    position: Seq,
    /// Never locked: reading needs exclusive access to the handle. The mutex is there because a
    /// boxed stream is not `Sync`, and a handle should be.
    reading: Mutex<Option<BoxStream<'static, Step>>>,
    error: Option<ThinkError>,
    result: PhantomData<fn() -> T>,
}

impl<T> ThoughtStream<T> {
    pub(crate) fn new(following: Following) -> Self {
        Self {
            following,
            filter: Filter::default(),
            position: Seq(0),
            reading: Mutex::default(),
            error: None,
            result: PhantomData,
        }
    }

    /// Yields only events of these kinds. This does not affect the result.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let model = Scripted::new([Say::new().chunks(["Hello."]).thought("Politely.")]);
    /// let stream = Agent::model(model).say("Hi").stream().include([ThoughtKind::Message]);
    /// let events: Vec<_> = stream.collect().await;
    /// assert_eq!(events, [ThoughtEvent::Message { text: "Hello.".into() }]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Like [`after`](Self::after), it restarts the iteration.
    #[must_use]
    pub fn include(mut self, kinds: impl IntoIterator<Item = ThoughtKind>) -> Self {
        self.filter = Filter::only(kinds);
        self.reading = Mutex::default();
        self
    }

    pub(crate) fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Starts after a record: at an earlier [`position`](Self::position), or at `Seq(0)` for
    /// the start.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().text("one two three")]));
    /// let mut stream = agent.say("Count.").stream();
    /// stream.next().await; // one
    /// let (run, position) = (stream.run_id().await?, stream.position());
    /// drop(stream);
    ///
    /// let rest: Vec<_> = agent.attach::<String>(run).after(position).collect().await;
    /// assert_eq!(rest, ["two ", "three"].map(|text| ThoughtEvent::Message { text: text.into() }));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after(mut self, seq: Seq) -> Self {
        self.position = seq;
        self.reading = Mutex::default();
        self.error = None;
        self
    }

    /// Sets the principal that cancels and answers through this handle, and through functions
    /// that are set on it from here on [default: the one that started the run, unless the
    /// handle was [attached](crate::Agent::attach)].
    #[must_use]
    pub fn by(mut self, name: impl Into<Box<str>>) -> Self {
        let control = &self.following.control;
        let who = control.principal().clone().named(&*name.into());
        self.following.control = control.runtime().control(who);
        self
    }

    /// The last record whose events were all yielded. An iteration that continues
    /// [`after`](Self::after) it, here or in another process, misses nothing; it repeats events
    /// only if the earlier one stopped between two events of one record.
    #[must_use]
    pub fn position(&self) -> Seq {
        self.position
    }

    /// The reason why the events ended before the run did: the log could not be read, or the
    /// run never started. `None` if they did not. [`after`](Self::after) continues where they
    /// ended.
    #[must_use]
    pub fn error(&self) -> Option<&ThinkError> {
        self.error.as_ref()
    }

    /// Waits until the run is started. Returns its id, for
    /// [`Agent::attach`](crate::Agent::attach).
    ///
    /// # Errors
    ///
    /// If it could not be started.
    pub fn run_id(
        &self,
    ) -> impl Future<Output = Result<RunId, ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.run().await }
    }

    /// Waits until the run has ended. Returns its outcome.
    ///
    /// # Errors
    ///
    /// If it could not be started, or the log could not be read.
    pub fn outcome(
        &self,
    ) -> impl Future<Output = Result<Outcome, ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.outcome().await }
    }

    /// The run so far: everything that was said and done, the plan, the usage.
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::Usage;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let usage = Usage { input: 3, output: 1, ..Usage::default() };
    /// let agent = Agent::model(Scripted::new([Say::new().text("Hello.").usage(usage)]));
    /// let stream = agent.say("Hi").stream();
    /// stream.outcome().await?;
    /// assert_eq!(stream.transcript().await?.usage.output, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If it could not be started, or the log could not be read.
    pub fn transcript(
        &self,
    ) -> impl Future<Output = Result<Transcript, ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.transcript().await }
    }

    /// The canonical records of the run after a position (`Seq(0)` for all), until its end or
    /// the first error. This is a separate reader; it does not affect the iteration.
    ///
    /// ```
    /// use futures::TryStreamExt as _;
    /// use wellspring::prelude::*;
    /// use wellspring::{Seq, render};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().chunks(["Hello."])]));
    /// let stream = agent.say("Hi").stream();
    /// let records: Vec<_> = stream.records(Seq(2)).try_collect().await?;
    /// assert_eq!(render(&records), "\
    /// part 0 started text
    /// part 0 delta \"Hello.\"
    /// part 0 finished
    /// turn finished end_turn
    /// run finished completed end_turn
    /// ");
    /// # Ok(())
    /// # }
    /// ```
    pub fn records(
        &self,
        after: Seq,
    ) -> impl Stream<Item = Result<Record, ThinkError>> + Send + Unpin + use<T> + 'static {
        self.following.clone().records(after).boxed()
    }

    /// The run as [`AgentEvent`]s, from its start to its end. This is a separate reader; it
    /// does not affect the iteration. If the log cannot be read, it yields an `error` event.
    ///
    /// ```
    /// use wellspring::agent_event::AgentEvent;
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().thought("Hm.").chunks(["Hello."])]));
    /// let events: Vec<_> = agent.say("Hi").stream().agent_events().collect().await;
    /// let want = [
    ///     AgentEvent::Thought { content: "Hm.".into() },
    ///     AgentEvent::Stream { content: "Hello.".into() },
    ///     AgentEvent::Final,
    /// ];
    /// assert_eq!(events, want);
    /// # Ok(())
    /// # }
    /// ```
    pub fn agent_events(&self) -> impl Stream<Item = AgentEvent> + Send + Unpin + use<T> + 'static {
        self.agent_events_with(AgentEvents::default())
    }

    /// As [`agent_events`](Self::agent_events), with options:
    /// [`AgentEvents::with_sub_agent_thoughts`].
    pub fn agent_events_with(
        &self,
        dialect: AgentEvents,
    ) -> impl Stream<Item = AgentEvent> + Send + Unpin + use<T> + 'static {
        let mut outline = Outline::default();
        let events = self.records(Seq(0)).map(move |record| match record {
            Ok(record) => {
                let events = dialect.events(&outline, &record);
                outline.apply(&record);
                events
            }
            Err(error) => vec![AgentEvent::Error { error: error.to_string() }],
        });
        events.map(stream::iter).flatten().boxed()
    }

    /// The run as [`TurnEvent`]s, turn by turn, from its start to its end. This is a separate
    /// reader. If the log cannot be read, it yields an `error` event.
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::turn_event::TurnEvent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().chunks(["Hello", "."])]));
    /// let events: Vec<_> = agent.say("Hi").stream().turn_events().collect().await;
    /// let want = [
    ///     TurnEvent::TextDelta { text: "Hello".into() },
    ///     TurnEvent::TextDelta { text: ".".into() },
    ///     TurnEvent::TextDone { text: "Hello.".into() },
    ///     TurnEvent::Finished { finish_reason: "stop".into(), usage: None },
    /// ];
    /// assert_eq!(events, want);
    /// # Ok(())
    /// # }
    /// ```
    pub fn turn_events(&self) -> impl Stream<Item = TurnEvent> + Send + Unpin + use<T> + 'static {
        let mut transcript = Transcript::default();
        let events = self.records(Seq(0)).map(move |record| match record {
            Ok(record) => {
                let events = TurnEvents::default().events((&transcript).into(), &record);
                transcript.apply(&record);
                events
            }
            Err(error) => {
                vec![TurnEvent::Error { error: TurnError { message: error.to_string() } }]
            }
        });
        events.map(stream::iter).flatten().boxed()
    }

    /// The run's text as [`StreamingEvent`]s, turn by turn. A remote agent has no turns; all its text
    /// has the id `turn-0`. This is a separate reader, which ends if the log cannot be read.
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::streaming_event::StreamingEvent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().chunks(["Hello."])]));
    /// let events: Vec<_> = agent.say("Hi").stream().streaming_events().collect().await;
    /// let event = |delta: &str, done| StreamingEvent {
    ///     request_id: "turn-0".into(),
    ///     delta: delta.into(),
    ///     done,
    /// };
    /// assert_eq!(events, [event("Hello.", false), event("", true)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn streaming_events(
        &self,
    ) -> impl Stream<Item = StreamingEvent> + Send + Unpin + use<T> + 'static {
        let mut outline = Outline::default();
        let events = self.records(Seq(0)).filter_map(move |record| {
            let event = record.ok().and_then(|record| {
                let event = streaming_event::events(&outline, &record);
                outline.apply(&record);
                event
            });
            std::future::ready(event)
        });
        events.boxed()
    }

    /// Snapshots of the whole answer after each change, for a message that is edited. This is a
    /// separate reader, which ends if the log cannot be read.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().chunks(["Hello", "."])]));
    /// let deltas: Vec<_> = agent.say("Hi").stream().stream_deltas().collect().await;
    /// assert_eq!(deltas.len(), 3); // "Hello", "Hello." and its end
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_deltas(
        &self,
    ) -> impl Stream<Item = StreamDelta> + Send + Unpin + use<T> + 'static {
        let mut transcript = Transcript::default();
        let mut last = None;
        let deltas = self.records(Seq(0)).filter_map(move |record| {
            let delta = record.ok().and_then(|record| {
                transcript.apply(&record);
                StreamDelta::of(&transcript, record.at)
            });
            let is_new = delta.is_some() && delta != last;
            if is_new {
                last.clone_from(&delta);
            }
            std::future::ready(delta.filter(|_| is_new))
        });
        deltas.boxed()
    }

    /// Shows the run in a user interface until it ends. Returns its result. This is a separate
    /// reader.
    ///
    /// ```
    /// use wellspring::RuntimeUi;
    /// use wellspring::prelude::*;
    ///
    /// struct Screen(String);
    ///
    /// impl RuntimeUi for Screen {
    ///     fn start_streaming(&mut self, _request_id: &str) {}
    ///     fn append_streaming(&mut self, _request_id: &str, delta: &str) {
    ///         self.0.push_str(delta);
    ///     }
    ///     fn end_streaming(&mut self, _request_id: &str, _full_text: &str) {
    ///         self.0.push('\n');
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().text("Hello there.")]));
    /// let mut screen = Screen(String::new());
    /// let result = agent.say("Hi").stream().show(&mut screen).await?;
    /// assert!(result.success);
    /// assert_eq!(screen.0, "Hello there.\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the run could not be started, or the log could not be read.
    pub async fn show(&self, ui: &mut (dyn RuntimeUi + Send)) -> Result<WorkerResult, ThinkError> {
        let cursor = self.following.cursor(Seq(0)).await?;
        let run = cursor.run();
        let shown = wellspring_engine::show(cursor, ui).await?;
        shown.ok_or(ThinkError::Log(ReadError::NoRun(run)))
    }

    /// The next event; at the end, `None` if the run has a result, or the error of
    /// [`result`](Self::result).
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut stream = Agent::model(Scripted::new([])).say("Hi").stream();
    /// let ended = loop {
    ///     match stream.try_next().await {
    ///         Ok(Some(event)) => println!("{event:?}"),
    ///         Ok(None) => break Ok(()),
    ///         Err(error) => break Err(error),
    ///     }
    /// };
    /// assert!(ended.is_err()); // the script has no answer
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the run ended without a result, could not be started, or cannot be read.
    pub async fn try_next(&mut self) -> Result<Option<ThoughtEvent>, ThinkError> {
        match self.next().await {
            Some(event) => Ok(Some(event)),
            None => match self.error.clone() {
                Some(error) => Err(error),
                None => self.following.result().await.map(|_| None),
            },
        }
    }

    /// Cancels the run at once, including the model and the tools. Resolves when the request is
    /// stored, which is before the run has ended. It is not an error if the run has already
    /// ended.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let stream = Agent::model(Scripted::new([Say::new().hang()])).say("Hello?").stream();
    /// stream.cancel().await?;
    /// assert!(matches!(stream.result().await, Err(ThinkError::Cancelled { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the run could not be started, or the log could not store the request.
    pub fn cancel(&self) -> impl Future<Output = Result<(), ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.cancel(CancelWhen::Now).await }
    }

    /// Cancels the run after the current turn, tools included.
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub fn cancel_after_turn(
        &self,
    ) -> impl Future<Output = Result<(), ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.cancel(CancelWhen::AfterTurn).await }
    }

    /// The open questions and all later ones, until the run ends. This is a separate reader. A
    /// run whose request did not [wait for answers](crate::Think::wait_for_answers) has already
    /// denied them.
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::tools::{NoArguments, function};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// # let model = Scripted::new([Say::new().call("wipe", json!({})), Say::new().text("Fine.")]);
    /// let wipe = function("wipe", "Wipes the disk.", async |_: NoArguments, _| Ok(()))
    ///     .kind(ToolKind::Delete);
    /// let stream = Agent::model(model).say("Make room.").tool(wipe).wait_for_answers().stream();
    /// let mut questions = stream.questions();
    /// while let Some(question) = questions.next().await {
    ///     stream.answer(question.question, Answer::no("never")).await?;
    /// }
    /// assert_eq!(stream.result().await?, "Fine.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn questions(&self) -> impl Stream<Item = Question> + Send + Unpin + use<T> + 'static {
        self.following.clone().questions().boxed()
    }

    /// Answers a question. Only the first answer counts.
    ///
    /// # Errors
    ///
    /// If the question is not open, or this principal may not answer it.
    pub fn answer(
        &self,
        question: QuestionId,
        answer: Answer,
    ) -> impl Future<Output = Result<(), ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move { following.answer(question, answer).await }
    }

    /// Answers every question with a function: open ones and later ones, even after this handle
    /// is dropped. Use it for runs that [wait for answers](crate::Think::wait_for_answers);
    /// other runs have already denied their questions.
    #[must_use]
    pub fn on_question<F, Fut>(self, answer: F) -> Self
    where
        F: Fn(Question) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        self.following.answer_all(Arc::new(move |question| Box::pin(answer(question))));
        self
    }
}

impl<T: DeserializeOwned> ThoughtStream<T> {
    /// Waits for the result. It is available before the run has ended, and stays available:
    /// call this before, during and after iterating, as often as you like.
    ///
    /// The future borrows nothing, so you can await it while you iterate.
    ///
    /// # Errors
    ///
    /// If the run ended without a result, could not be started, or cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping it does not affect the run.
    pub fn result(&self) -> impl Future<Output = Result<T, ThinkError>> + Send + use<T> + 'static {
        let following = self.following.clone();
        async move {
            let value = following.result().await?;
            T::deserialize(&*value).map_err(|error| ThinkError::InvalidResult(Arc::new(error)))
        }
    }
}

impl<T> Stream for ThoughtStream<T> {
    type Item = ThoughtEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ThoughtEvent>> {
        let this = &mut *self;
        let reading = this.reading.get_mut().unwrap_or_else(PoisonError::into_inner);
        let reading = reading.get_or_insert_with(|| {
            let start = Reading::new(this.following.clone(), this.filter.clone(), this.position);
            let steps = stream::unfold(Some(start), |reading| async { reading?.next().await });
            steps.fuse().boxed()
        });
        Poll::Ready(match ready!(reading.poll_next_unpin(cx)) {
            Some(Step::Event(event, position)) => {
                this.position = position;
                Some(event)
            }
            Some(Step::Failed(error)) => {
                this.error = Some(error);
                None
            }
            None => None,
        })
    }
}

impl<T> fmt::Debug for ThoughtStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThoughtStream")
            .field("following", &self.following)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
