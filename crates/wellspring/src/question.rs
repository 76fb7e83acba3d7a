//! How a program handles the questions of its runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use wellspring_core::{Answer, Question};

/// The reason that the model gets if the program does not answer questions.
const NOT_ANSWERED: &str = "this program does not answer questions, so the answer is no";

/// Answers questions.
pub(crate) type Answering = Arc<dyn Fn(Question) -> BoxFuture<'static, Answer> + Send + Sync>;

/// What happens to the questions of a run.
pub(crate) enum OnQuestion {
    /// They are answered with no at once.
    Deny,
    /// They wait for an answer from another handle or surface.
    Wait,
    /// A function answers them.
    Answer(Answering),
}

/// Denies every question, and logs a warning.
pub(crate) fn deny() -> Answering {
    Arc::new(|question| {
        let prompt = &*question.prompt;
        tracing::warn!(
            prompt,
            "denied a question, because the program has no on_question; see Think::on_question"
        );
        Box::pin(std::future::ready(Answer::no(NOT_ANSWERED)))
    })
}
