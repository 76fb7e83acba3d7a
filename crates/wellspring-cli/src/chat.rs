//! `wellspring chat`: a conversation in the terminal, one thread, line by line.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use uuid::Uuid;
use wellspring_core::{Content, ThreadId};

use crate::args::ChatArgs;
use crate::follow::{Followed, answers, follow};
use crate::output::{View, is_rich, size};
use crate::run::{HINT, start};
use crate::setup::Setup;
use crate::signals::Interrupts;
use crate::text::{clean_line, width};
use crate::typed_lines::Lines;
use crate::{Exit, find};

/// The prompt.
const PROMPT: &str = "› ";

/// Runs a conversation until the input ends. Each line is a run of the same thread.
pub(crate) async fn chat(setup: &Setup, args: ChatArgs) -> Result<Exit> {
    let agent = setup.agent(args.whom.agent.as_deref()).await?;
    let thread = match &args.whom.thread {
        Some(id) => find::thread(&setup.control(), id).await?,
        None => ThreadId::new(Uuid::now_v7()),
    };
    let person = std::io::stdin().is_terminal();
    if person {
        let agent = clean_line(&agent);
        say(&format!("{agent}: Ctrl-C stops an answer, Ctrl-D exits.\n"))?;
    }
    let lines = Lines::default();
    loop {
        // Anew each time: what stopped the last answer is not meant for the prompt.
        let mut interrupts = Interrupts::new()?;
        if person {
            say(&format!("\n{PROMPT}"))?;
        }
        let line = loop {
            tokio::select! {
                line = lines.next() => break line,
                // There is nothing to stop; the line that is being typed stays.
                () = interrupts.next() => say(&format!("\nCtrl-D exits.\n{PROMPT}"))?,
            }
        };
        let Some(line) = line else { break };
        if line.trim().is_empty() {
            continue;
        }
        if person && is_rich() {
            // The run's view shows the question, so the typed line is removed.
            let rows = 1 + (width(PROMPT) + width(&line)).saturating_sub(1) / size().0;
            say(&format!("\u{1b}[{rows}A\r\u{1b}[J"))?;
        }
        let run = start(setup, &agent, &args.whom, Some(thread), vec![Content::text(line)]).await?;
        let who = answers(args.answers.yes, args.answers.no);
        let followed = follow(&setup.control(), run, View::answer(HINT), who, &lines).await?;
        if followed == Followed::Left {
            return Ok(Exit::Cancelled);
        }
    }
    if person {
        say("\n")?;
    }
    setup.settle().await;
    Ok(Exit::Completed)
}

/// Not to standard output, which holds the conversation.
fn say(text: &str) -> std::io::Result<()> {
    let mut stderr = std::io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}
