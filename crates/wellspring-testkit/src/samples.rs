//! Named runs, one per situation. Each obeys the grammar.

use serde_json::json;
use wellspring_core::{
    Annotation, Answer, Content, ContentChange, Event, Extended, FailureKind, FileProduced, Form,
    InboxNo, Location, MediaSource, Outcome, OutputStream, PartKind, PlanEntry, PlanStatus,
    Priority, Record, RunRequest, RunsOn, Scope, Source, Stop, ToolCall, ToolContent, ToolKind,
    ToolMode, ToolOutcome, ToolResult, ToolSpec, ToolUpdate, Usage, UsageScope, VoidReason, Wait,
};

use crate::run_builder::RunBuilder;

/// A run and its name.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The name in snapshots.
    pub name: &'static str,
    /// The whole run.
    pub records: Vec<Record>,
}

/// Every sample.
#[must_use]
pub fn all() -> Vec<Sample> {
    let sample = |name, records| Sample { name, records };
    vec![
        sample("thoughts_then_text", thoughts_then_text()),
        sample("tool_with_progress", tool_with_progress()),
        sample("tool_with_content", tool_with_content()),
        sample("plan_and_questions", plan_and_questions()),
        sample("parallel_tools", parallel_tools()),
        sample("sub_agent", sub_agent()),
        sample("voided_attempt", voided_attempt()),
        sample("cancelled_in_text", cancelled_in_text()),
        sample("failed", failed()),
        sample("not_streaming", not_streaming()),
        sample("typed_result", typed_result()),
        sample("client_tool", client_tool()),
        sample("everything_else", everything_else()),
        sample("remote_agent", remote_agent()),
        sample("one_of_each", one_of_each()),
    ]
}

