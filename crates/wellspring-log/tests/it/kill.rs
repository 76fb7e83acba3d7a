//! `kill -9` in the middle of a run: every record that a reader received is still there
//! afterwards.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use wellspring_core::{Checker, Seq};
use wellspring_log::{Log, LogOptions, SqliteOptions, SqliteStore};
use wellspring_testkit::soak;

use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records};

const CHILD: &str = "WELLSPRING_LOG_KILL_CHILD";

fn open(directory: &Path) -> Log {
    let store = SqliteStore::open(directory.join("runs.db"), SqliteOptions::default()).unwrap();
    Log::new(Arc::new(store), LogOptions::default())
}

/// The process that is killed: it appends forever and reports what a reader has received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let log = open(Path::new(&directory));
    let owner = create(&log).await;
    let mut cursor = log.cursor(owner.run(), Seq(0)).await.unwrap();
    let pusher = tokio::spawn(async move {
        owner.push(ROOT, part_started(0));
        for number in 0u64.. {
            owner.room().await.unwrap();
            owner.push(ROOT, delta(0, &format!("{number} ")));
            tokio::task::yield_now().await;
        }
    });
    let mut out = std::io::stdout();
    while let Some(frames) = cursor.next().await.unwrap() {
        let last = frames[frames.len() - 1].last();
        // One write per line, so that the parent never reads an incomplete line as complete.
        out.write_all(format!("\nseen {} {}\n", cursor.run(), last).as_bytes()).unwrap();
        out.flush().unwrap();
    }
    pusher.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_survives() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..soak(12, 200) as usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed after a different number of frames each time; its reports until then count.
        let mut seen = Vec::new();
        while seen.len() < 1 + (round % 12).pow(2) * 7 {
            seen.extend(parse(&lines.next().unwrap().unwrap()));
        }
        child.kill().unwrap();
        seen.extend(lines.map_while(Result::ok).filter_map(|line| parse(&line)));
        child.wait().unwrap();

        let (run, last) = *seen.last().unwrap();
        let log = open(directory.path());
        let heir = log.take_over(run).await.unwrap();
        let head = heir.with_transcript(|transcript| transcript.outline.head);
        assert!(head > last, "record {last} was read, but the head is {head}");
        let open = heir.with_transcript(|transcript| !transcript.outline.parts.is_empty());
        let end = open.then(|| part_finished(0)).into_iter().chain([finished()]);
        heir.push_all(end.map(|event| (ROOT, event)));
        heir.commit().await.unwrap();
        let all = records(&log, run, Seq(0)).await;
        Checker::check(&all).unwrap();
        let words = log.transcript(run).await.unwrap().words(ROOT);
        let numbers: Vec<u64> =
            words.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    }
}

fn parse(line: &str) -> Option<(wellspring_core::RunId, Seq)> {
    let (run, seq) = line.strip_prefix("seen ")?.split_once(' ')?;
    Some((run.parse().ok()?, Seq(seq.parse().ok()?)))
}
