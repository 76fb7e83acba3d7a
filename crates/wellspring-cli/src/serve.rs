//! `wellspring serve`: the agents over HTTP, and the bots in chat networks.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use wellspring_server::{ServeError, Server, ServerConfig};

use crate::args::ServeArgs;
use crate::channels::Channels;
use crate::setup::Setup;
use crate::signals::Interrupts;
use crate::{Exit, Usage};

/// The environment variable with the address to listen on.
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
