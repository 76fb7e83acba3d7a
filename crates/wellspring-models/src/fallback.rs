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
/// let second = Scripted::new([Say::new().text("Here I am.")]);
/// let model = Fallback::new([broken, second]); // or a vector, also of boxed models
/// let next = model.fallback().map(|next| next.name().to_owned());
/// assert_eq!(next.as_deref(), Some("scripted"));
/// ```
///
/// Models of different types are chained with [`or`](Self::or):
/// `Fallback::new(anthropic).or(ollama)`.
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
    /// A chain of one model or of a list of models, which are asked in this order.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    #[must_use]
    pub fn new<M>(models: impl IntoModels<M>) -> Self {
        let models = models.into_models();
        assert!(!models.is_empty(), "a `Fallback` needs at least one model");
        Self { models, at: 0 }
    }

    /// Adds the model that is asked if all earlier ones failed.
    #[must_use]
    pub fn or(mut self, model: impl Model + 'static) -> Self {
        self.models.push(Arc::new(model));
        self
    }
}

/// What [`Fallback::new`] takes: a model, or a list of models of one type. `Box<dyn Model>` and
/// `Arc<dyn Model>` are models too.
///
/// `Marker` distinguishes the implementations; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a model nor a list of models",
    note = "models of different types are chained with `Fallback::new(first).or(second)`"
)]
pub trait IntoModels<Marker> {
    /// The models in the order in which they are asked.
    fn into_models(self) -> Vec<Arc<dyn Model>>;
}

/// Marks a model.
#[derive(Debug)]
pub enum IsModel {}

/// Marks a list of models.
#[derive(Debug)]
pub enum IsList {}

impl<M: Model + 'static> IntoModels<IsModel> for M {
    fn into_models(self) -> Vec<Arc<dyn Model>> {
        vec![Arc::new(self)]
    }
}

impl<L: IntoIterator<Item: Model + 'static>> IntoModels<IsList> for L {
    fn into_models(self) -> Vec<Arc<dyn Model>> {
        self.into_iter().map(|model| Arc::new(model) as _).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Say, Scripted};

    #[test]
    fn a_chain_is_made_of_a_model_or_a_list_of_models() {
        let model = || Scripted::new([Say::new().text("Hi.")]);
        let boxed = || Box::new(model()) as Box<dyn Model>;
        let shared = || Arc::new(model()) as Arc<dyn Model>;
        let lengths = [
            Fallback::new(model()),
            Fallback::new(boxed()).or(model()),
            Fallback::new([model(), model()]),
            Fallback::new(vec![boxed(), boxed()]),
            Fallback::new([shared(), shared()]).or(boxed()),
        ]
        .map(|chain| chain.models.len());
        assert_eq!(lengths, [1, 2, 2, 2, 3]);
    }

    #[test]
    #[should_panic = "a `Fallback` needs at least one model"]
    fn an_empty_list_is_no_chain() {
        let _ = Fallback::new(Vec::<Scripted>::new());
    }
}
