//! A node goes away in the middle of a run; another one continues it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use wellspring_core::{
    Answer, Approval, CancelWhen, Content, Context, Event, QuestionId, RunId, Scope, Tool,
    ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::{CALL_AGENT, FunctionTool, from_function};
use wellspring_engine::{AgentDef, Principal, Runtime, StartRun};
use wellspring_log::MemoryStore;
use wellspring_models::{Gate, Say, Scripted};

use crate::kit::{agent, finished, log, read_until};

/// Two nodes on one store. Runs start on the first one.
fn nodes() -> (Runtime, Runtime) {
    let store = Arc::new(MemoryStore::default());
    (Runtime::new(log(&store, "one")), Runtime::new(log(&store, "two")))
}

/// Stops the first node as soon as the run has a matching record, and lets the second one recover
/// the run. Returns the records that were added after that.
async fn hand_over(
    (one, two): (Runtime, Runtime),
    run: RunId,
    at: impl Fn(&Event) -> bool,
) -> String {
    let before = read_until(&one, run, at).await;
    one.shutdown(Duration::ZERO).await;
    assert_eq!(two.recover().await.unwrap(), [run]);
    let records = finished(&two, run).await;
    assert_eq!(records[..before.len()], before[..], "what was seen is still there");
    let at = records.iter().position(|r| matches!(r.event, Event::RunAdopted { .. })).unwrap();
    render(&records[at..])
}

fn counting(name: &str, runs: &Arc<AtomicUsize>) -> FunctionTool {
    let runs = Arc::clone(runs);
    from_function(ToolSpec::new(name, "counts its runs"), move |_, _| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            // The first run never ends by itself.
            if run == 0 {
                std::future::pending::<()>().await;
            }
            Ok(ToolResult::new("counted"))
        }
    })
}

