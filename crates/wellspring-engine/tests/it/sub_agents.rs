//! Agents that call agents: the sub-agent's events are in the parent's log, and it ends with its
//! caller.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wellspring_core::{
    AgentNo, Answer, Approval, CancelWhen, Content, Context, Event, QuestionId, Scope, Tool,
    ToolOutcome, ToolResult, ToolSpec, Transcript, Usage, render,
};
use wellspring_engine::tools::{CALL_AGENT, FunctionTool, from_function};
use wellspring_engine::{AgentDef, Runtime, StartRun, Timeouts};
use wellspring_models::{Say, Scripted};

use crate::kit::{echo, finished, read_until, runtime};

fn call_agent() -> FunctionTool {
    from_function(
        ToolSpec::new(CALL_AGENT, "asks another agent"),
        |arguments, cx: Context| async move {
            let agent = arguments["agentId"].as_str().unwrap_or_default().to_owned();
            let input = arguments["input"].as_str().unwrap_or_default().to_owned();
            let text = cx.call_agent(agent, vec![Content::text(input)]).await?;
            Ok(ToolResult::new(text))
        },
    )
}

fn named(name: &str, turns: Vec<Say>, tools: Vec<FunctionTool>) -> AgentDef {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    AgentDef {
        tools,
        sub_agents: vec!["*".into()],
        ..AgentDef::model(name, Arc::new(Scripted::new(turns)))
    }
}

fn calling(agent: &str) -> Say {
    Say::new().call(CALL_AGENT, json!({"agentId": agent, "input": "please"}))
}

async fn start(runtime: &Runtime, defs: Vec<AgentDef>) -> wellspring_core::RunId {
    for def in defs {
        runtime.register(def);
    }
    runtime.local().start(StartRun::text("root", "go")).await.unwrap().run
}

