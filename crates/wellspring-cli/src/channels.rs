//! Bots in chat networks: started by `wellspring serve`, looked after by `wellspring channels`.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use wellspring_channels::{
    CallError, Channel, ChannelMetrics, Discord, Instance, InstanceConfig, People, Slack,
    SlackSecrets, Telegram, WhatsApp, WhatsAppSecrets,
};

use crate::args::ChannelsCommand;
use crate::config::channel::{ChannelConfig, ChannelKind};
use crate::place::Place;
use crate::{Exit, Usage};

/// The bots of a server.
pub(crate) struct Channels {
    bots: Vec<Bot>,
}

struct Bot {
    instance: Instance,
    connected: Connected,
    webhook_url: Option<Box<str>>,
    secret: Box<str>,
}

/// A network with our credentials.
#[derive(Clone)]
pub(crate) enum Connected {
    Telegram(Telegram),
    WhatsApp(WhatsApp),
    Slack(Slack),
    Discord(Discord),
}

impl Connected {
    pub(crate) fn as_channel(&self) -> Arc<dyn Channel> {
        match self {
            Self::Telegram(telegram) => Arc::new(telegram.clone()),
            Self::WhatsApp(whatsapp) => Arc::new(whatsapp.clone()),
            Self::Slack(slack) => Arc::new(slack.clone()),
            Self::Discord(discord) => Arc::new(discord.clone()),
        }
    }

    /// How events come that do not come to the webhook.
    fn listens(&self, has_webhook: bool) -> Option<&'static str> {
        match self {
            Self::Telegram(_) => (!has_webhook).then_some("polling"),
            Self::WhatsApp(_) => None,
            Self::Slack(slack) => slack.has_socket().then_some("socket"),
            Self::Discord(_) => Some("gateway"),
        }
    }

    /// Whether anything comes to the webhook.
    fn has_webhook(&self, is_configured: bool) -> bool {
        match self {
            Self::Telegram(_) => is_configured,
            Self::WhatsApp(_) => true,
            Self::Slack(slack) => !slack.has_socket(),
            Self::Discord(discord) => discord.has_webhook(),
        }
    }
}

/// Connects to a network; nothing is sent yet.
pub(crate) fn connect(config: &ChannelConfig) -> Result<Connected, CallError> {
    let secret = |name: &str| config.secrets.get(name).map_or("", |secret| secret.expose());
    let base = config.base_url.as_deref();
    Ok(match config.kind {
        ChannelKind::Telegram => Connected::Telegram(Telegram::new(secret("token"), base)?),
        ChannelKind::WhatsApp => {
            let secrets = WhatsAppSecrets {
                token: secret("token").into(),
                app_secret: secret("app_secret").into(),
                verify_token: secret("verify_token").into(),
            };
            let number = config.phone_number_id.as_deref().unwrap_or_default();
            Connected::WhatsApp(WhatsApp::new(secrets, number, base)?)
        }
        ChannelKind::Slack => {
            let secrets = SlackSecrets {
                token: secret("token").into(),
                signing_secret: secret("signing_secret").into(),
                app_token: secret("app_token").into(),
            };
            Connected::Slack(Slack::new(secrets, base)?)
        }
        ChannelKind::Discord => {
            let key = config.public_key.as_deref();
            Connected::Discord(Discord::new(secret("token"), key, base)?)
        }
    })
}

/// The path at which a network delivers what comes in.
fn path(name: &str) -> String {
    format!("/channels/{name}")
}

impl Channels {
    /// Starts the configured bots: they go on with what they were doing. Nothing comes in yet.
    pub(crate) async fn start(place: &Place) -> Result<Self> {
        let mut bots = Vec::new();
        for config in place.config.channels.values() {
            let name = &config.bot.name;
            let connected = connect(config).with_context(|| format!("channel {name}"))?;
            let mut bot: InstanceConfig = config.bot.clone();
            if bot.agent.is_empty() {
                bot.agent = default_agent(place)?;
            }
            let instance = Instance::start(bot, connected.as_channel(), place.runtime.clone());
            let instance = instance.await.with_context(|| format!("channel {name}"))?;
            let secret = config.secrets.get("webhook").map_or("", |it| it.expose()).into();
            let webhook_url = config.webhook_url.clone();
            bots.push(Bot { instance, connected, webhook_url, secret });
        }
        let watched: Vec<Instance> = bots.iter().map(|bot| bot.instance.clone()).collect();
        place.metrics.also(move || {
            ChannelMetrics::render(watched.iter().map(|it| (it.metrics(), it.pending())))
        });
        Ok(Self { bots })
    }

    /// Where networks deliver what comes in.
    pub(crate) fn routes(&self) -> Router {
        let mut routes = Router::new();
        for bot in &self.bots {
            if !bot.connected.has_webhook(bot.webhook_url.is_some()) {
                continue;
            }
            let (instance, at) = (bot.instance.clone(), path(bot.instance.name()));
            routes = routes.merge(match &bot.connected {
                Connected::Telegram(_) => Telegram::webhook(instance, &at, &bot.secret),
                Connected::WhatsApp(whatsapp) => whatsapp.webhook(instance, &at),
                Connected::Slack(slack) => slack.webhook(instance, &at),
                Connected::Discord(discord) => discord.webhook(instance, &at),
            });
        }
        routes
    }

