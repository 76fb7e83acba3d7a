//! Questions: sent as permission requests, or as forms if the client supports forms.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, Answer, CallOutline, Choice, Event, Form, Outline, PartId, Question, RunsOn, Scope,
};

use super::super::unknown_members::{OURS, left, members_except, merge};
use super::super::{ELICITATION, ORIGIN, PERMISSION};
use super::update::kind;
use crate::dialect::visible::wire_id;

/// The only field of a form that asks for a single value.
const FIELD: &str = "answer";

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_SESSION: &str = "allow_session";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT: &str = "reject_once";

/// How a question is sent to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// As a request; [`Asking::answer`] reads its answer.
    Request(Asking),
    /// The client cannot be asked. This is the answer that the run gets instead.
    Unaskable(Answer),
}

/// A question that is sent to the client as a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Asking {
    /// The request's method.
    pub method: &'static str,
    /// The request's parameters.
    pub params: Value,
    reading: Reading,
}

/// How to read the client's answer.
#[derive(Clone, Debug, PartialEq)]
enum Reading {
    /// By the selected option.
    Options(Vec<(Box<str>, Answer)>),
    /// This field of the form holds the label of the choice.
    Chosen(Box<str>),
    /// Submitting the form selects this choice.
    Sent(Box<str>),
    /// The form's content is the answer.
    Whole,
    /// The form's only field is the answer.
    Field,
    /// The form's only field holds JSON.
    Json,
}

/// A permission request of a proxied agent, from the log.
#[derive(Clone, Debug)]
struct Offer {
    options: Vec<Value>,
    /// Further members, such as `_meta`.
    more: Value,
}

/// Open permission requests and forms of proxied agents, from the log.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// The open calls, by the agents' own ids.
    calls: BTreeMap<Box<str>, PartId>,
    /// By the call that the request is about, while it is open.
    offers: BTreeMap<Option<PartId>, Offer>,
    /// Further members of the form that will be asked next.
    form: Option<Value>,
}

impl Offers {
    /// Applies an event of the log.
    pub fn read(&mut self, event: &Event) {
        if let Event::PartAnnotated { part, annotation } = event
            && let Annotation::ProviderId(id) = &**annotation
        {
            self.calls.insert(id.clone(), *part);
        } else if let Event::ToolFinished { call: over, .. } = event {
            self.calls.retain(|_, call| call != over);
            self.offers.remove(&Some(*over));
        } else if let Event::Extended(said) = event
            && (&*said.origin, &*said.name) == (ORIGIN, ELICITATION)
        {
            self.form = Some(said.value.clone());
        } else if let Event::Extended(said) = event
            && (&*said.origin, &*said.name) == (ORIGIN, PERMISSION)
            && let Some(options) = said.value["options"].as_array()
        {
            let is_sound = |it: &Value| it["optionId"].is_string() && it["name"].is_string();
            let id = said.value["toolCall"]["toolCallId"].as_str().unwrap_or_default();
            let call = self.calls.get(id).copied();
            self.offers.remove(&call);
            if options.iter().all(is_sound) {
                let more = members_except(&said.value, &["sessionId", "toolCall", "options"]);
                self.offers.insert(call, Offer { options: options.clone(), more });
            }
        }
    }

    /// The request that a question stands for.
    fn take(&mut self, question: &Question) -> Option<Offer> {
        let is_it = |offer: &Offer| match &question.form {
            Form::Approve => true,
            Form::Choose { choices, .. } => {
                let ids = offer.options.iter().map(|it| it["optionId"].as_str());
                ids.eq(choices.iter().map(|it| Some(&*it.id)))
            }
            Form::Schema(_) => false,
        };
        self.offers.get(&question.call).filter(|it| is_it(it))?;
        self.offers.remove(&question.call)
    }
}

