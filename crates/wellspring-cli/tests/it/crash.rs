//! `kill -9` anywhere in a run, then `runs resume`.

use rustix::process::Signal;
use wellspring_core::Record;
use wellspring_testkit::soak;

use crate::kit::{Going, Home};

/// Approximate number of records of a demo run, over which the crashes are spread.
const RECORDS: usize = 331;

#[test]
fn a_killed_run_goes_on_without_gap_or_duplicate() {
    for crash in 0..soak(5, 100) as usize {
        // A step that is coprime to the number of records, so that the crashes are spread out and
        // never repeat.
        crash_and_resume(1 + crash * 131 % RECORDS);
    }
}

fn crash_and_resume(at: usize) {
    let home = Home::new();
    let mut run = Going::start(home.paced(2, &["run", "--yes", "--events", "record", "Hello"]));
    while run.seen.len() < at && run.line().is_some() {}
    run.signal(Signal::KILL);
    let (_, seen, _) = run.end();
    assert!(!seen.is_empty(), "killed at {at}");

    let listed = home.print(&["runs", "list"]);
    if listed.contains("interrupted") {
        assert!(listed.contains("continue it with `wellspring runs resume"), "{listed}");
    }
    if !listed.contains("completed") {
        let output = home.output(&["runs", "resume", "last", "--yes", "--events", "record"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "killed at {at}: {output:?}");
        let resumed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(resumed, home.print(&["runs", "export", "last"]), "killed at {at}");
    }
    // The grammar holds over the crash, and every record that was read is still there.
    let (records, outline) = home.records("last");
    assert!(outline.finished, "killed at {at}");
    let seen: Vec<Record> = seen.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen, records[..seen.len()], "killed at {at}");
}

#[test]
fn an_interrupted_run_can_be_cancelled() {
    let home = Home::new();
    let mut run = Going::start(home.paced(40, &["run", "long"]));
    run.wait_for("1. A spring");
    run.signal(Signal::KILL);
    run.end();
    assert!(home.print(&["runs", "show", "last"]).contains("its process ended"));
    assert!(home.print(&["runs", "cancel", "last"]).contains("cancelled"));
    assert!(home.records("last").1.finished);
}
