//! `wellspring run`, and `wellspring` alone.

use std::io::Write as _;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use wellspring_core::{AgentNo, Outcome, RunId, RunRequest, Transcript};
use wellspring_engine::{StartError, StartRun, WorkerResult};

use crate::args::{AnswerArgs, OutputArgs, RunArgs};
use crate::follow::{Followed, answers, follow};
use crate::place::Place;
use crate::text::{Line, Style, span};
use crate::view::{Ink, View, is_rich, print_lines};
use crate::{Exit, find};

/// What the demonstration is asked.
const DEMO_INPUT: &str = "Show me what a run looks like.";

/// What a person can do while a run goes on.
const HINT: &str = "Ctrl-C stops";

/// Asks an agent something.
pub(crate) async fn run(place: &Place, args: RunArgs) -> Result<Exit> {
    let thread = match &args.thread {
        Some(id) => Some(find::thread(place.log(), id).await?),
        None => None,
    };
    let request =
        RunRequest { streaming: args.no_stream.then_some(false), ..RunRequest::text(args.input) };
    let start = StartRun { thread, ..StartRun::new(args.agent.as_str(), request) };
    let run = match place.runtime.start(start).await {
        Ok(run) => run,
        Err(error @ StartError::UnknownAgent { .. }) => bail!(crate::Usage(error.to_string())),
        Err(StartError::ThreadBusy(run)) => bail!(
            "the thread is busy with run {run}; follow it with `wellspring runs show --follow {run}`, \
             or stop it with `wellspring runs cancel {run}`"
        ),
        Err(error) => return Err(error.into()),
    };
    present(place, run, &args.output, args.answers).await
}

/// Shows a run that goes on here, as it was asked for.
pub(crate) async fn present(
    place: &Place,
    run: RunId,
    output: &OutputArgs,
    answer_args: AnswerArgs,
) -> Result<Exit> {
    let view = match (output.events, output.json) {
        (Some(dialect), _) => View::events(dialect),
        (None, true) => View::Silent,
        (None, false) => View::screen(HINT),
    };
    let answers = answers(answer_args.yes, answer_args.no);
    let followed = follow(&place.runtime, run, view, answers).await?;
    if output.json
        && let Followed::Over(_) = followed
    {
        let transcript = place.log().transcript(run).await?;
        writeln!(std::io::stdout(), "{}", result(run, &transcript))?;
    }
    Ok(match followed {
        Followed::Over(Outcome::Completed { .. }) => Exit::Completed,
        Followed::Over(Outcome::Failed { .. }) => Exit::Failed,
        Followed::Over(Outcome::Cancelled { .. }) | Followed::Left => Exit::Cancelled,
    })
}

/// The typed result, or what there is to say instead.
fn result(run: RunId, transcript: &Transcript) -> Value {
    if let Some(result) = &transcript.result {
        return result.clone();
    }
    let turns = WorkerResult::of(transcript).map(|result| result.turns);
    json!({
        "answer": transcript.answer(AgentNo::ROOT),
        "outcome": transcript.outcome,
        "usage": transcript.usage,
        "turns": turns,
        "run": run,
        "thread": transcript.started.as_ref().map(|started| started.thread),
    })
}

/// Plays the demonstration, and says what else there is.
pub(crate) async fn demo(place: &Place) -> Result<Exit> {
    let start = StartRun::text(wellspring::demo::NAME, DEMO_INPUT);
    let run = place.runtime.start(start).await?;
    let output = OutputArgs { json: false, events: None };
    let exit = present(place, run, &output, AnswerArgs { yes: false, no: false }).await?;
    let ink = if is_rich() { Ink::Coloured } else { Ink::Plain };
    let command = |command: &str, what: &str| {
        Line::of([span(format!("  {command:<34}"), Style::CYAN), span(what, Style::DIM)])
    };
    let lines = [
        Line::default(),
        Line::of([span("Next:", Style::BOLD)]),
        command("wellspring run \"your words\"", "ask the script something else"),
        command("wellspring run help", "what it can show"),
        command("wellspring runs replay last", "see this run again"),
        command("wellspring runs list", "what ran so far"),
        command("wellspring --help", "everything else"),
    ];
    print_lines(&lines, ink)?;
    Ok(exit)
}
