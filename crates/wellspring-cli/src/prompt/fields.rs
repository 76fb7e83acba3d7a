//! A JSON schema as fields that the user fills in one after the other.

use serde_json::{Map, Value, json};
use wellspring_core::Answer;

use super::Typed;
use crate::text::clean_line;

/// The input that declines a form. It begins with a slash, because a word could be a value.
const DECLINE: &str = "/decline";

/// The input that returns to the previous field.
const BACK: &str = "/back";

/// The fields of a form, and the input so far.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    fields: Vec<Field>,
    /// The current field.
    at: usize,
}

#[derive(Clone, Debug)]
struct Field {
    /// The member of the object; `None` if the answer is the value itself.
    name: Option<String>,
    schema: Value,
    required: bool,
    value: Option<Value>,
}

impl Fields {
    /// The fields of an object, one per property; any other schema is one field.
    pub(super) fn of(schema: &Value) -> Self {
        let properties = schema["properties"].as_object().filter(|it| !it.is_empty());
        let fields = match properties {
            Some(properties) => {
                let required: Vec<&str> = schema["required"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let field = |(name, schema): (&String, &Value)| Field {
                    name: Some(name.clone()),
                    schema: schema.clone(),
                    required: required.contains(&name.as_str()),
                    value: schema.get("default").cloned(),
                };
                properties.iter().map(field).collect()
            }
            None => vec![Field {
                name: None,
                schema: schema.clone(),
                required: true,
                value: schema.get("default").cloned(),
            }],
        };
        Self { fields, at: 0 }
    }

    /// A description of the values that the current field accepts.
    pub(super) fn label(&self) -> String {
        let Some(field) = self.fields.get(self.at) else { return String::new() };
        let place = match self.fields.len() {
            0 | 1 => String::new(),
            count => format!(" ({} of {count})", self.at + 1),
        };
        let title = field.schema["title"].as_str().or(field.name.as_deref());
        let title = title.map(|title| format!("{}{place}: ", clean_line(title)));
        let empty = match &field.value {
            Some(value) => format!(", Enter for {}", clean_line(&field.shown(value))),
            None if field.required => String::new(),
            None => ", Enter to skip".into(),
        };
        let about = field.schema["description"].as_str();
        let about = about.map(|about| format!("{}; ", clean_line(about)));
        format!(
            "{}{}{}{empty}, {DECLINE}",
            title.unwrap_or_default(),
            about.unwrap_or_default(),
            field.takes()
        )
    }

    /// Applies a line to the current field. After the last field, it returns the answer.
    pub(super) fn enter(&mut self, line: &str) -> Typed {
        let line = line.trim();
        match line {
            DECLINE => return Typed::Answer(Answer::NO),
            BACK => {
                self.at = self.at.saturating_sub(1);
                return Typed::Next;
            }
            _ => {}
        }
        if let Some(field) = self.fields.get_mut(self.at) {
            match field.read(line) {
                Ok(value) => field.value = value,
                Err(why) => return Typed::Again(why),
            }
        }
        self.at += 1;
        if self.at < self.fields.len() {
            Typed::Next
        } else {
            Typed::Answer(Answer::Value(self.value()))
        }
    }

    /// Starts again, with the previous input as the defaults.
    pub(super) fn again(&mut self) {
        self.at = 0;
    }

    fn value(&self) -> Value {
        if let [Field { name: None, value, .. }] = &self.fields[..] {
            return value.clone().unwrap_or_default();
        }
        let filled =
            self.fields.iter().filter_map(|field| field.name.clone().zip(field.value.clone()));
        Value::Object(filled.collect::<Map<_, _>>())
    }
}

impl Field {
    /// The values that the schema lists, with their labels.
    fn options(schema: &Value) -> Option<Vec<(Value, String)>> {
        if let Some(values) = schema["enum"].as_array() {
            let name = |at: usize| schema["enumNames"][at].as_str().map(str::to_owned);
            let option = |(at, value): (usize, &Value)| {
                (value.clone(), name(at).unwrap_or_else(|| plain(value)))
            };
            return Some(values.iter().enumerate().map(option).collect());
        }
        let named = schema["oneOf"].as_array().or(schema["anyOf"].as_array())?;
        let option = |one: &Value| {
            let value = one.get("const")?;
            Some((value.clone(), one["title"].as_str().map_or_else(|| plain(value), str::to_owned)))
        };
        named.iter().map(option).collect()
    }

    /// The options, and whether several can be chosen.
    fn choice(&self) -> Option<(Vec<(Value, String)>, bool)> {
        let several = self.schema["type"] == json!("array");
        let schema = if several { &self.schema["items"] } else { &self.schema };
        Self::options(schema).map(|options| (options, several))
    }