/// An option whose kind the protocol defines. An unknown kind is kept in `_meta`.
fn option(offered: &Value) -> Value {
    let mut option = Value::Object(left(offered, &[]));
    let known = ["allow_once", "allow_always", "reject_once", "reject_always"];
    let kind = offered["kind"].as_str();
    if !kind.is_some_and(|kind| known.contains(&kind)) {
        let text = |name: &str| offered[name].as_str().unwrap_or_default().into();
        option["kind"] = kind_of(&Choice { id: text("optionId"), label: text("name") }).into();
        merge(&mut option, &json!({"_meta": {OURS: {"kind": offered["kind"]}}}));
    }
    option
}

impl Asked {
    /// Forwards a permission request of a proxied agent with the agent's own options. `None` if the
    /// question was not made from a permission request.
    #[must_use]
    pub fn passed_on(
        question: &Question,
        before: &Outline,
        session: &str,
        offers: &mut Offers,
    ) -> Option<Self> {
        let Offer { options, more } = offers.take(question)?;
        // A plain yes or no selects the option of that kind.
        let meaning = |option: &Value| {
            let id = option["optionId"].as_str().unwrap_or_default();
            match (&question.form, option["kind"].as_str()) {
                (Form::Approve, Some("allow_once")) => Answer::yes(),
                (Form::Approve, Some("allow_always")) => {
                    Answer::Approve { scope: Scope::Always, arguments: None }
                }
                (Form::Approve, Some("reject_always")) => {
                    Answer::Deny { reason: None, scope: Scope::Always }
                }
                (Form::Approve, _) => Answer::NO,
                (Form::Choose { .. } | Form::Schema(_), _) => Answer::Choose(vec![id.into()]),
            }
        };
        let options = options.iter().map(|offered| (option(offered), meaning(offered)));
        let mut asking = Scene { question, before, session }.request(options);
        merge(&mut asking.params, &more);
        Some(Self::Request(asking))
    }

    /// Forwards a form of a proxied agent, with its fields and further members.
    #[must_use]
    pub fn with_more(mut self, question: &Question, before: &Outline, offers: &mut Offers) -> Self {
        let is_form = question.blocking && !matches!(question.form, Form::Approve);
        if let (Self::Request(asking), true) = (&mut self, is_form)
            && let Some(more) = offers.form.take()
        {
            merge(&mut asking.params, &members_except(&more, &["toolCallId", "requestedSchema"]));
            if asking.method != ELICITATION {
                return self;
            }
            let call = more["toolCallId"].as_str().and_then(|id| offers.calls.get(id));
            if let Some(id) = call.and_then(|call| wire_id(before, *call)) {
                asking.params["toolCallId"] = id.to_string().into();
            }
            let schema = &more["requestedSchema"];
            if let Some(reading) = as_it_came(schema, &question.form) {
                asking.params["requestedSchema"] = schema.clone();
                asking.reading = reading;
            }
        }
        self
    }

    /// Writes a question as a request. `before` is the outline, `session` the client's id of
    /// the thread.
    #[must_use]
    pub fn new(question: &Question, before: &Outline, session: &str, has_forms: bool) -> Self {
        let scene = Scene { question, before, session };
        match &question.form {
            Form::Approve => Self::Request(scene.permission(approval())),
            Form::Choose { choices, multiple } if has_forms => {
                let titled: Vec<_> = choices.iter().map(titled).collect();
                let field = if *multiple {
                    json!({"type": "array", "items": {"anyOf": titled}})
                } else {
                    json!({"type": "string", "oneOf": titled})
                };
                Self::Request(scene.form(one_field(field), Reading::Chosen(FIELD.into())))
            }
            // Without forms, only one option can be chosen.
            Form::Choose { choices, .. } => {
                let chosen = |it: &Choice| Answer::Choose(vec![it.id.clone()]);
                if scene.call().is_some_and(|call| call.tool.runs_on == RunsOn::Agent) {
                    let offered = choices.iter().map(|it| (&*it.label, kind_of(it), chosen(it)));
                    return Self::Request(scene.permission(offered));
                }
                let offered = choices.iter().map(|it| (&*it.label, chosen(it)));
                Self::Request(scene.permission(selection(offered)))
            }
            Form::Schema(schema) if has_forms => {
                let (schema, reading) = form_schema(schema);
                Self::Request(scene.form(schema, reading))
            }
            Form::Schema(schema) => match few_values(schema) {
                Some(values) => Self::Request(scene.permission(selection(
                    values.iter().map(|(label, value)| (&**label, Answer::Value(value.clone()))),
                ))),
                None => Self::Unaskable(Answer::no(
                    "the user's program cannot show a form; ask in the answer instead",
                )),
            },
        }
    }
}

