//! `wellspring token`: access tokens for the server.

use std::io::Write as _;

use anyhow::Result;
use wellspring_server::Tokens;

use crate::args::TokenCommand;
use crate::setup::Setup;
use crate::{Exit, Usage};

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
