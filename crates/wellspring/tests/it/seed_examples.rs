//! The examples of the documents that this library follows, line for line.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring::agent_event::{AgentEvent, AgentEvents, ToolEvent};
use wellspring::prelude::*;
use wellspring::thought_event::PlanEntry;
use wellspring::tools::{NoArguments, function, update_plan};
use wellspring::{
    Message, RuntimeUi, ToolResult, ToolSpec, Turn, TurnConfig, TurnEvent, TurnState,
};

use crate::kit::soon;

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Analysis {
    files: u32,
}

fn analysis() -> Say {
    Say::new().thought("Many files.").call("return_result", json!({"files": 3}))
}

/// `const result = await agent.think(schema).text("...").run();`
#[tokio::test(start_paused = true)]
async fn run_gives_the_result() {
    let agent = Agent::model(Scripted::new([analysis()]));
    let result = soon(agent.think::<Analysis>().text("...").run()).await.unwrap();
    assert_eq!(result, Analysis { files: 3 });
}

/// "Streaming reasoning to the terminal".
#[tokio::test(start_paused = true)]
async fn streaming_reasoning() {
    let agent = Agent::model(Scripted::new([analysis()]));
    let mut stderr = String::new();
    let mut stream = agent.think::<Analysis>().text("Analyze this codebase").stream();
    while let Some(event) = soon(stream.next()).await {
        if let ThoughtEvent::Thought { text } = event {
            stderr.push_str(&text);
        }
    }
    let result = soon(stream.result()).await.unwrap();
    assert_eq!((&*stderr, result.files), ("Many files.", 3));
}

/// Reads a file.
#[derive(Deserialize, JsonSchema)]
struct ReadFile {
    path: String,
}

async fn read_file(input: ReadFile, _: Context) -> Result<String, ToolError> {
    Ok(format!("the text of {}", input.path))
}

/// The lines on the example's screen.
#[derive(Default)]
struct Ui {
    thinking: String,
    activity: BTreeMap<String, (String, Option<ToolKind>)>,
    cleared: usize,
    plan: Vec<PlanEntry>,
}

/// "Rich progress display".
#[tokio::test(start_paused = true)]
async fn rich_progress_display() {
    let plan =
        json!({"entries": [{"content": "Read", "status": "in_progress", "priority": "high"}]});
    let model = Scripted::new([
        Say::new()
            .thought("I must look.")
            .call("update_plan", plan)
            .call("read_file", json!({"path": "lib.rs"})),
        analysis(),
    ]);
    let mut ui = Ui::default();
    let mut stream = Agent::model(model)
        .tool(update_plan())
        .think::<Analysis>()
        .text("Refactor this module")
        .tool(function("read_file", "Read a file", read_file).kind(ToolKind::Read))
        .stream();
    while let Some(event) = soon(stream.try_next()).await.unwrap() {
        match event {
            ThoughtEvent::Thought { text } => ui.thinking.push_str(&text),
            ThoughtEvent::ToolStart { id, title, kind } => {
                ui.activity.insert(id, (title, kind));
            }
            ThoughtEvent::ToolDone { id, .. } => {
                ui.cleared += usize::from(ui.activity.contains_key(&id));
            }
            ThoughtEvent::Plan { entries } => ui.plan = entries,
            ThoughtEvent::Message { .. } | ThoughtEvent::ToolUpdate { .. } => {}
        }
    }
    assert_eq!(ui.thinking, "I must look.Many files.");
    let shown: Vec<_> = ui.activity.into_values().collect();
    assert!(shown.contains(&("read_file".into(), Some(ToolKind::Read))), "{shown:?}");
    assert_eq!((ui.cleared, &*ui.plan[0].content), (2, "Read"));
}

/// "Single Merged Stream" was rejected: the call that hands over the result is not among the
/// events, and neither is the result.
#[tokio::test(start_paused = true)]
async fn the_result_is_no_event() {
    let agent = Agent::model(Scripted::new([analysis()]));
    let stream = agent.think::<Analysis>().text("...").stream();
    let result = stream.result();
    let events: Vec<_> = soon(stream.collect()).await;
    let want = ["Many ", "files."].map(|text| ThoughtEvent::Thought { text: text.into() });
    assert_eq!((events, soon(result).await.unwrap()), (want.into(), Analysis { files: 3 }));
}

