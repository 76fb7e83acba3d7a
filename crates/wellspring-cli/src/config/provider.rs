//! Model providers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use wellspring_core::Thinking;
use wellspring_models::openai_chat::Vendor;
use wellspring_models::{Circuit, Secret};

use super::did_you_mean::did_you_mean;
use super::section::{Section, Source, text};
use super::value::{Member, Node, Value};

/// The providers that exist without configuration, in the order in which one of them becomes the
/// default agent.
pub(crate) const BUILT_IN: [(&str, ProviderKind); 4] = [
    ("anthropic", ProviderKind::Anthropic),
    ("openai", ProviderKind::OpenAi),
    ("gemini", ProviderKind::Gemini),
    ("ollama", ProviderKind::Ollama),
];

const KINDS: [(&str, ProviderKind); 5] =
    [BUILT_IN[0], BUILT_IN[1], ("openai-chat", ProviderKind::OpenAiChat), BUILT_IN[2], BUILT_IN[3]];

/// The protocol of a provider.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProviderKind {
    Anthropic,
    OpenAi,
    OpenAiChat,
    Gemini,
    Ollama,
}

/// A provider from the configuration or from the environment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderConfig {
    pub(crate) name: Box<str>,
    /// Whether it is in the configuration file. Other providers exist if the environment has their
    /// key.
    pub(crate) configured: bool,
    pub(crate) kind: ProviderKind,
    pub(crate) base_url: Option<Box<str>>,
    pub(crate) key: KeySource,
    pub(crate) headers: BTreeMap<Box<str>, Secret>,
    pub(crate) model: Option<Box<str>>,
    /// The only models that agents may name.
    pub(crate) models: Option<Vec<Box<str>>>,
    pub(crate) vendor: Option<Vendor>,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) cache: bool,
    pub(crate) failures: u32,
    pub(crate) rest: Duration,
}

/// The source of a key. It is read when it is needed, and never shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum KeySource {
    /// The provider's usual variables, which may also set its URL and its model.
    Usual,
    Variable(Box<str>),
    File(PathBuf),
    /// No key.
    None,
}

impl ProviderConfig {
    /// From the environment.
    pub(crate) fn usual(name: &str, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            configured: false,
            kind,
            base_url: None,
            key: KeySource::Usual,
            headers: BTreeMap::new(),
            model: None,
            models: None,
            vendor: None,
            thinking: None,
            cache: true,
            failures: Circuit::FAILURES_DEFAULT,
            rest: Circuit::REST_DEFAULT,
        }
    }
}

/// Reads a `[providers.NAME]`.
pub(crate) fn provider(
    source: &Source<'_>,
    member: &Member,
    title: &str,
) -> Option<ProviderConfig> {
    let section = Section::open(source, &member.node, "[providers.NAME]", title);
    let of_name = KINDS.iter().find(|(name, _)| *name == member.name).map(|(_, kind)| *kind);
    let kind = match section.get("kind") {
        Some(_) => section.word("kind", &KINDS),
        None if of_name.is_none() => {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            let what = format!("{title} has no `kind`");
            let remedy = format!("set `kind` to one of {}", names.join(", "));
            source.complain(section.line, what, remedy);
            None
        }
        None => of_name,
    };
    let base_url: Option<Box<str>> = section.text("base_url").map(Into::into);
    section.not_both("key_env", "key_file");
    let key = match (section.text("key_env"), section.path("key_file")) {
        (Some(variable), _) => KeySource::Variable(variable.into()),
        (None, Some(file)) => KeySource::File(file),
        // A key that was configured for one server is not sent to another one by default.
        (None, None) if base_url.is_some() => KeySource::None,
        (None, None) => KeySource::Usual,
    };
    let vendors: Vec<(&str, Vendor)> = Vendor::ALL.map(|vendor| (vendor.name, vendor)).to_vec();
    if let (Some(kind), Some(item)) = (kind, section.get("vendor"))
        && kind != ProviderKind::OpenAiChat
    {
        let what = format!("{title} has a `vendor`, but its `kind` is not `openai-chat`");
        source.complain(item.node.line, what, "remove it, or set `kind = \"openai-chat\"`");
    }
    let (failures, rest) = match section.sub("breaker") {
        None => (Circuit::FAILURES_DEFAULT, Circuit::REST_DEFAULT),
        Some(breaker) => {
            let failures = above_zero(&breaker, "failures").unwrap_or(Circuit::FAILURES_DEFAULT);
            let rest = breaker.duration("rest").unwrap_or(Circuit::REST_DEFAULT);
            breaker.done();
            (failures, rest)
        }
    };
    let provider = ProviderConfig {
        name: member.name.as_str().into(),
        configured: true,
        kind: kind.unwrap_or(ProviderKind::OpenAiChat),
        base_url,
        key,
        headers: section.secrets("headers"),
        model: section.text("model").map(Into::into),
        models: section.texts("models"),
        vendor: section.word("vendor", &vendors),
        thinking: thinking(&section),
        cache: section.bool("cache").unwrap_or(true),
        failures,
        rest,
    };
    section.done();
    if provider.kind == ProviderKind::OpenAiChat && provider.base_url.is_none() {
        let usual = provider.key == KeySource::Usual && provider.name.starts_with("openai");
        if kind.is_some() && !usual {
            let what = format!("{title} has no `base_url`");
            source.complain(section.line, what, "set `base_url`, including /v1");
        }
    }
    Some(provider)
}

