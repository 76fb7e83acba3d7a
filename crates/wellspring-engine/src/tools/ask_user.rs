//! `ask_user`: asks the person behind the run.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Answer, Ask, Choice, Context, Form, ToolError, ToolKind};

use super::function::{FunctionTool, function};
use crate::schema::Schema;

/// Choices of one question: more do not fit on every screen.
pub const CHOICES_MAX: usize = 50;

/// A tool by which the model asks the user something and waits for the answer.
///
/// Idempotent: after a crash the same question is still open.
///
/// ```
/// use wellspring_core::Tool as _;
///
/// assert_eq!(&*wellspring_engine::tools::ask_user().spec().name, "ask_user");
/// ```
#[must_use]
pub fn ask_user() -> FunctionTool {
    let description = "Asks the user a question and waits for the answer. Give choices when \
        the possible answers are few, or a JSON schema when the answer has a structure; \
        otherwise the user answers in their own words.";
    function("ask_user", description, ask).title("Question").kind(ToolKind::Think).idempotent()
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// What the user reads.
    question: Box<str>,
    /// The possible answers, in the words the user reads.
    #[serde(default)]
    #[schemars(length(max = CHOICES_MAX))]
    choices: Vec<Box<str>>,
    /// Whether the user may pick several choices.
    #[serde(default)]
    multiple: bool,
    /// The JSON schema of the answer.
    schema: Option<Value>,
}

async fn ask(arguments: Arguments, context: Context) -> Result<Value, ToolError> {
    let multiple = arguments.multiple;
    let ask = Ask::new(arguments.question.clone(), arguments.form().await?);
    match context.ask(ask).await {
        Answer::Choose(chosen) if multiple => Ok(json!(chosen)),
        Answer::Choose(chosen) => Ok(json!(chosen.first())),
        Answer::Value(value) => Ok(value),
        Answer::Approve { .. } => Ok(json!(true)),
        Answer::Deny { reason: None, .. } => Err(ToolError::new("the user declined to answer")),
        Answer::Deny { reason: Some(reason), .. } => {
            Err(ToolError::new(format!("the user declined to answer: {reason}")))
        }
        Answer::Expired => Err(ToolError::new("the question was not answered in time")),
        Answer::Withdrawn => Err(ToolError::new("the run ended before the question was answered")),
    }
}

impl Arguments {
    async fn form(&self) -> Result<Form, ToolError> {
        match (&self.schema, &*self.choices) {
            (Some(_), [_, ..]) => {
                Err(ToolError::new("give either choices or a schema for the answer, not both"))
            }
            (Some(schema), []) => {
                Schema::compile_async(schema)
                    .await
                    .map_err(|error| ToolError::because("ask with another schema", error))?;
                Ok(Form::Schema(schema.clone()))
            }
            (None, []) => Ok(Form::Schema(json!({"type": "string"}))),
            (None, choices) if choices.len() > CHOICES_MAX => {
                let count = choices.len();
                let message = format!("there are {count} choices; at most {CHOICES_MAX} are shown");
                Err(ToolError::new(message))
            }
            (None, choices) => {
                if let Some(twice) =
                    (1..choices.len()).find(|&at| choices[..at].contains(&choices[at]))
                {
                    let message = format!("the choice {:?} occurs twice", choices[twice]);
                    return Err(ToolError::new(message));
                }
                // The label is the id, so that the answer repeats the words of the question.
                let choice = |label: Box<str>| Choice { id: label.clone(), label };
                let choices = choices.iter().cloned().map(choice).collect();
                Ok(Form::Choose { choices, multiple: self.multiple })
            }
        }
    }
}

#[cfg(test)]
mod tests;
