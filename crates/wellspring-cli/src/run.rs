//! `wellspring run`.

use std::io::{IsTerminal as _, Read as _, Write as _, stdin};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use wellspring_core::{AgentNo, Content, Outcome, RunId, RunRequest, ThreadId, Transcript};
use wellspring_engine::{StartError, StartRun, WorkerResult};

use crate::args::{AnswerArgs, OutputArgs, RunArgs, WhomArgs};
use crate::follow::{Followed, answers, follow};
use crate::output::View;
use crate::setup::Setup;
use crate::typed_lines::Lines;
use crate::{Exit, Usage, find};

/// The hint that is shown while a run is active.
pub(crate) const HINT: &str = "Ctrl-C stops";

/// Maximum bytes of standard input: more than the context of most models.
const STDIN_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Asks an agent something.
pub(crate) async fn run(setup: &Setup, args: RunArgs) -> Result<Exit> {
    let input = tokio::task::spawn_blocking(|| input(args.input)).await??;
    let agent = setup.agent(args.whom.agent.as_deref()).await?;
    let thread = match &args.whom.thread {
        Some(id) => Some(find::thread(&setup.control(), id).await?),
        None => None,
    };
    let run = start(setup, &agent, &args.whom, thread, input).await?;
    present(setup, run, &args.output, args.answers).await
}

/// The question from the command line, and what is piped into the command. Piped text alone is
/// the question.
fn input(question: Option<String>) -> Result<Vec<Content>> {
    let piped = if stdin().is_terminal() { String::new() } else { piped()? };
    match (question.filter(|it| !it.trim().is_empty()), piped.trim()) {
        (Some(question), "") => Ok(vec![Content::text(question)]),
        (None, "") => bail!(Usage(
            "there is no question; pass it as an argument, `wellspring run \"what is here?\"`, or \
             pipe it into the command"
                .into()
        )),
        (None, _) => Ok(vec![Content::text(piped)]),
        (Some(question), _) => Ok(vec![
            Content::text(question),
            Content::Resource { uri: "stdin".into(), text: piped.into(), media_type: None },
        ]),
    }
}

/// All of standard input.
fn piped() -> Result<String> {
    let mut bytes = Vec::new();
    let read = stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.context("failed to read standard input; run the command with `< /dev/null`")?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        bail!(Usage(format!(
            "standard input has more than {STDIN_BYTES_MAX} bytes; pipe less, or let an agent read \
             the file with a tool"
        )));
    }
    String::from_utf8(bytes).map_err(|_| {
        Usage("standard input is not UTF-8 text; convert it first, for example with iconv".into())
            .into()
    })
}

/// Starts a run of a registered agent.
pub(crate) async fn start(
    setup: &Setup,
    agent: &str,
    whom: &WhomArgs,
    thread: Option<ThreadId>,
    input: Vec<Content>,
) -> Result<RunId> {
    let request = RunRequest {
        input,
        model: whom.model.clone(),
        streaming: whom.no_stream.then_some(false),
        ..RunRequest::default()
    };
    let start = StartRun { thread, ..StartRun::new(agent, request) };
    match setup.control().start(start).await {
        Ok(started) => Ok(started.run),
        Err(error @ (StartError::UnknownAgent { .. } | StartError::ModelNotAllowed { .. })) => {
            bail!(Usage(error.to_string()))
        }
        Err(StartError::ThreadBusy(run)) => bail!(
            "the thread is busy with run {run}; follow it with `wellspring runs show --follow {run}`, \
             or stop it with `wellspring runs cancel {run}`"
        ),
        Err(error) => Err(error.into()),
    }
}

/// Follows a run and shows it in the requested form.
pub(crate) async fn present(
    setup: &Setup,
    run: RunId,
    output: &OutputArgs,
    answer_args: AnswerArgs,
) -> Result<Exit> {
    let view = match (output.events, output.json) {
        (Some(dialect), _) => View::events(dialect),
        (None, true) => View::Silent,
        (None, false) => View::answer(HINT),
    };
    let answers = answers(answer_args.yes, answer_args.no);
    let followed = follow(&setup.control(), run, view, answers, &Lines::default()).await?;
    if let Followed::Over(_) = followed {
        if output.json {
            let transcript = setup.control().transcript(run).await?;
            writeln!(std::io::stdout(), "{}", result(run, &transcript))?;
        }
        setup.settle().await;
    }
    Ok(match followed {
        Followed::Over(Outcome::Completed { .. }) => Exit::Completed,
        Followed::Over(Outcome::Failed { .. }) => Exit::Failed,
        Followed::Over(Outcome::Cancelled { .. }) | Followed::Left => Exit::Cancelled,
    })
}

/// The typed result; without one, the answer and how the run ended.
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
