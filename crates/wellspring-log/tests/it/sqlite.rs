//! Properties of the SQLite store's file.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use wellspring_core::{Seq, Transcript};
use wellspring_log::{
    Act, AppendError, DocumentFilter, Durability, Expected, Log, LogOptions, NewAudit, OpenError,
    SqliteOptions, SqliteStore, Store, StoreError,
};

use crate::runs::{ROOT, create, delta, finished, part_finished, part_started, records};
use crate::stores::Sqlite;

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, SqliteOptions::default())
}

fn log(store: SqliteStore) -> Log {
    Log::new(Arc::new(store), LogOptions::default())
}

#[tokio::test]
async fn a_run_outlives_its_process() {
    let sqlite = Sqlite::new(Durability::PowerLoss);
    let log = log(sqlite.store());
    let owner = create(&log).await;
    let run = owner.run();
    owner.push_all([part_started(0), delta(0, "half a ")].map(|event| (ROOT, event)));
    owner.commit().await.unwrap();
    drop((owner, log));

    let log = self::log(sqlite.store());
    let heir = log.take_over(run).await.unwrap();
    assert_eq!(heir.with_transcript(|transcript| transcript.words(ROOT)), "half a ");
    heir.push_all([delta(0, "word"), part_finished(0), finished()].map(|event| (ROOT, event)));
    heir.commit().await.unwrap();
    let all = records(&log, run, Seq(0)).await;
    wellspring_core::Checker::check(&all).unwrap();
    assert_eq!(Transcript::fold(&all).words(ROOT), "half a word");
}

#[test]
fn a_file_is_for_its_owner_and_its_form_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").join("runs.db");
    drop(open(&path).unwrap());
    drop(open(&path).unwrap());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = open(&path).unwrap_err();
    assert_eq!(
        newer.to_string(),
        format!(
            "{} has schema 99, this program knows up to 8: use a newer version",
            path.display()
        )
    );

    let path = directory.path().join("theirs.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (id INTEGER)").unwrap();
    assert!(matches!(open(&path), Err(OpenError::Foreign { .. })));
    let path = directory.path().join("text");
    std::fs::write(&path, "this is no database, and it is longer than a header").unwrap();
    assert!(matches!(open(&path), Err(OpenError::Failed { .. })));
    assert!(matches!(open(directory.path()), Err(OpenError::Failed { .. })));
}

#[tokio::test]
async fn a_damaged_frame_is_an_error_and_never_a_record() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = log(sqlite.store());
    let owner = create(&log).await;
    owner.push(ROOT, part_started(0));
    owner.commit().await.unwrap();
    let file = sqlite.directory.path().join("runs.db");
    // The second batch is the second frame; its body starts after 32 bytes.
    let flip =
        "UPDATE batches SET body = CAST(substr(body, 1, 40) || 'x' || substr(body, 42) AS BLOB)
        WHERE id = 2";
    assert_eq!(Connection::open(file).unwrap().execute(flip, []).unwrap(), 1);
    let mut cursor = log.cursor(owner.run(), Seq(0)).await.unwrap();
    let error = cursor.next().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    // It is not indexed yet, so it is unknown which run's last frame it was.
    assert!(source.contains("batch 2, which holds the last records of some runs"), "{source}");
    assert_eq!(cursor.position(), Seq(0));
}