#[tokio::test(start_paused = true)]
async fn a_sub_agents_events_join_the_parents_log() {
    let runtime = runtime();
    let run = start(
        &runtime,
        vec![
            named(
                "root",
                vec![calling("child"), Say::new().chunks(["Thanks."])],
                vec![call_agent()],
            ),
            named(
                "child",
                vec![
                    Say::new().thought("mine").call("echo", json!({"say": "inner"})),
                    Say::new().chunks(["I ", "did it."]),
                ],
                vec![echo()],
            ),
        ],
    )
    .await;
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by root {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call call-agent
    part 0 delta "{\"agentId\":\""
    part 0 delta "child\",\"inpu"
    part 0 delta "t\":\"please\"}"
    part 0 finished
    turn finished tool_calls
    tool 0 queued at 0
    tool 0 started parallel
    [agent 1] agent child started by 0
    [agent 1] turn 1.1 started with scripted
    [agent 1] part 1 started thought
    [agent 1] part 1 delta "mine"
    [agent 1] part 1 finished
    [agent 1] part 2 started call echo
    [agent 1] part 2 delta "{\"say\":\"inne"
    [agent 1] part 2 delta "r\"}"
    [agent 1] part 2 finished
    [agent 1] turn finished tool_calls
    [agent 1] tool 2 queued at 0
    [agent 1] tool 2 started parallel
    [agent 1] tool 2 finished ok "inner"
    [agent 1] turn 2.1 started with scripted
    [agent 1] part 3 started text
    [agent 1] part 3 delta "I "
    [agent 1] part 3 delta "did it."
    [agent 1] part 3 finished
    [agent 1] turn finished end_turn
    [agent 1] agent finished completed end_turn
    tool 0 finished ok "I did it."
    turn 2.1 started with scripted
    part 4 started text
    part 4 delta "Thanks."
    part 4 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn nesting_has_an_end() {
    let runtime = runtime();
    let def =
        named("root", vec![calling("root"), Say::new().chunks(["enough"])], vec![call_agent()]);
    let run = start(&runtime, vec![def]).await;
    let lines = render(&finished(&runtime, run).await);
    let errors: Vec<_> = lines.lines().filter(|line| line.contains("finished error")).collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"[agent 4] tool 4 finished error "agents are nested 4 deep already; do it yourself""#);
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_run_ends_its_sub_agents() {
    let runtime = runtime();
    let run = start(
        &runtime,
        vec![
            named("root", vec![calling("child")], vec![call_agent()]),
            named("child", vec![Say::new().chunks(["I was"]).hang()], vec![]),
        ],
    )
    .await;
    read_until(
        &runtime,
        run,
        |event| matches!(event, Event::PartDelta { chunk, .. } if &**chunk == "I was"),
    )
    .await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(render(records.iter().rev().take(5).rev()), @r#"
    [agent 1] part 1 delta "I was"
    [agent 1] part 1 finished
    [agent 1] agent finished cancelled
    tool 0 finished error "agent \"child\" cancelled"
    run finished cancelled
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_closes_its_sub_agents() {
    let runtime = runtime();
    let timeouts = Timeouts { tool_total: Duration::from_secs(20), ..Timeouts::default() };
    let run = start(
        &runtime,
        vec![
            AgentDef {
                timeouts,
                ..named(
                    "root",
                    vec![calling("child"), Say::new().chunks(["Pity."])],
                    vec![call_agent()],
                )
            },
            named("child", vec![Say::new().chunks(["I was"]).hang()], vec![]),
        ],
    )
    .await;
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by root {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call call-agent
    part 0 delta "{\"agentId\":\""
    part 0 delta "child\",\"inpu"
    part 0 delta "t\":\"please\"}"
    part 0 finished
    turn finished tool_calls
    tool 0 queued at 0
    tool 0 started parallel
    [agent 1] agent child started by 0
    [agent 1] turn 1.1 started with scripted
    [agent 1] part 1 started text
    [agent 1] part 1 delta "I was"
    [agent 1] part 1 finished
    [agent 1] agent finished failed timed_out: the call it worked for took too long
    tool 0 finished timed_out "timed out: it took longer than it may; it may have taken effect"
    turn 2.1 started with scripted
    part 2 started text
    part 2 delta "Pity."
    part 2 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agents_question_pauses_the_whole_run() {
    let runtime = runtime();
    let spec =
        ToolSpec { approval: Some(wellspring_core::Approval::Ask), ..ToolSpec::new("risky", "") };
    let risky = from_function(spec, |_, _| async { Ok(ToolResult::new("dared")) });
    let run = start(
        &runtime,
        vec![
            named(
                "root",
                vec![calling("child"), Say::new().chunks(["Thanks."])],
                vec![call_agent()],
            ),
            named(
                "child",
                vec![Say::new().call("risky", json!({})), Say::new().chunks(["Done."])],
                vec![risky],
            ),
        ],
    )
    .await;
    read_until(&runtime, run, |event| matches!(event, Event::RunPaused { .. })).await;
    let yes =
        wellspring_core::Answer::Approve { scope: wellspring_core::Scope::Once, arguments: None };
    runtime.local().answer(run, wellspring_core::QuestionId(0), yes).await.unwrap();
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by root {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call call-agent
    part 0 delta "{\"agentId\":\""
    part 0 delta "child\",\"inpu"
    part 0 delta "t\":\"please\"}"
    part 0 finished
    turn finished tool_calls
    tool 0 queued at 0
    tool 0 started parallel
    [agent 1] agent child started by 0
    [agent 1] turn 1.1 started with scripted
    [agent 1] part 1 started call risky
    [agent 1] part 1 delta "{}"
    [agent 1] part 1 finished
    [agent 1] turn finished tool_calls
    [agent 1] question 0 asked approve "Allow risky {}?"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    [agent 1] question 0 answered {"approve":{"scope":"once"}}
    tool 0 started parallel
    [agent 1] tool 1 queued at 0
    [agent 1] tool 1 started parallel
    [agent 1] tool 1 finished ok "dared"
    [agent 1] turn 2.1 started with scripted
    [agent 1] part 2 started text
    [agent 1] part 2 delta "Done."
    [agent 1] part 2 finished
    [agent 1] turn finished end_turn
    [agent 1] agent finished completed end_turn
    tool 0 finished ok "Done."
    turn 2.1 started with scripted
    part 3 started text
    part 3 delta "Thanks."
    part 3 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

/// A sub-agent that was cut off has not completed its work, and its caller gets an error.
#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_was_cut_off_is_no_success() {
    let runtime = runtime();
    let mut child =
        named("child", vec![Say::new().call("echo", json!({"say": "more"}))], vec![echo()]);
    child.limits.turns = 1;
    let root = vec![calling("child"), Say::new().chunks(["Sorry."])];
    let run = start(&runtime, vec![named("root", root, vec![call_agent()]), child]).await;
    let records = finished(&runtime, run).await;
    let result = records.iter().find_map(|record| match &record.event {
        Event::ToolFinished { outcome, result, .. } if record.agent.is_root() => {
            Some((*outcome, result.output.to_string()))
        }
        _ => None,
    });
    let want = r#""agent \"child\" completed turn_limit; it had said: ""#;
    assert_eq!(result, Some((ToolOutcome::Error, want.into())));
}

/// Usage of other agents does not count towards a sub-agent's limit.
#[tokio::test(start_paused = true)]
async fn a_sub_agent_spends_its_own_budget() {
    let runtime = runtime();
    let spent = |input| Usage { input, ..Usage::default() };
    let mut child = named("child", vec![Say::new().chunks(["Done."]).usage(spent(10))], vec![]);
    child.limits.tokens = Some(100);
    let root = vec![calling("child").usage(spent(1000)), Say::new().chunks(["Thanks."])];
    let run = start(&runtime, vec![named("root", root, vec![call_agent()]), child]).await;
    let transcript = Transcript::fold(&finished(&runtime, run).await);
    assert_eq!(transcript.words(AgentNo(1)), "Done.");
    assert_eq!((transcript.usage.input, transcript.agents[&AgentNo(1)].usage.input), (1010, 10));
}

/// A standing approval for one agent's tool does not apply to another agent's tool of the same
/// name.
#[tokio::test(start_paused = true)]
async fn a_standing_approval_is_for_the_agent_that_asked() {
    let runtime = runtime();
    let risky = || {
        let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("risky", "") };
        from_function(spec, |_, _| async { Ok(ToolResult::new("dared")) })
    };
    let dares = || Say::new().call("risky", json!({}));
    let root = vec![dares(), dares(), calling("child"), Say::new().chunks(["Thanks."])];
    let child = vec![dares(), Say::new().chunks(["Dared."])];
    let defs = vec![
        named("root", root, vec![risky(), call_agent()]),
        named("child", child, vec![risky()]),
    ];
    let run = start(&runtime, defs).await;
    for question in [0, 1] {
        let asked = |event: &Event| matches!(event, Event::QuestionAsked(it) if it.question == QuestionId(question));
        read_until(&runtime, run, asked).await;
        let always = Answer::Approve { scope: Scope::Always, arguments: None };
        runtime.local().answer(run, QuestionId(question), always).await.unwrap();
    }
    let records = finished(&runtime, run).await;
    let asked = records.iter().filter(|it| matches!(it.event, Event::QuestionAsked(_)));
    assert_eq!(asked.map(|it| it.agent.0).collect::<Vec<_>>(), [0, 1]);
}
