//! Shared functions of these tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use wellspring_core::{
    AttemptStream, Checker, Event, Message, Model, ModelError, ModelSettings, Outcome, Record, Seq,
    Tool, ToolResult, ToolSpec, TurnRequest, render,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime, StartRun, Timeouts};
use wellspring_log::{Log, LogOptions, MemoryStore};
use wellspring_models::{Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses};
use wellspring_testkit::Answer;

/// A provider: its client, and its server's answers. One row per wire format.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// A client for a server at this address.
    pub(crate) model: fn(&str) -> Arc<dyn Model>,
    /// The type of a streamed answer.
    pub(crate) content_type: &'static str,
    /// The start of an answer: the word "Half", and half a call of the tool `touch`.
    pub(crate) begun: String,
    /// A whole answer: the word "Done".
    pub(crate) whole: String,
    /// An answer that calls `touch` with `{"what":"it"}`.
    pub(crate) call: String,
    /// The same in one piece.
    pub(crate) call_at_once: String,
    /// The event of an error in the middle of a stream.
    pub(crate) error: String,
    /// The body of an error.
    pub(crate) error_body: &'static str,
}

impl Provider {
    pub(crate) fn streams(&self, body: impl Into<Vec<u8>>) -> Answer {
        Answer::ok(self.content_type, body)
    }
}

pub(crate) fn providers() -> Vec<Provider> {
    vec![anthropic(), openai_chat(), openai_responses(), gemini(), ollama()]
}

fn anthropic() -> Provider {
    let sse = |events: &[&str]| -> String {
        events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect()
    };
    let start = r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":3,"output_tokens":1}}}"#;
    let text = |words: &str| {
        [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#
                .to_owned(),
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{words}"}}}}"#
            ),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        ]
    };
    let (half, done) = (text("Half"), text("Done"));
    let call = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"touch","input":{}}}"#;
    let arguments = |json: &str| {
        let json = Value::from(json).to_string();
        format!(
            r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{json}}}}}"#
        )
    };
    let (first, second) = (arguments(r#"{"what":"#), arguments(r#""it"}"#));
    let stop = |reason: &str| {
        [
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":7}}}}"#
            ),
            r#"{"type":"message_stop"}"#.to_owned(),
        ]
    };
    let (ended, wants) = (stop("end_turn"), stop("tool_use"));
    Provider {
        name: "anthropic",
        model: |url| Arc::new(Anthropic::keyless(url).unwrap().model("m")),
        content_type: "text/event-stream; charset=utf-8",
        begun: sse(&[start, &half[0], &half[1], &half[2], call, &first]),
        whole: sse(&[start, &done[0], &done[1], &done[2], &ended[0], &ended[1]]),
        call: sse(&[
            start, call, &first, &second, r#"{"type":"content_block_stop","index":1}"#, &wants[0], &wants[1],
        ]),
        call_at_once: r#"{"type":"message","model":"m","content":[{"type":"tool_use","id":"t1","name":"touch","input":{"what":"it"}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":7}}"#.to_owned(),
        error: sse(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]),
        error_body: r#"{"type":"error","error":{"type":"api_error","message":"Broken"}}"#,
    }
}

