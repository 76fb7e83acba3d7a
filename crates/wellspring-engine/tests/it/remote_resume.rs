//! Remote agents over time: input that is added during a run, pauses, and what the agent gets when
//! the run continues.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Answer, Ask, Batch, Content, Context, Event, Form, LocalPart, ModelError, PartId,
    PartKind, QuestionId, Record, RemoteAgent, RemoteCapabilities, RemoteInputs, RemoteRequest,
    RemoteResume, RunRequest, Stop, ToolOutcome, ToolResult, ToolSpec, render,
};
use wellspring_engine::{
    AgentDef, ControlError, RequestKey, Runtime, StartError, StartRun, WhenBusy,
};
use wellspring_log::MemoryStore;

use crate::kit::{finished, log, read_until, runtime};

type Act = dyn Fn(RemoteRequest, Context, usize) -> BoxFuture<'static, Option<Batch>> + Send + Sync;

/// An agent whose `n`th batch of each prompt comes from a function; `None` is the stop.
#[derive(Clone)]
struct Acts {
    capabilities: RemoteCapabilities,
    act: Arc<Act>,
}

impl RemoteAgent for Acts {
    fn name(&self) -> &str {
        "peer"
    }

    fn capabilities(&self) -> RemoteCapabilities {
        self.capabilities
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let act = Arc::clone(&self.act);
        let batches = stream::unfold(Some(0), move |at| {
            let (act, request, context) = (Arc::clone(&act), request.clone(), context.clone());
            async move {
                let step = at?;
                let batch = act(request, context, step).await;
                Some(match batch {
                    Some(batch) => (Ok(batch), Some(step + 1)),
                    None => {
                        let mut end = Batch::default();
                        end.stop(Stop::EndTurn, None);
                        (Ok(end), None)
                    }
                })
            }
        });
        async move { Ok(batches.boxed()) }.boxed()
    }
}

