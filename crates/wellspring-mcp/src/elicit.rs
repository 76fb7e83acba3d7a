//! Questions of a server to the user. ACP agents ask in the same format.

use serde_json::{Map, Value, json};
use wellspring_core::{Answer, Ask, Choice, Context, Form};

use crate::calls::cut;

/// Maximum size of a question's text: one paragraph, since people read it in a chat.
pub const QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of values that are shown as choices; a longer list is shown as a form.
pub const CHOICES_MAX: usize = 32;

/// The answer to a question, as the protocol defines it.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitReply {
    /// The user filled in the form.
    Accept(Value),
    /// The user declined.
    Decline,
    /// No answer was given.
    Cancel,
}

impl ElicitReply {
    /// The answer as JSON of the protocol.
    #[must_use]
    pub fn json(self) -> Value {
        match self {
            Self::Accept(content) => json!({"action": "accept", "content": content}),
            Self::Decline => json!({"action": "decline"}),
            Self::Cancel => json!({"action": "cancel"}),
        }
    }
}

/// Asks the users who watch the call, on behalf of the server.
pub(crate) async fn put(server: &str, params: &Value, context: &Context) -> ElicitReply {
    let Some(elicitation) = Elicitation::read(params) else { return ElicitReply::Decline };
    let answer = context.ask(elicitation.ask(|message| format!("{server}: {message}"))).await;
    elicitation.reply(answer)
}

/// A question, read from the parameters of an `elicitation/create`.
#[derive(Debug)]
pub struct Elicitation {
    message: String,
    question: Question,
}

impl Elicitation {
    /// Reads a question; `None` if it can only be declined. An unknown kind must not be treated
    /// as a known one, and opening a URL for a server is not safe.
    #[must_use]
    pub fn read(params: &Value) -> Option<Self> {
        if params["mode"].as_str().is_some_and(|mode| mode != "form") {
            return None;
        }
        let message = params["message"].as_str().unwrap_or_default().to_owned();
        let question = Question::of(&params["requestedSchema"]);
        Some(Self { message: cut(message, QUESTION_BYTES_MAX), question })
    }

    /// The question for users. `prompt` turns the server's message into the text to show.
    pub fn ask(&self, prompt: impl FnOnce(&str) -> String) -> Ask {
        Ask::new(prompt(&self.message), self.question.form())
    }

    /// Converts the user's answer to the protocol's.
    #[must_use]
    pub fn reply(self, answer: Answer) -> ElicitReply {
        self.question.reply(answer)
    }
}

/// A question, by the way it is asked.
#[derive(Debug, PartialEq)]
enum Question {
    /// Yes or no, without fields.
    Confirm,
    /// One field with a list of values.
    Choose {
        field: String,
        choices: Vec<Choice>,
    },
    Form(Value),
}

const ACCEPT: &str = "accept";
const DECLINE: &str = "decline";

impl Question {
    fn of(schema: &Value) -> Self {
        let fields = schema["properties"].as_object();
        let mut fields = fields.into_iter().flatten();
        match (fields.next(), fields.next()) {
            (None, _) => Self::Confirm,
            (Some((field, kind)), None) => match choices(kind) {
                Some(choices) => Self::Choose { field: field.clone(), choices },
                None => Self::Form(schema.clone()),
            },
            (Some(_), Some(_)) => Self::Form(schema.clone()),
        }
    }

    fn form(&self) -> Form {
        let choice = |id: &str, label: &str| Choice { id: id.into(), label: label.into() };
        match self {
            Self::Confirm => {
                let choices = vec![choice(ACCEPT, "Accept"), choice(DECLINE, "Decline")];
                Form::Choose { choices, multiple: false }
            }
            Self::Choose { choices, .. } => {
                Form::Choose { choices: choices.clone(), multiple: false }
            }
            Self::Form(schema) => Form::Schema(schema.clone()),
        }
    }

    fn reply(self, answer: Answer) -> ElicitReply {
        match (self, answer) {
            (_, Answer::Deny { .. }) => ElicitReply::Decline,
            (_, Answer::Expired | Answer::Withdrawn) => ElicitReply::Cancel,
            (Self::Confirm, Answer::Approve { .. }) => ElicitReply::Accept(json!({})),
            (Self::Confirm, Answer::Choose(chosen)) => match chosen.first().map(|id| &**id) {
                Some(ACCEPT) => ElicitReply::Accept(json!({})),
                Some(_) | None => ElicitReply::Decline,
            },
            (Self::Choose { field, .. }, Answer::Choose(chosen)) => match chosen.first() {
                Some(id) => ElicitReply::Accept(json!({ field: id })),
                None => ElicitReply::Decline,
            },
            (_, Answer::Value(Value::Object(fields))) => ElicitReply::Accept(fields.into()),
            (Self::Choose { field, .. }, Answer::Value(value)) => {
                ElicitReply::Accept(Map::from_iter([(field, value)]).into())
            }
            // An invalid answer counts as declined.
            (Self::Confirm | Self::Form(_), Answer::Value(_))
            | (Self::Form(_), Answer::Choose(_))
            | (Self::Choose { .. } | Self::Form(_), Answer::Approve { .. }) => ElicitReply::Decline,
        }
    }
}

/// The values of a field, if it lists them: `enum` with its `enumNames`, or `oneOf`.
fn choices(kind: &Value) -> Option<Vec<Choice>> {
    let choices: Vec<Choice> = if let Some(ids) = kind["enum"].as_array() {
        let name = |index: usize| kind["enumNames"][index].as_str();
        let choice = |(index, id): (usize, &Value)| {
            let id = id.as_str()?;
            Some(Choice { id: id.into(), label: name(index).unwrap_or(id).into() })
        };
        ids.iter().enumerate().map(choice).collect::<Option<_>>()?
    } else {
        let choice = |one: &Value| {
            let id = one["const"].as_str()?;
            Some(Choice { id: id.into(), label: one["title"].as_str().unwrap_or(id).into() })
        };
        kind["oneOf"].as_array()?.iter().map(choice).collect::<Option<_>>()?
    };
    (1..=CHOICES_MAX).contains(&choices.len()).then_some(choices)
}

#[cfg(test)]
mod tests;