#[tokio::test]
async fn a_damaged_document_is_an_error_and_can_be_replaced() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let store = sqlite.store();
    let file = Connection::open(sqlite.directory.path().join("runs.db")).unwrap();
    for change in [
        "text = 'b'",
        "revision = 9",
        "name = 'token/x'",
        "crc = 0",
        "text = '', name = 'token/aa'",
    ] {
        let name: Box<str> = "token/a".into();
        store.put_document(name.clone(), Some("a".into()), Expected::Anything).await.unwrap();
        file.execute(&format!("UPDATE documents SET {change}"), []).unwrap();
        let listed = store.documents(DocumentFilter::below("token/")).await;
        assert!(matches!(listed, Err(StoreError::DamagedDocument(_))), "{change}: {listed:?}");
        file.execute("UPDATE documents SET name = 'token/a'", []).unwrap();
        let read = store.document(name.clone()).await;
        if !change.starts_with("name") {
            assert!(matches!(read, Err(StoreError::DamagedDocument(_))), "{change}: {read:?}");
        }
        store.put_document(name.clone(), Some("c".into()), Expected::Anything).await.unwrap();
        assert_eq!(&*store.document(name).await.unwrap().unwrap().text, "c");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_goes_on_after_repair() {
    let mut sqlite = Sqlite::new(Durability::ProcessCrash);
    sqlite.options.bytes_max = Some(1024 * 1024);
    let log = log(sqlite.store());
    let old = create(&log).await;
    old.push_all([delta(0, &"x".repeat(400_000)), finished()].map(|event| (ROOT, event)));
    old.commit().await.unwrap();
    let owner = create(&log).await;
    let run = owner.run();
    let mut kept = 1;
    let lost = loop {
        owner.push(ROOT, delta(0, &"x".repeat(100_000)));
        match owner.commit().await {
            Ok(head) => kept = head.0,
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, AppendError::Store(StoreError::Failed { .. })), "{lost:?}");
    assert!(kept > 3, "only {kept} records fit");
    assert_eq!(log.store().info(run).await.unwrap().unwrap().head, Seq(kept));
    assert!(log.store().delete(old.run()).await.unwrap());
    let heir = log.adopt(run).await.unwrap();
    heir.push(ROOT, delta(0, &"x".repeat(100_000)));
    assert_eq!(heir.commit().await.unwrap(), Seq(kept + 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_whole_while_runs_go_on() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = log(sqlite.store());
    let owner = create(&log).await;
    let run = owner.run();
    owner.push(ROOT, part_started(0));
    let mut before = Seq(0);
    for _ in 0..100 {
        owner.push(ROOT, delta(0, "before "));
        before = owner.commit().await.unwrap();
    }
    let to = sqlite.directory.path().join("backup.db");
    let backup = log.store().backup(to.clone());
    for _ in 0..100 {
        owner.push(ROOT, delta(0, "meanwhile "));
        owner.commit().await.unwrap();
    }
    backup.await.unwrap();
    let copy = self::log(open(&to).unwrap());
    let transcript = copy.transcript(run).await.unwrap();
    assert!(transcript.outline.head >= before);
    let words = log.transcript(run).await.unwrap().words(ROOT);
    assert!(words.starts_with(&transcript.words(ROOT)));
    assert!(log.store().backup(to).await.is_err(), "an old backup is not overwritten");
}

/// More writes at once than one transaction takes.
#[tokio::test]
async fn a_transaction_takes_what_waits_up_to_its_maximum() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let store = sqlite.store();
    let name = |number: usize| Box::<str>::from(number.to_string());
    let puts = (0..10_000).map(|number| {
        store.put_document(name(number % 100), Some(name(number)), Expected::Anything)
    });
    futures::future::try_join_all(puts.collect::<Vec<_>>()).await.unwrap();
    for number in 0..100 {
        let document = store.document(name(number)).await.unwrap().unwrap();
        assert_eq!(document.text, name(9900 + number));
    }
}

/// What a process that died during a deletion left behind is removed at the next start.
#[tokio::test]
async fn an_interrupted_deletion_is_finished() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let file = sqlite.directory.path().join("runs.db");
    let log = log(sqlite.store());
    let owner = create(&log).await;
    for _ in 0..1000 {
        owner.push(ROOT, delta(0, "x"));
        owner.commit().await.unwrap();
    }
    drop((owner, log));
    let connection = Connection::open(&file).unwrap();
    connection.execute_batch("INSERT INTO doomed SELECT id FROM runs; DELETE FROM runs").unwrap();
    drop(sqlite.store());
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("batches"), count("places"), count("doomed")), (0, 0, 0));
}

/// Many concurrent runs, whose frames share batches: each is read completely, indexed or not,
/// also by a process that opens the file later; deleting one removes all of its data and
/// nothing else.
#[tokio::test]
async fn what_lies_beside_a_deleted_run_stays() {
    const RUNS: usize = 16;
    const ROUNDS: usize = 200;

    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let file = Connection::open(sqlite.directory.path().join("runs.db")).unwrap();
    let number = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let log = log(sqlite.store());
    let owners = futures::future::join_all((0..RUNS).map(|_| create(&log))).await;
    let words = |run: usize| format!("the words of run {run}. ");
    for round in 0..ROUNDS {
        for (run, owner) in owners.iter().enumerate() {
            if round == 0 {
                owner.push(ROOT, part_started(0));
            }
            owner.push(ROOT, delta(0, &words(run)));
        }
        let commits = owners.iter().map(|owner| owner.commit());
        futures::future::try_join_all(commits).await.unwrap();
    }
    for owner in &owners {
        owner.push_all([part_finished(0), finished()].map(|event| (ROOT, event)));
        owner.commit().await.unwrap();
    }
    let runs: Vec<_> = owners.iter().map(|owner| owner.run()).collect();
    let placed = number("SELECT count(*) FROM places");
    drop((owners, log));

    let frames = number("SELECT count(*) FROM places");
    assert!(0 < placed && placed < frames, "{placed} of {frames} are placed");
    assert!(number("SELECT count(*) FROM batches") < frames / 2, "they share");
    let log = self::log(sqlite.store());
    let whole = async |run: usize| {
        let info = log.store().info(runs[run]).await.unwrap().unwrap();
        let all = records(&log, runs[run], Seq(0)).await;
        assert_eq!(info.head, all.last().unwrap().seq);
        // Reading from any record returns the rest.
        let rest = records(&log, runs[run], Seq(info.head.0 / 2)).await;
        assert_eq!(rest, all[all.len() / 2..]);
        assert_eq!(Transcript::fold(&all).words(ROOT), words(run).repeat(ROUNDS));
    };
    for run in 0..RUNS {
        whole(run).await;
    }
    for run in (0..RUNS).step_by(2) {
        assert!(log.store().delete(runs[run]).await.unwrap());
    }
    for run in 0..RUNS {
        if run % 2 == 1 {
            whole(run).await;
        }
        let left = "SELECT count(*) FROM batches WHERE instr(body, CAST(?1 AS BLOB)) > 0";
        let left: i64 = file.query_row(left, [words(run)], |row| row.get(0)).unwrap();
        assert_eq!(left > 0, run % 2 == 1, "run {run}");
    }
    for run in (1..RUNS).step_by(2) {
        assert!(log.store().delete(runs[run]).await.unwrap());
    }
    assert_eq!(number("SELECT count(*) FROM batches"), 0);

    // A batch never gets the number of a deleted one: it would not be found.
    let run = create(&log).await.run();
    for store in [log.store(), self::log(sqlite.store()).store()] {
        assert_eq!(store.read(run, Seq(0), 1).await.unwrap().frames.len(), 1);
    }
}

