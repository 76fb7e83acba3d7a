//! Follows a run: the state that all handles of it share.
//!
//! One task starts the run and reads it to its end, so that the result is available whether or
//! not a caller iterates. It keeps a position and the result, but no events: those stay in the
//! log until they are read.

use std::sync::Arc;

use futures::Stream;
use futures::stream::{self, FuturesUnordered, StreamExt as _};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use wellspring_core::{
    AgentNo, Answer, CancelWhen, CancellationToken, Event, Outcome, Question, QuestionId, Record,
    RunId, Seq, Stop, Transcript,
};
use wellspring_engine::{Control, StartRun, WorkerResult};
use wellspring_log::Cursor;

use crate::error::ThinkError;
use crate::question::Answering;

/// The reason for a cancellation by a token.
const BY_SIGNAL: &str = "its signal was cancelled";

/// A handle of a run. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    pub(crate) control: Control,
    known: watch::Receiver<Known>,
}

/// What is known about a run so far. Each value is set once.
#[derive(Clone, Debug, Default)]
struct Known {
    run: Option<Result<RunId, ThinkError>>,
    result: Option<Result<Arc<Value>, ThinkError>>,
    outcome: Option<Result<Outcome, ThinkError>>,
}

/// The run to follow.
pub(crate) enum Which {
    /// A run that is to be started.
    New(Box<StartRun>),
    /// An existing run.
    Old(RunId),
}

impl Following {
    /// Starts the run, if it is new, and follows it. Without a Tokio runtime, the handle
    /// returns an error.
    pub(crate) fn begin(control: Control, which: Which, signal: Option<CancellationToken>) -> Self {
        let (tell, known) = watch::channel(Known::default());
        match Handle::try_current() {
            Ok(handle) => {
                let follower = Follower { control: control.clone(), tell, signal };
                handle.spawn(follower.follow(which));
            }
            Err(_) => tell.send_modify(|known| known.end(ThinkError::NoRuntime)),
        }
        Self { control, known }
    }

    /// A run that cannot be started.
    pub(crate) fn failed(control: Control, error: ThinkError) -> Self {
        let (tell, known) = watch::channel(Known::default());
        tell.send_modify(|known| known.end(error));
        Self { control, known }
    }

    /// Waits until the run is started.
    pub(crate) async fn run(&self) -> Result<RunId, ThinkError> {
        self.wait(|known| known.run.clone()).await
    }

    /// Waits for the result.
    pub(crate) async fn result(&self) -> Result<Arc<Value>, ThinkError> {
        self.wait(|known| known.result.clone()).await
    }

    /// Waits until the run has ended.
    pub(crate) async fn outcome(&self) -> Result<Outcome, ThinkError> {
        self.wait(|known| known.outcome.clone()).await
    }

    async fn wait<R>(
        &self,
        read: impl Fn(&Known) -> Option<Result<R, ThinkError>>,
    ) -> Result<R, ThinkError> {
        let mut known = self.known.clone();
        match known.wait_for(|known| read(known).is_some()).await {
            Ok(known) => read(&known).unwrap_or(Err(ThinkError::NoRuntime)),
            // The task ended early because its runtime was shut down.
            Err(_) => Err(ThinkError::NoRuntime),
        }
    }

    /// A cursor after a position.
    pub(crate) async fn cursor(&self, after: Seq) -> Result<Cursor, ThinkError> {
        Ok(self.control.attach(self.run().await?, after).await?)
    }

    /// The run so far.
    pub(crate) async fn transcript(&self) -> Result<Transcript, ThinkError> {
        Ok(self.control.transcript(self.run().await?).await?)
    }

    /// The records after a position.
    pub(crate) fn records(
        self,
        after: Seq,
    ) -> impl Stream<Item = Result<Record, ThinkError>> + Send + 'static {
        let opened = stream::once(async move { self.cursor(after).await });
        opened.flat_map(|opened| match opened {
            Ok(cursor) => cursor.into_records().map(|next| Ok(next?)).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        })
    }

    /// Cancels the run. It is not an error if the run has ended.
    pub(crate) async fn cancel(&self, when: CancelWhen) -> Result<(), ThinkError> {
        let run = self.run().await?;
        self.control.stop(run, when, None).await?;
        Ok(())
    }

    /// Answers a question.
    pub(crate) async fn answer(
        &self,
        question: QuestionId,
        answer: Answer,
    ) -> Result<(), ThinkError> {
        let run = self.run().await?;
        self.control.answer(run, question, answer).await?;
        Ok(())
    }

    /// The open questions and all later ones. The stream ends if the run cannot be read.
    pub(crate) fn questions(self) -> impl Stream<Item = Question> + Send + 'static {
        let opened = stream::once(async move {
            let transcript = self.transcript().await.ok()?;
            let open = transcript.questions.values().filter(|asked| asked.answered.is_none());
            let open: Vec<Question> = open.map(|asked| asked.question.clone()).collect();
            let later = self.records(transcript.outline.head).filter_map(async |record| {
                let Event::QuestionAsked(question) = record.ok()?.event else { return None };
                Some(*question)
            });
            Some(stream::iter(open).chain(later))
        });
        opened.filter_map(std::future::ready).flatten()
    }

    /// Answers every question of the run with a function, until the run ends, even after all
    /// handles are dropped.
    pub(crate) fn answer_all(&self, answering: Answering) {
        let Ok(handle) = Handle::try_current() else { return };
        let following = self.clone();
        handle.spawn(async move {
            let mut questions = std::pin::pin!(following.clone().questions());
            let mut answers = FuturesUnordered::new();
            loop {
                tokio::select! {
                    question = questions.next() => match question {
                        Some(question) => {
                            answers.push(following.answer_with(question, Arc::clone(&answering)));
                        }
                        None => break,
                    },
                    Some(()) = answers.next(), if !answers.is_empty() => {}
                }
            }
        });
    }

    async fn answer_with(&self, question: Question, answering: Answering) {
        let id = question.question;
        let answer = answering(question).await;
        if let Err(error) = self.answer(id, answer).await {
            // Another answer was first, or the run has ended, which the result reports.
            tracing::debug!(question = %id, %error, "the answer was refused");
        }
    }
}

