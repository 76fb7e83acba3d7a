//! Remote agents: their events, our tools for them, and the permissions that they request.

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use wellspring_core::{
    Answer, Approval, Ask, Batch, Context, Event, Form, LocalPart, ModelError, PartKind, Record,
    RemoteAgent, RemoteRequest, RunRequest, RunsOn, Scope, Stop, Tool, ToolCall, ToolError,
    ToolMode, ToolOutcome, ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Policy, Rule, StartRun};

use crate::kit::{finished, read_until, runtime};

type Step = Box<dyn Fn(Arc<RemoteRequest>, Context) -> BoxFuture<'static, Batch> + Send + Sync>;

/// An agent that performs these steps, one per poll, and then stops.
struct Steps(Arc<Vec<Step>>);

impl RemoteAgent for Steps {
    fn name(&self) -> &str {
        "elsewhere"
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let (request, steps) = (Arc::new(request), Arc::clone(&self.0));
        let count = steps.len();
        let batches = stream::iter(0..=count).then(move |index| {
            let (request, context, steps) =
                (Arc::clone(&request), context.clone(), Arc::clone(&steps));
            async move {
                match steps.get(index) {
                    Some(step) => Ok(step(request, context).await),
                    None => {
                        let mut end = Batch::default();
                        end.stop(Stop::EndTurn, None);
                        Ok(end)
                    }
                }
            }
        });
        async move { Ok(batches.boxed()) }.boxed()
    }
}