/// "Fire-and-forget (don't consume events)".
#[tokio::test(start_paused = true)]
async fn fire_and_forget() {
    let agent = Agent::model(Scripted::new([analysis()]));
    let stream = agent.think::<Analysis>().text("...").stream();
    assert_eq!(soon(stream.result()).await.unwrap(), Analysis { files: 3 });
}

/// "Early termination".
#[tokio::test(start_paused = true)]
async fn early_termination() {
    let agent = Agent::model(Scripted::new([analysis()]));
    let mut stream = agent.think::<Analysis>().text("...").stream();
    while let Some(event) = soon(stream.next()).await {
        if let ThoughtEvent::Thought { .. } = event {
            break;
        }
    }
    assert_eq!(soon(stream.result()).await.unwrap(), Analysis { files: 3 });
}

/// "Cancellation", `stream({ signal })`, and "Event Filtering", `stream({ include })`.
#[tokio::test(start_paused = true)]
async fn cancellation_and_filtering() {
    let controller = CancellationToken::new();
    let agent = Agent::model(Scripted::new([Say::new().text("x").hang()]));
    let stream = agent.think::<Analysis>().text("...").signal(controller.clone()).stream();
    controller.cancel();
    assert!(matches!(soon(stream.result()).await, Err(ThinkError::Cancelled { .. })));

    let agent = Agent::model(Scripted::new([analysis().chunks(["Hm."])]));
    let kinds = [ThoughtKind::Thought, ThoughtKind::Plan];
    let stream = agent.think::<Analysis>().text("...").include(kinds).stream();
    let events: Vec<_> = soon(stream.collect()).await;
    assert!(
        !events.is_empty()
            && events.iter().all(|event| matches!(event, ThoughtEvent::Thought { .. }))
    );
}

/// `WorkerRuntime.run()` over `Turn`s, with a screen, a queue of tools and totals.
#[tokio::test(start_paused = true)]
async fn a_worker_runtime_of_ones_own() {
    #[derive(Default)]
    struct Screen(Vec<String>);

    impl RuntimeUi for Screen {
        fn start_streaming(&mut self, request_id: &str) {
            self.0.push(format!("start {request_id}"));
        }

        fn append_streaming(&mut self, request_id: &str, delta: &str) {
            self.0.push(format!("append {request_id} {delta}"));
        }

        fn end_streaming(&mut self, request_id: &str, full_text: &str) {
            self.0.push(format!("end {request_id} {full_text}"));
        }
    }

    let usage = wellspring::Usage { input: 3, output: 5, ..Default::default() };
    let model = Arc::new(Scripted::new([
        Say::new()
            .chunks(["Let me look."])
            .call("clock", json!({"tz": "UTC"}))
            .usage(usage.clone()),
        Say::new().chunks(["It is", " noon."]).usage(usage),
    ]));
    let mut ui = Screen::default();
    let mut messages = vec![Message::user("What time is it?")];
    let (mut total_input_tokens, mut total_output_tokens) = (0, 0);
    let mut response = None;
    for iteration in 0..10 {
        let request_id = format!("turn-{iteration}");
        let mut turn = Turn::new(TurnConfig::new(model.clone(), messages.clone()));
        assert_eq!(turn.state(), TurnState::Pending);
        ui.start_streaming(&request_id);
        let mut has_tool_calls = false;
        let mut events = turn.run();
        while let Some(event) = soon(events.next()).await {
            match event {
                TurnEvent::TextDelta { text } => ui.append_streaming(&request_id, &text),
                TurnEvent::TextDone { text } => ui.end_streaming(&request_id, &text),
                TurnEvent::ToolCall(call) => {
                    assert_eq!((&*call.name, &call.arguments), ("clock", &json!({"tz": "UTC"})));
                    assert!(!call.tool_call_id.is_empty());
                    has_tool_calls = true;
                }
                TurnEvent::Finished { usage, .. } => {
                    total_input_tokens += usage.as_ref().map_or(0, |usage| usage.input);
                    total_output_tokens += usage.as_ref().map_or(0, |usage| usage.output);
                }
                TurnEvent::Error(error) => panic!("{error}"),
            }
        }
        assert_eq!(turn.state(), TurnState::Complete);
        if !has_tool_calls {
            response = Some(turn.text().to_owned());
            break;
        }
        let results = turn.tool_calls().iter();
        let results = results.map(|call| (call.tool_call_id.clone(), Ok(ToolResult::new("12:00"))));
        let results = turn.results(results);
        messages.extend([turn.message(), results]);
    }
    assert_eq!(response.as_deref(), Some("It is noon."));
    assert_eq!((total_input_tokens, total_output_tokens), (6, 10));
    let want = [
        "start turn-0",
        "append turn-0 Let me look.",
        "end turn-0 Let me look.",
        "start turn-1",
        "append turn-1 It is",
        "append turn-1  noon.",
        "end turn-1 It is noon.",
    ];
    assert_eq!(ui.0, want);
}

