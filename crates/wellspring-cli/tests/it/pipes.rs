//! Output that is not a terminal.

use std::io::Write as _;

use serde_json::{Value, json};
use wellspring_core::Event;

use crate::kit::{Home, json_lines};

#[test]
fn the_answer_comes_as_it_was_written() {
    let home = Home::new();
    let shown = home.print(&["run", "--yes", "Good morning"]);
    assert!(shown.contains("You said *Good morning*. I am a **script**"), "{shown}");
    assert!(shown.contains("- The command **ran**"), "{shown}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

/// A pipe gets the agent's text, without the command's own messages about the run.
#[test]
fn a_pipe_gets_the_answer_alone() {
    let home = Home::new();
    let output = home.output(&["run", "long"]);
    let (shown, said) = (String::from_utf8(output.stdout).unwrap(), output.stderr);
    assert_eq!(String::from_utf8_lossy(&said), "");
    let result: Value = serde_json::from_str(&home.print(&["run", "--json", "long"])).unwrap();
    assert_eq!(shown.trim_end(), result["answer"].as_str().unwrap().trim_end());
    let failed = home.output(&["run", "fail for good"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    let shown = String::from_utf8_lossy(&failed.stdout);
    assert_eq!((failed.status.code(), &*shown), (Some(1), "This will not end\n"), "{said}");
    assert!(said.starts_with("wellspring: failed: "), "{said}");
}

/// Runs the command with this standard input.
fn piped(home: &Home, arguments: &[&str], input: &[u8]) -> std::process::Output {
    let mut command = home.paced(0, arguments);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn what_is_piped_in_is_part_of_the_question() {
    let home = Home::new();
    let input = |id: &str| {
        let (records, _) = home.records(id);
        let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
        json!(started.request.input)
    };
    let alone = piped(&home, &["run"], b"help\n");
    assert_eq!(alone.status.code(), Some(0), "{alone:?}");
    assert!(String::from_utf8_lossy(&alone.stdout).contains("I am a script"), "{alone:?}");
    assert_eq!(input("last"), json!([{"text": "help\n"}]));
    let both = piped(&home, &["run", "help"], b"one\ntwo\n");
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    let stdin = json!({"resource": {"uri": "stdin", "text": "one\ntwo\n"}});
    assert_eq!(input("last"), json!([{"text": "help"}, stdin]));
    let (nothing, binary) = (piped(&home, &["run"], b"\n"), piped(&home, &["run"], &[0xff, 0xfe]));
    assert_eq!((nothing.status.code(), binary.status.code()), (Some(2), Some(2)));
    let said = [nothing.stderr, binary.stderr].map(|said| String::from_utf8(said).unwrap());
    insta::assert_snapshot!(said.join(""));
}

#[test]
fn json_is_the_result_and_nothing_else() {
    let home = Home::new();
    let result: Value = serde_json::from_str(&home.print(&["run", "--json", "help"])).unwrap();
    assert!(result["answer"].as_str().unwrap().starts_with("I am a script"), "{result}");
    assert_eq!(result["outcome"], json!({"completed": {"stop": "end_turn"}}));
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    assert_eq!(listed[0]["run"]["run"], result["run"]);
}

#[test]
fn events_are_lines_of_json_in_every_dialect() {
    let home = Home::new();
    for dialect in
        ["record", "thought_event", "turn_event", "streaming_event", "agent_event", "stream_delta"]
    {
        let events = json_lines(&home.print(&["run", "--yes", "--events", dialect, "Hello"]));
        let replayed =
            home.print(&["runs", "replay", "last", "--speed", "max", "--events", dialect]);
        assert!(events.len() > 2, "{dialect}: {events:?}");
        // A latest-wins dialect sends fewer snapshots of the same run.
        if dialect != "stream_delta" {
            assert_eq!(json_lines(&replayed), events, "{dialect}");
        }
        if dialect == "agent_event" {
            assert_eq!(events.last(), Some(&json!({"type": "final"})));
        }
    }
}

#[test]
fn nobody_to_ask_is_a_no_that_says_so() {
    let home = Home::new();
    let output = home.output(&["run", "Good morning"]);
    let (shown, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    assert!(shown.contains("did **not run**: denied: no user is available to answer"), "{shown}");
    assert!(said.contains("use --yes to approve"), "{said}");
}

#[test]
fn no_says_no_quietly() {
    let home = Home::new();
    let output = home.output(&["run", "--no", "Good morning"]);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("did **not run**: denied by the user")
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn exit_codes_say_how_it_ended() {
    let home = Home::new();
    home.print(&["run", "help"]);
    for (arguments, code, says) in [
        (&["run", "fail for good"][..], 1, ""),
        (&["run", "--agent", "nobody", "x"], 2, "there is no agent \"nobody\"; there are: "),
        (&["run", "--agent", "dem", "x"], 2, "did you mean demo?"),
        (
            &["run", "--model", "m", "x"],
            2,
            "the agent demo does not allow a request to choose its model",
        ),
        (&["--listen", "127.0.0.1:0", "run", "x"], 2, "are for `wellspring` alone and for `serve`"),
        (&["--config", "gone.toml", "run", "x"], 2, "gone.toml: failed to read"),
        (&["run"], 2, "there is no question; pass it as an argument"),
        (&["run", "--events", "agui", "x"], 2, "known are record, thought_event"),
        (&["runs", "show", "zz"], 2, "is not the id of a run"),
        (&["runs", "show", "00000000"], 2, "`wellspring runs list` shows them"),
        (&["runs", "resume", "last"], 2, "has already finished"),
    ] {
        let output = home.output(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn nothing_is_kept_when_nothing_should_be() {
    let home = Home::new();
    home.print(&["--ephemeral", "run", "help"]);
    assert!(!home.data().exists());
}

#[test]
fn a_conversation_in_a_pipe() {
    let home = Home::new();
    let output = piped(&home, &["chat"], b"help\n\n  \nlong\n");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("I am a script") && shown.contains("40. A spring"), "{shown}");
    assert!(!shown.contains('›'), "{shown}");
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["run"]["after"], listed[1]["run"]["run"]);
}

#[test]
fn completions_and_version_are_printed() {
    let home = Home::new();
    assert!(home.print(&["completions", "bash"]).contains("_wellspring()"));
    assert!(home.print(&["--version"]).starts_with("wellspring 0."));
}

/// As with `| head`: if the reader closes the pipe, the command ends without an error message.
#[test]
fn a_reader_that_goes_away_is_no_mistake() {
    let home = Home::new();
    home.print(&["run", "help"]);
    for args in [
        &["runs", "list"][..],
        &["runs", "show", "last"],
        &["runs", "replay", "last", "--speed", "max"],
        &["runs", "export", "last"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home.paced(0, args).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(141), ""), "{args:?}");
    }
}
