//! Flips single bytes in a closed store's file. Afterwards, all data that is returned is
//! correct, and everything else is a named error.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt as _;
use serde_json::json;
use uuid::Uuid;
use wellspring_core::{
    Command, Content, Event, InboxNo, Millis, Outline, Record, RunId, RunRequest, RunStarted, Seq,
    ThreadId, Transcript,
};
use wellspring_log::{
    Act, AdoptError, AuditEntry, AuditFilter, Beginning, Document, DocumentFilter, Expected,
    ExternalId, InboxEntry, Log, LogOptions, NewAudit, NewCommand, ReadError, RunFilter, RunInfo,
    SqliteOptions, SqliteStore, StoreError,
};
use wellspring_testkit::soak;

use crate::runs::{ROOT, delta, finished, part_finished, part_started};

const RUNS: u128 = 100;

/// The results of every read operation of a store.
#[derive(Debug, PartialEq)]
struct Answers {
    runs: BTreeMap<RunId, OfRun>,
    list: Result<Vec<RunInfo>, String>,
    documents: Result<Vec<Document>, String>,
    audit: Result<Vec<AuditEntry>, String>,
}

#[derive(Debug, PartialEq)]
struct OfRun {
    records: Result<Vec<Record>, String>,
    transcript: Result<Transcript, String>,
    outline: Result<Outline, String>,
    info: Result<Option<RunInfo>, String>,
    inbox: Result<Vec<InboxEntry>, String>,
    named: Result<Option<RunId>, String>,
}

/// The error's message, if it names the damage.
fn by_name(error: &StoreError) -> String {
    let named = matches!(
        error,
        StoreError::Damaged { .. }
            | StoreError::DamagedStore { .. }
            | StoreError::DamagedDocument(_)
    );
    assert!(named, "not by name: {error:?}");
    error.to_string()
}

fn read_by_name(error: ReadError) -> String {
    assert!(matches!(error, ReadError::Store(_)), "not by name: {error:?}");
    let ReadError::Store(error) = error else { return String::new() };
    by_name(&error)
}

fn run_id(number: u128) -> RunId {
    RunId::new(Uuid::from_u128(number << 64 | 7))
}

fn name(number: u128) -> ExternalId {
    ExternalId { tenant: "t".into(), surface: "s".into(), id: number.to_string().into() }
}

fn options() -> LogOptions {
    LogOptions { outline_bytes: 300, page_bytes: 500, node: "node".into(), ..LogOptions::default() }
}

fn open(path: &Path) -> Result<Log, wellspring_log::OpenError> {
    let store = SqliteStore::open(path, SqliteOptions::default())?;
    Ok(Log::new(Arc::new(store), options()))
}

/// A third of the runs is finished, a third is paused, a third is running.
async fn fill(path: &Path) {
    let store = Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap());
    let log = Log::new(store.clone(), options());
    for number in 0..RUNS {
        let started = RunStarted {
            run: run_id(number),
            thread: ThreadId::new(Uuid::from_u128(number + 1000)),
            agent: "demo".into(),
            after: None,
            request: RunRequest::text(format!("question {number}")),
        };
        let beginning = Beginning { name: Some(name(number)), ..Beginning::default() };
        let tenant = if number % 2 == 0 { "t" } else { "u" };
        let owner = log.begin(tenant, started.into(), beginning).await.unwrap();
        owner.push(ROOT, part_started(0));
        for word in 0..number % 40 {
            owner.push(ROOT, delta(0, &format!("run {number} says word {word}. ")));
            owner.commit().await.unwrap();
        }
        owner.commit().await.unwrap();
        let command = Command::AddInput { content: vec![Content::text("more")], message: None };
        let act = Act {
            at: Millis(5),
            by: "somebody".into(),
            run: owner.run(),
            did: "input".into(),
            details: json!({ "n": number as u64 }),
        };
        let audit = NewAudit { tenant: "t".into(), key: number.to_string().into(), act };
        let key = "key".into();
        log.send(owner.run(), vec![NewCommand { key, command, audit: Some(audit) }]).await.unwrap();
        match number % 3 {
            0 => {
                owner.push(ROOT, part_finished(0));
                owner.push(ROOT, finished());
            }
            1 => owner.push(ROOT, Event::RunPaused { waits: Vec::new() }),
            _ => {}
        }
        owner.commit().await.unwrap();
        let (document, text) = (format!("token/{number}"), format!("secret {number}"));
        let store = log.store();
        store.put_document(document.into(), Some(text.into()), Expected::Absent).await.unwrap();
    }
    drop(log);
    // Snapshots are written later; the file is complete once it is closed.
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);
    // If several connections close at once, the write-ahead log may keep data.
    let file = rusqlite::Connection::open(path).unwrap();
    let busy = file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    assert_eq!(busy, Ok(0));
}