/// `tools: hasTools ? getLLMTools(this.tools) : undefined`: the model is offered the tools of the
/// turn, and no others.
#[tokio::test(start_paused = true)]
async fn a_turn_is_given_its_tools() {
    let model = Arc::new(Scripted::with(|request| {
        let names: Vec<_> = request.tools.iter().map(|tool| &*tool.name).collect();
        Say::new().chunks([names.join(", ")])
    }));
    let text = async |tools: Vec<ToolSpec>| {
        let config = TurnConfig::new(model.clone(), [Message::user("?")]);
        let mut turn = Turn::new(TurnConfig { tools: tools.into(), ..config });
        let mut events = turn.run();
        while soon(events.next()).await.is_some() {}
        turn.text().to_owned()
    };
    assert_eq!(text(Vec::new()).await, "");
    let tools = vec![ToolSpec::new("clock", "Tells the time."), ToolSpec::new("map", "Shows.")];
    assert_eq!(text(tools).await, "clock, map");
}

/// `runBlocking()` without text: no `text_done`, the calls in the state `tool_execution`, then
/// `finished`.
#[tokio::test(start_paused = true)]
async fn a_blocking_turn_with_calls_only() {
    let model = Arc::new(Scripted::new([Say::new().call("clock", json!({"tz": "UTC"}))]));
    let config = TurnConfig::new(model, [Message::user("What time is it?")]);
    let mut turn = Turn::new(TurnConfig { streaming: false, ..config });
    let mut seen = Vec::new();
    let mut events = turn.run();
    while let Some(event) = soon(events.next()).await {
        let event = match event {
            TurnEvent::TextDelta { .. } | TurnEvent::TextDone { .. } => "text".to_owned(),
            TurnEvent::ToolCall(call) => format!("{} {}", call.name, call.arguments),
            TurnEvent::Finished { stop, usage } => format!("{stop:?} {usage:?}"),
            TurnEvent::Error(error) => error.to_string(),
        };
        seen.push((event, events.state()));
    }
    let want = [
        (r#"clock {"tz":"UTC"}"#.to_owned(), TurnState::ToolExecution),
        ("ToolCalls None".to_owned(), TurnState::Complete),
    ];
    assert_eq!(seen, want);
}

/// `StreamingEvent`s as a screen would fold them: the text of each request, and which ones are
/// done.
#[tokio::test(start_paused = true)]
async fn streaming_events_of_a_run() {
    let model = Scripted::new([
        Say::new().chunks(["Let me", " look."]).call("read_file", json!({"path": "a"})),
        Say::new().chunks(["Done."]),
    ]);
    let stream = Agent::model(model).tool(read_file).say("Go.").stream();
    let mut shown = BTreeMap::<String, (String, bool)>::new();
    let mut events = stream.streaming_events();
    while let Some(event) = soon(events.next()).await {
        let (text, done) = shown.entry(event.request_id).or_default();
        assert!(!*done, "something follows the final event");
        text.push_str(&event.delta);
        *done = event.done;
    }
    let want = [("turn-0", "Let me look."), ("turn-1", "Done.")];
    assert_eq!(shown, want.map(|(id, text)| (id.to_owned(), (text.to_owned(), true))).into());
}

/// "Example Event Flow": what are the files in `src`?
#[tokio::test(start_paused = true)]
async fn the_example_event_flow() {
    #[derive(Deserialize, JsonSchema)]
    struct Command {
        command: String,
    }
    let shell = wellspring::event_tool("run_shell_command", "Runs.", |input: Command, _| {
        assert_eq!(input.command, "ls -l src");
        let tool_name = || "run_shell_command".to_owned();
        let data = json!({"subtype": "stdout_chunk", "content": "client server\n"});
        let output = r#"{"stdout":"client server","stderr":""}"#.to_owned();
        stream::iter([
            ToolEvent::Progress { tool_name: tool_name(), data },
            ToolEvent::Result { tool_name: tool_name(), output, is_error: None },
        ])
    });
    let model = Scripted::new([
        Say::new()
            .thought("I need to list the files in src directory...")
            .call("run_shell_command", json!({"command": "ls -l src"})),
        Say::new().thought("I have the list of files.").chunks([
            "The `src`",
            " directory contains:",
            " `client` and `server`.",
        ]),
    ]);
    let stream = Agent::model(model).tool(shell).say("What are the files in `src`?").stream();
    let mut flow: Vec<Value> = Vec::new();
    let mut events = stream.agent_events();
    while let Some(event) = soon(events.next()).await {
        let event = serde_json::to_value(event).unwrap();
        // Thoughts come word by word; the document shows them whole.
        match flow.last_mut() {
            Some(last) if last["type"] == "thought" && event["type"] == "thought" => {
                let whole = format!(
                    "{}{}",
                    last["content"].as_str().unwrap(),
                    event["content"].as_str().unwrap()
                );
                last["content"] = whole.into();
            }
            _ => flow.push(event),
        }
    }
    let want = json!([
        {"type": "thought", "content": "I need to list the files in src directory..."},
        {"type": "tool_call", "toolName": "run_shell_command", "toolArgs": "{\"command\":\"ls -l src\"}"},
        {"type": "tool_progress", "toolName": "run_shell_command",
            "data": {"subtype": "stdout_chunk", "content": "client server\n"}},
        {"type": "tool_result", "toolName": "run_shell_command",
            "output": "{\"stdout\":\"client server\",\"stderr\":\"\"}"},
        {"type": "thought", "content": "I have the list of files."},
        {"type": "stream", "content": "The `src`"},
        {"type": "stream", "content": " directory contains:"},
        {"type": "stream", "content": " `client` and `server`."},
        {"type": "final"},
    ]);
    assert_eq!(Value::from(flow), want);
}

/// "Event Adaptation Flow": what a running tool yields is what its agent says, as
/// `adapt_tool_event` has it; data of any shape.
#[tokio::test(start_paused = true)]
async fn running_tools_go_through_adapt_tool_event() {
    let work = |is_error| {
        let tool_name = || "work".to_owned();
        let progress = |data| ToolEvent::Progress { tool_name: tool_name(), data };
        [
            progress(json!({"subtype": "stdout_chunk", "content": "file1.txt\n"})),
            progress(json!("Hello, how can I")),
            progress(json!({"subtype": "transfer_progress", "percent": 65})),
            ToolEvent::Result { tool_name: tool_name(), output: "it is so".into(), is_error },
        ]
    };
    let context = Context::create("trace-1", CancellationToken::new());
    for is_error in [None, Some(false), Some(true)] {
        let tool = wellspring::event_tool("work", "Works.", move |_: NoArguments, _| {
            stream::iter(work(is_error))
        });
        let model = Scripted::new([Say::new().call("work", json!({})), Say::new().text("Done.")]);
        let stream = Agent::model(model).tool(tool).say("Go.").stream();
        let events: Vec<_> = soon(stream.agent_events().collect()).await;
        let of_tool = |event: &AgentEvent| {
            matches!(event, AgentEvent::ToolProgress { .. } | AgentEvent::ToolResult { .. })
        };
        let json = |event: AgentEvent| serde_json::to_string(&event).unwrap();
        let said: Vec<_> = events.into_iter().filter(of_tool).map(json).collect();
        let adapt = |event| json(context.adapt_tool_event(context.tool_event(event)));
        assert_eq!(said, work(is_error).map(adapt));
    }
}

/// "Sub-Agent Calls": `CallAgentTool`, which forwards a selection of events, here thoughts too.
#[tokio::test(start_paused = true)]
async fn a_tool_that_wraps_a_sub_agent() {
    #[derive(Deserialize, JsonSchema)]
    struct CallAgent {
        input: String,
    }
    let poet = Agent::model(Scripted::new([Say::new()
        .thought("Flowers.")
        .chunks(["Roses", " are red."])]));
    let call_agent =
        wellspring::event_tool("call-agent", "Asks a poet.", move |input: CallAgent, _| {
            let tool_name = || "call-agent".to_owned();
            let events = poet.say(input.input).stream().agent_events();
            let progress = events.scan(String::new(), move |final_content, event| {
                let yielded = match event {
                    AgentEvent::Stream { content } => {
                        final_content.push_str(&content);
                        Some(ToolEvent::Progress { tool_name: tool_name(), data: content.into() })
                    }
                    AgentEvent::Thought { content } => {
                        let data = json!({"thought": content});
                        Some(ToolEvent::Progress { tool_name: tool_name(), data })
                    }
                    AgentEvent::Final => {
                        let output = final_content.clone();
                        Some(ToolEvent::Result { tool_name: tool_name(), output, is_error: None })
                    }
                    AgentEvent::Error { error: output } => Some(ToolEvent::Result {
                        tool_name: tool_name(),
                        output,
                        is_error: Some(true),
                    }),
                    AgentEvent::ToolCall { .. }
                    | AgentEvent::ToolProgress { .. }
                    | AgentEvent::ToolResult { .. } => None,
                };
                std::future::ready(Some(yielded))
            });
            progress.filter_map(std::future::ready)
        });
    let model = Scripted::new([
        Say::new().call("call-agent", json!({"input": "A line."})),
        Say::new().text("Done."),
    ]);
    let stream = Agent::model(model).tool(call_agent).say("A verse!").stream();
    let events: Vec<_> = soon(stream.agent_events().collect()).await;
    let data = events.iter().filter_map(|event| match event {
        AgentEvent::ToolProgress { data, .. } => Some(data.clone()),
        _ => None,
    });
    assert_eq!(
        data.collect::<Vec<_>>(),
        [json!({"thought": "Flowers."}), json!("Roses"), json!(" are red.")]
    );
    assert!(events.contains(&AgentEvent::ToolResult {
        tool_name: "call-agent".into(),
        output: "Roses are red.".into(),
        is_error: None,
    }));
}

/// The built-in sub-agents: text is progress, and thoughts are available to readers that request
/// them.
#[tokio::test(start_paused = true)]
async fn thoughts_of_a_built_in_sub_agent() {
    let poet = Agent::model(Scripted::new([Say::new().thought("Flowers.").chunks(["Roses."])]))
        .named("poet");
    let model = Scripted::new([
        Say::new().call("call-agent", json!({"agentId": "poet", "input": "A line."})),
        Say::new().text("Done."),
    ]);
    let stream = Agent::model(model).named("host").sub_agent(&poet).say("A verse!").stream();
    let dialect = AgentEvents::default().with_sub_agent_thoughts();
    let events: Vec<_> = soon(stream.agent_events_with(dialect).collect()).await;
    let data = events.iter().filter_map(|event| match event {
        AgentEvent::ToolProgress { data, .. } => Some(data.clone()),
        _ => None,
    });
    let want = [json!({"subtype": "thought", "content": "Flowers."}), json!("Roses.")];
    assert_eq!(data.collect::<Vec<_>>(), want);
}

/// Two tools of one name are an error, not a silent replacement.
#[tokio::test(start_paused = true)]
async fn a_duplicate_tool_is_an_error() {
    let agent = Agent::model(Scripted::new([Say::new().text("x")])).tool(read_file);
    let again = function("read_file", "Another.", async |_: NoArguments, _| Ok(()));
    let error = soon(agent.say("?").tool(again).run()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"two tools are named "read_file": rename one of them"#);
}

/// `?` on any error in a tool, and the iteration tells failure from success.
#[tokio::test(start_paused = true)]
async fn errors_of_tools_and_of_runs() {
    async fn broken(_: NoArguments, _: Context) -> Result<u32, ToolError> {
        let text = String::from_utf8(vec![b'4', b'x'])?;
        Ok(text.parse::<u32>()?)
    }
    let model = Scripted::new([Say::new().call("broken", json!({})), Say::new().text("Oh.")]);
    let stream = Agent::model(model).tool(broken).say("?").stream();
    let events: Vec<_> = soon(stream.agent_events().collect()).await;
    assert!(events.contains(&AgentEvent::ToolResult {
        tool_name: "broken".into(),
        output: "invalid digit found in string".into(),
        is_error: Some(true),
    }));

    let mut failing = Agent::model(Scripted::new([])).say("?").stream();
    let error = loop {
        match soon(failing.try_next()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it succeeded"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ThinkError::Failed { .. }), "{error:?}");
}
