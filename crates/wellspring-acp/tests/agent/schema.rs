//! Every line that we emit is validated against the published JSON schema.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{AgentNo, Batch, Millis, Record, Seq};
use wellspring_testkit::arbitrary::arb_run;
use wellspring_testkit::samples;
use wellspring_wire::acp::{Reader, part_offers};
use wellspring_wire::{DialectName, Encoder, Out};

/// The schema that the protocol's own SDK ships; `cargo xtask test` fetches it.
static SCHEMA: LazyLock<Option<Value>> = LazyLock::new(|| {
    if std::env::var_os("WELLSPRING_PEER_ACP_CLIENTS").is_none() {
        println!("skipped: WELLSPRING_PEER_ACP_CLIENTS is not set; `cargo xtask test` sets it");
        return None;
    }
    let file = "tests/clients/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json";
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    Some(serde_json::from_str(&text).unwrap())
});

/// Checks one of our messages, given the methods of the requests that it may answer. The schema's
/// list of messages accepts anything as an extension, so each message is checked against its own
/// type.
pub(crate) fn check(message: &Value, asked: &BTreeMap<u64, String>) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    if message.get("error").is_some() {
        return hold("Error", &message["error"]);
    }
    match message["method"].as_str() {
        // An extension: the schema does not define its content.
        Some(method) if method.starts_with('_') => {}
        Some(method) => hold(params_of(method), &message["params"]),
        None => {
            let method = message["id"].as_u64().and_then(|id| asked.get(&id)).unwrap();
            if !is_passed_on(method) {
                hold(result_of(method), &message["result"]);
            }
        }
    }
}

/// Messages that the schema does not define, and that we forward.
fn is_passed_on(method: &str) -> bool {
    method.starts_with('_') || method.starts_with("odd/") || method == "session/set_model"
}

/// Checks our messages to a proxied agent.
pub(crate) fn check_asked(message: &Value) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let definition = match message["method"].as_str() {
        // A response is checked if it is known which request it answers.
        None => return,
        Some("initialize") => "InitializeRequest",
        Some("session/new") => "NewSessionRequest",
        Some("session/resume") => "ResumeSessionRequest",
        Some("session/set_mode") => "SetSessionModeRequest",
        Some("session/set_config_option") => "SetSessionConfigOptionRequest",
        Some("session/prompt") => "PromptRequest",
        Some("session/cancel") => "CancelNotification",
        Some("session/close") => "CloseSessionRequest",
        Some(method) if is_passed_on(method) => return,
        Some(other) => panic!("{other} is no method of the protocol"),
    };
    hold(definition, &message["params"]);
}

fn params_of(method: &str) -> &'static str {
    match method {
        "session/update" => "SessionNotification",
        "session/request_permission" => "RequestPermissionRequest",
        "elicitation/create" => "CreateElicitationRequest",
        "fs/read_text_file" => "ReadTextFileRequest",
        "fs/write_text_file" => "WriteTextFileRequest",
        "terminal/create" => "CreateTerminalRequest",
        "terminal/output" => "TerminalOutputRequest",
        "terminal/wait_for_exit" => "WaitForTerminalExitRequest",
        "terminal/kill" => "KillTerminalRequest",
        "terminal/release" => "ReleaseTerminalRequest",
        "$/cancel_request" => "CancelRequestNotification",
        other => panic!("{other} is no method of the protocol"),
    }
}

fn result_of(method: &str) -> &'static str {
    match method {
        "initialize" => "InitializeResponse",
        "authenticate" => "AuthenticateResponse",
        "logout" => "LogoutResponse",
        "session/new" => "NewSessionResponse",
        "session/load" => "LoadSessionResponse",
        "session/resume" => "ResumeSessionResponse",
        "session/list" => "ListSessionsResponse",
        "session/close" => "CloseSessionResponse",
        "session/delete" => "DeleteSessionResponse",
        "session/set_mode" => "SetSessionModeResponse",
        "session/set_config_option" => "SetSessionConfigOptionResponse",
        "session/prompt" => "PromptResponse",
        other => panic!("{other} has no result"),
    }
}

fn hold(definition: &str, value: &Value) {
    static COMPILED: Mutex<BTreeMap<String, jsonschema::Validator>> = Mutex::new(BTreeMap::new());
    let Some(schema) = &*SCHEMA else { return };
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = compiled.entry(definition.to_owned()).or_insert_with(|| {
        let root = json!({"$ref": format!("#/$defs/{definition}"), "$defs": schema["$defs"]});
        jsonschema::validator_for(&root).unwrap()
    });
    let wrong: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert_eq!(wrong, [""; 0], "{definition}: {value}");
}

fn updates_hold(records: &[Record]) {
    let mut encoder = Encoder::new(DialectName::Acp);
    let mut out = Out::default();
    encoder.frame(records, &mut out);
    for (_, update) in out.events() {
        hold("SessionUpdate", &serde_json::from_slice(update).unwrap());
    }
}

#[test]
fn every_sample_run_holds() {
    for sample in samples::all() {
        updates_hold(&sample.records);
    }
}

