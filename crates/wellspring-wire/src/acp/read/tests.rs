use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use wellspring_core::{AgentNo, Checker, Event, Millis, Record, RunRequest, RunStarted, Seq};

use super::*;

/// Reads lines as a client receives them: updates, permission requests, the response to the
/// prompt.
fn read(lines: &str, our_tools: OurTools) -> Vec<Event> {
    let mut reader = Reader::new(our_tools);
    let mut batch = Batch::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_str(line).unwrap();
        if message["sessionUpdate"].is_string() {
            reader.update(message, &mut batch);
        } else if message["options"].is_array() {
            reader.permission(&message, &mut batch);
        } else if let Some(id) = message["terminal"].as_str() {
            reader.terminal_output(id, message["wrote"].as_str().unwrap(), &mut batch);
        } else {
            reader.end(&message, &mut batch);
        }
    }
    reader.close(&mut batch);
    batch.into_events().map(|(_, event)| event).collect()
}

fn shown(lines: &str) -> String {
    let events = read(lines, OurTools::default());
    check(&events);
    events.iter().map(|event| format!("{event}\n")).collect()
}

/// Asserts that the events obey the grammar of a run.
pub(in crate::acp) fn check(events: &[Event]) {
    let mut checker = Checker::default();
    let started = RunStarted {
        run: wellspring_testkit::RUN,
        thread: wellspring_testkit::THREAD,
        agent: "a".into(),
        after: None,
        request: RunRequest::text("go"),
    };
    let outcome = wellspring_core::Outcome::Completed { stop: Stop::EndTurn };
    let all = [Event::RunStarted(Arc::new(started))]
        .into_iter()
        .chain(events.iter().cloned())
        .chain([Event::RunFinished { outcome: Box::new(outcome) }]);
    for (index, event) in all.enumerate() {
        let seq = Seq(index as u64 + 1);
        let record = Record { seq, agent: AgentNo::ROOT, at: Millis(0), event };
        checker.push(&record).unwrap();
    }
}

#[test]
fn thoughts_and_words_stay_apart_and_words_after_a_call_are_another_message() {
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm. "}}
        {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Yes."}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I look."}}
        {"sessionUpdate":"tool_call","toolCallId":"c","title":"Look","kind":"read","status":"pending","rawInput":{"path":"a"}}
        {"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":{"ok":true}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Seen."}}
        {"stopReason":"end_turn","usage":{"totalTokens":7,"inputTokens":4,"outputTokens":3}}
    "#), @r#"
    part 0 started thought
    part 0 delta "Hm. "
    part 0 delta "Yes."
    part 0 finished
    part 1 started text
    part 1 delta "I look."
    part 1 finished
    part 2 started call read on agent
    part 2 annotated {"provider_id":"c"}
    part 2 delta "{\"path\":\"a\"}"
    part 2 finished
    tool 2 started parallel
    tool 2 finished ok {"ok":true}
    part 3 started text
    part 3 delta "Seen."
    part 3 finished
    usage 4 in, 3 out
    "#);
}

#[test]
fn messages_are_told_apart_by_their_ids() {
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"One"},"_meta":{"a":1}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":" and"},"_meta":{"a":1}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"two"}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"!"}}
        {"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":""}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"QQ==","mimeType":"image/png"}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","uri":"file:///x","name":"x"}}
        {"stopReason":"end_turn"}
    "#), @r#"
    part 0 started text
    part 0 annotated {"provider_id":"m1"}
    part 0 annotated {"other":{"origin":"acp","name":"rest","value":{"_meta":{"a":1}}}}
    part 0 delta "One"
    part 0 delta " and"
    part 0 finished
    part 1 started text
    part 1 annotated {"provider_id":"m2"}
    part 1 delta "two"
    part 1 delta "!"
    file image/png
    extended acp agent_message_chunk {"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","uri":"file:///x","name":"x"}}
    part 1 finished
    "#);
}

#[test]
fn a_call_is_one_call_however_it_is_reported() {
    // As claude-agent-acp reports it: first an empty input, then the whole input, then a
    // permission request.
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Write","name":"Write","kind":"edit","status":"pending","rawInput":{},"content":[],"locations":[]}
        {"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Write a.txt","rawInput":{"file_path":"/w/a.txt","content":"hi"},"locations":[{"path":"/w/a.txt","line":3}]}
        {"toolCall":{"toolCallId":"t1","title":"Write a.txt"},"options":[]}
        {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"in_progress","content":[{"type":"diff","path":"/w/a.txt","oldText":null,"newText":"hi"}]}
        {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"written"}}]}
        {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
        {"stopReason":"end_turn"}
    "#), @r#"
    part 0 started call Write on agent
    part 0 annotated {"provider_id":"t1"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"t1"},"options":[]}
    part 0 delta "{\"file_path\":\"/w/a.txt\",\"content\":\"hi\"}"
    part 0 finished
    tool 0 started parallel
    tool 0 updated {"title":"Write a.txt","locations":[{"path":"/w/a.txt","line":3}]}
    tool 0 updated {"content":{"replace":[{"diff":{"path":"/w/a.txt","new_text":"hi"}}]}}
    tool 0 finished ok "written" [{"content":{"text":"written"}}]
    extended acp tool_call_update {"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}
    "#);
    // As gemini-cli reports it: an update of a call that was never announced.
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"tool_call_update","toolCallId":"g1","status":"failed","content":[{"type":"content","content":{"type":"text","text":"no such file"}}]}
        {"stopReason":"end_turn"}
    "#), @r#"
    part 0 started call tool on agent
    part 0 annotated {"provider_id":"g1"}
    part 0 delta "{}"
    part 0 finished
    tool 0 started parallel
    tool 0 finished error "no such file" [{"content":{"text":"no such file"}}]
    "#);
}

