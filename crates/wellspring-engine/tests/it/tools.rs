//! Calls: order, approval by policy, time limits, invalid arguments, panics, progress.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Answer, Approval, CancellationToken, Command, Context, Event, Message, QuestionId,
    Record, RunId, Scope, ToolError, ToolKind, ToolMode, ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{
    AgentDef, Editors, Limits, Policy, QueueRule, Rule, Runtime, StartRun, Timeouts, ToolOrder,
};
use wellspring_log::NewCommand;
use wellspring_models::{Gate, Say};

use crate::kit::{agent, echo, finished, play, read_until, runtime};

fn tool<F, Fut>(name: &str, run: F) -> FunctionTool
where
    F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolResult, ToolError>> + Send + 'static,
{
    from_function(ToolSpec::new(name, "a tool"), run)
}

/// The lines about tools.
fn tool_lines(records: &[Record]) -> String {
    let all = render(records);
    all.lines().filter(|line| line.starts_with("tool")).map(|line| format!("{line}\n")).collect()
}

fn two_turns(first: Say) -> [Say; 2] {
    [first, Say::new().chunks(["done"])]
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_run_together_and_results_keep_call_order() {
    let slow = tool("slow", |_, _| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(ToolResult::new("slow"))
    });
    let say = Say::new().call("slow", json!({})).call("echo", json!({"say": "fast"}));
    let runtime = runtime();
    runtime.register(agent(two_turns(say), [slow, echo()]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 queued at 0
    tool 1 queued at 1
    tool 0 started parallel
    tool 1 started parallel
    tool 1 finished ok "fast"
    tool 0 finished ok "slow"
    "#);
    let messages = runtime.local().wait(run).await.unwrap().messages(AgentNo::ROOT);
    let Message::Results { results } = &messages[2] else { panic!("{messages:?}") };
    let outputs: Vec<_> = results.iter().map(|result| result.result.output.clone()).collect();
    assert_eq!(outputs, [json!("slow"), json!("fast")]);
}

#[tokio::test(start_paused = true)]
async fn sequential_calls_run_one_by_one_by_priority() {
    let named = |name: &'static str, priority| {
        let run = move |_, _| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(ToolResult::new(name))
        };
        tool(name, run).sequential().priority(priority)
    };
    let say = Say::new().call("a", json!({})).call("b", json!({})).call("c", json!({}));
    let records = play(agent(two_turns(say), [named("a", 0), named("b", 7), named("c", 0)])).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 queued at 1
    tool 1 queued at 0
    tool 2 queued at 2
    tool 1 started sequential
    tool 1 finished ok "b"
    tool 2 queued at 1
    tool 0 started sequential
    tool 0 finished ok "a"
    tool 2 started sequential
    tool 2 finished ok "c"
    "#);
}

