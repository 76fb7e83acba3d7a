//! The live view, in a real terminal.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use wellspring_core::{Event, Record};

use crate::acp_agents;
use crate::kit::{BINARY, Home};

fn is_there(program: &str, argument: &str) -> bool {
    let found =
        Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[expect(
    clippy::print_stderr,
    reason = "a test that did not run must not look like one that passed"
)]
fn skip(program: &str) {
    let promised = std::env::var_os("WELLSPRING_PEER_TERMINAL").is_some();
    assert!(!promised, "{program} is not installed, although it was promised");
    eprintln!("SKIPPED: {program} is not installed");
}

/// The final screen, including the scrollback, of a command in a terminal.
fn in_tmux(home: &Home, columns: u32, command: &str) -> String {
    let socket = format!("wellspring-{}-{columns}", std::process::id());
    let tmux = |arguments: &[&str]| {
        Command::new("tmux")
            .args(["-L", &socket, "-f", "/dev/null"])
            .args(arguments)
            .output()
            .unwrap()
    };
    let script = format!(
        "export WELLSPRING_DATA_DIR='{}' WELLSPRING_CONFIG='{}' WELLSPRING_DEMO_PACE_MS=3; cd '{}'; {BINARY} {command}; \
         echo \"exit $?\"; tmux -L {socket} wait-for -S done; exec cat",
        home.data().display(),
        home.config().display(),
        home.work().display()
    );
    let width = columns.to_string();
    let shell = ["env", "-u", "NO_COLOR", "sh", "-c", &script];
    let session = ["new-session", "-d", "-x", &width, "-y", "24"];
    let started = tmux(&[&session[..], &shell[..]].concat());
    assert!(started.status.success(), "{started:?}");
    tmux(&["wait-for", "done"]);
    let captured = tmux(&["capture-pane", "-p", "-S", "-1000"]);
    tmux(&["kill-server"]);
    String::from_utf8(captured.stdout).unwrap()
}

#[test]
fn the_final_screen_has_the_answer_and_no_leftovers() {
    if !is_there("tmux", "-V") {
        return skip("tmux");
    }
    for columns in [80, 40] {
        let home = Home::new();
        let screen = in_tmux(&home, columns, "run --yes 'Good morning'");
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("You said Good morning. I am a script"), "{screen}");
        assert!(screen.trim_end().ends_with("exit 0"), "{screen}");
        for once in ["What just happened", "May Shell run?", "✓ Clock", "✓ done"] {
            assert_eq!(screen.matches(once).count(), 1, "{once} at {columns}:\n{screen}");
        }
        for leftover in ["Ctrl-C", "⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏", "○", "**"]
        {
            assert!(!screen.contains(leftover), "{leftover} at {columns}:\n{screen}");
        }
    }
}

#[test]
fn an_answer_longer_than_the_screen_is_printed_once() {
    if !is_there("tmux", "-V") {
        return skip("tmux");
    }
    let home = Home::new();
    let screen = in_tmux(&home, 79, "run long");
    for paragraph in 1..=40 {
        let begins = format!("{paragraph}. A spring does not hurry.");
        let count = screen.lines().filter(|line| line.starts_with(&begins)).count();
        assert_eq!(count, 1, "{begins}\n{screen}");
    }
}

/// Runs the command in a pseudo-terminal. Each step waits for a text on the screen, then types.
fn in_script(home: &Home, colour: bool, steps: &[(&str, &str)]) -> (Option<i32>, String) {
    command_in_script(home, "run 'Good morning'", colour, steps)
}

fn command_in_script(
    home: &Home,
    what: &str,
    colour: bool,
    steps: &[(&str, &str)],
) -> (Option<i32>, String) {
    let mut command = Command::new("script");
    command
        .args(["-q", "-e", "-f", "-c"])
        // `exec` replaces the shell: otherwise the Ctrl-C for the command would end the shell.
        .arg(format!("exec {BINARY} {what}"))
        .arg("/dev/null")
        .current_dir(home.work())
        .env("WELLSPRING_DATA_DIR", home.data())
        .env("WELLSPRING_DEMO_PACE_MS", "2")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if !colour {
        command.env("NO_COLOR", "1");
    }
    if home.config().exists() {
        command.env("WELLSPRING_CONFIG", home.config());
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut shown, mut looked_at) = (Vec::new(), 0);
    let mut steps = steps.iter();
    let mut step = steps.next();
    let mut piece = [0; 4096];
    loop {
        let count = stdout.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&piece[..count]);
        if let Some((until, typed)) = step
            && String::from_utf8_lossy(&shown[looked_at..]).contains(until)
        {
            stdin.write_all(typed.as_bytes()).unwrap();
            stdin.flush().unwrap();
            looked_at = shown.len();
            step = steps.next();
        }
    }
    let status = child.wait().unwrap();
    (status.code(), String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_question_is_answered_at_the_prompt() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    for (typed, want) in [
        ("y\r", "The command \u{1b}[1mran"),
        ("too risky\r", "denied: too risky"),
        ("e\r\u{15}echo edited\r", "edited"),
    ] {
        let (code, shown) = in_script(&Home::new(), true, &[("[y]es", typed)]);
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(want), "{typed:?}: {shown}");
        assert!(shown.trim_end().ends_with("\u{1b}[?25h"), "the cursor is shown again: {shown:?}");
    }
}

