//! Drives a run from its adoption or start until it ends, pauses or is lost.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use futures::future::FutureExt as _;
use wellspring_core::{AgentNo, FailureKind, Millis, Outcome, RunsOn, Transcript, Wait};
use wellspring_log::AppendError;

use crate::agent::AgentDef;
use crate::agent_loop::AgentWork;
use crate::calls::client_call::client_call_expiry;
use crate::run::Run;
use crate::runtime::close::closing_events;

/// How the owner stopped working on a run.
#[derive(Debug)]
pub(crate) enum Left {
    /// It has finished.
    Finished(Outcome),
    /// It waits for people; holds the time at which the first question expires.
    Paused(Option<Millis>),
    /// The store failed, or another owner took over. Nothing more was appended.
    Lost(AppendError),
}

/// Works on a run until it ends, pauses or is lost.
pub(crate) async fn drive(run: &Arc<Run>) -> Left {
    tokio::select! {
        biased;
        error = run.owner.lost() => Left::Lost(error),
        left = own(run) => left,
    }
}

async fn own(run: &Arc<Run>) -> Left {
    resume(run).await;
    let end = work(run).await;
    // All tasks of the run have ended; their events are folded first.
    run.commit().await;
    match end {
        End::Outcome(outcome) => {
            let events = run.folded(|transcript| {
                let outline = &transcript.outline;
                (!outline.finished).then(|| closing_events(outline, outcome.clone()))
            });
            if let Some(events) = events {
                run.owner.push_all(events);
                run.commit().await;
            }
            Left::Finished(outcome)
        }
        End::Idle => {
            let (waits, expires_at) = run.folded(|transcript| waits(transcript, &run.def));
            run.owner.pause(waits, expires_at);
            run.commit().await;
            Left::Paused(expires_at)
        }
    }
}

/// Applies the commands that arrived while the run had no owner.
async fn resume(run: &Arc<Run>) {
    if run.folded(|transcript| transcript.outline.paused.is_some()) {
        run.resume(&run.owner.inbox().await.unwrap_or_default()).await;
        run.take_inbox().await;
    } else if run.has_news() {
        // It was adopted. The inbox of a run that was just created is empty.
        run.take_inbox().await;
    }
}

enum End {
    Outcome(Outcome),
    Idle,
}

async fn work(run: &Arc<Run>) -> End {
    let root = AgentWork::new(
        Arc::clone(run),
        AgentNo::ROOT,
        Arc::clone(&run.def),
        0,
        &tracing::Span::none(),
    );
    // A panic in our code or in a model fails the run, so that it still gets an end.
    let mut work = Box::pin(AssertUnwindSafe(root.work()).catch_unwind());
    let mut listen = Box::pin(async {
        loop {
            run.owner.inbox_changed().await;
            run.take_inbox().await;
        }
    });
    let run_time = run.runtime.run_time(&run.def);
    let mut time_is_up = Box::pin(tokio::time::sleep(run_time.saturating_sub(run.worked())));
    let mut grace_is_over = Box::pin(async {
        run.signal.cancelled().await;
        tokio::time::sleep(run.def.timeouts.cancel_grace).await;
    });
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return End::Outcome(ended.unwrap_or_else(|_| internal("the engine panicked"))),
            () = &mut listen => {}
            () = &mut grace_is_over => {
                return End::Outcome(run.cancelled().unwrap_or_else(|| internal("cancelled without a reason")));
            }
            () = &mut time_is_up, if !run.signal.is_cancelled() => {
                let limit = run_time.as_secs_f32();
                run.cancel_now(Outcome::Failed {
                    kind: FailureKind::TimedOut,
                    message: format!("the run took longer than {limit} s").into(),
                    retryable: true,
                });
            }
            // Polled last, so that it checks after all the futures above were polled.
            () = idle(run) => return End::Idle,
        }
    }
}

/// Ready when nothing makes progress. It needs no wake-up: everything that changes that is polled
/// by the same task, just before. Commands that the inbox brought a moment ago have not been polled
/// yet, so it then checks once more.
async fn idle(run: &Run) {
    poll_fn(|cx| {
        if run.activity.was_stirred() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let idle = run.activity.is_idle() && !run.signal.is_cancelled();
        if idle { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn internal(message: &str) -> Outcome {
    Outcome::Failed { kind: FailureKind::Internal, message: message.into(), retryable: true }
}

/// What a paused run waits for, and when the first of these expires.
pub(crate) fn waits(transcript: &Transcript, def: &AgentDef) -> (Vec<Wait>, Option<Millis>) {
    let outline = &transcript.outline;
    let questions = outline.questions.keys().copied().map(Wait::Question);
    let client = outline.calls.iter().filter(|(_, call)| call.tool.runs_on == RunsOn::Client);
    let calls = client.clone().filter_map(|(call, _)| client_call_expiry(transcript, *call, def));
    let asked = outline.questions.values().filter_map(|question| question.expires_at);
    let expires_at = asked.chain(calls).min();
    let waits = questions.chain(client.map(|(call, _)| Wait::Call(*call))).collect();
    (waits, expires_at)
}
