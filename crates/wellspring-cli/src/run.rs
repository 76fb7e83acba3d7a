//! `wellspring run`.

use std::io::Write as _;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use wellspring_core::{AgentNo, Outcome, RunId, RunRequest, ThreadId, Transcript};
use wellspring_engine::{StartError, StartRun, WorkerResult};

use crate::args::{AnswerArgs, OutputArgs, RunArgs, WhomArgs};
use crate::follow::{Followed, answers, follow};
use crate::lines::Lines;
use crate::place::Place;
use crate::view::View;
use crate::{Exit, find};

/// What a person can do while a run goes on.
pub(crate) const HINT: &str = "Ctrl-C stops";

/// Asks an agent something.
pub(crate) async fn run(place: &Place, args: RunArgs) -> Result<Exit> {
    let agent = place.agent(args.whom.agent.as_deref()).await?;
    let thread = match &args.whom.thread {
        Some(id) => Some(find::thread(place.log(), id).await?),
        None => None,
    };
    let run = start(place, &agent, &args.whom, thread, args.input).await?;
    present(place, run, &args.output, args.answers).await
}

/// Starts a run of an agent that was made.
pub(crate) async fn start(
    place: &Place,
    agent: &str,
    whom: &WhomArgs,
    thread: Option<ThreadId>,
    input: String,
) -> Result<RunId> {
    let request = RunRequest {
        model: whom.model.clone(),
        streaming: whom.no_stream.then_some(false),
        ..RunRequest::text(input)
    };
    let start = StartRun { thread, ..StartRun::new(agent, request) };
    match place.runtime.start(start).await {
        Ok(run) => Ok(run),
        Err(error @ (StartError::UnknownAgent { .. } | StartError::ModelNotAllowed { .. })) => {
            bail!(crate::Usage(error.to_string()))
        }
        Err(StartError::ThreadBusy(run)) => bail!(
            "the thread is busy with run {run}; follow it with `wellspring runs show --follow {run}`, \
             or stop it with `wellspring runs cancel {run}`"
        ),
        Err(error) => Err(error.into()),
    }
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
    let followed = follow(&place.runtime, run, view, answers, &Lines::default()).await?;
    if let Followed::Over(_) = followed {
        if output.json {
            let transcript = place.log().transcript(run).await?;
            writeln!(std::io::stdout(), "{}", result(run, &transcript))?;
        }
        place.settle().await;
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