/// The write-ahead log is moved into the file, and truncated when it has grown large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_stays_small() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = log(sqlite.store());
    let owner = create(&log).await;
    let piece = "x".repeat(200_000);
    let mut largest = 0;
    for _ in 0..600 {
        owner.push(ROOT, delta(0, &piece));
        owner.commit().await.unwrap();
        let wal = sqlite.directory.path().join("runs.db-wal");
        largest = largest.max(std::fs::metadata(wal).unwrap().len());
    }
    assert!(largest > 16 * 1024 * 1024, "the writer never had to help: {largest}");
    assert!(largest < 60 * 1024 * 1024, "{largest} bytes for 120 MB written");
}

/// Another process holds the lock: waiting jobs fail, and once it is released the run
/// continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_elsewhere_is_said() {
    // Longer than the five seconds that are promised, but bounded.
    let patience = std::time::Duration::from_secs(20);
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = log(sqlite.store());
    let owner = create(&log).await;
    let mut cursor = log.cursor(owner.run(), Seq(1)).await.unwrap();
    let other = Connection::open(sqlite.directory.path().join("runs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    owner.push(ROOT, part_started(0));
    let lost = tokio::time::timeout(patience, cursor.next());
    let refused = tokio::time::timeout(patience, log.create("tenant", crate::runs::started()));
    let (lost, refused) = tokio::join!(lost, refused);
    let (lost, refused) = (lost.unwrap().map(drop), refused.unwrap().map(drop));
    assert!(matches!(lost, Err(wellspring_log::ReadError::OwnerLost(_))), "{lost:?}");
    assert!(matches!(refused, Err(wellspring_log::CreateError::Store(_))), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    let run = owner.run();
    drop(owner);
    let heir = log.take_over(run).await.unwrap();
    heir.push(ROOT, finished());
    heir.commit().await.unwrap();
    wellspring_core::Checker::check(&records(&log, run, Seq(0)).await).unwrap();
}

/// The directory is deleted or replaced while the store is open: nothing is written to a file
/// that cannot be opened again, and no new file is created.
#[tokio::test]
async fn a_deleted_file_is_noticed() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = log(sqlite.store());
    let run = create(&log).await.run();
    std::fs::remove_dir_all(sqlite.directory.path()).unwrap();
    let refused = |error: &StoreError| {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        cause.is_some_and(|cause| cause.contains("was deleted or replaced"))
    };
    let started = log.create("tenant", crate::runs::started()).await.map(drop);
    let Err(wellspring_log::CreateError::Store(error)) = started else { panic!("{started:?}") };
    assert!(refused(&error), "{error:?}");
    assert!(!sqlite.directory.path().exists());
    // A new file of the same name is another file.
    std::fs::create_dir_all(sqlite.directory.path()).unwrap();
    let other = sqlite.store();
    let started = log.create("tenant", crate::runs::started()).await.map(drop);
    assert!(matches!(&started, Err(wellspring_log::CreateError::Store(it)) if refused(it)));
    assert_eq!(other.info(run).await.unwrap(), None);
}

/// A file at its maximum size: it is opened, and runs are deleted from it, with audit entries.
#[tokio::test]
async fn deleting_has_room_at_the_maximum() {
    let mut sqlite = Sqlite::new(Durability::ProcessCrash);
    let log = self::log(sqlite.store());
    let mut runs = Vec::new();
    for _ in 0..20 {
        let owner = create(&log).await;
        owner.push(ROOT, part_started(0));
        owner.push(ROOT, delta(0, &"x".repeat(20_000)));
        owner.push_all([part_finished(0), finished()].map(|event| (ROOT, event)));
        owner.commit().await.unwrap();
        runs.push(owner.run());
    }
    drop(log);
    // Less than the current size: not a single page may be added.
    sqlite.options.bytes_max = Some(100_000);
    let store = sqlite.store();
    let log = self::log(sqlite.store());
    let refused = log.create("tenant", crate::runs::started()).await;
    let mut refused = refused.map(drop);
    while refused.is_ok() {
        refused = log.create("tenant", crate::runs::started()).await.map(drop);
    }
    for run in runs {
        let act = Act {
            at: wellspring_core::Millis(1),
            by: "somebody".into(),
            run,
            did: "delete".into(),
            details: serde_json::json!({ "why": "w".repeat(1000) }),
        };
        let key = run.to_string().into();
        store.put_audit(NewAudit { tenant: "t".into(), key, act }).await.unwrap();
        assert!(store.delete(run).await.unwrap());
    }
    create(&log).await;
}

/// Many processes start at once with an empty directory.
#[test]
fn many_open_an_empty_directory_at_once() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").join("runs.db");
        let begin = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        open(&path).map(drop)
                    })
                })
                .collect();
            for opened in opened {
                opened.join().unwrap().unwrap();
            }
        });
    }
}

