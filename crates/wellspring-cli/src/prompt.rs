//! Parses answers that the user types: the line being edited, and its meaning. No IO.

mod fields;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Map, Value, json};
use wellspring_core::{Answer, Choice, Form, Question, Scope};

use crate::text::{Line, Style, clean_line, span, width};
use fields::Fields;

/// The meaning of a typed line.
#[derive(Clone, Debug, PartialEq)]
enum Typed {
    Answer(Answer),
    /// Edit the arguments first.
    Edit,
    /// The next field of a form.
    Next,
    /// Invalid; the text says what would be valid.
    Again(String),
}

/// The meaning of a line that answers an approval or a choice.
fn read(form: &Form, line: &str) -> Typed {
    let line = line.trim();
    let lower = line.to_lowercase();
    match form {
        Form::Approve => match lower.as_str() {
            "" => Typed::Again(
                "Type y or n. Any other text declines, with that text as the reason.".into(),
            ),
            "y" | "yes" => approve(Scope::Once),
            "a" | "always" => approve(Scope::Always),
            "t" | "thread" | "this thread" => approve(Scope::Thread),
            "e" | "edit" => Typed::Edit,
            "n" | "no" => Typed::Answer(Answer::NO),
            // Only an explicit yes runs a tool.
            _ => Typed::Answer(Answer::no(line)),
        },
        Form::Choose { choices, multiple } => {
            if matches!(lower.as_str(), "n" | "no") && !choices.iter().any(|it| &*it.id == "no") {
                return Typed::Answer(Answer::NO);
            }
            let find = |word: &str| {
                let number = word
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| choices.get(number.checked_sub(1)?));
                number.or_else(|| {
                    choices
                        .iter()
                        .find(|choice| choice.label.to_lowercase() == word || *choice.id == *word)
                })
            };
            let words: Vec<&str> =
                if *multiple { lower.split(',').map(str::trim).collect() } else { vec![&lower] };
            match words.iter().map(|word| find(word)).collect::<Option<Vec<_>>>() {
                Some(chosen) => {
                    Typed::Answer(Answer::Choose(chosen.iter().map(|it| it.id.clone()).collect()))
                }
                None => Typed::Again(format!("Type a number from 1 to {}.", choices.len())),
            }
        }
        Form::Schema(schema) => Fields::of(schema).enter(line),
    }
}

fn approve(scope: Scope) -> Typed {
    Typed::Answer(Answer::Approve { scope, arguments: None })
}

/// The arguments as a person edits them: the bare text if the only member is a string, otherwise
/// JSON.
fn editable(arguments: &str) -> String {
    match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(members) => match members.values().next() {
            Some(Value::String(text)) if members.len() == 1 && !text.contains('\n') => text.clone(),
            _ => Value::Object(members).to_string(),
        },
        Err(_) => arguments.into(),
    }
}

/// The meaning of edited arguments.
fn read_edited(arguments: &str, line: &str) -> Typed {
    let members = serde_json::from_str::<Map<String, Value>>(arguments).unwrap_or_default();
    let value = match members.iter().next() {
        Some((name, Value::String(text))) if members.len() == 1 && !text.contains('\n') => {
            json!({name: line})
        }
        _ => match serde_json::from_str(line) {
            Ok(value @ Value::Object(_)) => value,
            _ => {
                return Typed::Again(
                    "Not a JSON object. Correct it, or clear the line to go back.".into(),
                );
            }
        },
    };
    Typed::Answer(Answer::Approve { scope: Scope::Once, arguments: Some(value) })
}

/// A question at the prompt.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) question: Question,
    /// The arguments of the waiting call, as the model gave them.
    pub(crate) arguments: String,
    /// The fields of a schema question.
    fields: Option<Fields>,
    editing: bool,
    notice: Option<String>,
    typed: Vec<char>,
    cursor: usize,
}

/// The effect of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pressed {
    Nothing,
    Interrupt,
    Answer(Answer),
}

