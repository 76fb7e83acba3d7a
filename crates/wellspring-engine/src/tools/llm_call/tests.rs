use serde_json::json;
use wellspring_core::{CancellationToken, FailureKind, Tool as _, ToolResult};
use wellspring_models::{Failure, Gate, Say, Scripted};

use super::*;
use crate::tools::test_host::{Heard, RecordingHost};

fn tool(say: Say) -> FunctionTool {
    llm_call(Arc::new(Scripted::new([say])))
}

#[tokio::test]
async fn each_delta_is_progress_and_all_of_them_the_result() {
    let say = Say::new().thought("Hm.").text("Hello, how can I").text(" help?");
    let (heard, result) = RecordingHost::new().call(&tool(say), json!({"prompt": "Hi"})).await;
    let want = ["Hello, ", "how ", "can ", "I", " ", "help?"].map(Heard::progress);
    assert_eq!(heard, want);
    assert_eq!(result, Ok(ToolResult::new("Hello, how can I help?")));
}

#[tokio::test]
async fn the_model_is_asked_just_this() {
    let model = Scripted::with(|request| {
        Say::new().chunks([format!("{:?} {:?}", request.instructions, request.messages)])
    });
    let arguments = json!({"prompt": "Hi", "system": "Be brief."});
    let (_, result) = RecordingHost::new().call(&llm_call(Arc::new(model)), arguments).await;
    let want = format!("{:?} {:?}", "Be brief.", [Message::user("Hi")]);
    assert_eq!(result, Ok(ToolResult::new(want)));
}

#[tokio::test]
async fn an_end_that_is_none_is_an_error() {
    let big = "x".repeat(LLM_CALL_BYTES_MAX);
    for (say, want) in [
        (Say::new().text("Half an").break_off(), "the model broke off in the middle of its answer"),
        (
            Say::new().fail(Failure::new(FailureKind::Unavailable, "overloaded")),
            "the model failed: scripted: overloaded",
        ),
        (
            Say::new().fail(Failure::new(FailureKind::Refused, "no key")).connected(),
            "the model failed: scripted: no key",
        ),
        (
            Say::new().chunks(["Half an"]).stop(Stop::MaxTokens),
            "the model could not finish its answer: Half an",
        ),
        (Say::new().chunks(["No."]).stop(Stop::Refusal), "the model refused to answer: No."),
        (Say::new().call("clock", json!({})), "the model called a tool, but has none"),
        (Say::new().chunks([big.as_str(), "y"]), "the model wrote more than 1048576 bytes"),
    ] {
        let (_, result) = RecordingHost::new().call(&tool(say), json!({"prompt": "Hi"})).await;
        assert_eq!(result, Err(want.to_owned()));
    }
}

#[tokio::test]
async fn cancelling_ends_the_call() {
    let gate = Gate::new();
    let tool = tool(Say::new().text("Wait").gate(&gate).text("never"));
    let (host, signal) = (RecordingHost::new(), CancellationToken::new());
    let call = tool.call(json!({"prompt": "Hi"}), host.context_with(signal.clone()));
    let (result, ()) = futures::join!(call, async {
        gate.reached(1).await;
        signal.cancel();
    });
    assert_eq!(result.unwrap_err().to_string(), "cancelled before the model had answered");
    assert_eq!(host.heard(), [Heard::progress("Wait")]);
}
