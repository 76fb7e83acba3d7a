//! Our tools for a remote agent: each call that it makes is a call of the run and is handled by the
//! run's own task, so that no call outlives the run.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wellspring_core::{
    Annotation, Context, Event, FailureKind, Outcome, PartId, PartKind, RETURN_RESULT, Tool,
    ToolError, ToolOutcome, ToolResult, ToolSpec,
};

use crate::agent_loop::AgentWork;
use crate::calls::Verdict;
use crate::calls::typed_result::ResultTool;
use crate::context::RunHost;
use crate::limits::REMOTE_CALLS_WAITING_MAX;
use crate::remote::call_key;
use crate::runtime::close::finished;

/// The calls that a remote agent makes of our tools.
pub(crate) struct RemoteToolCalls(mpsc::Receiver<RemoteToolCall>);

/// A call that a remote agent made.
pub(crate) struct RemoteToolCall {
    name: Box<str>,
    arguments: Value,
    caller: Context,
    done: oneshot::Sender<Result<ToolResult, ToolError>>,
}

impl RemoteToolCalls {
    /// The next call.
    pub(crate) async fn next(&mut self) -> Option<RemoteToolCall> {
        match self.0.recv().await {
            Some(call) => Some(call),
            // All tools have been dropped, so no call can come.
            None => std::future::pending().await,
        }
    }
}

/// Tools with these specs for a remote agent, and the receiver of their calls.
pub(crate) fn remote_tools(
    specs: impl Iterator<Item = ToolSpec>,
) -> (Vec<Arc<dyn Tool>>, RemoteToolCalls) {
    let (calls, called) = mpsc::channel(REMOTE_CALLS_WAITING_MAX);
    let tools =
        specs.map(|spec| Arc::new(RemoteTool { spec, calls: calls.clone() }) as Arc<dyn Tool>);
    (tools.collect(), RemoteToolCalls(called))
}

/// A tool that forwards its calls to its run.
struct RemoteTool {
    spec: ToolSpec,
    calls: mpsc::Sender<RemoteToolCall>,
}

impl Tool for RemoteTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        arguments: Value,
        caller: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        async move {
            let over = || ToolError::new("the run of this tool has finished");
            let (done, result) = oneshot::channel();
            let call = RemoteToolCall { name: self.spec.name.clone(), arguments, caller, done };
            self.calls.send(call).await.map_err(|_| over())?;
            result.await.unwrap_or_else(|_| Err(over()))
        }
        .boxed()
    }
}

impl AgentWork {
    /// Handles a remote agent's call as a call of the run.
    pub(crate) async fn run_remote_call(
        &self,
        call: RemoteToolCall,
        host: &RunHost,
        result_tool: Option<&ResultTool>,
    ) {
        let RemoteToolCall { name, arguments, caller, done } = call;
        // From here on only the call itself counts as busy.
        let waits = caller.facts().resume_key.is_some().then(|| host.resumable_wait());
        let result = self.call_for(name, arguments, caller, result_tool).await;
        drop(waits);
        // An error means that the agent no longer waits for the result.
        let _ = done.send(result);
    }

    async fn call_for(
        &self,
        name: Box<str>,
        arguments: Value,
        caller: Context,
        result_tool: Option<&ResultTool>,
    ) -> Result<ToolResult, ToolError> {
        let run = &self.run;
        let mut busy = run.activity.busy();
        let key = caller.facts().resume_key.clone();
        let part = match key.as_deref().and_then(|key| self.called_before(key)) {
            Some(part) => part,
            None => {
                let part = run.mint_part();
                let mut kind = PartKind::call(name.clone());
                self.describe(&mut kind);
                run.push(self.agent, Event::PartStarted { part, kind });
                if let Some(key) = key {
                    let annotation = Box::new(Annotation::ProviderId(key));
                    run.push(self.agent, Event::PartAnnotated { part, annotation });
                }
                let chunk = arguments.to_string().into();
                run.push(self.agent, Event::PartDelta { part, chunk });
                run.push(self.agent, Event::PartFinished { part });
                run.commit().await;
                part
            }
        };
        // A call that was made before may have its result already.
        if let Some(open) = run.folded(|transcript| transcript.outline.call(part).cloned()) {
            let verdict;
            (verdict, busy) = self.gate(part, &open, result_tool, busy).await;
            match verdict {
                Verdict::Run(ready) => busy = self.run_call(ready.heard_by(caller), busy).await,
                Verdict::Result(outcome, result) => {
                    run.push(self.agent, finished(part, outcome, result));
                }
                Verdict::Nothing => {}
            }
            run.commit().await;
        }
        let ended =
            run.folded(|transcript| transcript.parts.get(&part)?.call.as_ref()?.finished.clone());
        if result_tool.is_some() && &*name == RETURN_RESULT {
            self.limit_repairs();
        }
        drop(busy);
        match ended {
            Some((ToolOutcome::Ok, result)) => Ok(result),
            Some((_, result)) => Err(ToolError::new(result.output_text())),
            None => Err(ToolError::new("the run ended before the tool did")),
        }
    }

    /// The call that the agent made under this key before the run paused or its process died.
    fn called_before(&self, key: &str) -> Option<PartId> {
        self.run.folded(|transcript| {
            let made = transcript.parts.iter().find(|(part, said)| {
                let ours = matches!(&said.kind, PartKind::ToolCall(call) if call.runs_on.is_ours());
                ours && said.agent == self.agent && call_key(transcript, **part) == Some(key)
            });
            made.map(|(part, _)| *part)
        })
    }

    /// Ends a run whose agent has given too many invalid results.
    fn limit_repairs(&self) {
        let failed = self.run.folded(|transcript| {
            let results = transcript.parts.values().filter(|part| {
                matches!(&part.kind, PartKind::ToolCall(call) if &*call.name == RETURN_RESULT)
            });
            let failed = results.filter(|part| {
                let ended = part.call.as_ref().and_then(|call| call.finished.as_ref());
                ended.is_some_and(|(outcome, _)| *outcome == ToolOutcome::Error)
            });
            if transcript.outline.has_result { 0 } else { failed.count() }
        });
        if failed > self.def.limits.repairs as usize {
            self.run.cancel_now(Outcome::Failed {
                kind: FailureKind::Protocol,
                message: format!("the agent gave no valid result in {failed} tries").into(),
                retryable: true,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use wellspring_core::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn an_agent_that_calls_too_much_at_once_waits() {
        let (tools, mut received) =
            remote_tools([ToolSpec::new("clock", "says the time")].into_iter());
        let call = |number: usize| {
            let context = Context::create("trace", CancellationToken::new());
            tools[0].call(number.into(), context)
        };
        let mut calls: Vec<_> = (0..REMOTE_CALLS_WAITING_MAX + 2).map(call).collect();
        for call in &mut calls {
            assert!(call.now_or_never().is_none());
        }
        assert_eq!(received.0.len(), REMOTE_CALLS_WAITING_MAX);
        // A place makes room for the next, in the order in which they came.
        for number in 0..calls.len() {
            let taken = received.next().await.unwrap();
            assert_eq!(taken.arguments, Value::from(number));
            let _ = taken.done.send(Ok(ToolResult::new("noon")));
            calls[number].as_mut().now_or_never();
            if let Some(next) = calls.get_mut(number + REMOTE_CALLS_WAITING_MAX) {
                assert!(next.now_or_never().is_none());
            }
        }
    }
}
