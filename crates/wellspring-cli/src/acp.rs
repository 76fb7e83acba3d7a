//! `wellspring acp`: our agents for an editor.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use wellspring_acp::agent::AcpSurface;

use crate::Exit;
use crate::args::AcpArgs;
use crate::interrupt::Interrupts;
use crate::place::Place;

/// How long runs may go on once the editor is gone: editors wait about two seconds before they
/// kill. What is not over then can be resumed.
const DRAIN: Duration = Duration::from_secs(1);

/// Serves the editor at the other end of standard input and output until it is gone. Nothing
/// else may write to standard output meanwhile.
pub(crate) async fn acp(place: &Place, args: &AcpArgs) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let surface = AcpSurface::new(place.runtime.clone(), &args.agent)
        .map_err(|error| anyhow!(crate::Usage(error.to_string())))?;
    let exit = tokio::select! {
        served = surface.serve(tokio::io::stdin(), tokio::io::stdout()) => {
            served.context("cannot read what the editor says")?;
            Exit::Completed
        }
        () = interrupts.next() => Exit::Cancelled,
    };
    place.runtime.shutdown(DRAIN).await;
    Ok(exit)
}
