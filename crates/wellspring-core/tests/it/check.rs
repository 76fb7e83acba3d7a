//! Every way to violate the grammar, and the invariant that the checker names.

use std::fmt::Write as _;

use wellspring_core::{
    AgentNo, Annotation, Answer, Checker, Cost, Event, Form, InboxNo, Outcome, OutputStream,
    PartId, PartKind, QuestionId, Record, Seq, Stop, ToolUpdate, TurnStarted, Usage, VoidReason,
};
use wellspring_testkit::RunBuilder;

/// A run with an open turn, changed by `break_it`, and the checker's verdict.
fn broken(break_it: impl FnOnce(&mut RunBuilder)) -> String {
    let mut run = RunBuilder::new("demo", "Break it.");
    run.turn();
    break_it(&mut run);
    verdict(&run.records())
}

/// The same; then the run ends.
fn unfinished(leave_open: impl FnOnce(&mut RunBuilder)) -> String {
    let mut run = RunBuilder::new("demo", "Leave it open.");
    run.turn();
    leave_open(&mut run);
    verdict(&run.complete())
}

/// A valid run with modified records.
fn tampered(tamper: impl FnOnce(&mut Vec<Record>)) -> String {
    let mut run = RunBuilder::new("demo", "Tamper with it.");
    run.turn().text(&["Hello."]);
    run.stop(Stop::EndTurn);
    let mut records = run.complete();
    tamper(&mut records);
    verdict(&records)
}

fn verdict(records: &[Record]) -> String {
    match Checker::check(records) {
        Ok(_) => "legal".into(),
        Err(violation) => violation.to_string(),
    }
}

fn render<const N: usize>(verdicts: [(&str, String); N]) -> String {
    verdicts.into_iter().fold(String::new(), |mut text, (name, verdict)| {
        let _ = writeln!(text, "{name}: {verdict}");
        text
    })
}

fn done() -> Outcome {
    Outcome::Completed { stop: Stop::EndTurn }
}

fn annotate(run: &mut RunBuilder, part: PartId) {
    run.push(Event::PartAnnotated { part, annotation: Box::new(Annotation::Preamble) });
}

fn start_turn(run: &mut RunBuilder, turn: u32, attempt: u32) {
    let model = "scripted".into();
    run.push(Event::TurnStarted(Box::new(TurnStarted { turn, attempt, model, streaming: true })));
}

