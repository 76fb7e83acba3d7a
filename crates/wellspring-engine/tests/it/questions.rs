//! Questions: approval in all its forms, many at once, first answer wins, expiry, pauses.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{
    Answer, Approval, Ask, Choice, Context, Event, Form, PartId, QuestionId, Record, RunId, RunsOn,
    Scope, Seq, ToolError, ToolOutcome, ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, ControlError, Policy, Principal, Runtime, StartRun, Timeouts};
use wellspring_log::{MemoryStore, RunState};
use wellspring_models::{Say, Scripted};

use crate::kit::{START, agent, echo, finished, log, read_until, runtime, with_model};

fn asks(name: &str) -> FunctionTool {
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new(name, "asks first") };
    from_function(spec, |arguments: Value, _| async move { Ok(ToolResult::new(arguments)) })
}

fn script() -> [Say; 2] {
    [Say::new().call("risky", json!({"n": 1})), Say::new().chunks(["done"])]
}

fn is_paused(event: &Event) -> bool {
    matches!(event, Event::RunPaused { .. })
}

/// Starts a run whose questions `ann` and `ben` may answer too, and waits until it has paused for
/// its first questions.
async fn paused(def: AgentDef) -> (Runtime, RunId) {
    let runtime = runtime();
    runtime.register(AgentDef { approvers: vec!["ann".into(), "ben".into()], ..def });
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, is_paused).await;
    (runtime, run)
}

fn after_pause(records: &[Record]) -> String {
    let at = records.iter().position(|record| is_paused(&record.event)).unwrap();
    render(&records[at..])
}