    /// Begins to take what comes in.
    pub(crate) fn receive(&self) {
        for bot in &self.bots {
            let instance = bot.instance.clone();
            match bot.connected.clone() {
                Connected::WhatsApp(_) => {}
                Connected::Slack(slack) if !slack.has_socket() => {}
                Connected::Slack(slack) => {
                    tokio::spawn(async move { slack.listen(&instance).await });
                }
                Connected::Discord(discord) => {
                    tokio::spawn(async move { discord.listen(&instance).await });
                }
                Connected::Telegram(telegram) => {
                    let (url, secret) = (bot.webhook_url.clone(), bot.secret.clone());
                    tokio::spawn(async move {
                        receive_telegram(&telegram, &instance, url.as_deref(), &secret).await;
                    });
                }
            }
        }
    }

    /// The names of the bots and how they get what comes in.
    pub(crate) fn summary(&self) -> Vec<(String, String)> {
        let bots = self.bots.iter().map(|bot| {
            let network = bot.connected.as_channel().network();
            let is_configured = bot.webhook_url.is_some();
            let listens = bot.connected.listens(is_configured).map(ToOwned::to_owned);
            let webhook = bot.connected.has_webhook(is_configured);
            let webhook = webhook.then(|| format!("webhook at {}", path(bot.instance.name())));
            let how: Vec<_> = listens.into_iter().chain(webhook).collect();
            (bot.instance.name().to_owned(), format!("{network}, {}", how.join(" and ")))
        });
        bots.collect()
    }

    /// Stops making calls; what is not done is done after the next start.
    pub(crate) async fn stop(&self) {
        for bot in &self.bots {
            bot.instance.stop().await;
        }
    }
}

/// Polls, or tells Telegram where the webhook is.
async fn receive_telegram(
    telegram: &Telegram,
    instance: &Instance,
    webhook_url: Option<&str>,
    secret: &str,
) {
    let url =
        webhook_url.map(|base| format!("{}{}", base.trim_end_matches('/'), path(instance.name())));
    let told = match &url {
        Some(url) => telegram.use_webhook(url, secret).await,
        None => telegram.use_polling().await,
    };
    if let Err(error) = told {
        tracing::warn!(bot = instance.name(), %error, "could not set how updates come");
    }
    if url.is_none() {
        telegram.poll(instance).await;
    }
}

/// The agent that answers if a bot names none.
fn default_agent(place: &Place) -> Result<Box<str>> {
    if let Some(name) = &place.config.default_agent {
        return Ok(name.clone());
    }
    let agents = place.runtime.agents();
    let first = agents.first().map(|agent| agent.name.clone());
    first.context("there is no agent for the channels; configure one in wellspring.toml")
}

/// Lists bots, and decides who may use them.
pub(crate) async fn channels(place: &Place, command: ChannelsCommand) -> Result<Exit> {
    let mut out = std::io::stdout();
    let people = |name: &str| -> Result<People> {
        let Some(config) = place.config.channels.get(name) else {
            let known: Vec<_> = place.config.channels.keys().map(|name| &**name).collect();
            let what = format!("there is no channel {name:?}; there are: {}", known.join(", "));
            anyhow::bail!(Usage(what));
        };
        let who = wellspring_engine::Principal::local().in_tenant(&*config.bot.tenant);
        Ok(People::of(&place.runtime.control(who), name)?)
    };
    match command {
        ChannelsCommand::List => {
            if place.config.channels.is_empty() {
                let what = "there are no bots; add one to wellspring.toml: see docs/channels.md";
                writeln!(std::io::stderr(), "{what}")?;
            }
            for (name, config) in &place.config.channels {
                let network = connect(config)?.as_channel().network();
                writeln!(out, "{name}\t{network}")?;
                let people = people(name)?;
                let configured = config.bot.access.users.iter().chain(&config.bot.access.chats);
                for id in configured.cloned().chain(people.allowed().await?) {
                    writeln!(out, "{name}\tallowed\t{id}")?;
                }
                for pairing in people.waiting().await? {
                    let (code, user) = (&pairing.code, &pairing.user);
                    let shown: String = pairing.name.chars().filter(|c| !c.is_control()).collect();
                    writeln!(out, "{name}\twaiting\t{user}\t{code}\t{shown}")?;
                }
            }
        }
        ChannelsCommand::Pair { channel, code } => match people(&channel)?.pair(&code).await? {
            Some(pairing) => writeln!(out, "{} may use {channel} now", pairing.user)?,
            None => anyhow::bail!(Usage(format!(
                "there is no code {code:?}; `wellspring channels list` shows who waits"
            ))),
        },
        ChannelsCommand::Allow { channel, id, revoke: false } => {
            people(&channel)?.allow(&id).await?;
        }
        ChannelsCommand::Allow { channel, id, revoke: true } => {
            if !people(&channel)?.forbid(&id).await? {
                anyhow::bail!(Usage(format!(
                    "{id:?} was not allowed; `wellspring channels list` shows who is"
                )));
            }
        }
    }
    Ok(Exit::Completed)
}
