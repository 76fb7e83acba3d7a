//! `wellspring serve`, and what goes with a server: tokens and backups.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use wellspring_server::{Server, ServerConfig, Tokens};

use crate::Exit;
use crate::args::{ServeArgs, TokenCommand};
use crate::interrupt::Interrupts;
use crate::place::Place;

/// Serves until it is told to stop, then drains; told again, it stops at once.
pub(crate) async fn serve(place: &Place, args: ServeArgs) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let config = ServerConfig {
        listen: args.listen,
        hosts: args.hosts,
        cors: args.cors,
        drain: Duration::from_secs(args.drain),
        ..ServerConfig::default()
    };
    let server = Server::builder(place.runtime.clone())
        .config(config)
        .metrics(place.metrics.clone())
        .start()
        .await?;
    writeln!(std::io::stdout(), "Wellspring is at http://{}", server.address())?;
    interrupts.next().await;
    writeln!(std::io::stderr(), "letting runs end; once more to stop at once")?;
    tokio::select! {
        () = server.stop() => Ok(Exit::Completed),
        () = interrupts.next() => Ok(Exit::Cancelled),
    }
}

/// Makes, lists and revokes tokens.
pub(crate) async fn token(place: &Place, command: TokenCommand) -> Result<Exit> {
    let tokens = Tokens::new(place.log().store().clone());
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
                anyhow::bail!(crate::Usage(format!("there is no token {name:?}")));
            }
        }
    }
    Ok(Exit::Completed)
}

/// Copies all runs to a new file.
pub(crate) async fn backup(place: &Place, file: PathBuf) -> Result<Exit> {
    place.log().store().backup(file).await?;
    Ok(Exit::Completed)
}
