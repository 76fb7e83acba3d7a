//! Several models as one: the next answers when one cannot.

use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt as _;
use futures::future::{BoxFuture, FutureExt as _, ready};
use futures::stream::{self, StreamExt as _};
use wellspring_core::{AttemptStream, Batch, FailureKind, Model, ModelError, TurnRequest};

/// How long a model that is not the last one may say nothing, unless told otherwise: half of
/// what the engine waits for the first word, so that the next one has a chance too.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(60);

/// Asks one model after the other until one answers.
///
/// It goes on to the next when one fails or is silent, as long as nothing was said: what a model has begun to say is an
/// attempt, and how that ends is for the engine to judge. Whether a model may be asked at all
/// is for a [`Breaker`](crate::Breaker) around it. The last model's error is the chain's.
///
/// ```
/// use futures::TryStreamExt as _;
/// use wellspring_core::{FailureKind, Message, Model as _, ModelSettings, TurnRequest};
/// use wellspring_models::{Failure, Fallback, Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let broken = Scripted::new([Say::new().fail(Failure::new(FailureKind::Unavailable, "down"))]);
/// let model = Fallback::new(broken).or(Scripted::new([Say::new().text("Here I am.")]));
/// let request = TurnRequest {
///     model: None,
///     instructions: "".into(),
///     messages: [Message::user("Hello?")].into(),
///     tools: [].into(),
///     streaming: true,
///     settings: ModelSettings::default(),
/// };
/// let said: Vec<_> = model.attempt(request).await?.try_collect().await?;
/// assert!(!said.is_empty());
/// # Ok::<(), wellspring_core::ModelError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Fallback {
    first: Arc<dyn Model>,
    others: Vec<Arc<dyn Model>>,
    patience: Duration,
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.models().map(|model| model.name())).finish()
    }
}

impl Fallback {
    /// A chain that begins here.
    #[must_use]
    pub fn new(first: impl Model + 'static) -> Self {
        Self { first: Arc::new(first), others: Vec::new(), patience: PATIENCE_DEFAULT }
    }

    /// Or else this one.
    #[must_use]
    pub fn or(mut self, model: impl Model + 'static) -> Self {
        self.others.push(Arc::new(model));
        self
    }

    /// Waits so long for the first word of a model that is not the last one.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn models(&self) -> impl Iterator<Item = &Arc<dyn Model>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Model for Fallback {
    fn name(&self) -> &str {
        self.first.name()
    }

    fn provider(&self) -> Option<&str> {
        self.first.provider()
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        // Whoever polls it waits for a first word, not for a connection.
        let chain = self.clone();
        ready(Ok(async move { chain.begin(request).await }.try_flatten_stream().boxed())).boxed()
    }
}

impl Fallback {
    async fn begin(&self, mut request: TurnRequest) -> Result<AttemptStream, ModelError> {
        let mut model = &self.first;
        for next in &self.others {
            let begun = begin(&**model, request.clone());
            let error = match tokio::time::timeout(self.patience, begun).await {
                Ok(Ok(attempt)) => return Ok(attempt),
                Ok(Err(error)) => error,
                Err(_) => {
                    let what = format!("said nothing for {} s", self.patience.as_secs_f32());
                    let who = model.provider().unwrap_or_else(|| model.name());
                    ModelError::new(who, FailureKind::TimedOut, what)
                }
            };
            tracing::warn!(%error, next = next.name(), "another model is asked");
            // The name of a model is its provider's; the others answer with their own.
            request.model = None;
            model = next;
        }
        begin(&**model, request).await
    }
}

/// Starts an attempt and waits until it says something: before that another can take over.
async fn begin(model: &dyn Model, request: TurnRequest) -> Result<AttemptStream, ModelError> {
    let mut attempt = model.attempt(request).await?;
    let first: Option<Batch> = loop {
        match attempt.next().await {
            Some(Ok(batch)) if batch.is_empty() => {}
            Some(first) => break Some(first?),
            None => break None,
        }
    };
    Ok(stream::iter(first.map(Ok)).chain(attempt).boxed())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;
    use wellspring_core::{FailureKind, Message, ModelSettings};

    use super::*;
    use crate::{Failure, Say, Scripted};

    async fn ask(model: &Fallback) -> Result<String, String> {
        let request = TurnRequest {
            model: Some("large".into()),
            instructions: "".into(),
            messages: [Message::user("Hi")].into(),
            tools: [].into(),
            streaming: true,
            settings: ModelSettings::default(),
        };
        let asked = async { model.attempt(request).await?.try_collect::<Vec<_>>().await };
        let batches = asked.await.map_err(|error| error.to_string())?;
        let events = batches.into_iter().flat_map(Batch::into_events);
        Ok(events.map(|(_, event)| format!("{event}\n")).collect())
    }

    fn fails(say: Say, kind: FailureKind) -> Scripted {
        Scripted::new([say.fail(Failure::new(kind, format!("{kind:?}")))])
    }

    /// A model that never says anything costs its time, and then the next one is asked.
    #[tokio::test(start_paused = true)]
    async fn silence_is_not_waited_for_for_ever() {
        let silent = || Scripted::new([Say::new().wait(Duration::from_secs(3600)).text("Late.")]);
        let well = Scripted::new([Say::new().chunks(["Hello"])]);
        let since = tokio::time::Instant::now();
        let said = ask(&Fallback::new(silent()).or(silent()).or(well)).await.unwrap();
        assert_eq!(said, "part 0 started text\npart 0 delta \"Hello\"\npart 0 finished\n");
        assert_eq!(since.elapsed(), 2 * PATIENCE_DEFAULT);
        // The last one has all the time that the engine gives it.
        let since = tokio::time::Instant::now();
        let patience = Duration::from_secs(1);
        let chain = Fallback::new(silent()).or(silent()).patience(patience);
        assert!(ask(&chain).await.unwrap().contains("Late."));
        assert_eq!(since.elapsed(), patience + Duration::from_secs(3600));
        // To begin takes no time: that is for connecting.
        let request = TurnRequest {
            model: None,
            instructions: "".into(),
            messages: [Message::user("Hi")].into(),
            tools: [].into(),
            streaming: true,
            settings: ModelSettings::default(),
        };
        assert!(chain.attempt(request).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_is_asked_while_nothing_was_said() {
        let well = || Scripted::new([Say::new().chunks(["Hello"])]);
        let down = || fails(Say::new(), FailureKind::Unavailable);
        let hello = "part 0 started text\npart 0 delta \"Hello\"\npart 0 finished\n";
        assert_eq!(ask(&Fallback::new(well()).or(down())).await.as_deref(), Ok(hello));
        assert_eq!(ask(&Fallback::new(down()).or(down()).or(well())).await.as_deref(), Ok(hello));
        // A refusal too: another provider may know us.
        let refused = fails(Say::new(), FailureKind::Refused);
        assert_eq!(ask(&Fallback::new(refused).or(well())).await.as_deref(), Ok(hello));
        // The last one's error is the chain's.
        let limited = fails(Say::new(), FailureKind::RateLimited);
        let error = ask(&Fallback::new(down()).or(limited)).await.unwrap_err();
        assert!(error.ends_with("RateLimited"), "{error}");
        // What was begun is an attempt; how it ends is for the engine.
        let half = fails(Say::new().chunks(["Half"]), FailureKind::Unavailable);
        let error = ask(&Fallback::new(half).or(well())).await.unwrap_err();
        assert!(error.ends_with("Unavailable"), "{error}");
    }
}