impl Asking {
    /// Reads the client's answer. Anything that is not clearly a yes counts as a no.
    #[must_use]
    pub fn answer(&self, result: &Value) -> Answer {
        let content = &result["content"];
        match &self.reading {
            Reading::Options(options) => {
                let selected = (result["outcome"]["outcome"] == "selected")
                    .then(|| result["outcome"]["optionId"].as_str())
                    .flatten();
                let known = selected.and_then(|id| options.iter().find(|it| &*it.0 == id));
                known.map_or(Answer::NO, |it| it.1.clone())
            }
            _ if result["action"] != "accept" => Answer::NO,
            Reading::Sent(choice) => Answer::Choose(vec![choice.clone()]),
            Reading::Chosen(field) => match &content[&**field] {
                Value::String(one) => Answer::Choose(vec![one.as_str().into()]),
                Value::Array(several) => Answer::Choose(
                    several.iter().filter_map(Value::as_str).map(Into::into).collect(),
                ),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Answer::NO,
            },
            Reading::Whole => Answer::Value(content.clone()),
            Reading::Field => Answer::Value(content[FIELD].clone()),
            Reading::Json => {
                let text = content[FIELD].as_str().unwrap_or_default();
                Answer::Value(serde_json::from_str(text).unwrap_or_else(|_| text.into()))
            }
        }
    }
}

struct Scene<'a> {
    question: &'a Question,
    before: &'a Outline,
    session: &'a str,
}

/// An option: its label, its kind, and the answer that it stands for.
type Saying<'a> = (&'a str, &'static str, Answer);

impl Scene<'_> {
    fn call(&self) -> Option<&CallOutline> {
        self.before.call(self.question.call?)
    }

    fn call_id(&self) -> String {
        match self.question.call.and_then(|call| wire_id(self.before, call)) {
            Some(id) => id.to_string(),
            None => {
                let run = self.before.run.as_ref().map(|head| head.run.to_string());
                format!("{}-question-{}", run.unwrap_or_default(), self.question.question)
            }
        }
    }

    fn permission<'a>(&self, offered: impl Iterator<Item = Saying<'a>>) -> Asking {
        self.request(offered.enumerate().map(|(index, (name, kind, answer))| {
            let id: Box<str> = match &answer {
                Answer::Approve { scope: Scope::Once, .. } => ALLOW_ONCE.into(),
                Answer::Approve { scope: Scope::Thread, .. } => ALLOW_SESSION.into(),
                Answer::Approve { scope: Scope::Always, .. } => ALLOW_ALWAYS.into(),
                Answer::Deny { .. } => REJECT.into(),
                Answer::Choose(_) | Answer::Value(_) | Answer::Expired | Answer::Withdrawn => {
                    format!("choice-{index}").into()
                }
            };
            (json!({"optionId": id, "name": name, "kind": kind}), answer)
        }))
    }

    /// A request with these options and their answers.
    fn request(&self, offered: impl Iterator<Item = (Value, Answer)>) -> Asking {
        let (mut options, mut meanings) = (Vec::new(), Vec::new());
        for (option, answer) in offered {
            meanings.push((option["optionId"].as_str().unwrap_or_default().into(), answer));
            options.push(option);
        }
        let mut tool_call = json!({"toolCallId": self.call_id(), "status": "pending"});
        let theirs = |call: &&CallOutline| call.tool.runs_on == RunsOn::Agent;
        let title = match (&self.question.form, self.call()) {
            (_, Some(call)) if theirs(&call) => call.tool.title.as_ref().unwrap_or(&call.tool.name),
            (Form::Approve, Some(call)) => call.tool.title.as_ref().unwrap_or(&call.tool.name),
            _ => &self.question.prompt,
        };
        tool_call["title"] = (&**title).into();
        if let Some(call) = self.call() {
            tool_call["name"] = (&*call.tool.name).into();
            tool_call["kind"] = kind(call.tool.kind).into();
            if let Ok(input) = serde_json::from_str::<Value>(&call.arguments) {
                tool_call["rawInput"] = input;
            }
        }
        let params = json!({"sessionId": self.session, "toolCall": tool_call, "options": options});
        Asking { method: PERMISSION, params, reading: Reading::Options(meanings) }
    }

    fn form(&self, schema: Value, reading: Reading) -> Asking {
        let mut params = json!({
            "sessionId": self.session,
            "mode": "form",
            "message": self.question.prompt,
            "requestedSchema": schema,
        });
        if self.call().is_some() {
            params["toolCallId"] = self.call_id().into();
        }
        Asking { method: ELICITATION, params, reading }
    }
}

