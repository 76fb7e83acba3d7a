//! What a run waits for, written as interrupts and pending calls.

use serde_json::{Map, Value, json};
use wellspring_core::{Form, Millis, Question, QuestionId, QuestionOutline, Record, RunsOn, Wait};

use super::super::ids;
use super::super::types::{Event, Interrupt, Metadata, RunFinished, RunOutcome};
use super::Scene;

/// The outline of a question that this record asks.
pub(super) fn outline(record: &Record, question: &Question) -> QuestionOutline {
    QuestionOutline {
        agent: record.agent,
        call: question.call,
        prompt: question.prompt.clone(),
        form: question.form.clone(),
        expires_at: question.expires_at,
        blocking: question.blocking,
    }
}

impl Scene<'_> {
    /// How a pause ends the wire's run. Usage is reported once, at the end of our run.
    pub(in super::super) fn paused(&self, waits: &[Wait], interrupts: Vec<Interrupt>) -> Event {
        let outcome = if interrupts.is_empty() {
            RunOutcome::Success { pending_tool_call_ids: self.pending(waits) }
        } else {
            RunOutcome::Interrupt { interrupts }
        };
        let finished = RunFinished {
            thread_id: ids::thread(self.head),
            run_id: ids::run(self.head),
            outcome: Some(outcome),
            ..RunFinished::default()
        };
        finished.into()
    }

    /// The questions that a pause waits for. If there are any, the calls that it waits for are
    /// included: the protocol has no outcome for both.
    pub(in super::super) fn interrupts(&self, waits: &[Wait]) -> Vec<Interrupt> {
        let mut questions = waits.iter().filter_map(|wait| match wait {
            Wait::Question(question) => {
                let outline = self.outline.questions.get(question)?;
                Some(self.interrupt(*question, outline))
            }
            Wait::Call(_) => None,
        });
        let Some(first) = questions.next() else { return Vec::new() };
        let calls = self.pending(waits).into_iter().map(|call| Interrupt {
            id: call.clone(),
            reason: "tool_call".into(),
            tool_call_id: Some(call),
            ..Interrupt::default()
        });
        [first].into_iter().chain(questions).chain(calls).collect()
    }

    /// The calls that the client has to answer.
    fn pending(&self, waits: &[Wait]) -> Vec<Box<str>> {
        let calls = waits.iter().filter_map(|wait| match wait {
            Wait::Call(call) => Some(*call),
            Wait::Question(_) => None,
        });
        let ours = |call: &_| {
            self.call(*call).is_some_and(|outline| outline.tool.runs_on == RunsOn::Client)
        };
        calls.filter(ours).map(|call| self.id(call)).collect()
    }

    /// A question as an interrupt.
    pub(in super::super) fn interrupt(
        &self,
        question: QuestionId,
        outline: &QuestionOutline,
    ) -> Interrupt {
        let call = outline.call.filter(|call| self.call(*call).is_some());
        let reason = match (&outline.form, call) {
            (Form::Approve, Some(_)) => "tool_call",
            (Form::Approve, None) => "confirmation",
            (Form::Choose { .. } | Form::Schema(_), _) => "input_required",
        };
        let edit = self.outline.takes_edited_arguments(outline);
        Interrupt {
            id: ids::question(self.head.run, question),
            reason: reason.into(),
            message: Some(outline.prompt.clone()).filter(|prompt| !prompt.is_empty()),
            tool_call_id: call.map(|call| self.id(call)),
            response_schema: response_schema(&outline.form, edit),
            expires_at: outline.expires_at.and_then(iso_8601),
            metadata: choices(&outline.form),
            subagent_run_id: self.tag(outline.agent),
        }
    }
}

/// The schema of an answer. Approval may include edited arguments, which replace the model's;
/// clients offer editing only if the schema includes them.
fn response_schema(form: &Form, takes_edited_arguments: bool) -> Option<Map<String, Value>> {
    let schema = match form {
        Form::Approve => {
            let mut properties = json!({
                "approved": {"type": "boolean"},
                "reason": {"type": "string"},
                "scope": {"enum": ["once", "thread", "always"]},
            });
            if let (true, Value::Object(properties)) = (takes_edited_arguments, &mut properties) {
                properties.insert("editedArgs".into(), json!({"type": "object"}));
            }
            json!({"type": "object", "properties": properties, "required": ["approved"]})
        }
        Form::Choose { choices, multiple } => {
            let ids: Vec<&str> = choices.iter().map(|choice| &*choice.id).collect();
            let one = json!({"type": "string", "enum": ids});
            if *multiple { json!({"type": "array", "items": one}) } else { one }
        }
        Form::Schema(schema) => schema.clone(),
    };
    match schema {
        Value::Object(schema) => Some(schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    }
}

fn choices(form: &Form) -> Option<Metadata> {
    match form {
        Form::Choose { choices, .. } => {
            Some(Map::from_iter([("choices".to_owned(), json!(choices))]))
        }
        Form::Approve | Form::Schema(_) => None,
    }
}

/// A time in ISO 8601, with milliseconds; `None` for times after the year 9999.
pub(in super::super) fn iso_8601(at: Millis) -> Option<Box<str>> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
    Some(format!("{at:.3}").into())
}