/// If the directory with the processes' files is deleted under two of them, neither takes the
/// other's runs, nor does a third process.
#[tokio::test]
async fn a_missing_nodes_directory_is_not_a_death() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let node = || {
        let (store, lease) = (sqlite.store(), std::time::Duration::from_secs(3));
        let node = store.node().into();
        Log::new(Arc::new(store), LogOptions { node, lease, ..LogOptions::default() })
    };
    let (one, two) = (node(), node());
    let (first, second) = (create(&one).await, create(&two).await);
    std::fs::remove_dir_all(sqlite.directory.path().join("runs.db-nodes")).unwrap();
    // For longer than a lease, as the heartbeats of both show.
    while one.store().nodes().await.unwrap().iter().any(|node| node.beat < 5) {
        for log in [&one, &two] {
            assert_eq!(log.due(None, 9).await.unwrap().runs, []);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let three = node();
    assert_eq!(three.due(None, 9).await.unwrap().runs, []);
    for (owner, other) in [(&first, &two), (&second, &one), (&first, &three)] {
        assert!(other.adopt(owner.run()).await.is_err());
        let info = three.store().info(owner.run()).await.unwrap().unwrap();
        assert_eq!((info.epoch, info.owner.is_some()), (0, true));
    }
}

/// The runs of a process that has ended are released at once, what it held is free, and its file is
/// removed.
#[tokio::test]
async fn the_runs_of_a_process_that_ended_are_due_at_once() {
    let sqlite = Sqlite::new(Durability::ProcessCrash);
    let path = sqlite.directory.path().join("runs.db");
    let node = || Log::sqlite(&path, sqlite.options.clone()).unwrap();
    let (one, two) = (node(), node());
    let owner = create(&one).await;
    let run = owner.run();
    assert_eq!(two.due(None, 9).await.unwrap().runs, []);
    let put = async |name: &str, node: &str| {
        let document = (name.into(), Some(node.into()));
        two.store().put_document(document.0, document.1, Expected::Absent).await.unwrap();
    };
    put("held/bot/one", one.node()).await;
    put("held/bot/two", two.node()).await;
    put("other/one", one.node()).await;
    // As if it were killed: the lock is released, and nothing is written.
    std::mem::forget(owner);
    let nodes = sqlite.directory.path().join("runs.db-nodes");
    let files = || std::fs::read_dir(&nodes).unwrap().count();
    assert_eq!(files(), 2);
    let dead = nodes.join(one.node());
    std::fs::rename(&dead, nodes.join("kept.lock")).unwrap();
    std::fs::write(&dead, "").unwrap();
    let due = two.due(None, 9).await.unwrap().runs;
    assert_eq!(due.iter().map(|due| due.run).collect::<Vec<_>>(), [run]);
    assert_eq!(files(), 2, "its file is gone");
    for (name, is_there) in [("held/bot/one", false), ("held/bot/two", true), ("other/one", true)] {
        let found = two.store().document(name.into()).await.unwrap();
        assert_eq!(found.is_some(), is_there, "{name}");
    }
    assert_eq!(two.adopt(run).await.unwrap().epoch(), 1);
}
