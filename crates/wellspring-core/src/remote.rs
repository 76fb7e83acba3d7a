//! Remote agents, which yield a whole run.

use std::any::Any;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::batch::Batch;
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
/// 3. Given a handle in [`RemoteRequest::attached`], go on with that run; do not prompt again.
///    Do not yield again what [`RemoteRequest::so_far`] has.
/// 4. After [`Context::signal`] is cancelled, stop the remote run and end the stream; it is
///    polled until its end or the deadline. Dropping it kills the remote run, except while it
///    waits only for answers and results that it asked for under a key
///    ([`Ask::resumable`](crate::Ask::resumable), [`Context::resumable`]): then the run may
///    pause, and the agent is asked to go on later, by its handle.
///
/// It is [`Any`], so that a surface that speaks the agent's own protocol can recognise it and
/// give it more than a request carries.
pub trait RemoteAgent: Any + Send + Sync {
    /// Its name in the log.
    fn name(&self) -> &str;

    /// What it can do. The default can take no further input and goes on in new parts.
    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities::default()
    }

    /// Starts one run, or finds it again.
    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>>;
}

/// What a remote agent can do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RemoteCapabilities {
    /// What happens to input that is added while its run is going on.
    pub inputs: RemoteInputs,
    /// How it goes on with a run that it finds again.
    pub resume: RemoteResume,
}

/// What happens to input that is added while a remote agent's run is going on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RemoteInputs {
    /// It is refused.
    #[default]
    Refused,
    /// When the agent has stopped, it is asked again in the same session: the run goes on with
    /// the added input as its prompt.
    FollowUp,
}

/// How a remote agent goes on with a run that it finds again after a pause or a crash.
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
    /// What was asked.
    pub request: RunRequest,
    /// The agent's instructions.
    pub instructions: Arc<str>,
    /// The conversation before this run.
    pub history: Arc<[Message]>,
    /// Our tools and the client's, for agents that can call back, and
    /// [`RETURN_RESULT`](crate::RETURN_RESULT) where a typed result is wanted. To call one is to make a call of the run: it is
    /// announced, asked about where the policy says so, run, and recorded, whatever the remote
    /// agent says of it. It must not be yielded as well.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The handle of this run, if it was started before and must be found again.
    pub attached: Option<Value>,
    /// The run up to here, if it was started before: what the agent has said and done already.
    /// The stream may name the parts and agents in it by their numbers there.
    pub so_far: Option<Arc<Transcript>>,
    /// The handle of the thread's earlier run, or of this run's earlier prompt, to continue its
    /// session.
    pub session: Option<Value>,
}

impl std::fmt::Debug for RemoteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRequest").field("run", &self.run).finish_non_exhaustive()
    }
}