async fn ask(log: &Log) -> Answers {
    let store = log.store();
    let mut runs = BTreeMap::new();
    for number in 0..RUNS {
        let run = run_id(number);
        let info = store.info(run).await.map_err(|error| by_name(&error));
        // An unfinished run has no end to wait for.
        let head = info.as_ref().ok().and_then(|info| Some(info.as_ref()?.head));
        let records = async {
            let cursor = log.cursor(run, Seq(0)).await?;
            let mut records = Box::pin(cursor.into_records());
            let mut read: Vec<Record> = Vec::new();
            while read.last().map(|record| record.seq) != head {
                match records.try_next().await? {
                    Some(record) => read.push(record),
                    None => break,
                }
            }
            Ok(read)
        };
        let of_run = OfRun {
            records: records.await.map_err(read_by_name),
            transcript: log.transcript(run).await.map_err(read_by_name),
            outline: log.outline_before(run, Seq(2)).await.map_err(read_by_name),
            inbox: store.inbox(run, InboxNo(0)).await.map_err(|error| by_name(&error)),
            named: store.resolve(name(number)).await.map_err(|error| by_name(&error)),
            info,
        };
        runs.insert(run, of_run);
    }
    let filter = AuditFilter { tenant: "t".into(), before: None, limit: 1000 };
    let documents = DocumentFilter::below("token/");
    Answers {
        runs,
        list: store.list(RunFilter::default()).await.map_err(|error| by_name(&error)),
        documents: store.documents(documents).await.map_err(|error| by_name(&error)),
        audit: store.audit(filter).await.map_err(|error| by_name(&error)),
    }
}

/// Counts the errors and asserts that everything else is unchanged.
#[derive(Debug, Default)]
struct Compared {
    errors: usize,
}

impl Compared {
    fn one<T: Debug + PartialEq>(
        &mut self,
        what: &str,
        was: &Result<T, String>,
        is: &Result<T, String>,
    ) {
        match is {
            Ok(_) => assert!(was == is, "served wrong, {what}:\n{was:?}\n{is:?}"),
            Err(_) => self.errors += 1,
        }
    }

    fn all(&mut self, was: &Answers, is: &Answers) {
        self.one("list", &was.list, &is.list);
        self.one("documents", &was.documents, &is.documents);
        self.one("audit", &was.audit, &is.audit);
        for (run, was) in &was.runs {
            let is = &is.runs[run];
            self.one("records", &was.records, &is.records);
            self.one("transcript", &was.transcript, &is.transcript);
            self.one("outline", &was.outline, &is.outline);
            self.one("info", &was.info, &is.info);
            self.one("inbox", &was.inbox, &is.inbox);
            self.one("named", &was.named, &is.named);
        }
    }
}

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_is_harmless_or_an_error_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    fill(&path).await;
    let whole = std::fs::read(&path).unwrap();
    let log = open(&path).unwrap();
    let was = ask(&log).await;
    assert_eq!(log.store().check().await.unwrap(), []);
    drop(log);
    let mut none = Compared::default();
    none.all(&was, &was);
    assert_eq!(none.errors, 0, "nothing is damaged yet");

    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let (mut harmless, mut said, mut refused) = (0, 0, 0);
    for round in 0..soak(20, 1000) {
        let at = usize::try_from(numbers.next() % whole.len() as u64).unwrap();
        let flip = u8::try_from(numbers.next() % 255 + 1).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let mut flipped = whole.clone();
        flipped[at] ^= flip;
        std::fs::write(&path, flipped).unwrap();
        eprintln!("round {round}: byte {at} of {} ^ {flip:#04x}", whole.len());
        let Ok(log) = open(&path) else {
            refused += 1;
            continue;
        };
        let is = ask(&log).await;
        let mut compared = Compared::default();
        compared.all(&was, &is);
        let found = log.store().check().await.unwrap();
        if compared.errors == 0 {
            harmless += 1;
        } else {
            said += 1;
            assert!(!found.is_empty(), "the check did not find it");
        }
        // Nothing is appended to finished or damaged runs.
        for number in (0..RUNS).step_by(7) {
            let run = run_id(number);
            match log.take_over(run).await {
                Ok(owner) => {
                    let mut folded = was.runs[&run].transcript.clone().unwrap();
                    assert!(!folded.outline.finished, "adopted after its end");
                    owner.commit().await.unwrap();
                    let now = log.transcript(run).await.unwrap();
                    folded.outline.head = now.outline.head;
                    assert_eq!(folded.words(ROOT), now.words(ROOT));
                }
                Err(AdoptError::Store(error)) => drop(by_name(&error)),
                Err(AdoptError::Finished(_)) => {
                    assert!(was.runs[&run].transcript.as_ref().unwrap().outline.finished);
                }
                Err(error) => assert_eq!(error.to_string(), "", "adopted neither way"),
            }
        }
    }
    eprintln!("{harmless} harmless, {said} said, {refused} not opened");
    assert!(said > 0, "nothing was damaged");
}
