//! Ctrl-C and other signals.

use rustix::process::Signal;
use wellspring_core::{Event, Outcome};

use crate::kit::{Going, Home};

#[test]
fn an_interrupt_cancels_cleanly() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut run = Going::start(home.paced(40, &["run", "long"]));
        run.wait_for("1. A spring");
        run.signal(signal);
        let (status, _, said) = run.end();
        assert_eq!(status.code(), Some(130), "{said}");
        assert_eq!(said, "wellspring: cancelled: interrupted\n");
        let (records, outline) = home.records("last");
        assert!(outline.finished);
        let last = records.last().map(|record| record.event.clone());
        let Some(Event::RunFinished { outcome }) = last else { panic!("{last:?}") };
        assert!(matches!(*outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    }
}

#[test]
fn an_interrupt_reaches_a_running_command() {
    let home = Home::new();
    let mut run = Going::start(home.paced(1, &["run", "--yes", "--events", "record", "Hi"]));
    run.wait_for("stdout_chunk");
    run.signal(Signal::INT);
    let (status, ..) = run.end();
    assert_eq!(status.code(), Some(130));
    let (records, _) = home.records("last");
    let interrupted = records.iter().any(|record| {
        matches!(&record.event, Event::ToolFinished { outcome, .. }
            if *outcome != wellspring_core::ToolOutcome::Ok)
    });
    assert!(interrupted, "{}", wellspring_core::render(&records));
}

#[test]
fn a_closed_pipe_stops_the_run() {
    let home = Home::new();
    let mut run = Going::start(home.paced(40, &["run", "long"]));
    run.wait_for("1. A spring");
    let status = run.close();
    assert_eq!(status.code(), Some(130));
    assert!(home.print(&["runs", "show", "last"]).contains("the output was closed"));
}
