//! Bots in chat networks: started by `wellspring serve`, managed with `wellspring channels`.

mod holder;

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use wellspring_channels::{
    CallError, Channel, ChannelMetrics, Discord, Instance, InstanceConfig, People, Slack,
    SlackSecrets, Telegram, WhatsApp, WhatsAppSecrets,
};
use wellspring_engine::{ControlError, Runtime};

use self::holder::{Holder, Serve};
use crate::args::ChannelsCommand;
use crate::config::channel::{ChannelConfig, ChannelKind};
use crate::setup::Setup;
use crate::{Exit, Usage};

/// The bots of a server.
pub(crate) struct Channels {
    bots: Vec<Arc<Bot>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    stopping: watch::Sender<bool>,
}

struct Bot {
    config: InstanceConfig,
    runtime: Runtime,
    connected: Connected,
    webhook_url: Option<Box<str>>,
    secret: Box<str>,
    /// Decides which process serves the bot.
    holder: Holder,
    /// The bot and the routes of its webhook, while this process serves it.
    here: Mutex<Option<(Instance, Router)>>,
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

    /// How events arrive other than through the webhook.
    fn listens(&self, has_webhook: bool) -> Option<&'static str> {
        match self {
            Self::Telegram(_) => (!has_webhook).then_some("polling"),
            Self::WhatsApp(_) => None,
            Self::Slack(slack) => slack.has_socket().then_some("socket"),
            Self::Discord(_) => Some("gateway"),
        }
    }

    /// Whether the bot receives webhooks.
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

/// The path of a bot's webhook.
fn path(name: &str) -> String {
    format!("/channels/{name}")
}

impl Channels {
    /// Connects the configured bots. Each starts once [`receive`](Self::receive) is called and no
    /// other process serves it.
    pub(crate) fn new(setup: &Setup) -> Result<Self> {
        let mut bots = Vec::new();
        for config in setup.config.channels.values() {
            let name = &config.bot.name;
            let connected = connect(config).with_context(|| format!("channel {name}"))?;
            let mut bot: InstanceConfig = config.bot.clone();
            if bot.agent.is_empty() {
                bot.agent = default_agent(setup)?;
            }
            let holder = Holder::of(setup, name);
            bots.push(Arc::new(Bot {
                config: bot,
                runtime: setup.runtime.clone(),
                connected,
                webhook_url: config.webhook_url.clone(),
                secret: config.secrets.get("webhook").map_or("", |it| it.expose()).into(),
                holder,
                here: Mutex::default(),
            }));
        }
        let watched = bots.clone();
        setup.metrics.also(move || {
            let here: Vec<Instance> = watched.iter().filter_map(|bot| bot.instance()).collect();
            ChannelMetrics::render(here.iter().map(|it| (it.metrics(), it.pending())))
        });
        Ok(Self { bots, tasks: Mutex::default(), stopping: watch::channel(false).0 })
    }

    /// The routes of the webhooks. While another process serves a bot, they answer 503, so that the
    /// network delivers again.
    pub(crate) fn routes(&self) -> Router {
        let webhooks = self.bots.iter().filter(|bot| bot.has_webhook());
        webhooks.fold(Router::new(), |routes, bot| {
            let one = Router::new().route(&path(&bot.config.name), any(deliver));
            routes.merge(one.with_state(Arc::clone(bot)))
        })
    }

    /// Starts the bots, which continue their unfinished work and receive events.
    pub(crate) fn receive(&self) {
        for bot in &self.bots {
            let bot = Arc::clone(bot);
            let mut stopping = self.stopping.subscribe();
            lock(&self.tasks).push(tokio::spawn(async move {
                tokio::select! {
                    () = bot.holder.serve(&*bot) => {}
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                }
            }));
        }
    }

    /// The names of the bots, and how each receives events.
    pub(crate) fn summary(&self) -> Vec<(String, String)> {
        let bots = self.bots.iter().map(|bot| {
            let network = bot.connected.as_channel().network();
            let name = &bot.config.name;
            let listens = bot.connected.listens(bot.webhook_url.is_some()).map(ToOwned::to_owned);
            let webhook = bot.has_webhook().then(|| format!("webhook at {}", path(name)));
            let how: Vec<_> = listens.into_iter().chain(webhook).collect();
            (name.to_string(), format!("{network}, {}", how.join(" and ")))
        });
        bots.collect()
    }

