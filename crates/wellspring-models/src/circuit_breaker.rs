//! A circuit breaker: suspends requests to a provider that keeps failing.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::StreamExt as _;
use tokio::time::Instant;
use wellspring_core::{AttemptStream, Circuit, Model, ModelError, TurnRequest};

/// Suspends requests to a model that keeps failing. After a rest period it lets one attempt
/// through, to check whether the provider works again.
///
/// Only failures of the provider count: unavailable, rate limited, disconnected, timed out. An
/// invalid request does not. All models of a provider share one [`Circuit`]: clone it.
///
/// ```
/// use wellspring_models::{Breaker, Circuit, Say, Scripted};
///
/// let circuit = Circuit::new("acme");
/// let small = Breaker::new(Scripted::new([Say::new().text("Hi")]), circuit.clone());
/// let large = Breaker::new(Scripted::new([Say::new().text("Hello")]), circuit);
/// # let _ = (small, large);
/// ```
#[derive(Clone)]
pub struct Breaker {
    model: Arc<dyn Model>,
    circuit: Circuit,
}

impl std::fmt::Debug for Breaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Breaker").field(&self.model.name()).field(&self.circuit).finish()
    }
}

impl Breaker {
    /// Puts a model behind a circuit.
    #[must_use]
    pub fn new(model: impl Model + 'static, circuit: Circuit) -> Self {
        Self { model: Arc::new(model), circuit }
    }
}

impl Model for Breaker {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn provider(&self) -> Option<&str> {
        self.model.provider()
    }

    fn server(&self) -> Option<(&str, u16)> {
        self.model.server()
    }

    /// A stall is a failure of the provider, before the first content and after it.
    fn timed_out(&self, error: &ModelError) {
        note(&self.circuit, Some(error));
        self.model.timed_out(error);
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        async move {
            self.circuit.admit(Instant::now().into_std())?;
            let attempt = self.model.attempt(request).await;
            let attempt = attempt.inspect_err(|error| note(&self.circuit, Some(error)))?;
            let circuit = self.circuit.clone();
            Ok(attempt
                .inspect(move |said| match said {
                    Err(error) => note(&circuit, Some(error)),
                    Ok(batch) if batch.is_stopped() => note(&circuit, None),
                    Ok(_) => {}
                })
                .boxed())
        }
        .boxed()
    }
}

fn note(circuit: &Circuit, error: Option<&ModelError>) {
    circuit.note(error, Instant::now().into_std());
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use futures::TryStreamExt as _;
    use wellspring_core::{Batch, FailureKind, Message, ModelSettings, Stop};

    use super::*;

    /// Fails in the listed ways, one per attempt, then answers.
    struct Unlucky(Mutex<Vec<FailureKind>>);

    impl Model for Unlucky {
        fn name(&self) -> &str {
            "unlucky"
        }

        fn attempt(&self, _: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
            let failure = self.0.lock().unwrap().pop();
            let said = match failure {
                Some(kind) => Err(ModelError::new("unlucky", kind, "failed")),
                None => {
                    let mut batch = Batch::default();
                    batch.stop(Stop::EndTurn, None);
                    Ok(batch)
                }
            };
            futures::future::ready(Ok(futures::stream::iter([said]).boxed())).boxed()
        }
    }

    async fn ask(model: &dyn Model) -> Result<(), String> {
        let request = TurnRequest {
            model: None,
            instructions: "".into(),
            messages: [Message::user("Hi")].into(),
            tools: [].into(),
            streaming: true,
            settings: ModelSettings::default(),
        };
        let asked = async { model.attempt(request).await?.try_collect::<Vec<_>>().await };
        asked.await.map(|_| ()).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn opens_rests_and_tries_again() {
        use FailureKind::{BadRequest, Unavailable};
        let unlucky = Unlucky(Mutex::new(vec![
            Unavailable,
            Unavailable,
            Unavailable,
            BadRequest,
            Unavailable,
        ]));
        let circuit = Circuit::new("acme").failures(2).rest(Duration::from_secs(10));
        let model = Breaker::new(unlucky, circuit.clone());
        let failed = || Err("unlucky: failed".to_owned());
        let open = |count: u32| Err(format!("acme: is suspended after {count} failures in a row"));

        assert_eq!(ask(&model).await, failed());
        assert_eq!(ask(&model).await, failed(), "a bad request is not a failure of the provider");
        assert_eq!(ask(&model).await, failed());
        assert_eq!(ask(&model).await, failed());
        assert_eq!(ask(&model).await, open(2));
        // One attempt is let through, and fails.
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(ask(&model).await, failed());
        assert_eq!(ask(&model).await, open(3));
        // The next attempt succeeds, and so do all others after it.
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(ask(&model).await, Ok(()));
        assert_eq!(ask(&model).await, Ok(()));
    }

    /// The engine drops an attempt that stalls; the breaker counts it as a failure.
    #[tokio::test(start_paused = true)]
    async fn a_stall_is_a_failure() {
        let model = Breaker::new(Unlucky(Mutex::default()), Circuit::new("acme").failures(1));
        model.timed_out(&ModelError::new("unlucky", FailureKind::TimedOut, "it fell silent"));
        let open = "acme: is suspended after 1 failures in a row".to_owned();
        assert_eq!(ask(&model).await, Err(open));
    }
}
