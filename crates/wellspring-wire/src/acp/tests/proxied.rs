//! Tests a proxied agent's updates on their way to a client: read into records and written
//! again.

use serde_json::Value;
use wellspring_core::{AgentNo, Batch, Event, Millis, Record, RunRequest, RunStarted, Seq};

use crate::DialectName;
use crate::acp::Reader;
use crate::test_helpers::encode;

/// The updates that the client gets for the proxied agent's updates.
fn through(lines: &str) -> String {
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_str(line).unwrap();
        reader.update(message, &mut batch);
    }
    reader.close(&mut batch);
    let started = RunStarted {
        run: wellspring_testkit::RUN,
        thread: wellspring_testkit::THREAD,
        agent: "a".into(),
        after: None,
        request: RunRequest::default(),
    };
    let said = batch.into_events().map(|(_, event)| event);
    let events = [Event::RunStarted(started.into())].into_iter().chain(said);
    let records: Vec<Record> = events
        .zip(1..)
        .map(|(event, seq)| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event })
        .collect();
    let told = encode(DialectName::Acp, &records).into_iter().map(|(_, json)| format!("{json}\n"));
    told.collect::<String>().replace(&wellspring_testkit::RUN.to_string(), "run")
}

#[test]
fn meta_and_what_we_have_no_word_for_are_said_with_what_we_have() {
    insta::assert_snapshot!(through(r#"
        {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."},"_meta":{"a":1}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"One","annotations":{"priority":1}},"_meta":{"a":1}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":" two"},"_meta":{"a":1}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":" three"}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":""},"_meta":{"end":true}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"image","data":"QQ==","mimeType":"image/png","_meta":{"b":2}},"_meta":{"c":3}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"resource_link","uri":"file:///x","name":"x"}}
        {"sessionUpdate":"tool_call","toolCallId":"t","title":"Look","kind":"read","_meta":{"d":4}}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"search","x":5}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress","rawOutput":{"so":"far"},"_meta":{"e":5}}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","rawOutput":{"n":1},"_meta":{"f":6}}
        {"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"}],"_meta":{"g":7}}
        {"sessionUpdate":"usage_update","used":1,"size":2,"_meta":{"h":8}}
        {"sessionUpdate":"session_info_update","title":"T","_meta":{"i":9}}
    "#), @r#"
    {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."},"messageId":"run-0","_meta":{"a":1}}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"One","annotations":{"priority":1}},"messageId":"run-1","_meta":{"a":1}}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":" two"},"messageId":"run-1","_meta":{"a":1}}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":" three"},"messageId":"run-1"}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""},"_meta":{"end":true},"messageId":"run-1"}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"QQ==","mimeType":"image/png","_meta":{"b":2}},"messageId":"run-1","_meta":{"c":3}}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","uri":"file:///x","name":"x"},"messageId":"run-1"}
    {"sessionUpdate":"tool_call","toolCallId":"run-2","title":"Look","name":"read","kind":"read","status":"pending"}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","_meta":{"d":4}}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","x":5,"kind":"search"}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","rawInput":{}}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","status":"in_progress"}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","rawOutput":{"so":"far"},"_meta":{"e":5}}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-2","status":"completed","rawOutput":{"n":1},"_meta":{"f":6}}
    {"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"}],"_meta":{"g":7}}
    {"sessionUpdate":"usage_update","used":1,"size":2,"_meta":{"h":8}}
    {"sessionUpdate":"session_info_update","title":"T","_meta":{"i":9}}
    "#);
}

#[test]
fn what_the_protocol_does_not_know_is_carried() {
    insta::assert_snapshot!(through(r#"
        {"sessionUpdate":"from_the_future","x":[1,2]}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"hologram","x":1}}
        {"sessionUpdate":"tool_call","toolCallId":"t","title":"A","kind":"levitate","status":"hovering"}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","content":[{"type":"hologram","x":1}]}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","title":"late"}
        {"sessionUpdate":"plan","entries":[{"content":"two","priority":"urgent","status":"pending"}]}
        {"sessionUpdate":"usage_update","used":"many"}
        {"sessionUpdate":"notice","message":"N"}
        {"sessionUpdate":"session_info_update","title":7}
    "#), @r#"
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"from_the_future","x":[1,2]}}}}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"hologram","x":1}}}}}
    {"sessionUpdate":"tool_call","toolCallId":"run-0","title":"A","name":"levitate","kind":"other","status":"pending"}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"tool_call","toolCallId":"run-0","title":"A","kind":"levitate","status":"hovering"}}}}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-0","rawInput":{}}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-0","status":"in_progress"}
    {"sessionUpdate":"tool_call_update","toolCallId":"run-0","status":"completed"}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"run-0","status":"completed","content":[{"type":"hologram","x":1}]}}}}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"run-0","title":"late"}}}}
    {"sessionUpdate":"plan","entries":[{"content":"two","priority":"medium","status":"pending"}]}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"plan","entries":[{"content":"two","priority":"urgent","status":"pending"}]}}}}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"usage_update","used":"many"}}}}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"notice","message":"N"}}}}
    {"sessionUpdate":"session_info_update","_meta":{"wellspring":{"update":{"sessionUpdate":"session_info_update","title":7}}}}
    "#);
}
