//! `wellspring acp`: our agents for an editor.

use anyhow::{Context as _, Result};
use wellspring_acp::agent::AcpSurface;

use crate::Exit;
use crate::args::AcpArgs;
use crate::setup::Setup;
use crate::signals::Interrupts;

/// Serves the editor on standard input and output until it disconnects. Nothing else may write to
/// standard output meanwhile.
pub(crate) async fn acp(setup: &Setup, args: &AcpArgs) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let agent = setup.agents_and(args.agent.as_deref()).await?;
    let surface = AcpSurface::new(setup.control(), &agent)?;
    let exit = tokio::select! {
        served = surface.serve(tokio::io::stdin(), tokio::io::stdout()) => {
            served.context("failed to read from the editor")?;
            Exit::Completed
        }
        () = interrupts.next() => Exit::Cancelled,
    };
    setup.settle().await;
    Ok(exit)
}
