//! What real agents said, recorded.

use std::collections::BTreeMap;

use serde_json::Value;
use wellspring_core::{Batch, Event};

use super::tests::check;
use super::{LentTools, Reader};

/// Reads a recording: the events of each session.
fn read(recording: &str) -> BTreeMap<String, Vec<Event>> {
    let mut sessions: BTreeMap<String, (Reader, Batch)> = BTreeMap::new();
    for line in recording.lines() {
        let mut message: Value = serde_json::from_str(line).unwrap();
        let id = message["sessionId"].as_str().or(message["params"]["sessionId"].as_str());
        let (reader, batch) = sessions.entry(id.unwrap().to_owned()).or_insert_with(|| {
            let lent = LentTools::new("wellspring", ["clock", "return_result"]);
            (Reader::new(lent), Batch::default())
        });
        match message["method"].as_str() {
            Some("session/update") => reader.update(message["params"]["update"].take(), batch),
            Some(_) => drop(reader.permission(&message["params"], batch)),
            None => reader.end(&message["result"], batch),
        }
    }
    let events = sessions.into_iter().map(|(id, (mut reader, mut batch))| {
        reader.close(&mut batch);
        (id, batch.into_events().map(|(_, event)| event).collect())
    });
    events.collect()
}

/// What the agent shows of a session, without what is kept whole.
fn shown(recording: &str) -> String {
    let mut lines = String::new();
    for (session, events) in read(recording) {
        check(&events);
        lines += &format!("{session}\n");
        for event in events {
            if let Event::Extended(extended) = event {
                lines += &format!("  extended {}\n", extended.name);
            } else if !matches!(event, Event::PartAnnotated { .. }) {
                lines += &format!("  {event}\n");
            }
        }
    }
    lines
}

