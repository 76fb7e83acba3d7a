//! `wellspring runs …`: lists, shows, replays, exports and controls runs.

mod export;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::TryStreamExt as _;
use serde_json::json;
use wellspring_core::{CancelWhen, Millis, Outcome, Record, RunId, Seq};
use wellspring_engine::ControlError;
use wellspring_log::{RunFilter, RunInfo, RunState};

use crate::args::{Runs, Speed, StateArg};
use crate::follow::{Answers, Followed, follow};
use crate::output::{Ink, View, is_rich, print_lines, print_screen, size};
use crate::run::present;
use crate::screen::{Screen, Shows, ago, short_id};
use crate::setup::{Setup, Standing};
use crate::signals::Interrupts;
use crate::text::{Line, Style, clean_line, span};
use crate::typed_lines::Lines;
use crate::{Exit, Usage, find};

/// Maximum pause between two records of a replay, so that a run that waited overnight is replayed
/// quickly.
const REPLAY_GAP_MAX: Duration = Duration::from_secs(3);

/// How long a cancelled run has to end before we stop waiting for it.
const CANCEL_WAIT: Duration = Duration::from_secs(15);

/// One of the `runs` commands.
pub(crate) async fn runs(setup: &Setup, command: Runs) -> Result<Exit> {
    let control = &setup.control();
    match command {
        Runs::List { state, agent, thread, limit, json } => {
            let thread = match thread {
                Some(id) => Some(find::thread(control, &id).await?),
                None => None,
            };
            let agent = agent.map(Into::into);
            let filter = RunFilter { agent, thread, ..RunFilter::default() };
            list(setup, filter, state, limit, json).await
        }
        Runs::Show { id, follow: false, json } => {
            let info = find::run(control, &id).await?;
            if json {
                let transcript = control.transcript(info.run).await?;
                let standing = setup.standing(&info).word();
                let shown = json!({"run": info, "standing": standing, "transcript": transcript});
                writeln!(std::io::stdout(), "{shown:#}")?;
            } else {
                show(setup, &info).await?;
            }
            Ok(Exit::Completed)
        }
        Runs::Show { id, follow: true, .. } => {
            let info = find::run(control, &id).await?;
            let view = View::screen("Ctrl-C stops following");
            Ok(match follow(control, info.run, view, Answers::Others, &Lines::default()).await? {
                Followed::Over(Outcome::Completed { .. }) => Exit::Completed,
                Followed::Over(Outcome::Failed { .. }) => Exit::Failed,
                Followed::Over(Outcome::Cancelled { .. }) | Followed::Left => Exit::Cancelled,
            })
        }
        Runs::Replay { id, speed, events } => {
            let info = find::run(control, &id).await?;
            let view = match events {
                Some(dialect) => View::events(dialect),
                None => View::screen("a replay"),
            };
            replay(setup, info.run, view, speed).await
        }
        Runs::Cancel { id, why } => {
            cancel(setup, &find::run(control, &id).await?, why.as_deref()).await
        }
        Runs::Export { id, format } => {
            let info = find::run(control, &id).await?;
            export::export(control, &info, format).await?;
            Ok(Exit::Completed)
        }
        Runs::Resume { id, output, answers } => {
            let info = find::run(control, &id).await?;
            match setup.standing(&info) {
                Standing::Over(_) => bail!(Usage(format!(
                    "run {} has already finished; see it with `wellspring runs show {0}`",
                    short_id(info.run.uuid())
                ))),
                Standing::Running => bail!(
                    "run {0} is being worked on by another process; follow it with `wellspring runs \
                     show --follow {0}`, or stop it with `wellspring runs cancel {0}`",
                    short_id(info.run.uuid())
                ),
                Standing::Interrupted => {
                    setup.agent(Some(&info.agent)).await?;
                    if !setup.runtime.resume(info.run).await {
                        bail!(
                            "run {0} was taken over by another process; follow it with `wellspring \
                             runs show --follow {0}`",
                            short_id(info.run.uuid())
                        );
                    }
                }
                // The run continues with its answer. Until then it needs no owner, unless its
                // deadline passes.
                Standing::Waiting => {
                    setup.agent(Some(&info.agent)).await?;
                    let outline = control.transcript(info.run).await?.outline;
                    let now = setup.now();
                    let mut open = outline.questions.values();
                    if open.any(|question| question.expires_at.is_some_and(|at| at <= now)) {
                        setup.runtime.resume(info.run).await;
                    }
                }
            }
            present(setup, info.run, &output, answers).await
        }
        Runs::Delete { id } => {
            let info = find::run(control, &id).await?;
            if !info.state.is_final() {
                bail!(Usage(format!(
                    "run {0} is still running; stop it first with `wellspring runs cancel {0}`",
                    short_id(info.run.uuid())
                )));
            }
            control.delete(info.run).await?;
            writeln!(std::io::stdout(), "deleted run {}", info.run)?;
            Ok(Exit::Completed)
        }
    }
}

