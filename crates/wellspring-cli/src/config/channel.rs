//! Bots in chat networks.

use std::collections::BTreeMap;

use wellspring_channels::{Access, InstanceConfig, Language, WhenBusy};
use wellspring_models::Secret;

use super::section::{Section, Source};
use super::value::Member;

/// A bot of a chat network.
#[derive(Debug)]
pub(crate) struct ChannelConfig {
    pub(crate) kind: ChannelKind,
    /// The agent's name is empty if the default agent answers.
    pub(crate) bot: InstanceConfig,
    pub(crate) secrets: BTreeMap<Box<str>, Secret>,
    pub(crate) base_url: Option<Box<str>>,
    /// The public address of the webhook; updates are polled without it.
    pub(crate) webhook_url: Option<Box<str>>,
    pub(crate) phone_number_id: Option<Box<str>>,
    /// The public key of a Discord application, which verifies the signatures of its webhook
    /// requests.
    pub(crate) public_key: Option<Box<str>>,
}

/// A chat network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChannelKind {
    Telegram,
    WhatsApp,
    Slack,
    Discord,
}

impl ChannelKind {
    const WORDS: [(&'static str, Self); 4] = [
        ("telegram", Self::Telegram),
        ("whatsapp", Self::WhatsApp),
        ("slack", Self::Slack),
        ("discord", Self::Discord),
    ];

    /// The secrets that it requires.
    fn needs(self, has_webhook: bool) -> &'static [&'static str] {
        match self {
            Self::Telegram if has_webhook => &["token", "webhook"],
            Self::Telegram | Self::Slack | Self::Discord => &["token"],
            Self::WhatsApp => &["token", "app_secret", "verify_token"],
        }
    }
}

/// Reads a `[channels.NAME]`.
pub(crate) fn channel(source: &Source<'_>, member: &Member, title: &str) -> Option<ChannelConfig> {
    let section = Section::open(source, &member.node, "[channels.NAME]", title);
    let by_name = ChannelKind::WORDS.iter().find(|(word, _)| *word == member.name);
    let kind = section.word("kind", &ChannelKind::WORDS).or(by_name.map(|(_, kind)| *kind));
    if kind.is_none() && section.get("kind").is_none() {
        let what = format!("{title} does not say which network it is");
        let remedy = "set `kind` to \"telegram\", \"whatsapp\", \"slack\" or \"discord\"";
        source.complain(section.line, what, remedy);
    }
    let busy = [
        ("accumulate", WhenBusy::Accumulate),
        ("queue", WhenBusy::Queue),
        ("steer", WhenBusy::Steer),
    ];
    let languages = [("en", Language::English), ("pt", Language::Portuguese)];
    let mut bot =
        InstanceConfig::new(member.name.as_str(), section.text("agent").unwrap_or_default());
    if let Some(tenant) = section.text("tenant") {
        bot.tenant = tenant.into();
    }
    bot.stream = section.bool("stream").unwrap_or_default();
    bot.when_busy = section.word("when_busy", &busy).unwrap_or_default();
    bot.show_tools = section.bool("show_tools").unwrap_or(true);
    bot.drafts = section.bool("drafts").unwrap_or_default();
    bot.language = section.word("language", &languages).unwrap_or_default();
    bot.access = Access {
        users: section.texts("users").unwrap_or_default(),
        chats: section.texts("chats").unwrap_or_default(),
        everyone: section.bool("everyone").unwrap_or_default(),
    };
    let config = ChannelConfig {
        kind: kind?,
        bot,
        secrets: section.secrets("secrets"),
        base_url: section.text("base_url").map(Into::into),
        webhook_url: section.text("webhook_url").map(Into::into),
        phone_number_id: section.text("phone_number_id").map(Into::into),
        public_key: section.text("public_key").map(Into::into),
    };
    for name in config.kind.needs(config.webhook_url.is_some()) {
        if !config.secrets.contains_key(*name) {
            let what = format!("{title} has no `secrets.{name}`");
            let remedy = format!("add `secrets.{name} = \"${{SOME_VARIABLE}}\"`");
            source.complain(section.line, what, remedy);
        }
    }
    if config.kind == ChannelKind::WhatsApp && config.phone_number_id.is_none() {
        let what = format!("{title} has no `phone_number_id`");
        source.complain(section.line, what, "copy it from the API set-up page of the app");
    }
    let hears = ["app_token", "signing_secret"];
    if config.kind == ChannelKind::Slack
        && hears.iter().all(|name| !config.secrets.contains_key(*name))
    {
        let what = format!("{title} has neither `secrets.app_token` nor `secrets.signing_secret`");
        let remedy = "add the first for a socket, or the second for a webhook";
        source.complain(section.line, what, remedy);
    }
    section.done();
    Some(config)
}