#[test]
fn a_call_that_the_agent_forgets_is_interrupted() {
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"tool_call","toolCallId":"a","title":"First","status":"pending"}
        {"sessionUpdate":"tool_call","toolCallId":"b","title":"Second","status":"in_progress","rawInput":"not an object"}
        {"stopReason":"cancelled"}
    "#), @r#"
    part 0 started call tool on agent
    part 0 annotated {"provider_id":"a"}
    part 1 started call tool on agent
    part 1 annotated {"provider_id":"b"}
    part 1 delta "\"not an object\""
    part 1 finished
    tool 1 started parallel
    part 0 delta "{}"
    part 0 finished
    tool 0 finished interrupted "the agent did not say how it ended"
    tool 1 finished interrupted "the agent did not say how it ended"
    "#);
}

#[test]
fn what_there_is_no_word_for_is_kept_whole() {
    insta::assert_snapshot!(shown(r#"
        {"sessionUpdate":"available_commands_update","availableCommands":[{"name":"plan","description":"d"}]}
        {"sessionUpdate":"current_mode_update","currentModeId":"code"}
        {"sessionUpdate":"config_option_update","configOptions":[]}
        {"sessionUpdate":"session_info_update","title":"T"}
        {"sessionUpdate":"notice","message":"N"}
        {"sessionUpdate":"from_the_future","x":[1,2]}
        {"sessionUpdate":"tool_call","toolCallId":"a","title":"A","kind":"levitate","status":"hovering"}
        {"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","content":[{"type":"hologram","x":1}]}
        {"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"two","priority":"urgent","status":"pending"}]}
        {"sessionUpdate":"usage_update","used":22,"size":1000,"cost":{"amount":0.5,"currency":"USD"}}
        {"sessionUpdate":"usage_update","used":"many"}
        {"stopReason":"bored","_meta":{"x":1}}
    "#), @r#"
    extended acp available_commands_update {"sessionUpdate":"available_commands_update","availableCommands":[{"name":"plan","description":"d"}]}
    extended acp current_mode_update {"sessionUpdate":"current_mode_update","currentModeId":"code"}
    extended acp config_option_update {"sessionUpdate":"config_option_update","configOptions":[]}
    extended acp session_info_update {"sessionUpdate":"session_info_update","title":"T"}
    extended acp notice {"sessionUpdate":"notice","message":"N"}
    extended acp from_the_future {"sessionUpdate":"from_the_future","x":[1,2]}
    part 0 started call levitate on agent
    part 0 annotated {"provider_id":"a"}
    extended acp tool_call {"sessionUpdate":"tool_call","toolCallId":"a","title":"A","kind":"levitate","status":"hovering"}
    part 0 delta "{}"
    part 0 finished
    tool 0 started parallel
    tool 0 finished ok null
    extended acp tool_call_update {"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","content":[{"type":"hologram","x":1}]}
    plan [completed] one [pending] two
    extended acp plan {"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"two","priority":"urgent","status":"pending"}]}
    usage 0 in, 0 out
    extended acp usage_update {"sessionUpdate":"usage_update","used":"many"}
    extended acp session/prompt {"stopReason":"bored","_meta":{"x":1}}
    "#);
}

#[test]
fn terminals_are_shown_with_the_call_that_shows_them() {
    insta::assert_snapshot!(shown(r#"
        {"terminal":"term-1","wrote":"before "}
        {"sessionUpdate":"tool_call","toolCallId":"a","title":"ls","kind":"execute","status":"in_progress","content":[{"type":"terminal","terminalId":"term-1"}]}
        {"terminal":"term-1","wrote":"after"}
        {"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}
        {"terminal":"term-1","wrote":"too late"}
        {"stopReason":"end_turn"}
    "#), @r#"
    part 0 started call execute on agent
    part 0 annotated {"provider_id":"a"}
    part 0 delta "{}"
    part 0 finished
    tool 0 started parallel
    tool 0 updated {"content":{"replace":[{"terminal":{"terminal_id":"term-1"}}]}}
    part 1 started output of 0 terminal
    part 1 delta "before "
    part 1 delta "after"
    tool 0 finished ok null
    part 1 finished
    "#);
}

#[test]
fn what_a_terminal_writes_before_it_is_shown_is_kept_up_to_a_maximum() {
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    let piece = "é".repeat(1000);
    for _ in 0..=WAITING_BYTES_MAX / piece.len() {
        reader.terminal_output("t", &piece, &mut batch);
    }
    reader.update(
        json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "ls", "status": "in_progress",
            "content": [{"type": "terminal", "terminalId": "t"}]}),
        &mut batch,
    );
    reader.terminal_output("t", "after", &mut batch);
    let words = batch.into_events().filter_map(|(_, event)| {
        let Event::PartDelta { chunk, .. } = event else { return None };
        Some(chunk.to_string())
    });
    let words: Vec<String> = words.collect();
    assert_eq!(words, ["{}".to_owned(), "é".repeat(WAITING_BYTES_MAX / 2), "after".to_owned()]);
}

#[test]
fn calls_of_our_own_tools_are_left_to_those_who_run_them() {
    let lines = r#"
        {"sessionUpdate":"tool_call","toolCallId":"x","title":"mcp__wellspring__clock","status":"pending"}
        {"sessionUpdate":"tool_call_update","toolCallId":"x","status":"completed"}
    "#;
    let events = read(lines, OurTools::new("wellspring", ["clock"]));
    let names: Vec<_> = events.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(events.iter().all(|event| matches!(event, Event::Extended(_))), "{names:?}");
    let params = json!({"toolCall": {"toolCallId": "x"}, "options": []});
    let mut reader = Reader::new(OurTools::new("wellspring", ["clock"]));
    let mut batch = Batch::default();
    reader.update(serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap(), &mut batch);
    assert!(reader.permission(&params, &mut batch).our_tool);
}

#[test]
fn beyond_its_maximum_calls_are_kept_whole_and_not_followed() {
    let mut reader = Reader::default();
    let mut batch = Batch::default();
    for number in 0..=CALLS_MAX {
        let id = number.to_string();
        let update = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "t"});
        reader.update(update, &mut batch);
    }
    assert_eq!(reader.calls.len(), CALLS_MAX);
    let last = batch.into_events().last().unwrap().1;
    assert!(matches!(last, Event::Extended(_)), "{last}");
}

#[test]
fn arguments_beyond_their_maximum_are_kept_beside_the_call() {
    let input = json!({"x": "y".repeat(ARGUMENTS_BYTES_MAX)});
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "t", "rawInput": input});
    let events = read(&call.to_string(), OurTools::default());
    check(&events);
    assert!(events.iter().any(|event| matches!(event, Event::Extended(_))));
    let arguments = events.iter().find_map(|event| {
        let Event::PartDelta { chunk, .. } = event else { return None };
        Some(chunk.to_string())
    });
    assert_eq!(arguments.as_deref(), Some("{}"));
}

#[test]
fn answers_are_told_apart_by_kind() {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let read = |options: Vec<Value>| {
        let params = json!({"toolCall": {"toolCallId": "a", "title": "rm"}, "options": options});
        Reader::default().permission(&params, &mut Batch::default())
    };
    let plain = read(vec![option("n", "reject_once"), option("y", "allow_once")]);
    assert!(plain.is_yes_or_no());
    assert_eq!(&*plain.option(PermissionKind::AllowOnce).unwrap().id, "y");
    let twice = read(vec![option("a", "allow_always"), option("b", "allow_always")]);
    assert!(!twice.is_yes_or_no());
    assert!(!read(vec![option("y", "allow_once"), option("?", "allow_maybe")]).is_yes_or_no());
    assert!(!read(Vec::new()).is_yes_or_no());
}

proptest! {
    /// Any reports of an agent, cut off anywhere, give a legal run.
    #[test]
    fn any_reports_make_a_legal_run(
        lines in prop::collection::vec((0..9usize, 0..3usize, 0..6usize), 0..40),
    ) {
        let mut reader = Reader::new(OurTools::new("wellspring", ["clock"]));
        let mut batch = Batch::default();
        for (what, id, more) in lines {
            let id = ["a", "b", "c"][id];
            let status = [json!("pending"), json!("in_progress"), json!("completed"),
                json!("failed"), json!("odd"), Value::Null][more].clone();
            let words = ["x", "", "yz"][more % 3];
            let text = json!({"type": "text", "text": words});
            match what {
                0 => reader.update(json!({"sessionUpdate": "agent_message_chunk", "content": text}), &mut batch),
                1 => reader.update(json!({"sessionUpdate": "agent_thought_chunk", "messageId": id, "content": text}), &mut batch),
                2 => reader.update(json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": id, "status": status, "rawInput": {"n": more}}), &mut batch),
                3 => reader.update(json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "title": status}), &mut batch),
                4 => reader.update(json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "content": [{"type": "terminal", "terminalId": id}]}), &mut batch),
                5 => reader.terminal_output(id, ["x", "", "é"][more % 3], &mut batch),
                6 => { reader.permission(&json!({"toolCall": {"toolCallId": id, "title": "mcp.wellspring.clock"}}), &mut batch); }
                7 => reader.terminal_over(id, &mut batch),
                _ => reader.denied(id),
            }
        }
        reader.close(&mut batch);
        let events: Vec<Event> = batch.into_events().map(|(_, event)| event).collect();
        check(&events);
    }
}