#[test]
fn without_colour_a_question_is_a_line() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    let steps = [("[y]es", "\r"), ("[y]es", "y\r")];
    let (code, shown) = in_script(&Home::new(), false, &steps);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("- The command **ran**"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// An agent's form is filled in field by field. If the form rejects the input, the fields are asked
/// again with the typed values as defaults. A form can also be declined.
#[test]
fn a_form_is_filled_in_corrected_and_declined() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    let form = json!({"type": "object", "required": ["age", "colour"], "properties": {
        "age": {"type": "integer", "title": "Age", "minimum": 18},
        "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
    }});
    let params = json!({"mode": "form", "message": "Who are you?", "requestedSchema": form});
    let ask = json!({"request": {"method": "elicitation/create", "params": params}});
    let config = acp_agents::config(&json!({"prompts": [[ask]]}), "");
    let filled_in = [
        ("Age (1 of 2)", "seven\r"),
        ("\"seven\" is not a whole number", "7\r"),
        ("Colour (2 of 2)", "2\r"),
        ("less than the minimum of 18", "36\r"),
        ("Enter for blue", "\r"),
    ];
    for colour in [true, false] {
        for (steps, want) in [
            (&filled_in[..], json!({"action": "accept", "content": {"age": 36, "colour": "blue"}})),
            (&[("Age (1 of 2)", "/decline\r")], json!({"action": "decline"})),
        ] {
            let home = Home::with_files(&[("wellspring.toml", &config)]);
            let (code, shown) = in_script(&home, colour, steps);
            assert_eq!(code, Some(0), "{shown}");
            let (records, _) = home.records("last");
            let chunk = |record: &Record| {
                let Event::PartDelta { chunk, .. } = &record.event else { return None };
                Some(chunk.to_string())
            };
            let text: String = records.iter().filter_map(chunk).collect();
            let told: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(told, want, "{shown}");
        }
    }
}

/// An agent's own options are listed and chosen by number.
#[test]
fn a_choice_is_made_by_number() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    for colour in [true, false] {
        let steps = [("a number, or no", "9\r"), ("from 1 to 4", "2\r")];
        let (code, shown) = command_in_script(&Home::new(), "run ask", colour, &steps);
        assert_eq!(code, Some(0), "{shown}");
        for part in ["the sea", "You chose", "river"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

/// The tool's command ignores SIGINT and SIGTERM, so that the run takes a while to stop.
#[test]
fn a_second_interrupt_leaves_at_once() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    let home = Home::new();
    let stubborn = "e\r\u{15}trap '' INT TERM; echo stub''born; sleep 30\r";
    let steps = [("[y]es", stubborn), ("stubborn", "\u{3}"), ("again to exit now", "\u{3}")];
    let (code, shown) = in_script(&home, true, &steps);
    assert_eq!(code, Some(130), "{shown}");
    let listed = home.print(&["runs", "list"]);
    assert!(listed.contains("interrupted"), "{listed}");
    home.print(&["runs", "cancel", "last"]);
    assert!(home.records("last").1.finished);
}

/// A conversation: a question in it is answered, Ctrl-C stops a response but not the chat, the
/// prompt shows how to leave, and Ctrl-D exits.
#[test]
fn a_conversation_in_the_terminal() {
    if !is_there("script", "--version") {
        return skip("script");
    }
    for colour in [true, false] {
        let home = Home::new();
        let steps = [
            ("Ctrl-D exits", "Good morning\r"),
            ("[y]es", "y\r"),
            ("\n› ", "long\r"),
            ("A spring does", "\u{3}"),
            ("\n› ", "\u{3}"),
            ("Ctrl-D exits", "help\r"),
            ("\n› ", "\u{4}"),
        ];
        let (code, shown) = command_in_script(&home, "chat", colour, &steps);
        assert_eq!(code, Some(0), "{shown}");
        let listed: serde_json::Value =
            serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
        let runs: Vec<_> = listed.as_array().unwrap().iter().rev().collect();
        let standing: Vec<_> = runs.iter().map(|run| run["standing"].as_str().unwrap()).collect();
        assert_eq!(standing, ["completed", "cancelled", "completed"], "{shown}");
        assert!(runs.iter().all(|run| run["run"]["thread"] == runs[0]["run"]["thread"]));
    }
}