/// The options for approving a call. There is no option to deny a call forever, because the
/// engine has no such answer.
fn approval() -> impl Iterator<Item = Saying<'static>> {
    let yes = |scope| Answer::Approve { scope, arguments: None };
    [
        ("Allow", "allow_once", yes(Scope::Once)),
        ("Allow in this session", "allow_always", yes(Scope::Thread)),
        ("Always allow", "allow_always", yes(Scope::Always)),
        ("Reject", "reject_once", Answer::NO),
    ]
    .into_iter()
}

fn selection<'a>(
    options: impl Iterator<Item = (&'a str, Answer)>,
) -> impl Iterator<Item = Saying<'a>> {
    let options = options.map(|(label, answer)| (label, "allow_once", answer));
    options.chain([("None of these", "reject_once", Answer::NO)])
}

/// The kind of a choice that a proxied agent offered without a kind. Clients act on the kind, so a
/// refusal must not look like a permission. Only the label distinguishes the two.
fn kind_of(choice: &Choice) -> &'static str {
    const NO: [&str; 8] =
        ["reject", "deny", "decline", "cancel", "abort", "never", "don't", "disallow"];
    let says_no = |text: &str| {
        let text = text.to_lowercase();
        let first = text.split(|c: char| !c.is_alphanumeric() && c != '\'').next();
        first == Some("no") || NO.iter().any(|no| text.contains(no))
    };
    if says_no(&choice.id) || says_no(&choice.label) { "reject_once" } else { "allow_once" }
}

fn titled(choice: &Choice) -> Value {
    json!({"const": choice.id, "title": choice.label})
}

fn one_field(field: Value) -> Value {
    json!({"type": "object", "properties": {FIELD: field}, "required": [FIELD]})
}

/// The form for a schema. Forms are flat; values of any other schema are asked for as JSON
/// text.
fn form_schema(schema: &Value) -> (Value, Reading) {
    if is_flat(schema) {
        let members = ["type", "title", "description", "properties", "required"];
        let mut kept = sound_form(schema);
        kept.retain(|name, _| members.contains(&name.as_str()));
        return (kept.into(), Reading::Whole);
    }
    if is_field(schema) {
        return (one_field(sound_field(schema).into()), Reading::Field);
    }
    let description = format!("JSON that fits {schema}");
    (one_field(json!({"type": "string", "description": description})), Reading::Json)
}

