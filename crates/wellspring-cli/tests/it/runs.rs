//! `wellspring runs`: all views of a run agree.

use serde_json::Value;

use crate::kit::{Going, Home, json_lines};

#[test]
fn list_show_replay_and_export_agree() {
    let home = Home::new();
    let answer = home.print(&["run", "--yes", "Good morning"]);
    let shown = home.print(&["runs", "show", "last"]);
    assert!(shown.contains(&answer), "{shown}");
    assert_eq!(home.print(&["runs", "replay", "last", "--speed", "max"]), shown);

    let (records, outline) = home.records("last");
    assert!(outline.finished);
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    assert_eq!(listed[0]["run"]["head"], records.len());
    assert_eq!(listed[0]["standing"], "completed");

    let whole: Value =
        serde_json::from_str(&home.print(&["runs", "export", "last", "--format", "json"])).unwrap();
    let lines = json_lines(&home.print(&["runs", "export", "last"]));
    assert_eq!(whole["records"], Value::Array(lines));
    let markdown = home.print(&["runs", "export", "last", "--format", "markdown"]);
    assert!(markdown.contains("## Asked\n\nGood morning"), "{markdown}");
    assert!(markdown.contains("### Tool `run_shell_command`"), "{markdown}");
}

#[test]
fn ids_can_be_shortened() {
    let home = Home::new();
    home.print(&["run", "help"]);
    home.print(&["run", "long"]);
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    let ids: Vec<&str> = [0, 1].map(|at| listed[at]["run"]["run"].as_str().unwrap()).to_vec();
    let first = home.print(&["runs", "show", ids[1]]);
    assert!(first.starts_with("› help"), "{first}");
    for id in [&ids[1][ids[1].len() - 8..], &ids[1].replace('-', "")[2..].to_uppercase()] {
        assert_eq!(home.print(&["runs", "show", id]), first, "{id}");
    }
    assert!(home.print(&["runs", "show", "last"]).starts_with("› long"));
    // Both began within the same minutes, so their ids have the same prefix.
    let output = home.output(&["runs", "show", &ids[0][..4]]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("matches 2 of them"), "{said}");
}

#[test]
fn filters_find_what_they_say() {
    let home = Home::new();
    home.print(&["run", "help"]);
    home.output(&["run", "fail for good"]);
    let count = |arguments: &[&str]| {
        let all = [&["runs", "list", "--json"], arguments].concat();
        serde_json::from_str::<Vec<Value>>(&home.print(&all)).unwrap().len()
    };
    assert_eq!(count(&[]), 2);
    assert_eq!(count(&["--state", "failed"]), 1);
    assert_eq!(count(&["--state", "running"]), 0);
    assert_eq!(count(&["--limit", "1"]), 1);
    assert_eq!(count(&["--agent", "nobody"]), 0);
    assert_eq!(count(&["--thread", "last"]), 1);
}

#[test]
fn a_thread_goes_on() {
    let home = Home::new();
    home.print(&["run", "help"]);
    home.print(&["run", "--thread", "last", "long"]);
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    assert_eq!(listed[0]["run"]["thread"], listed[1]["run"]["thread"]);
    assert_eq!(listed[0]["run"]["after"], listed[1]["run"]["run"]);
}

#[test]
fn a_second_process_follows_the_first() {
    let home = Home::new();
    let run = ["run", "--yes", "--events", "record", "Good morning"];
    let mut first = Going::start(home.paced(10, &run));
    first.wait_for("Good morning");
    let second = Going::start(home.paced(0, &["runs", "show", "--follow", "last"]));
    let (status, followed, _) = second.end();
    let (first_status, ..) = first.end();
    let shown = home.print(&["runs", "show", "last"]);
    let shown: Vec<_> = shown.lines().collect();
    assert_eq!((status.code(), first_status.code()), (Some(0), Some(0)));
    assert_eq!(followed, shown);
}

#[test]
fn a_second_process_cancels_the_first() {
    let home = Home::new();
    let mut first = Going::start(home.paced(40, &["run", "long"]));
    first.wait_for("1. A spring");
    let listed = home.print(&["runs", "list"]);
    assert!(listed.contains("running"), "{listed}");
    let said = home.print(&["runs", "cancel", "last", "--why", "enough"]);
    assert!(said.contains("cancelled: enough"), "{said}");
    let (status, _, told) = first.end();
    assert_eq!(status.code(), Some(130));
    assert_eq!(told, "wellspring: cancelled: enough\n");
    assert!(home.records("last").1.finished);
    assert!(home.print(&["runs", "cancel", "last"]).contains("has already finished: cancelled"));
}

#[test]
fn only_what_is_over_is_deleted() {
    let home = Home::new();
    let mut first = Going::start(home.paced(40, &["run", "long"]));
    first.wait_for("1. A spring");
    let output = home.output(&["runs", "delete", "last"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    home.print(&["runs", "cancel", "last"]);
    first.end();
    assert!(home.print(&["runs", "delete", "last"]).starts_with("deleted run"));
    assert!(home.print(&["runs", "list"]).starts_with("no runs"));
}