/// A value of a given shape, valid or not.
fn arb_value() -> impl Strategy<Value = Value> {
    let text = json!({"type": "text", "text": "x"});
    prop::sample::select(vec![
        Value::Null,
        json!("x"),
        json!("pending"),
        json!("edit"),
        json!(7),
        json!(true),
        json!([]),
        json!({}),
        json!({"a": 1}),
        text.clone(),
        json!({"type": "text", "text": "x", "annotations": "odd", "_meta": 3}),
        json!({"type": "image", "data": "QQ==", "mimeType": "image/png", "uri": 3, "annotations": []}),
        json!({"type": "resource_link", "uri": "u", "name": "n", "size": "large"}),
        json!({"type": "hologram"}),
        json!([{"type": "content", "content": text}]),
        json!([{"type": "diff", "path": "/a", "newText": "n", "oldText": 4}]),
        json!([{"path": "/a", "line": "three"}]),
        json!([{"content": "c", "priority": "high", "status": "pending", "_meta": 1}]),
        json!([{"name": "n", "description": "d", "input": 3}]),
        json!([{"id": "i", "name": "n", "type": "select"}]),
    ])
}

/// A list of values, or something else.
fn arb_offer(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::collection::vec(of, 0..4).prop_map(Value::from),
        1 => arb_value(),
    ]
}

/// An object with some of these members, each valid or not.
fn arb_object(
    members: &'static [&'static str],
    kinds: &'static [&'static str],
) -> impl Strategy<Value = Value> {
    let right = prop::sample::select(vec![
        json!("x"),
        json!(true),
        json!([{"value": "v", "name": "n"}]),
        json!([{"group": "g", "name": "n", "options": [{"value": "v", "name": "n"}]}]),
        json!({"m": 1}),
    ]);
    let value = prop_oneof![3 => right, 1 => arb_value()];
    let kind = prop::sample::select(kinds);
    (kind, prop::collection::btree_map(prop::sample::select(members), value, 0..9)).prop_map(
        |(kind, members)| {
            let mut object = json!({"type": kind, "id": "i", "name": "n"});
            members.into_iter().for_each(|(name, value)| object[name] = value);
            object
        },
    )
}

fn arb_mode() -> impl Strategy<Value = Value> {
    arb_object(&["id", "name", "description", "_meta", "odd"], &["mode"])
}

fn arb_option() -> impl Strategy<Value = Value> {
    const MEMBERS: [&str; 9] = [
        "id",
        "name",
        "type",
        "currentValue",
        "options",
        "category",
        "description",
        "_meta",
        "odd",
    ];
    arb_object(&MEMBERS, &["select", "boolean", "slider"])
}

/// A message that a proxied agent may send.
fn arb_update() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
        "compaction_update",
        "compaction_summary_chunk",
        "from_the_future",
    ]);
    let member = prop::sample::select(vec![
        "content",
        "messageId",
        "_meta",
        "toolCallId",
        "title",
        "name",
        "kind",
        "status",
        "locations",
        "rawInput",
        "rawOutput",
        "entries",
        "availableCommands",
        "currentModeId",
        "configOptions",
        "updatedAt",
        "used",
        "size",
        "cost",
        "severity",
        "compactionId",
        "odd",
    ]);
    (name, prop::collection::btree_map(member, arb_value(), 0..8)).prop_map(|(name, members)| {
        let mut update = json!({"sessionUpdate": name});
        members.into_iter().for_each(|(name, value)| update[name] = value);
        update
    })
}

proptest! {
    /// Whatever a proxied agent sends, our messages match the schema.
    #[test]
    fn any_words_of_an_agent_behind_us_hold(updates in prop::collection::vec(arb_update(), 0..12)) {
        let (mut reader, mut batch) = (Reader::default(), Batch::default());
        updates.into_iter().for_each(|update| reader.update(update, &mut batch));
        reader.close(&mut batch);
        let started = samples::all()[0].records[0].event.clone();
        let said = batch.into_events().map(|(_, event)| event);
        let events = [started].into_iter().chain(said).zip(1..);
        let records: Vec<Record> = events
            .map(|(event, seq)| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event })
            .collect();
        updates_hold(&records);
    }

    /// Whatever a proxied agent offers when it opens a session, the client's message matches the
    /// schema, and nothing is lost.
    #[test]
    fn any_offers_of_an_agent_behind_us_hold(
        modes in arb_offer(arb_mode()),
        current in arb_value(),
        options in arb_offer(arb_option()),
        commands in arb_offer(arb_value()),
    ) {
        let modes = if modes.is_array() {
            json!({"currentModeId": current, "availableModes": modes})
        } else {
            modes
        };
        let said = json!({"modes": modes, "configOptions": options, "availableCommands": commands});
        let (sound, odd) = part_offers(&said);
        if let Some(modes) = sound.get("modes") {
            hold("SessionModeState", modes);
        }
        if let Some(options) = sound.get("configOptions") {
            hold("ConfigOptionUpdate", &json!({"configOptions": options}));
        }
        if let Some(commands) = sound.get("availableCommands") {
            hold("AvailableCommandsUpdate", &json!({"availableCommands": commands}));
        }
        let count = |of: &Value| of.as_array().map_or(0, Vec::len);
        for name in ["configOptions", "availableCommands"] {
            if said[name].is_array() {
                prop_assert_eq!(count(&said[name]), count(&sound[name]) + count(&odd[name]));
            } else if !said[name].is_null() {
                prop_assert_eq!(&said[name], &odd[name]);
            }
        }
    }

    #[test]
    fn any_run_holds(run in arb_run()) {
        updates_hold(&run);
    }
}
