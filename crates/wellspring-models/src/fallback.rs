//! Several models as one: if one fails, the next one is asked.

use std::sync::Arc;

use futures::future::BoxFuture;
use wellspring_core::{AttemptStream, Model, ModelError, TurnRequest};

/// A model with fallbacks. When one fails, at any point, the engine voids its output and asks the
/// next one; the log then names that one.
///
/// A failure is any error: the provider is unreachable, rejects the request, disconnects in the
/// middle of an answer, or sends nothing within the agent's time limits. After the last model
/// the turn is retried from the first one, within the limits of the run. A
/// [`Breaker`](crate::Breaker) around a model skips it while its provider keeps failing.
///
/// ```
/// use wellspring_core::{FailureKind, Model as _};
/// use wellspring_models::{Failure, Fallback, Say, Scripted};
///
/// let broken = Scripted::new([Say::new().fail(Failure::new(FailureKind::Unavailable, "down"))]);
/// let model = Fallback::new(broken).or(Scripted::new([Say::new().text("Here I am.")]));
/// let next = model.fallback().map(|next| next.name().to_owned());
/// assert_eq!(next.as_deref(), Some("scripted"));
/// ```
#[derive(Clone)]
pub struct Fallback {
    models: Vec<Arc<dyn Model>>,
    /// The index of the current model in the chain.
    at: usize,
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.models[self.at..].iter().map(|model| model.name())).finish()
    }
}

impl Fallback {
    /// Starts a chain with the model that is asked first.
    #[must_use]
    pub fn new(first: impl Model + 'static) -> Self {
        Self { models: vec![Arc::new(first)], at: 0 }
    }

    /// Adds the model that is asked if all earlier ones failed.
    #[must_use]
    pub fn or(mut self, model: impl Model + 'static) -> Self {
        self.models.push(Arc::new(model));
        self
    }
}

impl Model for Fallback {
    fn name(&self) -> &str {
        self.models[self.at].name()
    }

    fn provider(&self) -> Option<&str> {
        self.models[self.at].provider()
    }

    fn server(&self) -> Option<(&str, u16)> {
        self.models[self.at].server()
    }

    fn fallback(&self) -> Option<Arc<dyn Model>> {
        let at = self.at + 1;
        (at < self.models.len()).then(|| Arc::new(Self { models: self.models.clone(), at }) as _)
    }

    fn timed_out(&self, error: &ModelError) {
        self.models[self.at].timed_out(error);
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        self.models[self.at].attempt(request)
    }
}