impl Prompt {
    pub(crate) fn new(question: Question, arguments: String) -> Self {
        let fields = match &question.form {
            Form::Schema(schema) => Some(Fields::of(schema)),
            Form::Approve | Form::Choose { .. } => None,
        };
        let (notice, typed) = (None, Vec::new());
        Self { question, arguments, fields, editing: false, notice, typed, cursor: 0 }
    }

    /// Asks again after the run refused the answer, and shows the reason.
    pub(crate) fn refused(&mut self, why: &str) {
        self.notice = Some(why.into());
        self.editing = false;
        self.set("");
        if let Some(fields) = &mut self.fields {
            fields.again();
        }
    }

    /// The choices, one line each.
    pub(crate) fn choices(&self) -> Vec<String> {
        let Form::Choose { choices, .. } = &self.question.form else { return Vec::new() };
        let line =
            |(at, choice): (usize, &Choice)| format!("{}. {}", at + 1, clean_line(&choice.label));
        choices.iter().enumerate().map(line).collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "keys that type nothing are many")]
    pub(crate) fn key(&mut self, key: KeyEvent) -> Pressed {
        if key.kind == KeyEventKind::Release {
            return Pressed::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Pressed::Interrupt,
            KeyCode::Char('u') if control => self.set(""),
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.typed.len(),
            KeyCode::Char('w') if control => {
                let text: String = self.typed[..self.cursor].iter().collect();
                let kept = text.trim_end().rfind(' ').map_or(0, |at| text[..=at].chars().count());
                self.typed.drain(kept..self.cursor);
                self.cursor = kept;
            }
            KeyCode::Char(c) if !control => {
                self.typed.insert(self.cursor, c);
                self.cursor += 1;
            }
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.typed.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.typed.len() => {
                self.typed.remove(self.cursor);
            }
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.typed.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.typed.len(),
            KeyCode::Esc => {
                self.editing = false;
                self.set("");
            }
            KeyCode::Enter => return self.enter(&self.typed.iter().collect::<String>()),
            _ => {}
        }
        Pressed::Nothing
    }

    /// Takes a whole line.
    pub(crate) fn enter(&mut self, line: &str) -> Pressed {
        let typed = if self.editing && line.trim().is_empty() {
            self.editing = false;
            Typed::Again("not edited".into())
        } else if self.editing {
            read_edited(&self.arguments, line)
        } else if let Some(fields) = &mut self.fields {
            fields.enter(line)
        } else {
            read(&self.question.form, line)
        };
        match typed {
            Typed::Answer(answer) => return Pressed::Answer(answer),
            Typed::Edit => {
                self.editing = true;
                self.notice = None;
                self.set(&editable(&self.arguments));
            }
            Typed::Next => {
                self.notice = None;
                self.set("");
            }
            Typed::Again(notice) => {
                self.notice = Some(notice);
                if !self.editing {
                    self.set("");
                }
            }
        }
        Pressed::Nothing
    }

    /// The possible inputs, shown in front of the input.
    pub(crate) fn label(&self) -> String {
        let label = match (&self.fields, &self.question.form) {
            (Some(fields), _) => fields.label(),
            _ if self.editing => "edit, then Enter to run".into(),
            (None, Form::Choose { multiple: false, .. }) => "a number, or no".into(),
            (None, Form::Choose { multiple: true, .. }) => {
                "numbers separated by commas, or no".into()
            }
            (None, Form::Approve | Form::Schema(_)) => {
                "[y]es [n]o [a]lways [t]his thread [e]dit, or a reason to decline".into()
            }
        };
        match &self.notice {
            Some(notice) => format!("{notice}  {label}"),
            None => label,
        }
    }

    /// The lines of the prompt, and the column of the cursor in the last one.
    pub(crate) fn lines(&self, columns: usize) -> (Vec<Line>, usize) {
        let label =
            Line::of([span("  ", Style::PLAIN), span(self.label(), Style::DIM)]).truncated(columns);
        // A long line scrolls, so that the cursor stays visible.
        let room = columns.saturating_sub(5).max(1);
        let mut start = 0;
        let upto = |start: usize| width(&self.typed[start..self.cursor].iter().collect::<String>());
        while upto(start) > room {
            start += 1;
        }
        let shown: String = self.typed[start..].iter().collect();
        let input = [
            span("  › ", Style::YELLOW.bold()),
            span(clean_line_keeping_spaces(&shown), Style::PLAIN),
        ];
        (vec![label, Line::of(input).truncated(columns)], 4 + upto(start))
    }

    fn set(&mut self, text: &str) {
        self.typed = text.chars().collect();
        self.cursor = self.typed.len();
    }
}

