//! The official client, schemas and binary decoder, over the streams that we make. Runs when
//! `WELLSPRING_PEER_AG_UI` is set, after `npm ci` in `tests/peer`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use wellspring_core::Record;
use wellspring_testkit::arbitrary::arb_run;
use wellspring_testkit::{ag_ui_validate, samples, soak};

use super::super::proto;
use super::client::Client;
use super::{asked, joined, whole};

/// Sends each stream to the official client, which must report no error and end with the same
/// messages as our own model of it.
fn agree(streams: &[(String, Vec<Value>, Vec<Value>)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer");
    let mut node = Command::new("node")
        .arg("ag_ui.mjs")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = node.stdin.take().unwrap();
    let lines: Vec<String> =
        streams.iter().map(|(_, messages, events)| request(messages, events)).collect();
    let writing = std::thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").unwrap();
        }
    });
    let output = node.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    let verdicts = String::from_utf8(output.stdout).unwrap();
    let mut verdicts = verdicts.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for (name, messages, events) in streams {
        let verdict = verdicts.next().unwrap();
        assert_eq!(verdict["problems"], json!([]), "{name}");
        let client = Client { state: json!({}), ..Client::with(messages.clone()) };
        let client = client.fold(events);
        assert_eq!(verdict["messages"], json!(client.messages), "{name}");
        assert_eq!(verdict["state"], client.state, "{name}");
    }
}

fn request(messages: &[Value], events: &[Value]) -> String {
    let mut bytes = Vec::new();
    for event in events {
        proto::frame(&serde_json::from_value(event.clone()).unwrap(), &mut bytes);
    }
    json!({"messages": messages, "events": events, "frames": base64(&bytes)}).to_string()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place) & 63) as usize] as char;
            text.push(if place <= three.len() { letter } else { '=' });
        }
    }
    text
}

/// A run from its start, and joined at every `step`th record.
fn streams(
    name: &str,
    run: &[Record],
    step: usize,
    all: &mut Vec<(String, Vec<Value>, Vec<Value>)>,
) {
    all.push((name.to_owned(), asked(run), whole(run)));
    for cut in (1..=run.len()).step_by(step) {
        all.push((format!("{name} joined at {cut}"), Vec::new(), joined(run, cut, 3)));
    }
}

#[test]
fn the_official_client_agrees() {
    if std::env::var_os("WELLSPRING_PEER_AG_UI").is_none() {
        return;
    }
    let mut all = Vec::new();
    for sample in samples::all() {
        streams(sample.name, &sample.records, 3, &mut all);
    }
    let mut runner = TestRunner::deterministic();
    for round in 0..soak(60, 2000) {
        let run = arb_run().new_tree(&mut runner).unwrap().current();
        streams(&format!("random run {round}"), &run, 40, &mut all);
    }
    agree(&all);
}

/// Another validator must report neither an error nor a warning, from the start or joined
/// halfway.
#[test]
fn validated() {
    for sample in samples::all() {
        let half = joined(&sample.records, sample.records.len().div_ceil(2), 1);
        for events in [whole(&sample.records), half] {
            let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            let Some(judged) = ag_ui_validate(&stream) else { return };
            judged.unwrap_or_else(|findings| panic!("{}: {findings}", sample.name));
        }
    }
}