#[test]
fn claude() {
    insta::assert_snapshot!(shown(include_str!("../../../fixtures/acp/claude.jsonl")), @r#"
    session-1
      extended available_commands_update
      extended available_commands_update
      extended rest
      usage 0 in, 0 out
      part 0 started thought
      part 0 delta "Let me think."
      part 0 finished
      part 1 started text
      part 1 delta "Hello from the model."
      extended rest
      usage 0 in, 0 out
      part 1 finished
      usage 10 in, 5 out
      extended session/prompt
      extended session_info_update
    session-2
      extended available_commands_update
      extended available_commands_update
      extended rest
      usage 0 in, 0 out
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      part 0 started text
      part 0 delta "The clock says: noon in Oslo"
      extended rest
      usage 0 in, 0 out
      part 0 finished
      usage 20 in, 10 out
      extended session/prompt
      extended session_info_update
    session-3
      extended available_commands_update
      extended available_commands_update
      extended rest
      usage 0 in, 0 out
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      part 0 started text
      part 0 delta "Handed over."
      extended rest
      usage 0 in, 0 out
      part 0 finished
      usage 30 in, 15 out
      extended session/prompt
      extended session_info_update
    session-4
      extended available_commands_update
      extended available_commands_update
      extended rest
      usage 0 in, 0 out
      part 0 started call Bash on agent
      part 0 delta "{\"command\":\"echo made > made-by-the-agent\",\"description\":\"makes a file\"}"
      part 0 finished
      tool 0 started parallel
      tool 0 updated {"content":{"replace":[{"content":{"text":"makes a file"}}]},"data":{"rest":{"_meta":{"claudeCode":{"toolName":"Bash"}}}},"title":"echo made > made-by-the-agent"}
      tool 0 updated {"content":{"replace":[{"content":{"text":"makes a file"}}]},"locations":[{"path":"/home/user/work/made-by-the-agent"}]}
      extended session/request_permission
      tool 0 updated {"data":{"rest":{"_meta":{"claudeCode":{"toolName":"Bash","toolResponse":{"interrupted":false,"isImage":false,"noOutputExpected":false,"stderr":"","stdout":""}}}}}}
      extended rest
      tool 0 finished ok "(Bash completed with no output)"
      part 1 started text
      part 1 delta "I ran it."
      extended rest
      usage 0 in, 0 out
      part 1 finished
      usage 20 in, 10 out
      extended session/prompt
      extended session_info_update
    session-5
      extended available_commands_update
      extended available_commands_update
      extended rest
      usage 0 in, 0 out
      part 0 started text
      part 0 delta "Working"
      extended rest
      usage 0 in, 0 out
      part 0 finished
      usage 0 in, 0 out
      extended session/prompt
    "#);
}

#[test]
fn codex() {
    insta::assert_snapshot!(shown(include_str!("../../../fixtures/acp/codex.jsonl")), @r#"
    session-1
      extended config_option_update
      extended available_commands_update
      part 0 started text
      part 0 delta "Warning: Model metadata for `mock` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n"
      extended session_info_update
      part 0 finished
      part 1 started thought
      part 1 delta "Let me think."
      part 1 finished
      part 2 started text
      part 2 delta "Hello from the model."
      usage 0 in, 0 out
      extended session_info_update
      extended session_info_update
      part 2 finished
      usage 10 in, 5 out
      extended session/prompt
    session-2
      extended config_option_update
      extended available_commands_update
      part 0 started text
      part 0 delta "Warning: Model metadata for `mock` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n"
      extended session_info_update
      part 0 finished
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      usage 0 in, 0 out
      part 1 started text
      part 1 delta "The clock says: Wall time: 0.0687 seconds\nOutput:noon in Oslo"
      usage 0 in, 0 out
      extended session_info_update
      extended session_info_update
      part 1 finished
      usage 20 in, 10 out
      extended session/prompt
    session-3
      extended config_option_update
      extended available_commands_update
      part 0 started text
      part 0 delta "Warning: Model metadata for `mock` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n"
      extended session_info_update
      part 0 finished
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      usage 0 in, 0 out
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      extended session_info_update
      extended lent_tool_call
      usage 0 in, 0 out
      part 1 started text
      part 1 delta "Handed over."
      usage 0 in, 0 out
      extended session_info_update
      extended session_info_update
      part 1 finished
      usage 30 in, 15 out
      extended session/prompt
    session-4
      extended config_option_update
      extended available_commands_update
      part 0 started text
      part 0 delta "Warning: Model metadata for `mock` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n"
      extended session_info_update
      extended session_info_update
      part 0 finished
      part 1 started call execute on agent
      part 1 delta "{\"command\":\"echo made > made-by-the-agent\",\"cwd\":\"/home/user/work\"}"
      part 1 finished
      tool 1 started parallel
      tool 1 updated {"content":{"replace":[{"terminal":{"terminal_id":"call_906d9a6395e44ca4ba43a441aa58e417"}}]},"data":{"rest":{"_meta":{"terminal_info":{"cwd":"/home/user/work","terminal_id":"call_906d9a6395e44ca4ba43a441aa58e417"}}}}}
      extended session/request_permission
      extended session_info_update
      extended rest
      tool 1 finished ok null
      usage 0 in, 0 out
      part 2 started text
      part 2 delta "I ran it."
      usage 0 in, 0 out
      extended session_info_update
      extended session_info_update
      part 2 finished
      usage 20 in, 10 out
      extended session/prompt
    session-5
      extended config_option_update
      extended available_commands_update
      part 0 started text
      part 0 delta "Warning: Model metadata for `mock` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n"
      extended session_info_update
      extended session_info_update
      part 0 finished
      extended session/prompt
    "#);
}

#[test]
fn gemini() {
    insta::assert_snapshot!(shown(include_str!("../../../fixtures/acp/gemini.jsonl")), @r#"
    session-1
      extended available_commands_update
      part 0 started thought
      part 0 delta "****\nLet me think."
      part 0 finished
      part 1 started text
      part 1 delta "Hello from the model."
      part 1 finished
      extended session/prompt
    session-2
      extended available_commands_update
      extended lent_tool_call
      part 0 started text
      part 0 delta "The clock says: <untrusted_context>\nnoon in Oslo\n</untrusted_context>"
      part 0 finished
      extended session/prompt
    session-3
      extended available_commands_update
      part 0 started call other on agent
      part 0 delta "{}"
      part 0 finished
      tool 0 started parallel
      tool 0 finished error "params/n must be integer" [{"content":{"text":"params/n must be integer"}}]
      extended lent_tool_call
      part 1 started text
      part 1 delta "Handed over."
      part 1 finished
      extended session/prompt
    session-4
      extended available_commands_update
      part 0 started call execute on agent
      part 0 delta "{}"
      part 0 finished
      tool 0 started parallel
      tool 0 updated {"content":{"replace":[{"content":{"text":"[current working directory /home/user/work] (makes a file)"}}]}}
      extended session/request_permission
      tool 0 finished ok null
      part 1 started text
      part 1 delta "I ran it."
      part 1 finished
      extended session/prompt
    session-5
      extended available_commands_update
      part 0 started text
      part 0 delta "Working"
      part 0 finished
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(shown(include_str!("../../../fixtures/acp/opencode.jsonl")), @r#"
    session-1
      extended available_commands_update
      part 0 started thought
      part 0 delta "Let me think."
      part 0 finished
      part 1 started text
      part 1 delta "Hello from the model."
      part 1 finished
      usage 10 in, 5 out
      extended session/prompt
    session-2
      extended available_commands_update
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      part 0 started text
      part 0 delta "The clock says: noon in Oslo"
      part 0 finished
      usage 10 in, 5 out
      extended session/prompt
    session-3
      extended available_commands_update
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      extended lent_tool_call
      part 0 started text
      part 0 delta "Handed over."
      part 0 finished
      usage 10 in, 5 out
      extended session/prompt
    session-4
      extended available_commands_update
      part 0 started call execute on agent
      part 0 delta "{\"command\":\"echo made > made-by-the-agent\",\"cwd\":\"/home/user/work\",\"description\":\"makes a file\"}"
      part 0 finished
      tool 0 started parallel
      tool 0 updated {"locations":[{"path":"/home/user/work"}]}
      tool 0 updated {"locations":[{"path":"/home/user/work"}],"title":"echo made > made-by-the-agent"}
      tool 0 updated {"data":{"rawInput":{"command":"echo made > made-by-the-agent"}}}
      extended session/request_permission
      tool 0 updated {"locations":[{"path":"/home/user/work"}]}
      tool 0 finished ok {"metadata":{"exit":0,"output":"(no output)","truncated":false},"output":"(no output)"} [{"content":{"text":"(no output)"}}]
      part 1 started text
      part 1 delta "I ran it."
      part 1 finished
      usage 10 in, 5 out
      extended session/prompt
    session-5
      extended available_commands_update
      part 0 started text
      part 0 delta "Working"
      part 0 finished
      usage 0 in, 0 out
      extended session/prompt
    "#);
}