/// Replaces control characters of pasted text, one for one.
fn clean_line_keeping_spaces(text: &str) -> String {
    text.chars()
        .map(
            |c| {
                if c == ' ' {
                    ' '
                } else {
                    clean_line(&c.to_string()).chars().next().unwrap_or(' ')
                }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use wellspring_core::QuestionId;

    use super::*;

    fn deny(reason: Option<&str>) -> Typed {
        Typed::Answer(reason.map_or(Answer::NO, Answer::no))
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        for (line, want) in [
            ("y", approve(Scope::Once)),
            (" YES ", approve(Scope::Once)),
            ("a", approve(Scope::Always)),
            ("t", approve(Scope::Thread)),
            ("e", Typed::Edit),
            ("n", deny(None)),
            ("yes but not like this", deny(Some("yes but not like this"))),
            ("too dangerous", deny(Some("too dangerous"))),
        ] {
            assert_eq!(read(&Form::Approve, line), want, "{line}");
        }
        assert!(matches!(read(&Form::Approve, "  "), Typed::Again(_)));
    }

    #[test]
    fn choices_go_by_number_and_name() {
        let choices =
            ["spring", "river"].map(|id| Choice { id: id.into(), label: id.to_uppercase().into() });
        let one = Form::Choose { choices: choices.to_vec(), multiple: false };
        let many = Form::Choose { choices: choices.to_vec(), multiple: true };
        let chosen = |ids: &[&str]| {
            Typed::Answer(Answer::Choose(ids.iter().map(|id| (*id).into()).collect()))
        };
        assert_eq!(read(&one, "2"), chosen(&["river"]));
        assert_eq!(read(&one, "Spring"), chosen(&["spring"]));
        assert_eq!(read(&many, "2, 1"), chosen(&["river", "spring"]));
        assert_eq!(read(&one, "no"), deny(None));
        for nonsense in ["", "0", "3", "1,2"] {
            assert!(matches!(read(&one, nonsense), Typed::Again(_)), "{nonsense}");
        }
    }

    #[test]
    fn arguments_can_be_edited_as_text_or_json() {
        let question = Question {
            question: QuestionId(0),
            call: None,
            prompt: "".into(),
            form: Form::Approve,
            expires_at: None,
            blocking: false,
            key: None,
        };
        let mut prompt = Prompt::new(question, r#"{"command":"ls"}"#.into());
        let type_in = |prompt: &mut Prompt, text: &str| {
            let mut last = Pressed::Nothing;
            for c in text.chars() {
                let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
                last = prompt.key(KeyEvent::new(code, KeyModifiers::NONE));
            }
            last
        };
        assert_eq!(type_in(&mut prompt, "e\n"), Pressed::Nothing);
        let edited = Some(json!({"command": "ls -l"}));
        let want = Pressed::Answer(Answer::Approve { scope: Scope::Once, arguments: edited });
        assert_eq!(type_in(&mut prompt, " -l\n"), want);

        let two = r#"{"a":1,"b":"x"}"#;
        assert_eq!(editable(two), two);
        assert!(matches!(read_edited(two, "{"), Typed::Again(_)));
        let edited = Some(json!({"a": 2}));
        assert_eq!(
            read_edited(two, r#"{"a":2}"#),
            Typed::Answer(Answer::Approve { scope: Scope::Once, arguments: edited })
        );
    }
}