async fn list(
    setup: &Setup,
    mut filter: RunFilter,
    state: Option<StateArg>,
    limit: usize,
    json: bool,
) -> Result<Exit> {
    filter.states = match state {
        Some(StateArg::Running | StateArg::Interrupted) => vec![RunState::Running],
        Some(StateArg::Waiting) => vec![RunState::Paused],
        Some(StateArg::Completed) => vec![RunState::Completed],
        Some(StateArg::Cancelled) => vec![RunState::Cancelled],
        Some(StateArg::Failed) => vec![RunState::Failed],
        None => Vec::new(),
    };
    let mut found: Vec<(RunInfo, Standing)> = Vec::new();
    'pages: loop {
        let page = setup.control().list(filter.clone()).await?;
        let Some(last) = page.last() else { break };
        filter.after_run = Some(last.run);
        for info in page {
            if found.len() == limit {
                break 'pages;
            }
            let standing = setup.standing(&info);
            let fits = match state {
                Some(StateArg::Running) => standing == Standing::Running,
                Some(StateArg::Interrupted) => standing == Standing::Interrupted,
                _ => true,
            };
            if fits {
                found.push((info, standing));
            }
        }
    }
    if json {
        let rows: Vec<_> = found
            .iter()
            .map(|(info, standing)| json!({"run": info, "standing": standing.word()}))
            .collect();
        writeln!(std::io::stdout(), "{:#}", serde_json::Value::Array(rows))?;
        return Ok(Exit::Completed);
    }
    let mut lines: Vec<Line> =
        found.iter().map(|(info, standing)| row(info, *standing, setup.now())).collect();
    if lines.is_empty() {
        lines.push(Line::of([span("no runs; start one with `wellspring run \"…\"`", Style::DIM)]));
    }
    for (info, standing) in &found {
        let id = short_id(info.run.uuid());
        let advice = match standing {
            Standing::Interrupted => format!(
                "the process of run {id} ended: continue it with `wellspring runs resume {id}`, or \
                 cancel it with `wellspring runs cancel {id}`"
            ),
            Standing::Waiting => {
                format!("run {id} waits for an answer; answer with `wellspring runs resume {id}`")
            }
            Standing::Running | Standing::Over(_) => continue,
        };
        lines.push(Line::of([span(advice, Style::YELLOW)]));
    }
    let (ink, width) =
        if is_rich() { (Ink::Coloured, size().0) } else { (Ink::Plain, usize::MAX / 4) };
    let lines: Vec<Line> = lines
        .into_iter()
        .enumerate()
        .map(|(number, line)| if number < found.len() { line.truncated(width) } else { line })
        .collect();
    print_lines(&mut std::io::stdout().lock(), &lines, ink)?;
    Ok(Exit::Completed)
}

fn row(info: &RunInfo, standing: Standing, now: Millis) -> Line {
    let style = match standing {
        Standing::Running => Style::CYAN,
        Standing::Waiting | Standing::Interrupted | Standing::Over(RunState::Cancelled) => {
            Style::YELLOW
        }
        Standing::Over(RunState::Failed) => Style::RED,
        Standing::Over(_) => Style::GREEN,
    };
    Line::of([
        span(short_id(info.run.uuid()), Style::BOLD),
        span(format!("  {:<11}", standing.word()), style),
        span(format!("  {:<10}", clean_line(&info.agent)), Style::PLAIN),
        span(format!("  {:>10}", ago(now.since(info.created_at))), Style::DIM),
        span(format!("  {}", clean_line(&info.title)), Style::PLAIN),
    ])
}