/// Thoughts, then an answer in several deltas, with characters that JSON escapes.
#[must_use]
pub fn thoughts_then_text() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "What is a spring?");
    run.turn();
    let thought = run.open(PartKind::Thought);
    run.delta(thought, "The user asks ").wait(300);
    run.delta(thought, "about \"springs\".\n").wait(200);
    run.close(thought);
    run.text(&["A spring is where ", "water leaves the ground", " \u{2014} slowly.\u{7}"]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A command with output in its own shape and as output parts, then the answer.
#[must_use]
pub fn tool_with_progress() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "What are the files in src?");
    run.turn();
    run.thought(&["I need to list the files."]);
    let tool = ToolCall {
        name: "run_shell_command".into(),
        title: Some("List src".into()),
        kind: ToolKind::Execute,
        runs_on: RunsOn::Here,
        ..ToolCall::default()
    };
    let call = run.call_of(tool, &[r#"{"command":"#, r#""ls src"}"#]);
    run.stop(Stop::ToolCalls).queue(call, 0).start(call);
    run.progress(call, json!({"subtype": "stdout_chunk", "content": "client\n"}));
    let stderr = run.open(PartKind::Output { call, stream: OutputStream::Stderr });
    run.delta(stderr, "ls: one warning\n").close(stderr);
    run.progress(call, json!("half way"));
    run.ok(call, json!({"stdout": "client\n", "stderr": "ls: one warning\n"}));
    run.turn();
    run.text(&["The `src` directory", " contains `client`."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A tool that shows text, a diff, a terminal, an image, a link and unsupported content.
#[must_use]
pub fn tool_with_content() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "Fix the typo.");
    run.turn();
    let tool = ToolCall { name: "edit".into(), kind: ToolKind::Edit, ..ToolCall::default() };
    let call = run.call_of(tool, &[r#"{"path":"a.txt"}"#]);
    run.stop(Stop::ToolCalls).start(call);
    let text = ToolContent::Content(Content::text("Opening a.txt"));
    run.update(
        call,
        ToolUpdate {
            title: Some("Editing a.txt".into()),
            locations: vec![Location { path: "a.txt".into(), line: Some(3) }],
            content: Some(ContentChange::Append(vec![text])),
            data: None,
        },
    );
    let shown = vec![
        ToolContent::Diff { path: "a.txt".into(), old_text: None, new_text: "the\n".into() },
        ToolContent::Terminal { terminal_id: "term-1".into() },
        ToolContent::Content(Content::Media {
            media_type: "image/png".into(),
            source: MediaSource::Data("iVBORw0=".into()),
            name: None,
        }),
        ToolContent::Content(Content::Link {
            uri: "file:///a.txt".into(),
            name: Some("a.txt".into()),
            media_type: None,
        }),
        ToolContent::Content(Content::Media {
            media_type: "audio/wav".into(),
            source: MediaSource::Data("UklGRg==".into()),
            name: None,
        }),
    ];
    let replace = Some(ContentChange::Replace(shown));
    run.update(call, ToolUpdate { content: replace, ..ToolUpdate::default() });
    let diff = ToolContent::Diff {
        path: "a.txt".into(),
        old_text: Some("teh\n".into()),
        new_text: "the\n".into(),
    };
    let result = ToolResult { output: json!("done"), content: vec![diff], ..ToolResult::default() };
    run.result(call, ToolOutcome::Ok, result);
    run.turn();
    run.text(&["Fixed."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A plan that grows; one call is approved with edited arguments, one is denied.
#[must_use]
pub fn plan_and_questions() -> Vec<Record> {
    fn plan(first: PlanStatus, second: PlanStatus) -> Event {
        Event::PlanUpdated {
            entries: vec![
                PlanEntry {
                    content: "Delete the cache".into(),
                    status: first,
                    priority: Priority::High,
                },
                PlanEntry { content: "Report".into(), status: second, priority: Priority::Medium },
            ],
        }
    }
    let mut run = RunBuilder::new("demo", "Clean up.");
    run.push(plan(PlanStatus::Pending, PlanStatus::Pending)).turn();
    let delete = run.call("delete", &[r#"{"path":"cache"}"#]);
    let wipe = run.call("delete", &[r#"{"path":"/"}"#]);
    run.stop(Stop::ToolCalls).queue(delete, 0).queue(wipe, 1);
    let first = run.ask(Some(delete), "Delete cache?", Form::Approve);
    let second = run.ask(Some(wipe), "Delete /?", Form::Approve);
    let waits = vec![Wait::Question(first), Wait::Question(second)];
    run.push(Event::RunPaused { waits });
    run.wait(5_000).push(Event::RunResumed { inbox: None, wire_run: None, amended: None });
    let edited = json!({"path": "cache/old"});
    run.answer(first, Answer::Approve { scope: Scope::Once, arguments: Some(edited.clone()) });
    run.answer(second, Answer::no("certainly not"));
    run.result(wipe, ToolOutcome::Denied, ToolResult::new("certainly not"));
    run.push(Event::ToolStarted {
        call: delete,
        mode: ToolMode::Sequential,
        arguments: Some(Box::new(edited)),
    });
    run.ok(delete, "deleted 3 files");
    run.push(plan(PlanStatus::Completed, PlanStatus::InProgress)).turn();
    run.text(&["Done."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// Two calls whose arguments and progress interleave; one fails, one times out.
#[must_use]
pub fn parallel_tools() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "Weather in Rome and Oslo?");
    run.turn();
    let rome = run.open(PartKind::call("weather"));
    let oslo = run.open(PartKind::call("weather"));
    run.delta(rome, r#"{"city":"#).delta(oslo, r#"{"city":"#);
    run.delta(rome, r#""Rome"}"#).delta(oslo, r#""Oslo"}"#);
    run.close(oslo).close(rome);
    // Idempotent tools may start before the turn ends.
    run.start(oslo).stop(Stop::ToolCalls).start(rome);
    run.progress(rome, json!({"percent": 50})).progress(oslo, json!({"percent": 10}));
    run.result(rome, ToolOutcome::Error, ToolResult::new("no such city"));
    run.result(oslo, ToolOutcome::TimedOut, ToolResult::new("no answer in 30 s"));
    run.turn();
    run.text(&["I could not find out."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A sub-agent with thoughts, a tool and its own sub-agent.
#[must_use]
pub fn sub_agent() -> Vec<Record> {
    let done = || Outcome::Completed { stop: Stop::EndTurn };
    let mut run = RunBuilder::new("demo", "Ask the librarian.");
    run.turn();
    let call = run.call("call-agent", &[r#"{"agentId":"librarian","input":"springs"}"#]);
    run.stop(Stop::ToolCalls).start(call);
    run.sub_agent("librarian", Some(call));
    run.turn();
    run.thought(&["Which shelf?"]);
    let nested = run.call("call-agent", &[r#"{"agentId":"clerk","input":"shelf"}"#]);
    run.stop(Stop::ToolCalls).start(nested);
    run.sub_agent("clerk", Some(nested));
    run.turn();
    run.text(&["Shelf 4."]);
    run.stop(Stop::EndTurn).sub_agent_done(done());
    run.ok(nested, "Shelf 4.").turn();
    run.text(&["It is on", " shelf 4."]);
    run.stop(Stop::EndTurn).sub_agent_done(done());
    run.ok(call, "It is on shelf 4.").turn();
    run.text(&["Shelf 4, says the librarian."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// An attempt that fails after a thought, some text and a complete call, and a successful one.
#[must_use]
pub fn voided_attempt() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "Tell me.");
    run.turn();
    let thought = run.thought(&["Hm."]);
    let text = run.open(PartKind::TEXT);
    run.delta(text, "Once upon a");
    let call = run.call("clock", &["{}"]);
    let cut = run.open(PartKind::call("clock"));
    run.delta(cut, "{\"zo");
    run.void(&[thought, text, call, cut], VoidReason::Restarted).turn();
    run.text(&["It is", " noon."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// Cancelled in the middle of a sentence, while a tool runs.
#[must_use]
pub fn cancelled_in_text() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "Write a book.");
    run.turn();
    let call = run.call("research", &["{}"]);
    let text = run.open(PartKind::TEXT);
    run.delta(text, "Chapter one. It").start(call);
    run.result(call, ToolOutcome::Interrupted, ToolResult::new("the run was cancelled"));
    run.close(text);
    run.cancel("enough")
}

/// The provider fails permanently in the middle of the second attempt.
#[must_use]
pub fn failed() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    let text = run.open(PartKind::TEXT);
    run.delta(text, "Hel").void(&[text], VoidReason::Restarted).turn();
    let text = run.open(PartKind::TEXT);
    run.delta(text, "Hell").void(&[text], VoidReason::Abandoned);
    run.fail(FailureKind::Unavailable, "anthropic: overloaded")
}

/// Turns that were not streamed.
#[must_use]
pub fn not_streaming() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "What time is it?");
    run.blocking_turn();
    let call = run.call("clock", &["{}"]);
    run.stop(Stop::ToolCalls).start(call).ok(call, "12:00").blocking_turn();
    run.text(&["It is noon."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A typed result that was invalid at first.
#[must_use]
pub fn typed_result() -> Vec<Record> {
    let request = RunRequest {
        result_schema: Some(json!({"type": "object", "required": ["score"]})),
        ..RunRequest::text("Rate it.")
    };
    let mut run = RunBuilder::of("demo", request);
    run.turn();
    let wrong = run.call("return_result", &[r#"{"score":"high"}"#]);
    run.stop(Stop::ToolCalls).start(wrong);
    let message = ToolResult::new("/score: \"high\" is not a number");
    run.result(wrong, ToolOutcome::Error, message);
    run.turn();
    let right = run.call("return_result", &[r#"{"score":7}"#]);
    run.stop(Stop::ToolCalls).start(right);
    run.push(Event::ResultReady { value: Box::new(json!({"score": 7})) });
    run.ok(right, "accepted").turn();
    run.text(&["Rated."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// A tool that runs in the page: the run pauses, and another owner resumes it.
#[must_use]
pub fn client_tool() -> Vec<Record> {
    let request = RunRequest {
        client_tools: vec![ToolSpec::new("pick_colour", "Lets the user pick a colour.")],
        ..RunRequest::text("Paint the wall.")
    };
    let mut run = RunBuilder::of("demo", request);
    run.turn();
    run.text(&["Which colour?"]);
    let tool =
        ToolCall { name: "pick_colour".into(), runs_on: RunsOn::Client, ..ToolCall::default() };
    let call = run.call_of(tool, &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.push(Event::RunPaused { waits: vec![Wait::Call(call)] }).wait(60_000);
    run.push(Event::RunAdopted { node: "node-2".into(), epoch: 2 });
    let resumed = Event::RunResumed {
        inbox: Some(InboxNo(1)),
        wire_run: Some("run-2".into()),
        amended: None,
    };
    run.push(resumed);
    let result = ToolResult { output: json!({"colour": "teal"}), ..ToolResult::default() };
    run.result(call, ToolOutcome::Ok, ToolResult { inbox: Some(InboxNo(1)), ..result });
    run.turn();
    run.text(&["Teal it is."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

/// State, sources, files, usage, steering and extended events.
#[must_use]
pub fn everything_else() -> Vec<Record> {
    let request =
        RunRequest { state: Some(json!({"done": 0})), ..RunRequest::text("Do everything.") };
    let mut run = RunBuilder::of("demo", request);
    run.push(Event::Attached {
        origin: "acme".into(),
        handle: Box::new(json!({"session": "s-1"})),
    });
    run.push(Event::StateSet { state: Box::new(json!({"done": 1})) });
    let patch = json!([{"op": "replace", "path": "/done", "value": 2}]);
    run.push(Event::StatePatched { patch: Box::new(patch) });
    run.push(Event::InputAccepted {
        inbox: InboxNo(1),
        content: vec![Content::text("And hurry.")],
        amended: None,
    });

    run.push(Event::InputApplied { inbox: InboxNo(1) }).turn();
    let echo = run.part(PartKind::Text { role: wellspring_core::Role::User }, &["And hurry."]);
    run.push(Event::PartAnnotated {
        part: echo,
        annotation: Box::new(Annotation::ProviderId("msg_1".into())),
    });
    run.part(
        PartKind::Opaque(Box::new(wellspring_core::Opaque {
            origin: "acme".into(),
            raw: json!({"blob": "x"}),
        })),
        &[],
    );
    run.text(&["All done."]);
    run.push(Event::SourceCited(Box::new(Source {
        url: Some("https://example.com/springs".into()),
        title: Some("Springs".into()),
        ..Source::default()
    })));
    run.push(Event::FileProduced(Box::new(FileProduced {
        media_type: "text/csv".into(),
        source: MediaSource::Url("https://example.com/a.csv".into()),
        name: Some("a.csv".into()),
    })));
    run.push(Event::UsageReported(Box::new(Usage {
        scope: UsageScope::Run,
        input: 5,
        output: 6,
        ..Usage::default()
    })));
    run.push(Event::Extended(Box::new(Extended {
        origin: "acme".into(),
        name: "mood".into(),
        value: json!("cheerful"),
    })));
    run.stop(Stop::MaxTokens);
    run.finish(Outcome::Completed { stop: Stop::MaxTokens })
}

/// A remote agent's run: no turns, its own tools, and text that was voided and written again.
#[must_use]
pub fn remote_agent() -> Vec<Record> {
    let mut run = RunBuilder::new("claude", "Look around.");
    run.thought(&["Let me look."]);
    run.text(&["Looking."]);
    let tool = ToolCall {
        name: "Read".into(),
        title: Some("Read README".into()),
        kind: ToolKind::Read,
        runs_on: RunsOn::Agent,
        ..ToolCall::default()
    };
    let call = run.open(PartKind::ToolCall(Box::new(tool)));
    run.delta(call, r#"{"file":"README"}"#).close(call);
    let content = vec![ToolContent::Content(Content::text("# Hello"))];
    let result = ToolResult { output: json!("# Hello"), content, ..ToolResult::default() };
    run.result(call, ToolOutcome::Ok, result);
    let draft = run.open(PartKind::TEXT);
    run.delta(draft, "A read").void(&[draft], VoidReason::Replaced);
    run.text(&["A README."]);
    run.complete()
}

/// The run that the documentation shows in every dialect: short, with most kinds of events.
#[must_use]
pub fn one_of_each() -> Vec<Record> {
    let mut run = RunBuilder::new("demo", "What time is it in Rome?");
    run.turn();
    let thought = run.open(PartKind::Thought);
    run.delta(thought, "I should ask the clock.").wait(400).close(thought);
    run.push(Event::PlanUpdated {
        entries: vec![PlanEntry {
            content: "Ask the clock".into(),
            status: PlanStatus::InProgress,
            priority: Priority::Medium,
        }],
    });
    let tool = ToolCall {
        name: "clock".into(),
        title: Some("Look at the clock".into()),
        kind: ToolKind::Fetch,
        runs_on: RunsOn::Here,
        ..ToolCall::default()
    };
    let call = run.call_of(tool, &[r#"{"zone":"#, r#""Rome"}"#]);
    run.stop(Stop::ToolCalls).queue(call, 0).start(call);
    run.progress(call, json!("winding up"));
    let content = vec![ToolContent::Content(Content::text("12:00"))];
    run.result(
        call,
        ToolOutcome::Ok,
        ToolResult { output: json!("12:00"), content, ..ToolResult::default() },
    );
    run.turn();
    let text = run.open(PartKind::TEXT);
    run.delta(text, "It is ele").void(&[text], VoidReason::Restarted).turn();
    run.text(&["It is", " noon."]);
    run.stop(Stop::EndTurn);
    run.complete()
}

#[cfg(test)]
mod tests {
    use wellspring_core::Checker;

    #[test]
    fn every_sample_keeps_the_grammar() {
        for sample in super::all() {
            let outline = Checker::check(&sample.records);
            assert!(outline.is_ok_and(|outline| outline.finished), "{}", sample.name);
        }
    }
}