fn acts<F, Fut>(capabilities: RemoteCapabilities, act: F) -> AgentDef
where
    F: Fn(RemoteRequest, Context, usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<Batch>> + Send + 'static,
{
    let act = Arc::new(move |request, context, step| act(request, context, step).boxed());
    AgentDef::remote("agent", Arc::new(Acts { capabilities, act }))
}

const FOLLOW_UP: RemoteCapabilities =
    RemoteCapabilities { inputs: RemoteInputs::FollowUp, resume: RemoteResume::NewParts };

const SAME_PARTS: RemoteCapabilities =
    RemoteCapabilities { inputs: RemoteInputs::Refused, resume: RemoteResume::SameParts };

fn says(text: &str) -> Batch {
    let mut batch = Batch::default();
    say(&mut batch, text);
    batch
}

fn say(batch: &mut Batch, text: &str) {
    let part = batch.start(PartKind::TEXT);
    batch.delta(part, text);
    batch.finish(part);
}

fn attached(handle: Value) -> Batch {
    let mut batch = Batch::default();
    batch.event(Event::Attached { origin: "the protocol".into(), handle: Box::new(handle) });
    batch
}

fn text(content: &[Content]) -> String {
    content.iter().map(|content| format!("{content:?}")).collect::<Vec<_>>().join(" ")
}

async fn paused(runtime: &Runtime, run: wellspring_core::RunId) -> Vec<Record> {
    let records = read_until(runtime, run, |event| matches!(event, Event::RunPaused { .. })).await;
    while runtime.is_live(run) {
        tokio::task::yield_now().await;
    }
    records
}

#[tokio::test(start_paused = true)]
async fn added_input_is_the_next_prompt_in_the_same_session() {
    let runtime = runtime();
    let adds = runtime.clone();
    let def = acts(FOLLOW_UP, move |request, context, step| {
        let runtime = adds.clone();
        async move {
            match (step, &request.session) {
                (0, None) => Some(attached(json!("session 1"))),
                (1, None) => {
                    let more = vec![Content::text("Also this.")];
                    runtime
                        .local()
                        .add_input(context.facts().run, RequestKey::Named("k".into()), more)
                        .await
                        .unwrap();
                    Some(says("First."))
                }
                (0, Some(_)) => Some(attached(json!("session 1"))),
                (1, Some(session)) => Some(says(&format!(
                    "Asked {} in {session} after {} messages.",
                    text(&request.request.input),
                    request.history.len()
                ))),
                _ => None,
            }
        }
    });
    runtime.register(def);
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    insta::assert_snapshot!(render(&finished(&runtime, run).await[1..]), @r#"
    attached to peer
    input 1 accepted [{"text":"Also this."}]
    part 0 started text
    part 0 delta "First."
    part 0 finished
    attached to peer
    input 1 applied
    part 1 started text
    part 1 delta "Asked Text(\"Also this.\") in \"session 1\" after 2 messages."
    part 1 finished
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_no_input_refuses_it() {
    let runtime = runtime();
    let def = acts(RemoteCapabilities::default(), |_, context, step| async move {
        if step == 0 {
            context.ask(Ask::new("May I?", Form::Approve)).await;
            return Some(says("Done."));
        }
        None
    });
    runtime.register(AgentDef { when_busy: WhenBusy::Steer, ..def });
    let start = StartRun::text("agent", "go");
    let run = runtime.local().start(start.clone()).await.unwrap().run;
    let asked = read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let refused = runtime
        .local()
        .add_input(run, RequestKey::Named("k".into()), vec![Content::text("more")])
        .await;
    assert!(matches!(refused, Err(ControlError::NoInput { .. })), "{refused:?}");
    let Event::RunStarted(started) = &asked[0].event else { unreachable!() };
    let second = StartRun { thread: Some(started.thread), ..start };
    let refused = runtime.local().start(second).await;
    assert!(matches!(refused, Err(StartError::ThreadBusy(busy)) if busy == run), "{refused:?}");
    runtime.local().answer(run, QuestionId(0), Answer::yes()).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(!records.iter().any(|it| matches!(it.event, Event::InputAccepted { .. })));
}

/// An agent that asks in the middle of a sentence and continues the same part after the answer.
fn asks_in_mid_sentence() -> AgentDef {
    acts(SAME_PARTS, |request, context, step| async move {
        let open = request.so_far.as_deref().map(|so_far| {
            let (part, _) = so_far.outline.open_parts(context.facts().agent).next().unwrap();
            assert_eq!(so_far.parts[&part].text, "You said ");
            (LocalPart::resumed(AgentNo::ROOT, part), Batch::after(&so_far.outline))
        });
        match (step, open) {
            (0, None) => {
                let mut batch = attached(json!({"waits": "q1"}));
                let part = batch.start(PartKind::TEXT);
                batch.delta(part, "You said ");
                Some(batch)
            }
            (1, None) => {
                context.ask(Ask::new("Which?", Form::Schema(json!({}))).resumable("q1")).await;
                unreachable!("the run pauses")
            }
            (0, Some((part, mut batch))) => {
                assert_eq!(request.attached, Some(json!({"waits": "q1"})));
                let ask = Ask::new("Which?", Form::Schema(json!({}))).resumable("q1");
                let answer = context.ask(ask).await;
                batch.delta(part, &format!("{answer:?}."));
                batch.finish(part);
                say(&mut batch, "Bye.");
                Some(batch)
            }
            _ => None,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_question_under_a_key_parks_the_run_and_no_word_is_said_twice() {
    let store = Arc::new(MemoryStore::default());
    let (one, two) = (Runtime::new(log(&store, "one")), Runtime::new(log(&store, "two")));
    one.register(asks_in_mid_sentence());
    two.register(asks_in_mid_sentence());
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    paused(&one, run).await;
    one.shutdown(std::time::Duration::ZERO).await;
    two.local().answer(run, QuestionId(0), Answer::Value(json!(7))).await.unwrap();
    insta::assert_snapshot!(render(&finished(&two, run).await[1..]), @r#"
    attached to peer
    part 0 started text
    part 0 delta "You said "
    question 0 asked {"schema":{}} "Which?"
    run paused for [{"question":0}]
    run adopted by two, epoch 1
    run resumed
    question 0 answered {"value":7}
    part 0 delta "Value(Number(7))."
    part 0 finished
    part 1 started text
    part 1 delta "Bye."
    part 1 finished
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_key_does_not_park_the_run() {
    let runtime = runtime();
    runtime.register(acts(SAME_PARTS, |_, context, step| async move {
        if step > 0 {
            return None;
        }
        context.ask(Ask::new("Which?", Form::Schema(json!({})))).await;
        Some(says("Thanks."))
    }));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(runtime.is_live(run));
    runtime.local().answer(run, QuestionId(0), Answer::Value(json!(7))).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(!records.iter().any(|it| matches!(it.event, Event::RunPaused { .. })));
}

/// An agent that calls the client's tool, with or without a resume key.
fn picks(key: Option<&'static str>) -> AgentDef {
    acts(SAME_PARTS, move |request, context, step| async move {
        match step {
            0 if request.attached.is_none() => Some(attached(json!({}))),
            0 | 1 if step == usize::from(request.attached.is_none()) => {
                let tool = request.tools.iter().find(|it| &*it.spec().name == "pick").unwrap();
                let context = match key {
                    Some(key) => context.resumable(key),
                    None => context,
                };
                let mut batch = match &request.so_far {
                    Some(so_far) => Batch::after(&so_far.outline),
                    None => Batch::default(),
                };
                let said = match tool.call(json!({"of": 3}), context).await {
                    Ok(result) => result.output_text().into_owned(),
                    Err(error) => error.to_string(),
                };
                say(&mut batch, &said);
                Some(batch)
            }
            _ => None,
        }
    })
}

fn with_pick() -> StartRun {
    let client_tools = vec![ToolSpec::new("pick", "lets the user pick")];
    StartRun::new("agent", RunRequest { client_tools, ..RunRequest::text("go") })
}

#[tokio::test(start_paused = true)]
async fn a_remote_agent_calls_the_clients_tools_and_the_run_parks() {
    let runtime = runtime();
    runtime.register(picks(Some("call-1")));
    let run = runtime.local().start(with_pick()).await.unwrap().run;
    paused(&runtime, run).await;
    let result = ToolResult::new("the second");
    runtime.local().finish_call(run, PartId(0), ToolOutcome::Ok, result).await.unwrap();
    insta::assert_snapshot!(render(&finished(&runtime, run).await[1..]), @r#"
    attached to peer
    part 0 started call pick on client
    part 0 annotated {"provider_id":"call-1"}
    part 0 delta "{\"of\":3}"
    part 0 finished
    run paused for [{"call":0}]
    run adopted by one, epoch 1
    run resumed
    tool 0 finished ok "the second"
    part 1 started text
    part 1 delta "the second"
    part 1 finished
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_agent_waits_for_does_not_park_the_run() {
    let runtime = runtime();
    runtime.register(picks(None));
    let run = runtime.local().start(with_pick()).await.unwrap().run;
    let called =
        read_until(&runtime, run, |event| matches!(event, Event::PartFinished { .. })).await;
    assert!(matches!(&called.last().unwrap().event, Event::PartFinished { part: PartId(0) }));
    let result = ToolResult::new("the second");
    runtime.local().finish_call(run, PartId(0), ToolOutcome::Ok, result).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(!records.iter().any(|it| matches!(it.event, Event::RunPaused { .. })));
    assert!(render(&records).contains(r#"delta "the second""#));
}

/// Both ways to wait: the run pauses, or the agent itself keeps waiting.
#[tokio::test(start_paused = true)]
async fn a_call_in_the_client_expires_and_the_agent_is_told() {
    for key in [Some("call-1"), None] {
        let runtime = runtime();
        let def = picks(key);
        let mut timeouts = def.timeouts.clone();
        timeouts.client_call = std::time::Duration::from_secs(60);
        runtime.register(AgentDef { timeouts, ..def });
        let run = runtime.local().start(with_pick()).await.unwrap().run;
        let records = finished(&runtime, run).await;
        let said = render(&records);
        let expired = "timed out: the client gave no result within 60 s";
        assert!(said.contains(&format!("tool 0 finished timed_out {expired:?}")), "{said}");
        assert!(said.contains(&format!("delta {expired:?}")), "{said}");
        let took = records.last().unwrap().at.since(records[0].at);
        assert_eq!(took, std::time::Duration::from_secs(60), "{said}");
    }
}
