use wellspring_core::{PartKind, Stop, VoidReason};
use wellspring_testkit::{RunBuilder, samples};

use super::*;

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.text().trim_end().to_owned() + "\n").collect()
}

fn fold(records: &[Record]) -> Screen {
    let mut screen = Screen::new("Ctrl-C stops");
    records.iter().for_each(|record| screen.apply(record));
    screen
}

fn at(records: &[Record]) -> Millis {
    records.last().map(|record| record.at).unwrap_or_default()
}

#[test]
fn every_sample_at_sixty_columns() {
    let mut out = String::new();
    for sample in samples::all() {
        let lines = fold(&sample.records).all(60, at(&sample.records));
        assert!(lines.iter().all(|line| line.width() <= 60), "{}", sample.name);
        out.push_str(&format!("== {}\n{}\n", sample.name, text(&lines)));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn live_views_on_the_way() {
    let records = samples::plan_and_questions();
    let asked = records.iter().position(|record| matches!(record.event, Event::RunPaused { .. }));
    let half = &records[..asked.unwrap()];
    let mut out = text(&fold(half).all(40, at(half)));
    let records = samples::parallel_tools();
    let working =
        records.iter().rposition(|record| matches!(record.event, Event::ToolUpdated { .. }));
    let half = &records[..=working.unwrap()];
    out.push_str("==\n");
    out.push_str(&text(&fold(half).all(60, Millis(at(half).0 + 2_000))));
    insta::assert_snapshot!(out);
}

/// Whatever the frames are and wherever the live region overflows, the printed lines equal those of
/// the whole run.
#[test]
fn taking_piece_by_piece_prints_the_whole() {
    for sample in samples::all() {
        if matches!(sample.name, "voided_attempt" | "failed" | "one_of_each" | "remote_agent") {
            continue; // What was printed and then taken back stays in the terminal's history.
        }
        let whole = text(&fold(&sample.records).all(48, at(&sample.records)));
        for height in [0, 3, 100] {
            let mut screen = Screen::new("");
            let mut printed = Vec::new();
            for record in &sample.records {
                screen.apply(record);
                printed.extend(screen.take_settled(48));
                printed.extend(screen.take_overflow(48, height, record.at));
            }
            assert_eq!(text(&printed), whole, "{} at height {height}", sample.name);
            assert_eq!(screen.live(48, Millis(0)), [], "{}", sample.name);
        }
    }
}

#[test]
fn what_is_taken_back_leaves_the_live_region() {
    let mut run = RunBuilder::new("demo", "Tell me.");
    run.turn();
    let part = run.open(PartKind::TEXT);
    run.delta(part, "Once upon a").void(&[part], VoidReason::Restarted).turn();
    run.text(&["It is noon."]);
    run.stop(Stop::EndTurn);
    let records = run.complete();
    insta::assert_snapshot!(text(&fold(&records).all(60, at(&records))), @r"
    › Tell me.

    ↻ broken off; attempt 2

    It is noon.

    ✓ done  0.1 s · 1 turn · 12 in, 34 out · run 00000001
    ");
}

#[test]
fn what_a_model_says_cannot_command_the_terminal() {
    let mut run = RunBuilder::new("demo", "hi \x1b[2J");
    run.turn();
    run.thought(&["\x1b]0;title\x07"]);
    run.text(&["one\x1b", "[31m two \u{9b}2J \u{202e}evil"]);
    run.stop(Stop::EndTurn);
    let records = run.complete();
    let shown = text(&fold(&records).all(60, at(&records)));
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{shown:?}");
    assert!(shown.contains("one␛[31m two"), "{shown}");
}
