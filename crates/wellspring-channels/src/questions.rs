//! Questions of a run in a chat: buttons, and forms asked field by field.

use serde_json::{Value, json};
use wellspring_core::{
    Answer, Answered, AskedQuestion, Form, PartKind, QuestionId, RunId, Scope, Transcript,
};
use wellspring_engine::ControlError;

use crate::channel::{Body, Button};
use crate::incoming::Incoming;
use crate::instance::{Entry, Instance};
use crate::markup::{Text, first_chars};
use crate::schedule::{PostState, Preview};
use crate::state::{AnswerState, FORM_BYTES_MAX, FormState, kept_bytes};
use crate::texts::Language;
use crate::view::body;

/// Characters of a prompt, and of a call's arguments, that a chat shows.
const PROMPT_CHARS_MAX: usize = 1500;

/// Maximum number of choices that are shown as buttons.
const CHOICES_MAX: usize = 20;

/// Maximum length of a button's label.
const LABEL_CHARS_MAX: usize = 60;

impl Instance {
    /// Shows the open questions of a run, and the outcome of those that were shown.
    pub(crate) async fn show_questions(
        &self,
        chat: &str,
        answer: &AnswerState,
        transcript: &Transcript,
    ) {
        for (id, asked) in &transcript.questions {
            let key: Box<str> = format!("question:{}:{id}", answer.run).into();
            let is_shown = self.has_post(chat, &key);
            match &asked.answered {
                Some(answered) if is_shown => {
                    let body = self.closed(asked, answered, transcript, answer.reader.language);
                    self.want(chat, &key, vec![body], true);
                }
                Some(_) => {}
                None => {
                    if answer.delivered.contains(&key) {
                        continue;
                    }
                    if !is_shown {
                        self.pause_typing(chat);
                        let state = PostState {
                            key: key.clone(),
                            reply_to: Some(answer.reply_to.clone()),
                            topic: answer.topic.clone(),
                            preview: Preview::Edit,
                            ..PostState::default()
                        };
                        self.open(chat, state);
                        self.begin_form(chat, answer, *id, asked).await;
                    }
                    let body = self.open_question(answer, *id, asked, transcript);
                    self.want(chat, &key, vec![body], false);
                }
            }
        }
    }

    /// Starts a question that is answered with messages.
    async fn begin_form(
        &self,
        chat: &str,
        answer: &AnswerState,
        id: QuestionId,
        asked: &AskedQuestion,
    ) {
        let by_message = match &asked.question.form {
            Form::Schema(_) => true,
            Form::Approve | Form::Choose { .. } => !self.capabilities().can_buttons,
        };
        match self.entry(chat).await {
            Ok(mut entry) => {
                if by_message {
                    entry.state.form = Some(FormState {
                        run: answer.run,
                        question: id.0,
                        user: answer.user.clone(),
                        values: serde_json::Map::new(),
                    });
                }
                self.keep(chat, &mut entry).await;
            }
            Err(error) => tracing::error!(chat, %error, "failed to read the state of a chat"),
        }
    }

    fn open_question(
        &self,
        answer: &AnswerState,
        id: QuestionId,
        asked: &AskedQuestion,
        transcript: &Transcript,
    ) -> Body {
        let language = answer.reader.language;
        let can = self.capabilities();
        let mut text = prompt(asked, transcript);
        let data = |what: &str| -> Box<str> {
            format!("a:{}:{}:{what}", answer.run.uuid().simple(), id.0).into()
        };
        let button = |label: &str, what: &str| Button {
            label: first_chars(label, LABEL_CHARS_MAX).into(),
            data: data(what),
        };
        let mut buttons = Vec::new();
        match &asked.question.form {
            Form::Approve if can.can_buttons => {
                buttons.push(vec![button(language.approve(), "y"), button(language.deny(), "n")]);
            }
            Form::Choose { choices, .. } if can.can_buttons => {
                let shown = choices.iter().take(CHOICES_MAX).enumerate();
                buttons.extend(shown.map(|(n, it)| vec![button(&it.label, &n.to_string())]));
            }
            Form::Approve => {
                let words = format!("\n1. {}\n2. {}", language.approve(), language.deny());
                text = text.then(Text::plain(&words));
            }
            Form::Choose { choices, .. } => {
                for (n, choice) in choices.iter().take(CHOICES_MAX).enumerate() {
                    let line = format!("\n{}. {}", n + 1, first_chars(&choice.label, 200));
                    text = text.then(Text::plain(&line));
                }
            }
            Form::Schema(schema) => {
                if let Some(field) = next_field(schema, &serde_json::Map::new()) {
                    let line = format!("\n\n{} {}", language.field(), field.title);
                    text = text.then(Text::plain(&line));
                }
            }
        }
        Body { buttons, ..body(text, true, can) }
    }