/// `thinking`, in any table that has it.
pub(crate) fn thinking(section: &Section<'_>) -> Option<Thinking> {
    let item = section.get("thinking")?;
    let thinking = match &item.node.value {
        Value::Text(word) if word == "off" => Some(Thinking::Off),
        Value::Text(word) if !word.is_empty() => Some(Thinking::Effort(word.as_str().into())),
        Value::Integer(0) | Value::Bool(false) => Some(Thinking::Off),
        Value::Integer(tokens) => u32::try_from(*tokens).ok().map(Thinking::Budget),
        Value::Nothing
        | Value::Bool(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Table(_) => None,
    };
    if thinking.is_none() {
        section.wrong(item);
    }
    thinking
}

/// A number that must not be zero.
pub(crate) fn above_zero<T: TryFrom<i64> + PartialEq + From<u8>>(
    section: &Section<'_>,
    name: &'static str,
) -> Option<T> {
    let number = section.number::<T>(name)?;
    if number == T::from(0) {
        if let Some(item) = section.get(name) {
            section.wrong(item);
        }
        return None;
    }
    Some(number)
}

/// A model of a provider.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ModelRef {
    pub(crate) provider: Box<str>,
    /// The provider's default model if absent.
    pub(crate) model: Option<Box<str>>,
}

/// Reads `provider/model` or `provider`, and checks it against the configured providers.
pub(crate) fn model_ref(
    source: &Source<'_>,
    node: &Node,
    whose: &str,
    providers: &BTreeMap<Box<str>, ProviderConfig>,
) -> Option<ModelRef> {
    let written = text(node)?;
    let (name, model) = match written.split_once('/') {
        Some((name, model)) => (name, Some(model).filter(|model| !model.is_empty())),
        None => (written, None),
    };
    let Some(provider) = providers.get(name) else {
        let names: Vec<&str> = providers.keys().map(|name| &**name).collect();
        let what =
            format!("{whose} names the model {written:?}, but there is no provider {name:?}");
        let remedy = format!(
            "{} (use `PROVIDER/MODEL`; `wellspring models` lists the models)",
            did_you_mean(name, &names)
        );
        source.complain(node.line, what, remedy);
        return None;
    };
    if let (Some(model), Some(known)) = (model, &provider.models)
        && !known.iter().any(|known| **known == *model)
    {
        let known: Vec<&str> = known.iter().map(|model| &**model).collect();
        let what = format!("{whose} names the model {model:?}, which {name} does not list");
        source.complain(node.line, what, did_you_mean(model, &known));
        return None;
    }
    Some(ModelRef { provider: name.into(), model: model.map(Into::into) })
}