fn openai_chat() -> Provider {
    let chunk = |delta: &str, reason: &str| {
        format!(
            "data: {{\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n"
        )
    };
    let words = |text: &str| chunk(&format!(r#"{{"content":"{text}"}}"#), "null");
    let arguments = |more: &str, json: &str| {
        let json = Value::from(json).to_string();
        chunk(
            &format!(
                r#"{{"tool_calls":[{{"index":0{more},"function":{{"arguments":{json}{}}}}}]}}"#,
                if more.is_empty() { "" } else { r#","name":"touch""# }
            ),
            "null",
        )
    };
    let first = arguments(r#","id":"t1""#, r#"{"what":"#);
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n";
    Provider {
        name: "openai_chat",
        model: |url| Arc::new(OpenAiChat::keyless(url).unwrap().model("m")),
        content_type: "text/event-stream",
        begun: [words(""), words("Half"), first.clone()].concat(),
        whole: [words("Done"), chunk("{}", r#""stop""#), usage.to_owned()].concat(),
        call: [first, arguments("", r#""it"}"#), chunk("{}", r#""tool_calls""#), usage.to_owned()].concat(),
        call_at_once: r#"{"model":"m","choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"touch","arguments":"{\"what\":\"it\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":7}}"#.to_owned(),
        error: "data: {\"error\":{\"code\":503,\"message\":\"Overloaded\"}}\n\n".to_owned(),
        error_body: r#"{"error":{"message":"Broken","type":"server_error"}}"#,
    }
}

fn openai_responses() -> Provider {
    let event = |name: &str, members: &str| {
        format!("data: {{\"type\":\"response.{name}\",\"output_index\":0,{members}}}\n\n")
    };
    let words = |text: &str| {
        let item = r#""id":"msg_1","type":"message","role":"assistant""#;
        let content = format!(r#""content":[{{"type":"output_text","text":"{text}"}}]"#);
        [
            event("output_item.added", &format!(r#""item":{{{item},"content":[]}}"#)),
            event("output_text.delta", &format!(r#""content_index":0,"delta":"{text}""#)),
            event("output_item.done", &format!(r#""item":{{{item},{content}}}"#)),
        ]
        .concat()
    };
    // The call has another index than the text.
    let place = |event: String| event.replace("\"output_index\":0", "\"output_index\":1");
    let item = |status: &str, arguments: &str| {
        let arguments = Value::from(arguments).to_string();
        format!(
            r#""item":{{"id":"fc_1","type":"function_call","call_id":"t1","name":"touch","status":"{status}","arguments":{arguments}}}"#
        )
    };
    let delta = |json: &str| {
        place(event("function_call_arguments.delta", &format!(r#""delta":{}"#, Value::from(json))))
    };
    let call = place(event("output_item.added", &item("in_progress", "")));
    let whole_call = item("completed", r#"{"what":"it"}"#);
    let usage = r#""usage":{"input_tokens":3,"output_tokens":7}"#;
    let done = event("completed", &format!(r#""response":{{"status":"completed",{usage}}}"#));
    Provider {
        name: "openai_responses",
        model: |url| Arc::new(OpenAiResponses::keyless(url).unwrap().model("m")),
        content_type: "text/event-stream; charset=utf-8",
        begun: [words("Half"), call.clone(), delta(r#"{"what":"#)].concat(),
        whole: [words("Done"), done.clone()].concat(),
        call: [
            call,
            delta(r#"{"what":"#),
            delta(r#""it"}"#),
            place(event("output_item.done", &whole_call)),
            done,
        ]
        .concat(),
        call_at_once: format!(
            r#"{{"status":"completed","model":"m","output":[{}],{usage}}}"#,
            whole_call.trim_start_matches(r#""item":"#)
        ),
        error:
            "data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"Overloaded\"}\n\n"
                .to_owned(),
        error_body: r#"{"error":{"message":"Broken","type":"server_error"}}"#,
    }
}

fn gemini() -> Provider {
    let answer = |part: &str, more: &str| {
        format!(r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}}{more}"#)
    };
    let end = r#","finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":7},"modelVersion":"m"}"#;
    let chunk = |part: &str, more: &str| format!("data: {}\r\n\r\n", answer(part, more));
    let half = r#"{"functionCall":{"name":"touch","willContinue":true,"partialArgs":[{"jsonPath":"$.what","stringValue":"i","willContinue":true}]}}"#;
    let rest = r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.what","stringValue":"t"}]}}"#;
    Provider {
        name: "gemini",
        model: |url| Arc::new(Gemini::keyless(url).unwrap().model("m")),
        content_type: "text/event-stream",
        begun: [chunk(r#"{"text":"Half"}"#, "}]}"), chunk(half, "}]}")].concat(),
        whole: [chunk(r#"{"text":"Done"}"#, "}]}"), chunk(r#"{"text":""}"#, end)].concat(),
        call: [chunk(half, "}]}"), chunk(rest, "}]}"), chunk(r#"{"text":""}"#, end)].concat(),
        call_at_once: answer(r#"{"functionCall":{"name":"touch","args":{"what":"it"}}}"#, end),
        error: "data: {\"error\":{\"code\":503,\"message\":\"Overloaded\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n"
            .to_owned(),
        error_body: r#"{"error":{"code":500,"message":"Broken","status":"INTERNAL"}}"#,
    }
}

/// Its calls arrive complete, so there is no incomplete one.
fn ollama() -> Provider {
    let line = |message: &str, more: &str| {
        format!("{{\"model\":\"m\",\"message\":{{\"role\":\"assistant\",{message}}},{more}}}\n")
    };
    let words = |text: &str| line(&format!(r#""content":"{text}""#), r#""done":false"#);
    let end = r#""done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":7"#;
    let call =
        r#""content":"","tool_calls":[{"function":{"name":"touch","arguments":{"what":"it"}}}]"#;
    Provider {
        name: "ollama",
        model: |url| Arc::new(Ollama::keyless(url).unwrap().model("m")),
        content_type: "application/x-ndjson",
        begun: words("Half"),
        whole: [words("Done"), line(r#""content":"""#, end)].concat(),
        call: [line(call, r#""done":false"#), line(r#""content":"""#, end)].concat(),
        call_at_once: line(call, end),
        error: "{\"error\":\"Overloaded\"}\n".to_owned(),
        error_body: r#"{"error":"Broken"}"#,
    }
}

/// How long a server may be silent in these tests: far longer than loopback needs, and short
/// enough to wait for.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// An agent with one tool, `touch`, which counts how often it ran.
pub(crate) fn agent(model: Arc<dyn Model>, streaming: bool) -> (AgentDef, Arc<AtomicU32>) {
    let touched = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&touched);
    let mut spec = ToolSpec::new("touch", "Touches it.");
    spec.idempotent = true;
    let tool = from_function(spec, move |_: Value, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(ToolResult::new("touched")) }
    });
    let timeouts = Timeouts {
        connect: SILENCE,
        first_content: SILENCE,
        between_chunks: SILENCE,
        whole_answer: SILENCE,
        ..Timeouts::default()
    };
    let tools = vec![Arc::new(tool) as Arc<dyn Tool>];
    (AgentDef { tools, timeouts, streaming, ..AgentDef::model("agent", model) }, touched)
}

/// Runs an agent to its end and gives the checked records.
pub(crate) async fn play(def: AgentDef, input: &str) -> Vec<Record> {
    let runtime = Runtime::new(Log::new(Arc::new(MemoryStore::default()), LogOptions::default()));
    runtime.register(def);
    let run = runtime.local().start(StartRun::text("agent", input)).await.unwrap().run;
    let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
    let mut records: Vec<Record> = Vec::new();
    while let Some(frames) = cursor.next().await.unwrap() {
        records.extend(frames.iter().flat_map(|frame| frame.records().iter().cloned()));
        if records.last().is_some_and(|it| matches!(it.event, Event::RunFinished { .. })) {
            break;
        }
    }
    Checker::check(&records).unwrap_or_else(|wrong| panic!("{wrong}\n{}", render(&records)));
    records
}

pub(crate) fn outcome(records: &[Record]) -> &Outcome {
    let Event::RunFinished { outcome } = &records.last().unwrap().event else {
        panic!("the run has not ended")
    };
    outcome
}

/// A model that records its errors.
pub(crate) struct Remembering {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) errors: Arc<Mutex<Vec<String>>>,
}

impl Model for Remembering {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        async move {
            let errors = Arc::clone(&self.errors);
            let note = move |error: &ModelError| {
                let wait = error.wait().map_or(String::new(), |wait| format!(" (wait {wait:?})"));
                errors.lock().unwrap().push(format!("{:?}: {error}{wait}", error.kind()));
            };
            let stream = self.model.attempt(request).await.inspect_err(&note)?;
            Ok(stream.inspect_err(note).boxed())
        }
        .boxed()
    }
}

/// A request that says hello.
pub(crate) fn hello() -> TurnRequest {
    TurnRequest {
        model: None,
        instructions: "".into(),
        messages: [Message::user("Hello")].into(),
        tools: [].into(),
        streaming: true,
        settings: ModelSettings::default(),
    }
}