/// A model that writes and then reads in one turn reads what it wrote, also if the write needs
/// approval. Rules of the agent and of single calls decide which calls run alone.
#[tokio::test(start_paused = true)]
async fn a_read_waits_for_the_write_before_it() {
    let read = || tool("read", |_, _| async { Ok(ToolResult::new("read")) }).idempotent();
    let write = || {
        tool("write", |_, _| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(ToolResult::new("written"))
        })
    };
    let say = || Say::new().call("write", json!({})).call("read", json!({}));
    let as_called = play(agent(two_turns(say()), [write().sequential(), read()])).await;
    insta::assert_snapshot!(tool_lines(&as_called), @r#"
    tool 0 queued at 0
    tool 1 queued at 1
    tool 0 started sequential
    tool 0 finished ok "written"
    tool 1 started parallel
    tool 1 finished ok "read"
    "#);

    let order = |records: &[wellspring_core::Record]| {
        let lines = tool_lines(records);
        let at = |line: &str| lines.lines().position(|it| it.starts_with(line));
        (at("tool 1 started"), at("tool 0 started"))
    };
    let by_call = write().mode_by(|_| ToolMode::Sequential);
    let (reads, writes) = order(&play(agent(two_turns(say()), [by_call, read()])).await);
    assert!(reads > writes);
    let def = agent(two_turns(say()), [write(), read()]);
    let rule = QueueRule { mode: Some(ToolMode::Sequential), priority: None };
    let queue_rules = [("write".into(), rule)].into();
    let (reads, writes) = order(&play(AgentDef { queue_rules, ..def }).await);
    assert!(reads > writes);
    let def = agent(two_turns(say()), [write().sequential(), read()]);
    let tool_order = ToolOrder::ParallelFirst;
    let (reads, writes) = order(&play(AgentDef { tool_order, ..def }).await);
    assert!(reads < writes);
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_run_all_its_tools_one_by_one() {
    let say = Say::new().call("echo", json!({"say": 1})).call("echo", json!({"say": 2}));
    let def = agent(two_turns(say), [echo()]);
    let records = play(AgentDef { queue: ToolMode::Sequential, ..def }).await;
    insta::assert_snapshot!(tool_lines(&records), @"
    tool 0 queued at 0
    tool 1 queued at 1
    tool 0 started sequential
    tool 0 finished ok 1
    tool 1 started sequential
    tool 1 finished ok 2
    ");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_tool_starts_before_its_turn_has_ended() {
    let gate = Gate::new();
    let early = tool("early", |_, _| async { Ok(ToolResult::new("ready")) }).idempotent();
    let say = Say::new().call("early", json!({})).gate(&gate).chunks(["meanwhile"]);
    let runtime = runtime();
    runtime.register(agent(two_turns(say), [early]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    // The model is held at the gate in the middle of its turn, and the result is already there.
    read_until(&runtime, run, |event| matches!(event, Event::ToolFinished { .. })).await;
    gate.open();
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call early
    part 0 delta "{}"
    part 0 finished
    tool 0 started parallel
    tool 0 finished ok "ready"
    part 1 started text
    part 1 delta "meanwhile"
    part 1 finished
    turn finished tool_calls
    turn 2.1 started with scripted
    part 2 started text
    part 2 delta "done"
    part 2 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_run_tells_the_model_why() {
    let strict = from_function(
        ToolSpec {
            parameters: json!({
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            })
            .into(),
            ..ToolSpec::new("strict", "wants a number")
        },
        |_, _| async { Ok(ToolResult::new("fine")) },
    );
    let broken = tool("broken", |_, _| async { Err(ToolError::new("the disk is on fire")) });
    let panics = tool("panics", |_, _| async { panic!("oh no") });
    let say = Say::new()
        .call("nobody", json!({}))
        .call("strict", json!({"n": "one"}))
        .call_fragments("strict", ["{\"n\":"])
        .call("broken", json!({}))
        .call("panics", json!({}))
        .call("broken", json!([1]))
        .call("broken", json!(null));
    let records = play(agent(two_turns(say), [strict, broken, panics])).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 finished error "there is no tool \"nobody\"; there are: strict, broken, panics"
    tool 1 finished error "the arguments do not fit strict: /n: value is not of type \"integer\""
    tool 2 finished error "the arguments of strict are not valid JSON: {\"n\":"
    tool 5 finished error "the arguments of broken must be a JSON object, but are: [1]"
    tool 6 finished error "the arguments of broken must be a JSON object, but are: null"
    tool 3 queued at 0
    tool 4 queued at 1
    tool 3 started parallel
    tool 3 finished error "the disk is on fire"
    tool 4 started parallel
    tool 4 finished error "the tool panicked: oh no"
    "#);
}

/// Edited arguments are checked against the policy and the schema, both when the answer arrives and
/// when the call runs.
#[tokio::test(start_paused = true)]
async fn nobody_can_edit_a_call_into_what_the_policy_denies() {
    let deny = Rule::tool("echo").argument("say", "rm .*").unwrap().decide(Approval::Deny);
    let ask = Rule::tool("echo").decide(Approval::Ask);
    let policy = Policy::default().rule(deny).rule(ask);
    let refused = [
        (Editors::Approvers, Some(json!({"say": "rm -rf /"}))),
        // The rule cannot read this value, so it denies the call.
        (Editors::Approvers, Some(json!({"say": ["rm", "-rf", "/"]}))),
        (Editors::Approvers, Some(json!("rm -rf /"))),
        (Editors::Nobody, Some(json!({"say": "ls -l"}))),
        (Editors::Named(vec!["eve".into()]), Some(json!({"say": "ls -l"}))),
    ];
    let mut told = Vec::new();
    for (editors, arguments) in refused {
        let def = agent(two_turns(Say::new().call("echo", json!({"say": "ls"}))), [echo()]);
        let runtime = runtime();
        runtime.register(AgentDef { policy: policy.clone(), editors, ..def });
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
        let edited = Answer::Approve { scope: Scope::Once, arguments };
        let error = runtime.local().answer(run, QuestionId(0), edited.clone()).await.unwrap_err();
        told.push(error.to_string());
        // An answer that another process put into the inbox unchecked has no effect either.
        put_unchecked(&runtime, run, edited).await;
        // If that answer was ignored, this one ends the run; otherwise it comes too late.
        put_unchecked(&runtime, run, Answer::NO).await;
        let records = finished(&runtime, run).await;
        assert!(!records.iter().any(|it| matches!(it.event, Event::ToolStarted { .. })));
    }
    let reasons = [
        "the policy denies the edited arguments",
        "the policy denies the edited arguments",
        "are not valid JSON",
        "may not edit arguments for agent agent",
        "may not edit arguments for agent agent",
    ];
    for (told, reason) in told.iter().zip(reasons) {
        assert!(told.contains(reason), "{told}");
    }
}

/// Answers the first question without any checks, as a faulty process would.
async fn put_unchecked(runtime: &Runtime, run: RunId, answer: Answer) {
    let key = format!("{answer:?}").into();
    let (question, by) = (QuestionId(0), Some("local".into()));
    let command = Command::Answer { question, answer, by, wire_run: None };
    let commands = vec![NewCommand { key, command, audit: None }];
    let _ = runtime.log().send(run, commands).await;
    runtime.resume(run).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_denies_by_argument() {
    let def = agent(
        two_turns(
            Say::new().call("echo", json!({"say": "rm -rf"})).call("echo", json!({"say": "ls"})),
        ),
        [echo()],
    );
    let rule = Rule::tool("ec*").argument("say", r"rm\b.*").unwrap().decide(Approval::Deny);
    let records = play(AgentDef { policy: Policy::default().rule(rule), ..def }).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 finished denied "the policy does not allow this call"
    tool 1 queued at 0
    tool 1 started parallel
    tool 1 finished ok "ls"
    "#);
}

#[tokio::test(start_paused = true)]
async fn progress_refreshes_the_idle_limit_and_silence_ends_the_call() {
    let busy = tool("busy", |_, cx: Context| async move {
        for step in 1..=3 {
            tokio::time::sleep(Duration::from_secs(8)).await;
            cx.progress(json!({"step": step})).await;
        }
        Ok(ToolResult::new("finished"))
    });
    let stuck = tool("stuck", |_, _| async { std::future::pending().await });
    let endless = tool("endless", |_, cx: Context| async move {
        loop {
            tokio::time::sleep(Duration::from_secs(9)).await;
            cx.progress("still here").await;
        }
    });
    let say =
        Say::new().call("busy", json!({})).call("stuck", json!({})).call("endless", json!({}));
    let def = agent(two_turns(say), [busy, stuck, endless]);
    let timeouts = Timeouts {
        tool_idle: Duration::from_secs(10),
        tool_total: Duration::from_secs(30),
        ..Timeouts::default()
    };
    let records = play(AgentDef { timeouts, ..def }).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 queued at 0
    tool 1 queued at 1
    tool 2 queued at 2
    tool 0 started parallel
    tool 1 started parallel
    tool 2 started parallel
    tool 0 updated {"data":{"step":1}}
    tool 2 updated {"data":"still here"}
    tool 1 finished timed_out "timed out: it made no progress; it may have taken effect"
    tool 0 updated {"data":{"step":2}}
    tool 2 updated {"data":"still here"}
    tool 0 updated {"data":{"step":3}}
    tool 0 finished ok "finished"
    tool 2 updated {"data":"still here"}
    tool 2 finished timed_out "timed out: it took longer than it may; it may have taken effect"
    "#);
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_after_its_result_is_not_a_fact() {
    let signal = CancellationToken::new();
    let late = signal.clone();
    let chatty = tool("chatty", move |_, cx: Context| {
        let late = late.clone();
        async move {
            tokio::spawn(async move {
                cx.signal().cancelled().await;
                cx.progress("too late").await;
                late.cancel();
            });
            std::future::pending().await
        }
    });
    let def = agent(two_turns(Say::new().call("chatty", json!({}))), [chatty]);
    let timeouts = Timeouts { tool_idle: Duration::from_secs(1), ..Timeouts::default() };
    let records = play(AgentDef { timeouts, ..def }).await;
    signal.cancelled().await;
    // Progress may arrive while the call is open, or within the grace period; never after the
    // result.
    let finished = records.iter().position(|r| matches!(r.event, Event::ToolFinished { .. }));
    let updated = records.iter().rposition(|r| matches!(r.event, Event::ToolUpdated { .. }));
    assert!(updated < finished, "{}", render(&records));
}

#[tokio::test(start_paused = true)]
async fn a_result_or_a_report_too_large_to_keep_says_so() {
    let large = || "x".repeat(wellspring_engine::TOOL_BYTES_MAX);
    let greedy = tool("greedy", move |_, cx: Context| async move {
        cx.progress(large()).await;
        Ok(ToolResult::new(large()))
    });
    let records = play(agent(two_turns(Say::new().call("greedy", json!({}))), [greedy])).await;
    insta::assert_snapshot!(tool_lines(&records), @r#"
    tool 0 queued at 0
    tool 0 started parallel
    tool 0 updated {"data":"progress of 4194315 bytes was too large to be kept"}
    tool 0 finished error "the result has 4194317 bytes, and at most 4194304 can be kept; ask for less at a time"
    "#);
}

#[tokio::test(start_paused = true)]
async fn no_more_tools_at_once_than_allowed() {
    let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = {
        let (most, running) = (Arc::clone(&most), Arc::clone(&running));
        tool("count", move |_, _| {
            let (most, running) = (Arc::clone(&most), Arc::clone(&running));
            async move {
                use std::sync::atomic::Ordering::SeqCst;
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, SeqCst);
                Ok(ToolResult::new("counted"))
            }
        })
    };
    let say = (0..9).fold(Say::new(), |say, _| say.call("count", json!({})));
    let def = agent(two_turns(say), [counting]);
    play(AgentDef { limits: Limits { tools_at_once: 3, ..Limits::default() }, ..def }).await;
    assert_eq!(most.load(std::sync::atomic::Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_context_knows_its_call() {
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let looking = {
        let seen = Arc::clone(&seen);
        tool("look", move |_, cx: Context| {
            *seen.lock().unwrap() = format!(
                "trace {} call {} messages {} deadline {}",
                cx.trace_id(),
                cx.call_id().unwrap().part,
                cx.messages().len(),
                cx.deadline().is_some(),
            );
            async { Ok(ToolResult::new("seen")) }
        })
    };
    let runtime = runtime();
    runtime.register(agent(two_turns(Say::new().call("look", json!({}))), [looking]));
    let mut start = StartRun::text("agent", "go");
    start.request.trace_id = Some("abc".into());
    let run = runtime.local().start(start).await.unwrap().run;
    finished(&runtime, run).await;
    assert_eq!(*seen.lock().unwrap(), "trace abc call 0 messages 1 deadline true");
}

#[tokio::test(start_paused = true)]
async fn what_can_change_things_asks_first() {
    for (kind, approval) in [
        (ToolKind::Read, Approval::Allow),
        (ToolKind::Execute, Approval::Ask),
        (ToolKind::Edit, Approval::Ask),
        (ToolKind::Delete, Approval::Ask),
        (ToolKind::Move, Approval::Ask),
        (ToolKind::Other, Approval::Allow),
    ] {
        let spec = ToolSpec { kind, ..ToolSpec::new("t", "") };
        assert_eq!(Policy::default().decide(&spec, &json!({})), approval, "{kind:?}");
    }
}