    fn closed(
        &self,
        asked: &AskedQuestion,
        answered: &Answered,
        transcript: &Transcript,
        language: Language,
    ) -> Body {
        let word = match &answered.answer {
            Answer::Approve { .. } => language.approved(),
            Answer::Deny { .. } => language.denied(),
            Answer::Choose(_) | Answer::Value(_) => language.answered(),
            Answer::Expired => language.expired(),
            Answer::Withdrawn => language.withdrawn(),
        };
        let mut line = format!("\n\n{word}");
        if let (Answer::Choose(chosen), Form::Choose { choices, .. }) =
            (&answered.answer, &asked.question.form)
        {
            let labels = choices.iter().filter(|it| chosen.contains(&it.id)).map(|it| &*it.label);
            line.push_str(&format!(": {}", labels.collect::<Vec<_>>().join(", ")));
        }
        body(prompt(asked, transcript).then(Text::plain(&line)), true, self.capabilities())
    }

    /// Handles the press of a button. Returns the text for the person.
    pub(crate) async fn pressed(
        &self,
        incoming: &Incoming,
        language: Language,
        data: &str,
    ) -> Result<&'static str, ControlError> {
        let Some((run, question, choice)) = read_data(data) else {
            return Ok(language.too_late());
        };
        let control = self.control_of(&incoming.user.id);
        let asked = match control.waiting(run).await {
            Ok(transcript) => transcript.questions.get(&question).cloned(),
            Err(ControlError::NoRun(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(asked) = asked else { return Ok(language.too_late()) };
        let answer = match (&asked.question.form, choice) {
            (Form::Approve, "y") => Answer::Approve { scope: Scope::Once, arguments: None },
            (Form::Approve, "n") => Answer::Deny { reason: None, scope: Scope::Once },
            (Form::Choose { choices, .. }, choice) => {
                let number = choice.parse::<usize>().ok();
                match number.and_then(|number| choices.get(number)) {
                    Some(choice) => Answer::Choose(vec![choice.id.clone()]),
                    None => return Ok(language.too_late()),
                }
            }
            (Form::Approve | Form::Schema(_), _) => return Ok(language.too_late()),
        };
        self.give(incoming, language, run, question, answer).await.map(|(says, _)| says)
    }

    /// Answers a question for a person. Returns the text for the person, and whether the answer
    /// was accepted.
    async fn give(
        &self,
        incoming: &Incoming,
        language: Language,
        run: RunId,
        question: QuestionId,
        answer: Answer,
    ) -> Result<(&'static str, bool), ControlError> {
        let control = self.control_of(&incoming.user.id);
        match control.answer(run, question, answer).await {
            Ok(_) => Ok((language.noted(), true)),
            Err(ControlError::NotAnApprover | ControlError::NotPermitted(_)) => {
                self.inner.metrics.refused();
                control.audit_refusal(run, question).await?;
                Ok((language.not_yours(), false))
            }
            Err(
                ControlError::NoRun(_)
                | ControlError::Finished(_)
                | ControlError::NoQuestion(_)
                | ControlError::AlreadyAnswered { .. },
            ) => Ok((language.too_late(), false)),
            Err(ControlError::BadAnswer(_)) => Ok((language.bad_value(), false)),
            Err(error) => Err(error),
        }
    }

    /// Uses a message as the next field of a form; `false` if no form is open.
    pub(crate) async fn fill_in(
        &self,
        incoming: &Incoming,
        language: Language,
        text: &str,
        message: &str,
        entry: &mut Entry,
    ) -> Result<bool, ControlError> {
        let Some(form) = entry.state.form.clone() else { return Ok(false) };
        if form.user != incoming.user.id {
            return Ok(false);
        }
        let question = QuestionId(form.question);
        let transcript = match self.inner.control.transcript(form.run).await {
            Ok(transcript) => transcript,
            Err(ControlError::NoRun(_)) => {
                entry.state.form = None;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let asked = transcript.questions.get(&question).filter(|it| it.answered.is_none());
        let Some(asked) = asked else {
            entry.state.form = None;
            return Ok(false);
        };
        let read = match &asked.question.form {
            Form::Approve => match text.trim() {
                "1" => Ok(Some(Answer::Approve { scope: Scope::Once, arguments: None })),
                "2" => Ok(Some(Answer::Deny { reason: None, scope: Scope::Once })),
                _ => Err("1, 2".to_owned()),
            },
            Form::Choose { choices, .. } => {
                let number = text.trim().parse::<usize>().ok().and_then(|it| it.checked_sub(1));
                match number.and_then(|number| choices.get(number)) {
                    Some(choice) => Ok(Some(Answer::Choose(vec![choice.id.clone()]))),
                    None => Err(format!("1 – {}", choices.len())),
                }
            }
            Form::Schema(schema) => {
                self.next_value(incoming, language, schema, text, message, entry)
            }
        };
        match read {
            Ok(None) => {}
            Ok(Some(answer)) => {
                entry.state.form = None;
                let (says, counted) =
                    self.give(incoming, language, form.run, question, answer).await?;
                if !counted {
                    self.say(incoming, message, says, entry);
                }
            }
            Err(wanted) => {
                let text = format!("{} {wanted}", language.bad_value());
                self.say(incoming, message, &text, entry);
            }
        }
        Ok(true)
    }

    /// Stores a field, and asks for the next one or submits the form.
    fn next_value(
        &self,
        incoming: &Incoming,
        language: Language,
        schema: &Value,
        text: &str,
        message: &str,
        entry: &mut Entry,
    ) -> Result<Option<Answer>, String> {
        let Some(form) = &mut entry.state.form else { return Ok(None) };
        let Some(field) = next_field(schema, &form.values) else {
            return Ok(Some(Answer::Value(Value::Object(form.values.clone()))));
        };
        let value = field.read(text)?;
        if field.name.is_empty() {
            return Ok(Some(Answer::Value(value)));
        }
        if kept_bytes(&form.values) + kept_bytes(&value) > FORM_BYTES_MAX {
            return Err(field.title);
        }
        form.values.insert(field.name, value);
        match next_field(schema, &form.values) {
            Some(next) => {
                let text = format!("{} {}", language.field(), next.title);
                self.say(incoming, message, &text, entry);
                Ok(None)
            }
            None => {
                // Optional fields that were skipped are left out.
                let mut values = form.values.clone();
                values.retain(|_, value| !value.is_null());
                Ok(Some(Answer::Value(Value::Object(values))))
            }
        }
    }
}

/// A field of a form.
struct Field {
    /// The field's name; empty if the form is a single value.
    name: String,
    title: String,
    schema: Value,
    required: bool,
}

/// The first field without a value.
fn next_field(schema: &Value, values: &serde_json::Map<String, Value>) -> Option<Field> {
    let Some(properties) = schema["properties"].as_object() else {
        let title = schema["title"].as_str().or(schema["description"].as_str());
        let title = title.unwrap_or_default().to_owned();
        return Some(Field { name: String::new(), title, schema: schema.clone(), required: true });
    };
    let required = schema["required"].as_array();
    let (name, field) = properties.iter().find(|(name, _)| !values.contains_key(*name))?;
    let is_required = required.is_some_and(|all| all.iter().any(|it| it == name));
    let mut title = field["title"].as_str().unwrap_or(name).to_owned();
    if let Some(description) = field["description"].as_str() {
        title.push_str(&format!(" ({})", first_chars(description, 200)));
    }
    if let Some(options) = field["enum"].as_array() {
        let options: Vec<_> = options.iter().map(shown).collect();
        title.push_str(&format!(" [{}]", first_chars(&options.join(" | "), 300)));
    }
    if !is_required {
        title.push_str(" (-)");
    }
    Some(Field { name: name.clone(), title, schema: field.clone(), required: is_required })
}

impl Field {
    /// The value in a message; `-` skips an optional field.
    fn read(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        if !self.required && text == "-" {
            return Ok(Value::Null);
        }
        if let Some(options) = self.schema["enum"].as_array() {
            let found = options.iter().find(|it| shown(it).eq_ignore_ascii_case(text));
            return found.cloned().ok_or_else(|| self.title.clone());
        }
        let value = match self.schema["type"].as_str() {
            Some("integer") => text.parse::<i64>().ok().map(|it| json!(it)),
            Some("number") => text
                .replace(',', ".")
                .parse::<f64>()
                .ok()
                .filter(|it| it.is_finite())
                .map(|it| json!(it)),
            Some("boolean") => match text.to_lowercase().as_str() {
                "yes" | "y" | "true" | "1" | "sim" | "s" => Some(json!(true)),
                "no" | "n" | "false" | "0" | "não" | "nao" => Some(json!(false)),
                _ => None,
            },
            Some(_) | None => Some(json!(text)),
        };
        value.ok_or_else(|| self.title.clone())
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The prompt, and the call that it belongs to. The call is shown once, as code, because Markdown
/// would change its text.
fn prompt(asked: &AskedQuestion, transcript: &Transcript) -> Text {
    let question = &asked.question;
    let part = question.call.and_then(|call| transcript.parts.get(&call));
    let Some((part, PartKind::ToolCall(tool))) = part.map(|part| (part, &part.kind)) else {
        return Text::markdown(&format!("❓ {}", first_chars(&question.prompt, PROMPT_CHARS_MAX)));
    };
    let words = first_chars(&question.prompt, PROMPT_CHARS_MAX);
    let words = without_arguments(&words, &part.text);
    let arguments = first_chars(&part.text, PROMPT_CHARS_MAX).replace("```", "'''");
    Text::markdown(&format!("❓ {words}\n```\n{} {arguments}\n```", tool.name))
}

/// The prompt without the arguments of its call. The prompt has them as compact JSON, possibly cut.
fn without_arguments(prompt: &str, arguments: &str) -> String {
    let compact = match serde_json::from_str::<Value>(arguments) {
        Ok(arguments) => arguments.to_string(),
        Err(_) => arguments.to_owned(),
    };
    let found = prompt.char_indices().find_map(|(at, _)| {
        let rest = &prompt[at..];
        let shared = rest.chars().zip(compact.chars()).take_while(|(one, other)| one == other);
        let shared: usize = shared.map(|(one, _)| one.len_utf8()).sum();
        let rest = &rest[shared..];
        let is_whole = shared == compact.len();
        let rest = if is_whole { Some(rest) } else { rest.strip_prefix('…') };
        rest.filter(|_| shared > 0).map(|rest| (&prompt[..at], rest))
    });
    match found {
        Some((before, after)) => format!("{}{after}", before.trim_end()),
        None => prompt.to_owned(),
    }
}

/// The run, the question and the choice of a button.
pub(crate) fn read_data(data: &str) -> Option<(RunId, QuestionId, &str)> {
    let mut parts = data.strip_prefix("a:")?.splitn(3, ':');
    let run = uuid::Uuid::parse_str(parts.next()?).ok().map(RunId::new)?;
    let question = QuestionId(parts.next()?.parse().ok()?);
    Some((run, question, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_not_repeated() {
        let cut = "Allow shell {\"command\":\"rm re…?";
        for (prompt, arguments, want) in [
            ("Allow launch {\"rocket\":5}?", r#"{ "rocket": 5 }"#, "Allow launch?"),
            ("Allow wipe {}?", "{}", "Allow wipe?"),
            (cut, r#"{"command":"rm reports"}"#, "Allow shell?"),
            ("Delete {the} files?", r#"{"path":"/"}"#, "Delete {the} files?"),
            ("Really…?", "{}", "Really…?"),
            ("Allow it?", "", "Allow it?"),
        ] {
            assert_eq!(without_arguments(prompt, arguments), want, "{prompt}");
        }
    }
}