/// An agent that asks before its only call.
fn asking() -> AgentDef {
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("risky", "") };
    let risky = from_function(spec, |_, _| async { Ok(ToolResult::new("dared")) });
    agent([Say::new().call("risky", json!({})), Say::new().chunks(["ok"])], [risky])
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_flight_is_voided_and_made_again() {
    let nodes = nodes();
    let gate = Gate::new();
    nodes.0.register(agent([Say::new().chunks(["Half", " a sentence"]).gate(&gate)], []));
    nodes.1.register(agent([Say::new().chunks(["A whole one."])], []));
    let run = nodes.0.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let added = hand_over(nodes, run, |event| matches!(event, Event::PartFinished { .. })).await;
    insta::assert_snapshot!(added, @r#"
    run adopted by two, epoch 1
    parts [0] voided restarted
    turn 1.2 started with scripted
    part 1 started text
    part 1 delta "A whole one."
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_had_started_runs_again_only_if_that_is_harmless() {
    let mut outcomes = Vec::new();
    for idempotent in [false, true] {
        let nodes = nodes();
        let runs = Arc::new(AtomicUsize::new(0));
        for node in [&nodes.0, &nodes.1] {
            let tool = counting("count", &runs);
            let tool = if idempotent { tool.idempotent() } else { tool };
            node.register(agent(
                [Say::new().call("count", json!({})), Say::new().chunks(["ok"])],
                [tool],
            ));
        }
        let run = nodes.0.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        let started = |event: &Event| matches!(event, Event::ToolStarted { .. });
        let added = hand_over(nodes, run, started).await;
        outcomes.push(format!("runs {}\n{added}", runs.load(Ordering::SeqCst)));
    }
    insta::assert_snapshot!(outcomes.join("\n"), @r#"
    runs 1
    run adopted by two, epoch 1
    tool 0 finished interrupted "interrupted: the process that ran the tool ended before the tool did; it may have taken effect, check before calling it again"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "ok"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn

    runs 2
    run adopted by two, epoch 1
    tool 0 started parallel
    tool 0 finished ok "counted"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "ok"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_approval_survives_the_node_that_asked() {
    let (one, two) = nodes();
    one.register(asking());
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&one, run, |event| matches!(event, Event::RunPaused { .. })).await;
    one.shutdown(Duration::ZERO).await;
    drop(one);
    // A paused run has no owner, so there is nothing to recover until its answer arrives.
    two.register(asking());
    assert_eq!(two.recover().await.unwrap(), []);
    let yes = Answer::Approve { scope: Scope::Once, arguments: None };
    two.local().answer(run, QuestionId(0), yes).await.unwrap();
    let records = finished(&two, run).await;
    assert!(render(&records).contains("finished ok \"dared\""), "{}", render(&records));
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_goes_on_from_its_last_finished_turn() {
    let nodes = nodes();
    let gate = Gate::new();
    for (node, second) in [
        (&nodes.0, Say::new().chunks(["never"]).gate(&gate)),
        (&nodes.1, Say::new().chunks(["found it"])),
    ] {
        let call =
            from_function(ToolSpec::new(CALL_AGENT, ""), |arguments, cx: Context| async move {
                let agent = arguments["agentId"].as_str().unwrap_or_default().to_owned();
                Ok(ToolResult::new(cx.call_agent(agent, vec![Content::text("look")]).await?))
            });
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(call)];
        let root = [
            Say::new().call(CALL_AGENT, json!({"agentId": "child"})),
            Say::new().chunks(["It was found."]),
        ];
        node.register(AgentDef {
            tools,
            sub_agents: vec!["child".into()],
            ..AgentDef::model("root", Arc::new(Scripted::new(root)))
        });
        let child = [Say::new().call("echo", json!({"say": "first"})), second];
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(crate::kit::echo())];
        node.register(AgentDef {
            tools,
            ..AgentDef::model("child", Arc::new(Scripted::new(child)))
        });
    }
    let run = nodes.0.local().start(StartRun::text("root", "go")).await.unwrap().run;
    let said =
        |event: &Event| matches!(event, Event::PartDelta { chunk, .. } if &**chunk == "never");
    insta::assert_snapshot!(hand_over(nodes, run, said).await, @r#"
    run adopted by two, epoch 1
    tool 0 started parallel
    [agent 1] parts [2] voided restarted
    [agent 1] turn 2.2 started with scripted
    [agent 1] part 3 started text
    [agent 1] part 3 delta "found it"
    [agent 1] part 3 finished
    [agent 1] turn finished end_turn
    [agent 1] agent finished completed end_turn
    tool 0 finished ok "found it"
    turn 2.1 started with scripted
    part 4 started text
    part 4 delta "It was found."
    part 4 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

/// The second node does not know the agent. It leaves the run to nodes that do, and ends it only if
/// none has adopted it for a long time.
#[tokio::test(start_paused = true)]
async fn a_run_whose_agent_is_not_known_waits_and_then_fails_honestly() {
    let (one, two) = nodes();
    one.register(agent([Say::new().chunks(["Half"]).hang()], []));
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let seen = read_until(&one, run, |event| matches!(event, Event::PartFinished { .. })).await;
    one.shutdown(Duration::ZERO).await;
    for _ in 0..5 {
        assert_eq!(two.recover().await.unwrap(), []);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    let info = two.log().store().info(run).await.unwrap().unwrap();
    assert_eq!((info.head, info.epoch), (seen.last().unwrap().seq, 0), "nobody touched it");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(two.recover().await.unwrap(), [run]);
    let records = finished(&two, run).await;
    insta::assert_snapshot!(render(&records[seen.len()..]), @r#"
    run adopted by two, epoch 1
    run finished failed lost: the run lost its process, and its agent "agent" is not configured any more
    "#);
}

/// Runs that wait for people keep waiting, also while their agent is not configured.
#[tokio::test(start_paused = true)]
async fn a_paused_run_whose_agent_is_not_known_waits_for_it() {
    let (one, two) = nodes();
    let three = Runtime::new(two.log().clone());
    one.register(asking());
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let seen = read_until(&one, run, |event| matches!(event, Event::RunPaused { .. })).await;
    one.shutdown(Duration::ZERO).await;
    let yes = Answer::Approve { scope: Scope::Once, arguments: None };
    two.local().answer(run, QuestionId(0), yes).await.unwrap();
    tokio::time::advance(Duration::from_secs(60 * 60)).await;
    assert_eq!(two.recover().await.unwrap(), []);
    three.register(asking());
    assert_eq!(three.recover().await.unwrap(), [run]);
    let records = finished(&three, run).await;
    insta::assert_snapshot!(render(&records[seen.len()..]), @r#"
    run adopted by two, epoch 1
    run resumed
    question 0 answered {"approve":{"scope":"once"}}
    tool 0 queued at 0
    tool 0 started parallel
    tool 0 finished ok "dared"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "ok"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_agent_is_not_known_can_be_cancelled() {
    let (one, two) = nodes();
    one.register(agent([Say::new().chunks(["Half"]).hang()], []));
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let seen = read_until(&one, run, |event| matches!(event, Event::PartFinished { .. })).await;
    one.shutdown(Duration::ZERO).await;
    two.control(Principal::local().named("ada"))
        .cancel(run, CancelWhen::Now, Some("enough"))
        .await
        .unwrap();
    let records = finished(&two, run).await;
    insta::assert_snapshot!(render(&records[seen.len()..]), @"
    run adopted by two, epoch 1
    run finished cancelled: enough
    ");
}
