//! `wellspring serve`, and the commands for a server's tokens and backups.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use wellspring_engine::Principal;
use wellspring_server::{ServeError, Server, ServerConfig, Tokens};

use crate::args::{ApprovalsCommand, ServeArgs, TokenCommand};
use crate::channels::Channels;
use crate::setup::Setup;
use crate::signals::Interrupts;
use crate::{Exit, Usage};

/// The default address to listen on.
const LISTEN_VARIABLE: &str = "WELLSPRING_LISTEN";

/// Serves until the first signal, then drains; a second signal stops it immediately.
pub(crate) async fn serve(setup: &Setup, args: ServeArgs) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let config = settings(&setup.config.server, args)?;
    setup.agents(&config).await?;
    let channels = Channels::new(setup)?;
    let server = Server::builder(setup.runtime.clone())
        .config(config)
        .metrics(setup.metrics.clone())
        .routes(channels.routes())
        .start()
        .await
        .map_err(taken)?;
    channels.receive();
    let mut out = std::io::stdout();
    writeln!(out, "Wellspring is at http://{}", server.address())?;
    let agents: Vec<_> = setup.runtime.agents().iter().map(|agent| agent.name.clone()).collect();
    writeln!(out, "agents: {}", agents.join(", "))?;
    for (name, says) in channels.summary() {
        writeln!(out, "channel {name}: {says}")?;
    }
    if agents.iter().all(|name| &**name == wellspring::demo::NAME) {
        writeln!(
            out,
            "to use a real model, set a provider key such as ANTHROPIC_API_KEY, or run `wellspring init`"
        )?;
    }
    if agents.is_empty() {
        writeln!(out, "to serve the built-in demo agent, set `demo = true` in wellspring.toml")?;
    }
    interrupts.next().await;
    // Standard error may be closed; the server stops in any case.
    std::thread::spawn(|| {
        writeln!(std::io::stderr(), "waiting for runs to finish; press Ctrl-C again to stop now")
    });
    let stop = async {
        server.stop().await;
        channels.stop().await;
    };
    tokio::select! {
        () = stop => Ok(Exit::Completed),
        () = interrupts.next() => Ok(Exit::Cancelled),
    }
}

/// The server's settings: from the flags, the environment, or the configuration.
pub(crate) fn settings(config: &ServerConfig, args: ServeArgs) -> Result<ServerConfig> {
    let mut config = config.clone();
    let variable = std::env::var(LISTEN_VARIABLE).ok().filter(|listen| !listen.is_empty());
    if let Some(listen) = args.listen {
        config.listen = listen;
    } else if let Some(listen) = variable {
        config.listen = listen.parse().map_err(|_| {
            Usage(format!(
                "{LISTEN_VARIABLE} is {listen:?}; it takes an address like 127.0.0.1:7600"
            ))
        })?;
    }
    config.hosts.extend(args.hosts);
    config.cors.extend(args.cors);
    config.drain = args.drain.map_or(config.drain, Duration::from_secs);
    Ok(config)
}

/// Explains how to resolve an address that is in use.
fn taken(error: ServeError) -> anyhow::Error {
    if let ServeError::Listen { listen, cause } = &error
        && cause.kind() == std::io::ErrorKind::AddrInUse
    {
        let what = format!(
            "{listen} is in use; if Wellspring is running there, open http://{listen}, otherwise \
             choose another address with --listen"
        );
        return anyhow::Error::new(error).context(what);
    }
    error.into()
}

/// Makes, lists and revokes tokens.
pub(crate) async fn token(setup: &Setup, command: TokenCommand) -> Result<Exit> {
    let tokens = Tokens::new(setup.log().store().clone());
    let mut out = std::io::stdout();
    match command {
        TokenCommand::Create { name, tenant, scopes } => {
            writeln!(out, "{}", tokens.create(&name, &tenant, &scopes).await?)?;
        }
        TokenCommand::List => {
            for token in tokens.list().await? {
                let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                writeln!(out, "{}\t{}\t{}", token.id, token.tenant, scopes.join(","))?;
            }
        }
        TokenCommand::Revoke { name } => {
            if !tokens.revoke(&name).await? {
                anyhow::bail!(Usage(format!(
                    "there is no token {name:?}; `wellspring token list` shows them"
                )));
            }
        }
    }
    Ok(Exit::Completed)
}

/// Lists and revokes standing approvals.
pub(crate) async fn approvals(setup: &Setup, command: ApprovalsCommand) -> Result<Exit> {
    let mut out = std::io::stdout();
    let of = |tenant: String| setup.runtime.control(Principal::local().in_tenant(tenant));
    match command {
        ApprovalsCommand::List { tenant } => {
            for approval in of(tenant).approvals().await? {
                let by = approval.by.as_deref().unwrap_or("-");
                let scope = if approval.thread.is_some() { "thread" } else { "always" };
                let (id, agent, tool) = (approval.id(), &approval.agent, &approval.tool);
                let arguments = &approval.arguments;
                writeln!(out, "{id}\t{by}\t{scope}\t{agent}\t{tool}\t{arguments}")?;
            }
        }
        ApprovalsCommand::Revoke { id, tenant } => {
            if !of(tenant).revoke_approval(&id).await? {
                anyhow::bail!(Usage(format!(
                    "there is no standing approval {id:?}; `wellspring approvals list` shows them"
                )));
            }
        }
    }
    Ok(Exit::Completed)
}
