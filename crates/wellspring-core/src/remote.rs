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

/// An agent that runs its own loop in another process or on another machine.
///
/// # Contract
///
/// 1. Yield everything but run events (started, adopted, paused, resumed, finished), and one
///    stop; an end without a stop is an error. Close every part and finish every call.
/// 2. Yield [`Event::Attached`](crate::Event::Attached) as soon as the remote run can be found again.
/// 3. Given a handle in [`RemoteRequest::attached`], go on with that run; do not prompt again.
/// 4. After [`Context::signal`] is cancelled, stop the remote run and end the stream; it is
///    polled until its end or the deadline. Dropping it kills the remote run.
///
/// It is [`Any`], so that a surface that speaks the agent's own protocol can recognise it and
/// give it more than a request carries.
pub trait RemoteAgent: Any + Send + Sync {
    /// Its name in the log.
    fn name(&self) -> &str;

    /// Starts one run, or finds it again.
    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>>;
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
    /// Our tools, for agents that can call back, and [`RETURN_RESULT`](crate::RETURN_RESULT)
    /// where a typed result is wanted. To call one is to make a call of the run: it is
    /// announced, asked about where the policy says so, run, and recorded, whatever the remote
    /// agent says of it. It must not be yielded as well.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The handle of this run, if it was started before and must be found again.
    pub attached: Option<Value>,
    /// The handle of the thread's earlier run, to continue its session.
    pub session: Option<Value>,
}

impl std::fmt::Debug for RemoteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRequest").field("run", &self.run).finish_non_exhaustive()
    }
}