#[tokio::test(start_paused = true)]
async fn a_yes_lets_the_call_run() {
    let (runtime, run) = paused(agent(script(), [asks("risky")])).await;
    let info = runtime.log().store().info(run).await.unwrap().unwrap();
    assert_eq!((info.state, info.owner), (RunState::Paused, None));
    assert!(!runtime.log().owner_is_here(run));
    let yes = Answer::Approve { scope: Scope::Once, arguments: None };
    runtime.control(Principal::local().named("ann")).answer(run, QuestionId(0), yes).await.unwrap();
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call risky
    part 0 delta "{\"n\":1}"
    part 0 finished
    turn finished tool_calls
    question 0 asked approve "Allow risky {\"n\":1}?"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    question 0 answered {"approve":{"scope":"once"}}
    tool 0 queued at 0
    tool 0 started parallel
    tool 0 finished ok {"n":1}
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "done"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_no_and_its_reason_reach_the_model() {
    let (runtime, run) = paused(agent(script(), [asks("risky")])).await;
    let no = Answer::no("not on a Friday");
    runtime.local().answer(run, QuestionId(0), no).await.unwrap();
    insta::assert_snapshot!(after_pause(&finished(&runtime, run).await), @r#"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    question 0 answered {"deny":{"reason":"not on a Friday"}}
    tool 0 finished denied "denied: not on a Friday"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "done"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_approver_may_edit_the_arguments() {
    let (runtime, run) = paused(agent(script(), [asks("risky")])).await;
    let yes = Answer::Approve { scope: Scope::Once, arguments: Some(json!({"n": 2})) };
    runtime.local().answer(run, QuestionId(0), yes).await.unwrap();
    insta::assert_snapshot!(after_pause(&finished(&runtime, run).await), @r#"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    question 0 answered {"approve":{"scope":"once","arguments":{"n":2}}}
    tool 0 queued at 0
    tool 0 started parallel with {"n":2}
    tool 0 finished ok {"n":2}
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "done"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_yes_for_longer_is_not_asked_again() {
    for (scope, elsewhere_asks) in
        [(Scope::Once, true), (Scope::Thread, true), (Scope::Always, false)]
    {
        let (runtime, run) = paused(agent(script(), [asks("risky")])).await;
        let yes = Answer::Approve { scope, arguments: None };
        runtime.local().answer(run, QuestionId(0), yes).await.unwrap();
        let records = finished(&runtime, run).await;
        let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
        for (thread, asks_again) in
            [(Some(started.thread), scope == Scope::Once), (None, elsewhere_asks)]
        {
            let start = StartRun { thread, ..StartRun::text("agent", "again") };
            let next = runtime.local().start(start).await.unwrap().run;
            let over =
                |event: &Event| is_paused(event) || matches!(event, Event::RunFinished { .. });
            let records = read_until(&runtime, next, over).await;
            let asked = records.iter().any(|r| matches!(r.event, Event::QuestionAsked(_)));
            assert_eq!(asked, asks_again, "{scope:?} {thread:?}\n{}", render(&records));
        }
    }
}

/// A standing approval applies to the principal that gave it and to the arguments that were shown.
/// It is listed and audited, and ends when it is revoked.
#[tokio::test(start_paused = true)]
async fn a_standing_approval_is_for_one_person_and_one_call() {
    let runtime = crate::kit::runtime();
    let asks_again = async |by: &str, n: u64| {
        let say = [Say::new().call("risky", json!({"n": n})), Say::new().chunks(["done"])];
        let def = AgentDef { approvers: vec!["ben".into()], ..agent(say, [asks("risky")]) };
        runtime.register(def);
        let control = runtime.control(Principal::local().named(by));
        let run = control.start(StartRun::text("agent", "go")).await.unwrap().run;
        let over = |event: &Event| is_paused(event) || matches!(event, Event::RunFinished { .. });
        let records = read_until(&runtime, run, over).await;
        records.iter().any(|it| matches!(it.event, Event::QuestionAsked(_))).then_some(run)
    };
    let run = asks_again("ann", 1).await.unwrap();
    let always = Answer::Approve { scope: Scope::Always, arguments: None };
    let ann = runtime.control(Principal::local().named("ann"));
    ann.answer(run, QuestionId(0), always).await.unwrap();
    finished(&runtime, run).await;
    let mut asked = Vec::new();
    for (by, n) in [("ann", 1), ("ann", 2), ("ben", 1)] {
        asked.push((by, n, asks_again(by, n).await.is_some()));
    }
    assert_eq!(asked, [("ann", 1, false), ("ann", 2, true), ("ben", 1, true)]);

    let listed = ann.approvals().await.unwrap();
    let [approval] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((approval.by.as_deref(), &*approval.tool), (Some("ann"), "risky"));
    assert_eq!((&approval.arguments, approval.thread, approval.run), (&json!({"n": 1}), None, run));
    let eve = runtime.control(Principal::local().named("eve").in_tenant("other"));
    assert_eq!(eve.approvals().await.unwrap(), []);
    assert!(!eve.revoke_approval(&approval.id()).await.unwrap());
    let ben = runtime.control(Principal::local().named("ben"));
    assert!(ben.revoke_approval(&approval.id()).await.unwrap());
    assert_eq!(ann.approvals().await.unwrap(), []);
    assert!(asks_again("ann", 1).await.is_some());
    let kept = ann.audit(None, 10).await.unwrap();
    let acts = kept.iter().map(|it| (&*it.act.by, &*it.act.did));
    let standing: Vec<_> = acts.filter(|(_, did)| did.ends_with("_approval")).collect();
    assert_eq!(standing, [("ben", "revoke_approval"), ("ann", "standing_approval")]);
}

#[tokio::test(start_paused = true)]
async fn many_questions_at_once_and_the_first_answer_wins() {
    let say = Say::new()
        .call("risky", json!({"n": 1}))
        .call("risky", json!({"n": 2}))
        .call("echo", json!({"say": "x"}));
    let (runtime, run) =
        paused(agent([say, Say::new().chunks(["done"])], [asks("risky"), echo()])).await;
    let yes = || Answer::Approve { scope: Scope::Once, arguments: None };
    let no = Answer::NO;
    let ann = runtime.control(Principal::local().named("ann"));
    let ben = runtime.control(Principal::local().named("ben"));
    let first = ann.answer(run, QuestionId(1), no);
    let second = ben.answer(run, QuestionId(1), yes());
    let (first, second) = tokio::join!(first, second);
    first.unwrap();
    let refused = |error: &ControlError| {
        matches!(error, ControlError::NoQuestion(_) | ControlError::AlreadyAnswered { .. })
    };
    assert!(second.as_ref().is_err_and(refused), "{second:?}");
    read_until(&runtime, run, |event| matches!(event, Event::QuestionAnswered(_))).await;
    runtime
        .control(Principal::local().named("ann"))
        .answer(run, QuestionId(0), yes())
        .await
        .unwrap();
    let records = finished(&runtime, run).await;
    let lines = render(&records);
    let interesting: Vec<_> = lines
        .lines()
        .filter(|line| {
            line.starts_with("question") || line.starts_with("tool") && line.contains("finished")
        })
        .collect();
    insta::assert_snapshot!(interesting.join("\n"), @r#"
    question 0 asked approve "Allow risky {\"n\":1}?"
    question 1 asked approve "Allow risky {\"n\":2}?"
    tool 2 finished ok "x"
    question 1 answered {"deny":{}}
    tool 1 finished denied "denied by the user"
    question 0 answered {"approve":{"scope":"once"}}
    tool 0 finished ok {"n":1}
    "#);
    let late = runtime.local().answer(run, QuestionId(0), yes()).await;
    assert!(matches!(late, Err(ControlError::Finished(_))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_only_from_those_who_have_a_say() {
    let runtime = runtime();
    let approvers = vec!["boss".into()];
    runtime.register(AgentDef { approvers, ..agent(script(), [asks("risky")]) });
    let ann = runtime.control(Principal::local().named("ann"));
    let run = ann.start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, is_paused).await;
    let yes = || Answer::Approve { scope: Scope::Once, arguments: None };
    for stranger in ["eve", "local"] {
        let refused = runtime
            .control(Principal::local().named(stranger))
            .answer(run, QuestionId(0), yes())
            .await;
        assert!(matches!(refused, Err(ControlError::NotAnApprover)), "{refused:?}");
    }
    runtime
        .control(Principal::local().named("boss"))
        .answer(run, QuestionId(0), yes())
        .await
        .unwrap();
    finished(&runtime, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_expires_while_nobody_owns_the_run() {
    let def = agent(script(), [asks("risky")]);
    let timeouts = Timeouts { question: Duration::from_secs(300), ..Timeouts::default() };
    let (runtime, run) = paused(AgentDef { timeouts, ..def }).await;
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(after_pause(&records), @r#"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    question 0 answered expired
    tool 0 finished denied "the call was not approved in time"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "done"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
    let ended = records.last().unwrap().at.since(START);
    assert!(ended >= Duration::from_secs(300), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_ask_and_is_not_run_twice_for_it() {
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let asking = from_function(ToolSpec::new("asking", "asks a person"), move |_, cx: Context| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            let choices = vec![
                Choice { id: "tea".into(), label: "Tea".into() },
                Choice { id: "coffee".into(), label: "Coffee".into() },
            ];
            let form = Form::Choose { choices, multiple: false };
            let answer = cx.ask(Ask::new("Which?", form)).await;
            match answer {
                Answer::Choose(chosen) => Ok(ToolResult::new(&*chosen[0])),
                other => Err(ToolError::new(format!("{other:?}"))),
            }
        }
    });
    let runtime = runtime();
    runtime.register(agent(
        [Say::new().call("asking", json!({})), Say::new().chunks(["ok"])],
        [asking],
    ));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    // The tool is in the middle of a call that cannot be repeated, so the run keeps its owner.
    assert!(runtime.log().owner_is_here(run));
    runtime.local().answer(run, QuestionId(0), Answer::Choose(vec!["tea".into()])).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(render(&records).contains(r#"finished ok "tea""#), "{}", render(&records));
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_tool_pauses_the_run_until_its_result_comes() {
    let runtime = runtime();
    runtime.register(agent(
        [Say::new().call("pick", json!({"of": 2})), Say::new().chunks(["thanks"])],
        [],
    ));
    let mut start = StartRun::text("agent", "go");
    let spec = ToolSpec { runs_on: RunsOn::Client, ..ToolSpec::new("pick", "in the page") };
    start.request.client_tools = vec![spec];
    let run = runtime.local().start(start).await.unwrap().run;
    read_until(&runtime, run, is_paused).await;
    let wrong =
        runtime.local().finish_call(run, PartId(7), ToolOutcome::Ok, ToolResult::new("x")).await;
    assert!(matches!(wrong, Err(ControlError::NoCall(_))), "{wrong:?}");
    let put =
        runtime.local().finish_call(run, PartId(0), ToolOutcome::Ok, ToolResult::new("blue")).await;
    assert!(!put.unwrap().existed);
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call pick on client
    part 0 delta "{\"of\":2}"
    part 0 finished
    turn finished tool_calls
    run paused for [{"call":0}]
    run adopted by one, epoch 1
    run resumed
    tool 0 finished ok "blue"
    turn 2.1 started with scripted
    part 1 started text
    part 1 delta "thanks"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_answer_supersedes_a_paused_run() {
    let model = Arc::new(Scripted::conversation([
        Say::new().call("risky", json!({})),
        Say::new().chunks(["something else"]),
    ]));
    let (runtime, run) = paused(with_model(model, [asks("risky")])).await;
    let records = read_until(&runtime, run, |_| true).await;
    let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
    let next = StartRun { thread: Some(started.thread), ..StartRun::text("agent", "never mind") };
    let next = runtime.local().start(next).await.unwrap().run;
    finished(&runtime, next).await;
    insta::assert_snapshot!(after_pause(&finished(&runtime, run).await), @r#"
    run paused for [{"question":0}]
    run adopted by one, epoch 1
    run resumed
    question 0 answered withdrawn
    tool 0 finished interrupted "not run: the run was cancelled first"
    run finished cancelled: superseded
    "#);
}

#[tokio::test(start_paused = true)]
async fn any_node_may_take_the_answer() {
    let store = Arc::new(MemoryStore::default());
    let one = Runtime::new(log(&store, "one"));
    let two = Runtime::new(log(&store, "two"));
    for runtime in [&one, &two] {
        runtime
            .register(AgentDef { policy: Policy::default(), ..agent(script(), [asks("risky")]) });
    }
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&one, run, is_paused).await;
    let yes = Answer::Approve { scope: Scope::Once, arguments: None };
    two.local().answer(run, QuestionId(0), yes).await.unwrap();
    let records = finished(&two, run).await;
    assert!(render(&records).contains("run adopted by two, epoch 1"), "{}", render(&records));
}

/// The answers race with the pause, so this is repeated many times, in real time and on two
/// threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_at_the_moment_of_a_pause_are_not_lost() {
    for _ in 0..100 {
        let runtime = runtime();
        let calls = Say::new().call("risky", json!({"n": 1})).call("risky", json!({"n": 2}));
        runtime.register(agent([calls, Say::new().chunks(["done"])], [asks("risky")]));
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(30), cursor.next()).await;
            let Some(frames) = next.expect("the run hangs").unwrap() else { break };
            for record in frames.iter().flat_map(|frame| frame.records()) {
                if let Event::QuestionAsked(question) = &record.event {
                    runtime.local().answer(run, question.question, Answer::yes()).await.unwrap();
                }
                if let Event::RunPaused { waits } = &record.event {
                    assert!(!waits.is_empty(), "there is nothing to wait for");
                }
            }
        }
        finished(&runtime, run).await;
    }
}