    /// A value as the options call it.
    fn shown(&self, value: &Value) -> String {
        let options = self.choice().map(|(options, _)| options).unwrap_or_default();
        let option = options.into_iter().find(|(known, _)| known == value);
        option.map_or_else(|| plain(value), |(_, label)| label)
    }

    fn takes(&self) -> String {
        if let Some((options, several)) = self.choice() {
            let listed = options.iter().enumerate();
            let listed: Vec<_> = listed
                .map(|(at, (_, label))| format!("{} {}", at + 1, clean_line(label)))
                .collect();
            let how = if several { "numbers with commas" } else { "a number" };
            return format!("{how} ({})", listed.join(", "));
        }
        match self.schema["type"].as_str() {
            Some("string") => "text",
            Some("integer") => "a whole number",
            Some("number") => "a number",
            Some("boolean") => "y or n",
            Some("object" | "array") => "JSON",
            Some(_) | None => "text or JSON",
        }
        .into()
    }

    /// Parses a line; `None` if the field is skipped.
    fn read(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            return match &self.value {
                Some(value) => Ok(Some(value.clone())),
                None if self.required => Err(format!("type {}, or {DECLINE}", self.takes())),
                None => Ok(None),
            };
        }
        if let Some((options, several)) = self.choice() {
            let find = |word: &str| {
                let number = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                let by_number = number.and_then(|at| options.get(at));
                let by_name = || {
                    options.iter().find(|(value, label)| {
                        label.eq_ignore_ascii_case(word) || plain(value).eq_ignore_ascii_case(word)
                    })
                };
                by_number.or_else(by_name).map(|(value, _)| value.clone())
            };
            let none = || format!("{line:?} is not among them: type {}", self.takes());
            return if several {
                let chosen: Option<Vec<Value>> =
                    line.split(',').map(|word| find(word.trim())).collect();
                chosen.map(|chosen| Some(Value::Array(chosen))).ok_or_else(none)
            } else {
                find(line).map(Some).ok_or_else(none)
            };
        }
        let wrong = || format!("{line:?} is not {}", self.takes());
        let json = serde_json::from_str::<Value>(line);
        match self.schema["type"].as_str() {
            Some("string") => Ok(Some(line.into())),
            Some("integer") => {
                json.ok().filter(|it| it.is_i64() || it.is_u64()).map(Some).ok_or_else(wrong)
            }
            Some("number") => json.ok().filter(Value::is_number).map(Some).ok_or_else(wrong),
            Some("boolean") => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Some(true.into())),
                "n" | "no" | "false" => Ok(Some(false.into())),
                _ => Err(wrong()),
            },
            Some("object" | "array") => {
                json.map(Some).map_err(|error| format!("this is not valid JSON: {error}"))
            }
            Some(_) | None => Ok(Some(json.unwrap_or_else(|_| line.into()))),
        }
    }
}

/// A value in the form in which the user types it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person() -> Fields {
        Fields::of(&json!({
            "type": "object",
            "properties": {
                "age": {"type": "integer", "title": "Age"},
                "colour": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
                "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}},
                "name": {"type": "string", "description": "Your full name", "default": "Ada"},
                "new": {"type": "boolean"},
            },
            "required": ["age", "colour", "name"],
        }))
    }

    /// Each line, and the label before it.
    fn type_all(fields: &mut Fields, lines: &[&str]) -> String {
        let mut shown = String::new();
        for line in lines {
            shown.push_str(&format!("{} > {line}\n", fields.label()));
            match fields.enter(line) {
                Typed::Again(why) => shown.push_str(&format!("! {why}\n")),
                Typed::Answer(answer) => shown.push_str(&format!("= {}\n", json!(answer))),
                Typed::Next | Typed::Edit => {}
            }
        }
        shown
    }

    #[test]
    fn fields_are_typed_one_by_one() {
        let lines = ["old", "36", "green", "2", "1,rain", "", "maybe", "/back", "Lovelace", ""];
        insta::assert_snapshot!(type_all(&mut person(), &lines));
    }

    #[test]
    fn a_refused_form_begins_again_with_what_was_typed() {
        let mut fields = person();
        type_all(&mut fields, &["36", "1", "", "", "y"]);
        fields.again();
        insta::assert_snapshot!(type_all(&mut fields, &["37", "", "", "", ""]));
    }

    #[test]
    fn one_value_is_one_field() {
        let mut number = Fields::of(&json!({"type": "number"}));
        insta::assert_snapshot!(type_all(&mut number, &["", "many", "1.5"]));
        let mut any = Fields::of(&json!({}));
        insta::assert_snapshot!(type_all(&mut any, &["{\"a\":1}"]));
        let mut text = Fields::of(&json!({"type": "string"}));
        insta::assert_snapshot!(type_all(&mut text, &["no"]));
        let mut declined = Fields::of(&json!({"type": "string"}));
        insta::assert_snapshot!(type_all(&mut declined, &["/decline"]));
    }
}
