//! Whether a call may run: its arguments, the policy, and the approval of a person.

use std::sync::Arc;

use serde_json::Value;
use wellspring_core::{
    Answer, Approval, CallOutline, CallState, Event, Form, PartId, Question, RETURN_RESULT, RunsOn,
    ToolOutcome, ToolResult,
};

use super::arguments::{SHOWN_CHARS_MAX, check_arguments, check_edited, parse_arguments};
use super::run_tool::is_repeatable;
use super::typed_result::ResultTool;
use super::{ReadyCall, Verdict};
use crate::agent_loop::AgentWork;
use crate::run::activity::Busy;

impl AgentWork {
    /// Decides whether a call may run. Waiting for people does not count as being busy.
    pub(crate) async fn gate(
        &self,
        call: PartId,
        open: &CallOutline,
        result_tool: Option<&ResultTool>,
        busy: Busy,
    ) -> (Verdict, Busy) {
        let arguments = parse_arguments(&open.arguments);
        if let Some(result_tool) = result_tool.filter(|_| &*open.tool.name == RETURN_RESULT) {
            return (self.take_result(result_tool, arguments).await, busy);
        }
        if open.tool.runs_on == RunsOn::Client {
            return self.await_client(call, busy).await;
        }
        let Some(tool) = self.def.tool(&open.tool.name) else {
            let names: Vec<_> = self.def.tools.iter().map(|tool| &*tool.spec().name).collect();
            let message =
                format!("there is no tool {:?}; there are: {}", open.tool.name, names.join(", "));
            return (error(message), busy);
        };
        let mut ready = ReadyCall {
            call,
            tool: Arc::clone(tool),
            mode: self.mode_of(&**tool, &arguments),
            arguments,
            edited: false,
            caller: None,
        };
        if let Err(message) = check_arguments(&**tool, &ready.arguments).await {
            return (error(message), busy);
        }
        if matches!(open.state, CallState::Started(_)) {
            // Its process died. The call was allowed before, so it need not be approved again.
            let verdict = if is_repeatable(&**tool) {
                Verdict::Run(ready)
            } else {
                let message = "interrupted: the process that ran the tool ended before the tool did; \
                               it may have taken effect, check before calling it again";
                Verdict::Result(ToolOutcome::Interrupted, ToolResult::new(message))
            };
            return (verdict, busy);
        }
        let mut decision = self.def.policy.decide(tool.spec(), &ready.arguments);
        if decision == Approval::Ask
            && self
                .run
                .has_standing_approval(&self.def.name, &tool.spec().name, &ready.arguments)
                .await
        {
            decision = Approval::Allow;
        }
        match decision {
            Approval::Allow => (Verdict::Run(ready), busy),
            Approval::Deny => (denied("the policy does not allow this call"), busy),
            Approval::Ask => {
                let (answer, busy) = self.ask_approval(&ready, busy).await;
                let verdict = match answer {
                    Answer::Approve { arguments: None, .. } => Verdict::Run(ready),
                    Answer::Approve { arguments: Some(edited), .. } => {
                        match check_edited(&self.def, &tool.spec().name, &edited).await {
                            Ok(()) => {
                                ready.arguments = edited;
                                ready.edited = true;
                                Verdict::Run(ready)
                            }
                            Err(message) => {
                                denied(&format!("approved with other arguments, but {message}"))
                            }
                        }
                    }
                    Answer::Deny { reason: Some(reason), .. } => {
                        denied(&format!("denied: {reason}"))
                    }
                    Answer::Deny { reason: None, .. } => denied("denied by the user"),
                    Answer::Expired => denied("the call was not approved in time"),
                    Answer::Withdrawn => Verdict::Nothing,
                    Answer::Choose(_) | Answer::Value(_) => {
                        denied("the answer was neither a yes nor a no, so it counts as a no")
                    }
                };
                (verdict, busy)
            }
        }
    }

    async fn ask_approval(&self, ready: &ReadyCall, busy: Busy) -> (Answer, Busy) {
        let before = self.run.folded(|transcript| {
            let about = transcript.questions.values().rev().find(|asked| {
                asked.question.call == Some(ready.call) && asked.question.form == Form::Approve
            });
            about.map(|asked| (asked.question.clone(), asked.answered.clone()))
        });
        let question = match before {
            Some((_, Some(answered))) => return (answered.answer, busy),
            Some((question, None)) => question,
            None => {
                let spec = ready.tool.spec();
                let name = spec.title.as_ref().unwrap_or(&spec.name);
                let arguments = ready.arguments.to_string();
                let shown: String = arguments.chars().take(SHOWN_CHARS_MAX).collect();
                let cut = if shown.len() < arguments.len() { "…" } else { "" };
                let question = Question {
                    question: self.run.mint_question(),
                    call: Some(ready.call),
                    prompt: format!("Allow {name} {shown}{cut}?").into(),
                    form: Form::Approve,
                    expires_at: Some(self.run.now().plus(self.def.timeouts.question)),
                    blocking: false,
                    key: None,
                };
                self.run.push(self.agent, Event::QuestionAsked(Box::new(question.clone())));
                self.run.commit().await;
                question
            }
        };
        drop(busy);
        let answer = self.wait_for_answer(question.question, question.expires_at).await;
        (answer, self.run.activity.busy())
    }

    async fn take_result(&self, result_tool: &ResultTool, arguments: Value) -> Verdict {
        if self.run.folded(|transcript| transcript.outline.has_result) {
            return error("there is a result already".into());
        }
        match result_tool.accept(arguments).await {
            Ok(value) => {
                self.run.push(self.agent, Event::ResultReady { value: Box::new(value) });
                Verdict::Result(ToolOutcome::Ok, ToolResult::new("the result was taken"))
            }
            Err(message) => error(message),
        }
    }
}

fn error(message: String) -> Verdict {
    Verdict::Result(ToolOutcome::Error, ToolResult::new(message))
}

fn denied(message: &str) -> Verdict {
    Verdict::Result(ToolOutcome::Denied, ToolResult::new(message))
}