/// How to read the answer to a proxied agent's own form; `None` if clients may not understand
/// the form.
fn as_it_came(schema: &Value, form: &Form) -> Option<Reading> {
    let fields = schema["properties"].as_object()?;
    let is_form = schema["type"] == "object" && fields.values().all(is_field);
    if !is_form || schema.as_object() != Some(&sound_form(schema)) {
        return None;
    }
    match (form, fields.keys().next()) {
        (Form::Schema(_), _) => Some(Reading::Whole),
        (Form::Choose { .. }, Some(field)) => Some(Reading::Chosen(field.as_str().into())),
        (Form::Choose { choices, .. }, None) => Some(Reading::Sent(choices.first()?.id.clone())),
        (Form::Approve, _) => None,
    }
}

fn is_flat(schema: &Value) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object);
    schema["type"] == "object"
        && fields.is_some_and(|fields| !fields.is_empty() && fields.values().all(is_field))
}

fn is_field(schema: &Value) -> bool {
    // References cannot be resolved inside a form.
    schema.get("$ref").is_none()
        && match schema["type"].as_str() {
            Some("string" | "number" | "integer" | "boolean") => {
                schema.get("enum").is_none_or(is_words)
            }
            Some("array") => is_some_of(&schema["items"]),
            _ => false,
        }
}

/// A form reduced to the members that clients must understand. The answer is still validated
/// against the whole schema.
fn sound_form(schema: &Value) -> Map<String, Value> {
    let mut form = taken(schema, |name, value| match name {
        "title" | "description" => value.is_string(),
        "required" => is_words(value),
        "_meta" => value.is_object(),
        _ => true,
    });
    if let Some(fields) = form.get_mut("properties").and_then(Value::as_object_mut) {
        fields.values_mut().for_each(|field| *field = sound_field(field).into());
    }
    form
}

/// A field reduced to the members that clients must understand.
fn sound_field(field: &Value) -> Map<String, Value> {
    let kind = field["type"].as_str().unwrap_or_default();
    taken(field, |name, value| match name {
        "title" | "description" | "pattern" => value.is_string(),
        "format" if kind == "string" => {
            matches!(value.as_str(), Some("email" | "uri" | "date" | "date-time"))
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" => {
            value.as_u64().is_some_and(|count| u32::try_from(count).is_ok())
        }
        "minimum" | "maximum" if kind == "integer" => value.is_i64(),
        "minimum" | "maximum" => value.is_number(),
        "oneOf" => is_titled(value),
        "_meta" => value.is_object(),
        "default" => match kind {
            "string" => value.is_string(),
            "number" => value.is_number(),
            "integer" => value.is_i64(),
            "boolean" => value.is_boolean(),
            _ => is_words(value),
        },
        _ => true,
    })
}

/// The members to keep; null counts as absent.
fn taken(of: &Value, takes: impl Fn(&str, &Value) -> bool) -> Map<String, Value> {
    let members = of.as_object().into_iter().flatten();
    let taken = members.filter(|(name, value)| value.is_null() || takes(name, value));
    taken.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether these are the items of a field that takes several strings.
fn is_some_of(items: &Value) -> bool {
    (items["type"] == "string" && is_words(&items["enum"])) || is_titled(&items["anyOf"])
}

fn is_titled(values: &Value) -> bool {
    let titled = |one: &Value| {
        let about = &one["description"];
        one["const"].is_string()
            && one["title"].is_string()
            && (about.is_null() || about.is_string())
    };
    values.as_array().is_some_and(|values| values.iter().all(titled))
}

fn is_words(values: &Value) -> bool {
    values.as_array().is_some_and(|values| values.iter().all(Value::is_string))
}

/// The values that match a schema, if it is an enumeration.
fn few_values(schema: &Value) -> Option<Vec<(String, Value)>> {
    if schema["type"] == "boolean" {
        return Some(vec![("Yes".into(), true.into()), ("No".into(), false.into())]);
    }
    let values = schema.get("enum")?.as_array()?;
    let labelled = |value: &Value| {
        (value.as_str().map_or_else(|| value.to_string(), Into::into), value.clone())
    };
    Some(values.iter().map(labelled).collect())
}