impl Known {
    /// Nothing more will arrive.
    fn end(&mut self, error: ThinkError) {
        self.run.get_or_insert(Err(error.clone()));
        self.result.get_or_insert(Err(error.clone()));
        self.outcome.get_or_insert(Err(error));
    }
}

/// The task behind a [`Following`].
struct Follower {
    control: Control,
    tell: watch::Sender<Known>,
    signal: Option<CancellationToken>,
}

impl Follower {
    async fn follow(self, which: Which) {
        if let Err(error) = self.try_follow(which).await {
            self.tell.send_modify(|known| known.end(error));
        }
    }

    async fn try_follow(&self, which: Which) -> Result<(), ThinkError> {
        if self.signal.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(ThinkError::Cancelled { by: None, why: Some(BY_SIGNAL.into()) });
        }
        let run = match which {
            Which::New(start) => self.control.start(*start).await?.run,
            Which::Old(run) => run,
        };
        let mut cursor = self.control.attach(run, Seq(0)).await?;
        self.tell.send_modify(|known| known.run = Some(Ok(run)));
        let reading = self.read(run, &mut cursor);
        // No handle is left and no token can cancel: the run continues by itself.
        let unwatched = async {
            if self.signal.is_some() {
                std::future::pending::<()>().await;
            }
            self.tell.closed().await;
        };
        tokio::select! {
            read = reading => read,
            () = unwatched => Ok(()),
            cancelled = self.cancel_on_signal(run) => cancelled,
        }
    }

    /// Resolves only if the cancellation could not be sent.
    async fn cancel_on_signal(&self, run: RunId) -> Result<(), ThinkError> {
        match &self.signal {
            Some(signal) => signal.cancelled().await,
            None => std::future::pending().await,
        }
        self.control.stop(run, CancelWhen::Now, Some(BY_SIGNAL)).await?;
        std::future::pending().await
    }

    async fn read(&self, run: RunId, cursor: &mut Cursor) -> Result<(), ThinkError> {
        let mut typed = false;
        while let Some(frames) = cursor.next().await? {
            for record in frames.iter().flat_map(|frame| frame.records()) {
                if let Event::RunStarted(started) = &record.event {
                    typed = started.request.result_schema.is_some();
                } else if let Event::ResultReady { value } = &record.event {
                    let value = Arc::new((**value).clone());
                    self.tell.send_modify(|known| {
                        known.result.get_or_insert(Ok(value));
                    });
                } else if let Event::RunFinished { outcome } = &record.event {
                    let known = self.tell.borrow().result.clone();
                    let result = match known {
                        Some(result) => result,
                        None => self.result_at_end(run, typed, outcome).await,
                    };
                    self.tell.send_modify(|known| {
                        known.result = Some(result);
                        known.outcome = Some(Ok((**outcome).clone()));
                    });
                }
            }
        }
        Ok(())
    }

    /// The result of a run that has ended: the typed one, or the answer's text.
    async fn result_at_end(
        &self,
        run: RunId,
        typed: bool,
        outcome: &Outcome,
    ) -> Result<Arc<Value>, ThinkError> {
        let stop: &Stop = match outcome {
            Outcome::Completed { stop } => stop,
            Outcome::Cancelled { by, why, .. } => {
                return Err(ThinkError::Cancelled { by: by.clone(), why: why.clone() });
            }
            Outcome::Failed { kind, message, retryable } => {
                let (kind, message, retryable) = (*kind, message.clone(), *retryable);
                return Err(ThinkError::Failed { kind, message, retryable });
            }
        };
        let transcript = self.control.transcript(run).await?;
        let answer = transcript.answer(AgentNo::ROOT);
        // A truncated text is not the answer.
        let whole = WorkerResult::of(&transcript).is_some_and(|result| result.success);
        if typed || !whole {
            Err(ThinkError::NoResult { stop: stop.clone(), answer })
        } else {
            Ok(Arc::new(Value::String(answer)))
        }
    }
}