async fn show(setup: &Setup, info: &RunInfo) -> Result<()> {
    let records = committed(setup, info).await?;
    let screen =
        if is_rich() { Screen::new("as it stands") } else { Screen::plain(Shows::Everything) };
    print_screen(screen, &records, setup.now())?;
    let id = short_id(info.run.uuid());
    let advice = match setup.standing(info) {
        Standing::Running => {
            format!("still running; follow it with `wellspring runs show --follow {id}`")
        }
        Standing::Waiting => {
            format!("waits for an answer; answer with `wellspring runs resume {id}`")
        }
        Standing::Interrupted => {
            format!("its process ended; continue it with `wellspring runs resume {id}`")
        }
        Standing::Over(_) => return Ok(()),
    };
    let ink = if is_rich() { Ink::Coloured } else { Ink::Plain };
    Ok(print_lines(&mut std::io::stdout().lock(), &[Line::of([span(advice, Style::YELLOW)])], ink)?)
}

/// All committed records.
pub(crate) async fn committed(setup: &Setup, info: &RunInfo) -> Result<Vec<Record>> {
    let head = setup.control().transcript(info.run).await?.outline.head;
    let mut records = Vec::new();
    let mut cursor = setup.control().attach(info.run, Seq(0)).await?;
    while records.len() < usize::try_from(head.0)? {
        let Some(frames) = cursor.next().await? else { break };
        records.extend(frames.iter().flat_map(|frame| frame.records().iter().cloned()));
    }
    records.truncate(usize::try_from(head.0)?);
    Ok(records)
}

/// The pause of a replay between two records.
fn pause(speed: Speed, before: Option<Millis>, at: Millis) -> Duration {
    match speed {
        Speed::Max => Duration::ZERO,
        Speed::Times(times) => at.since(before.unwrap_or(at)).min(REPLAY_GAP_MAX).div_f64(times),
    }
}

async fn replay(setup: &Setup, run: RunId, mut view: View, speed: Speed) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let played = async {
        let cursor = setup.control().attach(run, Seq(0)).await?;
        let mut records = std::pin::pin!(cursor.into_records());
        let mut before: Option<Millis> = None;
        while let Some(record) = records.try_next().await? {
            let mut rest = pause(speed, before, record.at);
            while !rest.is_zero() {
                let step = rest.min(Duration::from_millis(40));
                tokio::time::sleep(step).await;
                view.paint(None)?;
                rest -= step;
            }
            before = Some(record.at);
            view.set_clock(record.at);
            view.frame(std::slice::from_ref(&record))?;
        }
        view.paint(None)?;
        Ok::<_, anyhow::Error>(Exit::Completed)
    };
    let exit = tokio::select! {
        exit = played => exit?,
        () = interrupts.next() => Exit::Cancelled,
    };
    view.leave()?;
    Ok(exit)
}

async fn cancel(setup: &Setup, info: &RunInfo, why: Option<&str>) -> Result<Exit> {
    let id = short_id(info.run.uuid());
    match setup.control().cancel(info.run, CancelWhen::Now, why).await {
        Ok(_) => {}
        Err(ControlError::Finished(_)) => {
            writeln!(
                std::io::stdout(),
                "run {id} has already finished: {}",
                setup.standing(info).word()
            )?;
            return Ok(Exit::Completed);
        }
        Err(error) => return Err(error.into()),
    }
    let Ok(ended) = tokio::time::timeout(CANCEL_WAIT, setup.control().wait(info.run)).await else {
        bail!(
            "run {id} was cancelled but has not stopped after {} s; follow it with \
             `wellspring runs show --follow {id}`",
            CANCEL_WAIT.as_secs()
        );
    };
    let outcome = ended?.outcome.map(|outcome| crate::screen::outcome_phrase(&outcome));
    writeln!(std::io::stdout(), "run {id}: {}", outcome.unwrap_or_default())?;
    Ok(Exit::Completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_keeps_the_pace_and_skips_long_waits() {
        let seconds = |speed, before: Option<u64>, at| {
            pause(speed, before.map(Millis), Millis(at)).as_secs_f64()
        };
        assert_eq!(seconds(Speed::Times(1.0), None, 5000), 0.0);
        assert_eq!(seconds(Speed::Times(1.0), Some(5000), 6500), 1.5);
        assert_eq!(seconds(Speed::Times(3.0), Some(5000), 6500), 0.5);
        assert_eq!(seconds(Speed::Times(0.5), Some(5000), 6500), 3.0);
        assert_eq!(seconds(Speed::Times(1.0), Some(5000), 500_000), 3.0);
        assert_eq!(seconds(Speed::Max, Some(5000), 6500), 0.0);
    }
}
