//! Remote agents: each yields a whole run.

use std::any::Any;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::batch::Batch;
use crate::content::text_of;
use crate::context::Context;
use crate::id::{RunId, ThreadId};
use crate::message::Message;
use crate::model::ModelError;
use crate::request::RunRequest;
use crate::tool::Tool;
use crate::transcript::Transcript;

/// An agent that runs its own loop in another process or on another machine.
///
/// # Contract
///
/// 1. Yield everything but run events (started, adopted, paused, resumed, finished), and one
///    stop; an end without a stop is an error. Close every part and finish every call.
/// 2. Yield [`Event::Attached`](crate::Event::Attached) as soon as the remote run can be found again.
///    The engine keeps the handle under [`name`](RemoteAgent::name), whatever its origin says.
/// 3. Given a handle in [`RemoteRequest::attached`], continue that run; do not prompt again.
///    Do not yield again what [`RemoteRequest::so_far`] has.
/// 4. After [`Context::signal`] is cancelled, stop the remote run and end the stream; it is
///    polled until its end or the deadline. Dropping it kills the remote run, except while it
///    waits only for answers and results that it asked for under a key
///    ([`Ask::resumable`](crate::Ask::resumable), [`Context::resumable`]): then the run may
///    pause, and the agent is asked to continue later, by its handle.
///
/// It is [`Any`], so that a surface that speaks the agent's own protocol can recognise it and
/// give it more than a request carries.
pub trait RemoteAgent: Any + Send + Sync {
    /// Its name in the log.
    fn name(&self) -> &str;

    /// Its capabilities. By default it accepts no further input and continues in new parts.
    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities::default()
    }

    /// Starts a run, or continues one.
    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>>;
}

/// The capabilities of a remote agent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RemoteCapabilities {
    /// The handling of input that is added during a run.
    pub inputs: RemoteInputs,
    /// How it continues a run after a pause or a crash.
    pub resume: RemoteResume,
}

/// The handling of input that is added during a remote agent's run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RemoteInputs {
    /// It is refused.
    #[default]
    Refused,
    /// After the agent has stopped, it gets the added input as another prompt in the same
    /// session, within the same run.
    FollowUp,
}

/// How a remote agent continues a run after a pause or a crash.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RemoteResume {
    /// In new parts. The engine closes the parts and calls that were open.
    #[default]
    NewParts,
    /// In the parts that [`RemoteRequest::so_far`] shows as open. A batch made with
    /// [`Batch::after`] numbers them as the transcript does.
    SameParts,
}

/// The request to a remote agent.
#[derive(Clone)]
pub struct RemoteRequest {
    /// Our run.
    pub run: RunId,
    /// Our thread; a remote session belongs to one.
    pub thread: ThreadId,
    /// The run's request: the input, which is also in [`text`](Self::text), and its options.
    pub request: RunRequest,
    /// The agent's instructions.
    pub instructions: Arc<str>,
    /// The conversation before this run.
    pub history: Arc<[Message]>,
    /// Our tools and the client's, for agents that can call back, and
    /// [`RETURN_RESULT`](crate::RETURN_RESULT) if a typed result is requested. Calling one of
    /// them makes a call of the run: the engine announces it, applies the policy, runs it and
    /// records it. The remote agent must not also yield events for it.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The handle of this run; `None` unless it was started before.
    pub attached: Option<Value>,
    /// The run so far; `None` unless it was started before. The stream may refer to its parts
    /// and agents by their numbers there.
    pub so_far: Option<Arc<Transcript>>,
    /// The handle of the thread's earlier run, or of this run's earlier prompt, to continue its
    /// session.
    pub session: Option<Value>,
}

impl RemoteRequest {
    /// The user's input as text, its blocks separated by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.request.input)
    }
}

impl std::fmt::Debug for RemoteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRequest").field("run", &self.run).finish_non_exhaustive()
    }
}