fn step<F, Fut>(step: F) -> Step
where
    F: Fn(Arc<RemoteRequest>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Batch> + Send + 'static,
{
    Box::new(move |request, context| step(request, context).boxed())
}

/// Calls one of our tools and describes the result in text.
async fn call(request: &RemoteRequest, context: Context, name: &str, arguments: Value) -> Batch {
    let tool = request.tools.iter().find(|tool| &*tool.spec().name == name).unwrap();
    let said = match tool.call(arguments, context).await {
        Ok(result) => format!("ok: {}", result.output_text()),
        Err(error) => format!("error: {error}"),
    };
    let mut batch = Batch::default();
    batch.extended("test", "told", said.into());
    batch
}

fn agent(steps: Vec<Step>, tools: Vec<Arc<dyn Tool>>) -> AgentDef {
    AgentDef { tools, ..AgentDef::remote("agent", Arc::new(Steps(Arc::new(steps)))) }
}

fn counting() -> Arc<dyn Tool> {
    let spec = ToolSpec::new("count", "counts");
    Arc::new(from_function(spec, |arguments: Value, context: Context| async move {
        context.progress("one").await;
        Ok(ToolResult::new(arguments["to"].clone()))
    }))
}

async fn play(def: AgentDef, request: RunRequest) -> Vec<Record> {
    let runtime = runtime();
    runtime.register(def);
    let run = runtime.local().start(StartRun::new("agent", request)).await.unwrap().run;
    finished(&runtime, run).await
}

#[tokio::test(start_paused = true)]
async fn a_lent_tool_is_a_call_of_the_run() {
    let steps = vec![step(|request, context| async move {
        call(&request, context, "count", json!({"to": 3})).await
    })];
    let records = play(agent(steps, vec![counting()]), RunRequest::text("go")).await;
    insta::assert_snapshot!(render(&records[1..]), @r#"
    part 0 started call count
    part 0 delta "{\"to\":3}"
    part 0 finished
    tool 0 started parallel
    tool 0 updated {"data":"one"}
    tool 0 finished ok 3
    extended test told "ok: 3"
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_lent_tool_keeps_to_the_rules_and_to_its_schema() {
    let steps = vec![step(|request, context| async move {
        call(&request, context, "count", json!({"to": 3})).await
    })];
    let deny = Policy::default().rule(Rule::tool("count").decide(Approval::Deny));
    let def = AgentDef { policy: deny, ..agent(steps, vec![counting()]) };
    let records = play(def, RunRequest::text("go")).await;
    insta::assert_snapshot!(render(&records[1..]), @r#"
    part 0 started call count
    part 0 delta "{\"to\":3}"
    part 0 finished
    tool 0 finished denied "the policy does not allow this call"
    extended test told "error: the policy does not allow this call"
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_typed_result_is_validated_and_repaired() {
    let steps = vec![
        step(|request, context| async move {
            call(&request, context, "return_result", json!({"n": "three"})).await
        }),
        step(|request, context| async move {
            call(&request, context, "return_result", json!({"n": 3})).await
        }),
        step(|request, context| async move {
            call(&request, context, "return_result", json!({"n": 4})).await
        }),
    ];
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let request = RunRequest { result_schema: Some(schema), ..RunRequest::text("go") };
    let records = play(agent(steps, Vec::new()), request).await;
    insta::assert_snapshot!(render(&records[1..]), @r#"
    part 0 started call return_result
    part 0 delta "{\"n\":\"three\"}"
    part 0 finished
    tool 0 finished error "the result does not fit its schema: /n: value is not of type \"integer\"; call it again, corrected"
    extended test told "error: the result does not fit its schema: /n: value is not of type \"integer\"; call it again, corrected"
    part 1 started call return_result
    part 1 delta "{\"n\":3}"
    part 1 finished
    result {"n":3}
    tool 1 finished ok "the result was taken"
    extended test told "ok: the result was taken"
    part 2 started call return_result
    part 2 delta "{\"n\":4}"
    part 2 finished
    tool 2 finished error "there is a result already"
    extended test told "error: there is a result already"
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn repairs_are_bounded() {
    let wrong = || {
        step(
            |request, context| async move { call(&request, context, "return_result", json!({})).await },
        )
    };
    let request = RunRequest {
        result_schema: Some(json!({"type": "object", "required": ["n"]})),
        ..RunRequest::text("go")
    };
    let steps = (0..9).map(|_| wrong()).collect();
    let records = play(agent(steps, Vec::new()), request).await;
    let last = &records.last().unwrap().event;
    insta::assert_snapshot!(last, @"run finished failed protocol: the agent gave no valid result in 4 tries");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_kept_after_the_run_says_so() {
    let kept: Arc<Mutex<Option<Arc<dyn Tool>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let steps = vec![step(move |request, _| {
        *keep.lock().unwrap() = request.tools.first().cloned();
        async { Batch::default() }
    })];
    play(agent(steps, vec![counting()]), RunRequest::text("go")).await;
    let tool = kept.lock().unwrap().take().unwrap();
    let context = Context::create("t", wellspring_core::CancellationToken::new());
    let error: ToolError = tool.call(json!({"to": 1}), context).await.unwrap_err();
    assert_eq!(error.to_string(), "the run of this tool has finished");
}

/// An agent that makes a call of its own and asks before it continues.
fn asking() -> AgentDef {
    let batch: Arc<Mutex<Batch>> = Arc::default();
    let (first, second) = (Arc::clone(&batch), batch);
    let steps = vec![
        step(move |_, _| {
            let mut batch = first.lock().unwrap();
            let tool =
                ToolCall { name: "sh".into(), runs_on: RunsOn::Agent, ..ToolCall::default() };
            let part = batch.start(PartKind::ToolCall(Box::new(tool)));
            batch.delta(part, r#"{"command":"ls"}"#);
            batch.finish(part);
            let batch = batch.take();
            async { batch }
        }),
        step(move |_, context| {
            let batch = Arc::clone(&second);
            async move {
                let ask = Ask::new("Allow ls?", Form::Approve);
                let answer = context.permit(LocalPart::new(0), ask).await;
                let outcome = match answer {
                    Answer::Approve { .. } => ToolOutcome::Ok,
                    _ => ToolOutcome::Denied,
                };
                let mut batch = batch.lock().unwrap();
                let call = wellspring_core::PartId(0);
                let result = Box::new(ToolResult::new(json!(null)));
                let mode = ToolMode::Parallel;
                batch.event(Event::ToolStarted { call, mode, arguments: None });
                batch.event(Event::ToolFinished { call, outcome, result });
                batch.take()
            }
        }),
    ];
    agent(steps, Vec::new())
}

#[tokio::test(start_paused = true)]
async fn a_permission_is_a_question_about_the_call_after_the_call() {
    let runtime = runtime();
    runtime.register(asking());
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let asked = read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let Event::QuestionAsked(question) = &asked.last().unwrap().event else { unreachable!() };
    runtime.local().answer(run, question.question, Answer::yes()).await.unwrap();
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(render(&records[1..]), @r#"
    part 0 started call sh on agent
    part 0 delta "{\"command\":\"ls\"}"
    part 0 finished
    question 0 asked approve "Allow ls?"
    question 0 answered {"approve":{"scope":"once"}}
    tool 0 started parallel
    tool 0 finished ok null
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn rules_answer_permissions_before_people_do() {
    for (decision, outcome) in
        [(Approval::Allow, ToolOutcome::Ok), (Approval::Deny, ToolOutcome::Denied)]
    {
        let rule = Rule::tool("sh").argument("command", "ls").unwrap().decide(decision);
        let def = AgentDef { policy: Policy::default().rule(rule), ..asking() };
        let records = play(def, RunRequest::text("go")).await;
        let ended = records.iter().find_map(|record| match &record.event {
            Event::ToolFinished { outcome, .. } => Some(*outcome),
            _ => None,
        });
        assert_eq!(ended, Some(outcome));
        assert!(!records.iter().any(|it| matches!(it.event, Event::QuestionAsked(_))));
    }
}

/// A remote agent's own call cannot be approved with edited arguments, because the agent runs it
/// with its own.
#[tokio::test(start_paused = true)]
async fn arguments_of_a_remote_agents_own_call_cannot_be_edited() {
    let runtime = runtime();
    runtime.register(asking());
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let asked = read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let Event::QuestionAsked(question) = &asked.last().unwrap().event else { unreachable!() };
    let edited =
        Answer::Approve { scope: Scope::Once, arguments: Some(json!({"command": "ls -l"})) };
    let refused = runtime.local().answer(run, question.question, edited).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be edited"), "{refused}");
    runtime.local().answer(run, question.question, Answer::yes()).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(
        records
            .iter()
            .all(|record| !matches!(record.event, Event::ToolStarted { arguments: Some(_), .. }))
    );
}