#[test]
fn dense() {
    insta::assert_snapshot!(render([
        ("untouched", tampered(|_| {})),
        ("gap", tampered(|records| { records.remove(3); })),
        ("repeated", tampered(|records| records[3].seq = Seq(3))),
        ("from 2", tampered(|records| { records.remove(0); })),
        ("from 0", tampered(|records| records[0].seq = Seq(0))),
    ]), @"
    untouched: legal
    gap: record 5 breaks invariant 1 (dense): expected record 4
    repeated: record 3 breaks invariant 1 (dense): expected record 4
    from 2: record 2 breaks invariant 1 (dense): expected record 1
    from 0: record 0 breaks invariant 1 (dense): expected record 1
    ");
}

#[test]
fn one_terminal() {
    insta::assert_snapshot!(render([
        ("no start", tampered(|records| {
            records.remove(0);
            records.iter_mut().for_each(|record| record.seq.0 -= 1);
        })),
        ("two starts", broken(|run| {
            let again = RunBuilder::new("demo", "Again.").records().remove(0).event;
            run.push(again);
        })),
        ("two ends", tampered(|records| {
            let last = records.last().unwrap().clone();
            records.push(Record { seq: last.seq.next(), ..last });
        })),
    ]), @"
    no start: record 1 breaks invariant 2 (one terminal): `run started` must be first, and only first
    two starts: record 3 breaks invariant 2 (one terminal): `run started` must be first, and only first
    two ends: record 8 breaks invariant 2 (one terminal): the run was already over
    ");
}

#[test]
fn closed() {
    insta::assert_snapshot!(render([
        ("open part", unfinished(|run| { run.open(PartKind::TEXT); })),
        ("open call", unfinished(|run| { run.call("clock", &["{}"]); })),
        ("open question", unfinished(|run| { run.ask(None, "Why?", Form::Approve); })),
        ("open sub-agent", unfinished(|run| { run.sub_agent("clerk", None); })),
        ("turn over an open part", broken(|run| {
            run.open(PartKind::Thought);
            run.stop(Stop::EndTurn);
        })),
        ("sub-agent over an open part", broken(|run| {
            run.sub_agent("clerk", None);
            run.open(PartKind::TEXT);
            run.sub_agent_done(done());
        })),
        ("two results", broken(|run| {
            let call = run.call("clock", &["{}"]);
            run.start(call).ok(call, "noon").ok(call, "midnight");
        })),
        ("result of no call", broken(|run| { run.ok(PartId(7), "noon"); })),
        ("answer to no question", broken(|run| {
            run.answer(QuestionId(0), Answer::Expired);
        })),
    ]), @"
    open part: record 4 breaks invariant 3 (closed): part 0 is open
    open call: record 6 breaks invariant 3 (closed): call 0 has no result
    open question: record 4 breaks invariant 3 (closed): question 0 is open
    open sub-agent: record 4 breaks invariant 3 (closed): agent 1 has not finished
    turn over an open part: record 4 breaks invariant 3 (closed): part 0 is open
    sub-agent over an open part: record 5 breaks invariant 3 (closed): part 0 is open
    two results: record 8 breaks invariant 3 (closed): 0 is finished but it is not an open call
    result of no call: record 3 breaks invariant 3 (closed): 7 is finished but it is not an open call
    answer to no question: record 3 breaks invariant 3 (closed): question 0 is not open
    ");
}

#[test]
fn parts() {
    insta::assert_snapshot!(render([
        ("empty delta", broken(|run| {
            let part = run.open(PartKind::TEXT);
            run.delta(part, "");
        })),
        ("delta of a closed part", broken(|run| {
            let part = run.text(&["Hello."]);
            run.delta(part, "!");
        })),
        ("delta of a voided part", broken(|run| {
            let part = run.open(PartKind::TEXT);
            run.void(&[part], VoidReason::Restarted).delta(part, "!");
        })),
        ("closed twice", broken(|run| {
            let part = run.text(&["Hello."]);
            run.close(part);
        })),
        ("part opened twice", broken(|run| {
            let part = run.text(&["Hello."]);
            run.push(Event::PartStarted { part, kind: PartKind::TEXT });
        })),
        ("another agent's part", broken(|run| {
            let part = run.open(PartKind::TEXT);
            run.sub_agent("clerk", None);
            run.delta(part, "Mine!");
        })),
        ("annotated after its turn", broken(|run| {
            let part = run.text(&["Hello."]);
            run.stop(Stop::EndTurn);
            annotate(run, part);
        })),
        ("voided after its turn", broken(|run| {
            let part = run.text(&["Hello."]);
            run.stop(Stop::EndTurn).void(&[part], VoidReason::Replaced);
        })),
        ("question asked twice", broken(|run| {
            run.ask(None, "Why?", Form::Approve);
            let again = run.clone().records().pop().unwrap().event;
            run.push(again);
        })),
        ("agent started twice", broken(|run| {
            run.sub_agent("clerk", None);
            let again = run.clone().records().pop().unwrap().event;
            run.push(again);
        })),
    ]), @"
    empty delta: record 4 breaks invariant 4 (parts): an empty delta of part 0
    delta of a closed part: record 6 breaks invariant 4 (parts): part 0 is not open
    delta of a voided part: record 5 breaks invariant 4 (parts): part 0 is not open
    closed twice: record 6 breaks invariant 4 (parts): part 0 is not open
    part opened twice: record 6 breaks invariant 4 (parts): part 0 is not fresh
    another agent's part: record 5 breaks invariant 4 (parts): part 0 is agent 0's
    annotated after its turn: record 7 breaks invariant 4 (parts): part 0 can no longer be annotated
    voided after its turn: record 7 breaks invariant 4 (parts): part 0 can no longer be voided
    question asked twice: record 4 breaks invariant 4 (parts): question 0 is not fresh
    agent started twice: record 4 breaks invariant 4 (parts): agent 1 is not fresh
    ");
}

/// JSON has no infinity, so the value would be lost in a log.
#[test]
fn fold() {
    let cost = Some(Cost { amount: f64::INFINITY, currency: "EUR".into() });
    let usage = Some(Box::new(Usage { cost, ..Usage::default() }));
    let mut run = RunBuilder::new("demo", "Spend it all.");
    run.turn().push(Event::TurnFinished { stop: Stop::EndTurn, usage });
    run.turn();
    run.text(&["It", " is", " all", " gone."]);
    let verdict = verdict(&run.records());
    let want = "record 6 breaks invariant 5 (fold): folding on from here gives another transcript";
    assert_eq!(verdict, want);
}

#[test]
fn announced() {
    insta::assert_snapshot!(render([
        ("started while its arguments come", broken(|run| {
            let call = run.open(PartKind::call("clock"));
            run.start(call);
        })),
        ("queued after it started", broken(|run| {
            let call = run.call("clock", &["{}"]);
            run.queue(call, 0).start(call).queue(call, 0);
        })),
        ("updated before it started", broken(|run| {
            let call = run.call("clock", &["{}"]);
            run.update(call, ToolUpdate::default());
        })),
        ("turn skipped", broken(|run| {
            run.stop(Stop::EndTurn);
            start_turn(run, 3, 1);
        })),
        ("attempt skipped", broken(|run| start_turn(run, 1, 3))),
        ("turn ended twice", broken(|run| {
            run.stop(Stop::EndTurn).stop(Stop::EndTurn);
        })),
        ("unknown agent", broken(|run| {
            run.speaker(AgentNo(3)).turn();
        })),
        ("finished agent", broken(|run| {
            let clerk = run.sub_agent("clerk", None);
            run.sub_agent_done(done()).speaker(clerk).turn();
        })),
        ("orphan", broken(|run| {
            run.speaker(AgentNo(3)).sub_agent("clerk", None);
        })),
        ("input out of nowhere", broken(|run| {
            run.push(Event::InputApplied { inbox: InboxNo(1) });
        })),
        ("a sub-agent ends the run", broken(|run| {
            let clerk = run.sub_agent("clerk", None);
            run.speaker(clerk).push(Event::RunFinished { outcome: Box::new(done()) });
        })),
        ("the root ends like a sub-agent", broken(|run| {
            run.push(Event::AgentFinished { outcome: Box::new(done()) });
        })),
        ("output of nothing", broken(|run| {
            let kind = PartKind::Output { call: PartId(9), stream: OutputStream::Stdout };
            run.push(Event::PartStarted { part: PartId(0), kind });
        })),
        ("resumed without a pause", broken(|run| {
            run.push(Event::RunResumed { inbox: None, wire_run: None, amended: None });
        })),
        ("work in a pause", broken(|run| {
            run.push(Event::RunPaused { waits: Vec::new() });
            start_turn(run, 1, 2);
        })),
    ]), @"
    started while its arguments come: record 4 breaks invariant 6 (announced): call 0 is started while Asked
    queued after it started: record 8 breaks invariant 6 (announced): call 0 is queued while Started(Parallel)
    updated before it started: record 6 breaks invariant 6 (announced): call 0 is updated while Complete
    turn skipped: record 4 breaks invariant 6 (announced): turn 3.1 started; expected 2.1
    attempt skipped: record 3 breaks invariant 6 (announced): turn 1.3 started; expected 1.2
    turn ended twice: record 4 breaks invariant 6 (announced): no turn is going on
    unknown agent: record 3 breaks invariant 6 (announced): agent 3 has not started
    finished agent: record 5 breaks invariant 6 (announced): agent 1 has not started
    orphan: record 3 breaks invariant 6 (announced): its parent 3 is not running
    input out of nowhere: record 3 breaks invariant 6 (announced): input 1 was not accepted
    a sub-agent ends the run: record 4 breaks invariant 6 (announced): agent 1 speaks for the run
    the root ends like a sub-agent: record 3 breaks invariant 6 (announced): the root agent ends with its run
    output of nothing: record 3 breaks invariant 6 (announced): output belongs to call 9, which does not exist
    resumed without a pause: record 3 breaks invariant 6 (announced): the run was not paused
    work in a pause: record 4 breaks invariant 6 (announced): the run is paused
    ");
}