    /// Stops all calls. Unfinished work continues after the next start, or on another machine.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            // A task that has panicked has nothing left to stop.
            let _ = task.await;
        }
        for bot in &self.bots {
            bot.stop().await;
            bot.holder.release().await;
        }
    }
}

impl Bot {
    fn instance(&self) -> Option<Instance> {
        lock(&self.here).as_ref().map(|(instance, _)| instance.clone())
    }

    fn has_webhook(&self) -> bool {
        self.connected.has_webhook(self.webhook_url.is_some())
    }

    /// Polls for updates, or sets the webhook's URL.
    async fn receive_telegram(&self, telegram: &Telegram, instance: &Instance) {
        let url = self.webhook_url.as_deref();
        let url =
            url.map(|base| format!("{}{}", base.trim_end_matches('/'), path(instance.name())));
        let told = match &url {
            Some(url) => telegram.use_webhook(url, &self.secret).await,
            None => telegram.use_polling().await,
        };
        if let Err(error) = told {
            tracing::warn!(bot = instance.name(), %error, "could not set how updates come");
        }
        match url {
            Some(_) => instance.stopped().await,
            None => telegram.poll(instance).await,
        }
    }
}

impl Serve for Bot {
    async fn start(&self) -> Result<(), ControlError> {
        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        let instance = Instance::start(config, self.connected.as_channel(), runtime).await?;
        let (at, inner) = (path(&self.config.name), instance.clone());
        let routes = match &self.connected {
            Connected::Telegram(_) => Telegram::webhook(inner, &at, &self.secret),
            Connected::WhatsApp(whatsapp) => whatsapp.webhook(inner, &at),
            Connected::Slack(slack) => slack.webhook(inner, &at),
            Connected::Discord(discord) => discord.webhook(inner, &at),
        };
        *lock(&self.here) = Some((instance, routes));
        Ok(())
    }

    async fn stop(&self) {
        let here = lock(&self.here).take();
        if let Some((instance, _)) = here {
            instance.stop().await;
        }
    }

    async fn receive(&self) {
        let Some(instance) = self.instance() else { return };
        match &self.connected {
            Connected::Telegram(telegram) => self.receive_telegram(telegram, &instance).await,
            Connected::Slack(slack) if slack.has_socket() => slack.listen(&instance).await,
            Connected::Discord(discord) => discord.listen(&instance).await,
            Connected::WhatsApp(_) | Connected::Slack(_) => instance.stopped().await,
        }
    }
}

/// Handles a webhook request, if this process serves the bot.
async fn deliver(State(bot): State<Arc<Bot>>, request: Request) -> Response {
    let routes = lock(&bot.here).as_ref().map(|(_, routes)| routes.clone());
    match routes {
        Some(routes) => match routes.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")]).into_response(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state is consistent at every moment, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent that answers if a bot names none.
fn default_agent(setup: &Setup) -> Result<Box<str>> {
    if let Some(name) = &setup.config.default_agent {
        return Ok(name.clone());
    }
    let agents = setup.runtime.agents();
    let first = agents.first().map(|agent| agent.name.clone());
    first.context("there is no agent for the channels; configure one in wellspring.toml")
}

/// Lists bots, and decides who may use them.
pub(crate) async fn channels(setup: &Setup, command: ChannelsCommand) -> Result<Exit> {
    let mut out = std::io::stdout();
    let people = |name: &str| -> Result<People> {
        let Some(config) = setup.config.channels.get(name) else {
            let known: Vec<_> = setup.config.channels.keys().map(|name| &**name).collect();
            let what = format!("there is no channel {name:?}; there are: {}", known.join(", "));
            anyhow::bail!(Usage(what));
        };
        let who = wellspring_engine::Principal::local().in_tenant(&*config.bot.tenant);
        Ok(People::of(&setup.runtime.control(who), name)?)
    };
    match command {
        ChannelsCommand::List => {
            if setup.config.channels.is_empty() {
                let what = "there are no bots; add one to wellspring.toml: see docs/channels.md";
                writeln!(std::io::stderr(), "{what}")?;
            }
            for (name, config) in &setup.config.channels {
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
                "there is no code {code:?}; `wellspring channels list` shows who is waiting"
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
