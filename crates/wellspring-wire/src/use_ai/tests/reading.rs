//! How clients' messages are read.

use serde_json::{Value, json};
use wellspring_core::{
    Answer, Command, Content, Event, Form, MediaSource, Outline, Scope, ToolOutcome, Wait,
};
use wellspring_testkit::{RunBuilder, samples};

use crate::ag_ui::{Asked, Trust};
use crate::use_ai::{Answers, ClientMessage, MessageError};

fn read(message: &Value) -> Result<ClientMessage, MessageError> {
    ClientMessage::read(message.to_string().as_bytes())
}

fn refused(message: &Value) -> String {
    read(message).unwrap_err().to_string()
}

#[test]
fn every_message_is_read() {
    let run = json!({
        "type": "run_agent",
        "data": {
            "threadId": "t", "runId": "r", "state": {"page": 1},
            "messages": [{"id": "m", "role": "user", "content": "Hello?"}],
            "tools": [{"name": "look", "description": "Looks.", "parameters": {"type": "object"}}],
            "forwardedProps": {"agent": "poet", "mcpHeaders": {}},
        },
    });
    let ClientMessage::RunAgent(run) = read(&run).unwrap() else { panic!("a run") };
    assert_eq!((run.agent.as_deref(), &*run.input.run_id), (Some("poet"), "r"));
    let result = json!({
        "type": "tool_result",
        "data": {"messageId": "m", "toolCallId": "c", "content": "{}", "role": "tool"},
    });
    assert!(matches!(read(&result).unwrap(), ClientMessage::ToolResult(_)));
    let approval = json!({
        "type": "tool_approval_response",
        "data": {"toolCallId": "c", "approved": false, "reason": "no"},
    });
    assert!(matches!(read(&approval).unwrap(), ClientMessage::ToolApprovalResponse(_)));
    let feedback = json!({
        "type": "message_feedback",
        "data": {"messageId": "m", "traceId": "t", "feedback": "upvote"},
    });
    assert!(matches!(read(&feedback).unwrap(), ClientMessage::MessageFeedback(_)));
    let workflow = json!({
        "type": "run_workflow",
        "data": {"runner": "dify", "workflowId": "w", "inputs": {"a": 1}, "runId": "r", "threadId": "t"},
    });
    let ClientMessage::RunWorkflow(workflow) = read(&workflow).unwrap() else { panic!("one") };
    let request = workflow.request();
    assert_eq!(request.input, [Content::text(r#"{"a":1}"#)]);
    assert_eq!(request.wire.unwrap().run.as_deref(), Some("r"));
    for (data, run) in
        [(json!({"runId": "r"}), Some("r")), (json!("r"), Some("r")), (Value::Null, None)]
    {
        let ClientMessage::AbortRun(abort) = ClientMessage::abort(data).unwrap() else {
            panic!("one")
        };
        assert_eq!(abort.run_id.as_deref(), run);
    }
}

#[test]
fn images_and_files_are_read() {
    let parts = json!([
        {"type": "text", "text": "Look:"},
        {"type": "image", "url": "data:image/png;base64,AAAA"},
        {"type": "image", "url": "https://example.org/x.png"},
        {"type": "file", "url": "https://example.org/x.pdf", "mimeType": "application/pdf", "name": "x.pdf"},
    ]);
    let run = json!({
        "type": "run_agent",
        "data": {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": parts}]},
    });
    let ClientMessage::RunAgent(run) = read(&run).unwrap() else { panic!("a run") };
    let asked = Asked::read(&run.input, None, |_| false, Trust::User).unwrap();
    let Asked::Start(request) = asked else { panic!("a start") };
    let media = |media_type: &str, source: MediaSource, name: Option<&str>| Content::Media {
        media_type: media_type.into(),
        source,
        name: name.map(Into::into),
    };
    let said = vec![
        Content::text("Look:"),
        media("image/png", MediaSource::Data("AAAA".into()), None),
        media("image/*", MediaSource::Url("https://example.org/x.png".into()), None),
        media(
            "application/pdf",
            MediaSource::Url("https://example.org/x.pdf".into()),
            Some("x.pdf"),
        ),
    ];
    assert_eq!(request.input, said);
    // In the other direction, the client gets the request as it sent it.
    let records = RunBuilder::of("demo", *request).records();
    let snapshot = &super::events(&records)[1];
    assert_eq!(
        snapshot["messages"][0]["content"][1],
        json!({"type": "image", "url": "data:image/png;base64,AAAA"})
    );
    assert_eq!(snapshot["messages"][0]["content"][3], parts_file());
}

fn parts_file() -> Value {
    json!({"type": "file", "url": "https://example.org/x.pdf", "mimeType": "application/pdf", "name": "x.pdf"})
}

#[test]
fn what_is_not_a_message_is_refused_by_name() {
    let said = [
        json!([]),
        json!({"type": 1}),
        json!({"type": "dance", "data": {}}),
        json!({"type": "run_agent"}),
        json!({"type": "run_agent", "data": {"threadId": "t", "runId": "r", "messages": [{"role": "nobody"}]}}),
        json!({"type": "tool_result", "data": {"toolCallId": 3}}),
        json!({"type": "tool_approval_response", "data": {"toolCallId": "c", "approved": "yes"}}),
        json!({"type": "abort_run", "data": [1]}),
    ];
    let said: Vec<String> = said.iter().map(refused).collect();
    let garbage = ClientMessage::read(b"\xff{").unwrap_err().to_string();
    insta::assert_snapshot!(said.join("\n") + "\n" + &garbage, @r#"
    the message is not an object with a `type` and `data`
    the message is not an object with a `type` and `data`
    unknown message type "dance": known are run_agent, tool_result, abort_run, tool_approval_response, message_feedback and run_workflow
    failed to read the message: invalid type: null, expected struct RunAgentInput
    failed to read the message: messages[0]: unknown variant `nobody`, expected one of `developer`, `system`, `assistant`, `user`, `tool`, `activity`, `reasoning`
    failed to read the message: invalid type: integer `3`, expected a string
    failed to read the message: invalid type: string "yes", expected a boolean
    failed to read the message: invalid type: integer `1`, expected a string
    failed to read the message: expected value at line 1 column 1
    "#);
}

fn paused_for_tool() -> Outline {
    let mut outline = Outline::default();
    for record in samples::client_tool() {
        let paused = matches!(record.event, Event::RunPaused { .. });
        outline.apply(&record);
        if paused {
            break;
        }
    }
    outline
}

/// A result may include other tools and another state, which apply from the next turn on.
#[test]
fn a_result_answers_its_call_and_may_change_the_request() {
    let outline = paused_for_tool();
    let call = *outline.calls.keys().next().unwrap();
    let id = format!("{}-{call}", wellspring_testkit::RUN);
    let message = json!({
        "type": "tool_result",
        "data": {
            "messageId": "m", "toolCallId": id, "content": "{\"colour\":\"teal\"}", "role": "tool",
            "forwardedProps": {"tools": [{"name": "new"}], "state": {"page": 2}},
        },
    });
    let ClientMessage::ToolResult(result) = read(&message).unwrap() else { panic!("a result") };
    let answers = Answers::Result(&result);
    assert_eq!(answers.run(), Some(wellspring_testkit::RUN));
    let commands = answers.commands(&outline).unwrap();
    let [
        Command::Resume { amended, state, .. },
        Command::FinishCall { call: done, outcome, result, .. },
    ] = &commands[..]
    else {
        panic!("{commands:?}")
    };
    assert_eq!(&*amended.client_tools.as_ref().unwrap()[0].name, "new");
    assert_eq!(state.as_deref(), Some(&json!({"page": 2})));
    assert_eq!(
        (*done, *outcome, &result.output),
        (call, ToolOutcome::Ok, &json!("{\"colour\":\"teal\"}"))
    );
}

#[test]
fn approvals_and_answers_find_their_question() {
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    let call = run.call("delete", &["{}"]);
    let yes = run.ask(Some(call), "Really?", Form::Approve);
    let age = run.ask(None, "How old?", Form::Schema(json!({"type": "integer"})));
    run.push(Event::RunPaused { waits: vec![Wait::Question(yes), Wait::Question(age)] });
    let outline = run.outline().clone();
    let approve = |id: &str, approved: bool, reason: Option<&str>| {
        let data = json!({"toolCallId": id, "approved": approved, "reason": reason});
        let message = read(&json!({"type": "tool_approval_response", "data": data})).unwrap();
        let ClientMessage::ToolApprovalResponse(response) = message else { panic!("one") };
        Answers::Approval(&response).commands(&outline)
    };
    let run = wellspring_testkit::RUN;
    let answer =
        |question, answer| vec![Command::Answer { question, answer, by: None, wire_run: None }];
    let approved = Answer::Approve { scope: Scope::Once, arguments: None };
    assert_eq!(approve(&format!("{run}-{call}"), true, None).unwrap(), answer(yes, approved));
    let denied = approve(&format!("{run}-question-{yes}"), false, Some("no")).unwrap();
    assert_eq!(denied, answer(yes, Answer::no("no")));
    assert_eq!(
        approve("call-9", true, None).unwrap_err().to_string(),
        "nothing waits for an answer to \"call-9\""
    );
    let given = json!({"toolCallId": format!("{run}-question-{age}"), "content": "42"});
    let message = read(&json!({"type": "tool_result", "data": given})).unwrap();
    let ClientMessage::ToolResult(result) = message else { panic!("one") };
    let commands = Answers::Result(&result).commands(&outline).unwrap();
    assert_eq!(commands, answer(age, Answer::Value(json!(42))));
}
