use serde_json::json;
use wellspring_core::Approval::{Allow, Ask, Deny};

use super::*;

fn shell() -> ToolSpec {
    ToolSpec { kind: ToolKind::Execute, ..ToolSpec::new("run_shell_command", "") }
}

fn rule(name: &str, pattern: &str, decision: Approval) -> Rule {
    Rule::tool("*").argument(name, pattern).unwrap().decide(decision)
}

#[test]
fn stars_stand_for_anything() {
    for (pattern, name, fits) in [
        ("clock", "clock", true),
        ("clock", "clocks", false),
        ("*", "", true),
        ("run_*", "run_shell", true),
        ("run_*", "rerun_x", false),
        ("*_file", "read_file", true),
        ("*_file", "read_files", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c", false),
    ] {
        assert_eq!(name_fits(pattern, name), fits, "{pattern} {name}");
    }
}

#[test]
fn an_allow_rule_matches_its_argument_whole_and_no_other() {
    let policy = Policy::default().rule(rule("command", "git (log|diff)", Allow));
    for (arguments, decision) in [
        (json!({"command": "git log"}), Allow),
        (json!({"command": "git  'diff' "}), Allow),
        (json!({"command": ["git", "log"]}), Allow),
        (json!({"command": "git log; id"}), Ask),
        (json!({"command": "git log && id"}), Ask),
        (json!({"command": "git log\nid"}), Ask),
        (json!({"command": "id; git log"}), Ask),
        (json!({"command": "git log $(id)"}), Ask),
        (json!({"command": "git logs"}), Ask),
        (json!({"command": "id", "x": "git diff"}), Ask),
        (json!({"command": "git log", "x": "git diff"}), Ask),
        (json!({"command": ["git log"]}), Ask),
        (json!({"command": {"a": "git log"}}), Ask),
        (json!({"x": "git log"}), Ask),
        (json!({}), Ask),
        (json!("git log"), Ask),
        (json!(null), Ask),
    ] {
        assert_eq!(policy.decide(&shell(), &arguments), decision, "{arguments}");
        // A rule for a tool's name also applies, whatever approval the tool declares.
        let modest = ToolSpec { approval: Some(Ask), ..ToolSpec::new("mcp__run", "") };
        assert_eq!(policy.decide(&modest, &arguments), decision, "{arguments}");
    }
}

#[test]
fn a_pattern_with_room_for_anything_still_takes_one_command() {
    let policy = Policy::default().rule(rule("command", "git log.*", Allow));
    assert_eq!(policy.decide(&shell(), &json!({"command": "git log -p 'a; b'"})), Allow);
    assert_eq!(policy.decide(&shell(), &json!({"command": "git log -p a; b"})), Ask);
    let raw = Rule::tool("*").raw_argument("command", "git log.*").unwrap().decide(Allow);
    let policy = Policy::default().rule(raw);
    assert_eq!(policy.decide(&shell(), &json!({"command": "git log -p a; b"})), Allow);
}

#[test]
fn values_that_are_no_text_are_matched_as_json_writes_them() {
    let tool = ToolSpec { approval: Some(Ask), ..ToolSpec::new("wait", "") };
    let policy = Policy::default().rule(rule("seconds", "[0-9]", Allow));
    for (value, decision) in
        [(json!(7), Allow), (json!("7"), Allow), (json!(70), Ask), (json!([7]), Ask)]
    {
        assert_eq!(policy.decide(&tool, &json!({ "seconds": value })), decision, "{value}");
    }
}

#[test]
fn a_deny_rule_denies_what_it_cannot_read() {
    let policy =
        Policy::default().rule(rule("command", "rm .*", Deny)).rule(Rule::tool("*").decide(Allow));
    for (arguments, decision) in [
        (json!({"command": "rm -rf /"}), Deny),
        (json!({"command": "rm -rf /", "cwd": "x"}), Deny),
        (json!({"command": "'rm' -rf /"}), Deny),
        (json!({"command": "ls; rm -rf /"}), Deny),
        (json!({"command": "ls && ls"}), Deny),
        (json!({"command": ["rm", "-rf", "/"]}), Deny),
        (json!({"command": [["rm"]]}), Deny),
        (json!("rm -rf /"), Deny),
        (json!({"command": "ls"}), Allow),
        (json!({"path": "x"}), Allow),
    ] {
        assert_eq!(policy.decide(&shell(), &arguments), decision, "{arguments}");
    }
    // Raw text and other values may have several lines.
    let raw = Rule::tool("*").raw_argument("command", ".*rm .*").unwrap().decide(Deny);
    let path = rule("path", ".*/secrets/.*", Deny);
    let policy = Policy::default().rule(raw).rule(path).rule(Rule::tool("*").decide(Allow));
    let read = ToolSpec::new("read_file", "");
    assert_eq!(policy.decide(&shell(), &json!({"command": "ls\nrm -rf /"})), Deny);
    assert_eq!(policy.decide(&read, &json!({"path": "a\n/secrets/b\n"})), Deny);
}

#[test]
fn what_a_remote_agent_does_not_send_is_asked_about() {
    let deny =
        Policy::default().rule(rule("command", "rm .*", Deny)).rule(Rule::tool("*").decide(Allow));
    let ask = Policy::default()
        .rule(rule("command", "rm .*", Ask))
        .rule(rule("command", "ls", Allow))
        .rule(Rule::tool("*").decide(Deny));
    for (arguments, denying, asking) in [
        (json!(null), Ask, Deny),
        (json!({}), Ask, Deny),
        (json!({"cwd": "/"}), Ask, Deny),
        (json!({"command": "ls"}), Allow, Allow),
        (json!({"command": "rm -rf /"}), Deny, Ask),
        (json!({"command": "ls; rm -rf /"}), Deny, Deny),
    ] {
        assert_eq!(deny.decide_remote(&shell(), &arguments), denying, "{arguments}");
        assert_eq!(ask.decide_remote(&shell(), &arguments), asking, "{arguments}");
    }
}

#[test]
fn a_pattern_cannot_leave_its_anchors() {
    for pattern in ["a)|(b", "(?x) a # comment", "("] {
        let refused = Rule::tool("*").argument("command", pattern).unwrap_err().to_string();
        assert_eq!(refused, format!("{pattern:?} is not a regular expression"));
    }
}
