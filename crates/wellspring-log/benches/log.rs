//! Measures appending, reading, and the latency from a push to a reader.
//!
//! `cargo bench -p wellspring-log --bench log`
#![expect(clippy::unwrap_used, reason = "a bench that cannot run should say so loudly")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Event, PartId, PartKind, RunId, RunRequest, RunStarted, Seq, ThreadId,
};
use wellspring_log::{
    Durability, Log, LogOptions, MemoryStore, Owner, SqliteOptions, SqliteStore, Store,
};
use wellspring_testkit::figures::{Scale, figure, median};

fn main() {
    let scale = Scale::asked();
    let samples = scale.rounds(30);
    for (runs, deltas) in [(1, 1), (1, 100), (64, 1), (64, 100)] {
        let what = format!("append/{runs} runs, frames of {deltas}");
        compare(&what, "ns/record", |kind| append(kind, runs, deltas, samples));
    }
    for (frames, deltas) in [(5_000, 1), (250, 100)] {
        let what = format!("read/frames of {deltas}");
        let frames = scale.rounds(frames);
        compare(&what, "ns/record", |kind| read(kind, frames, deltas, samples));
    }
    let figure_of = |kind| push_to_reader(kind, scale.rounds(500));
    compare("push to reader", "ns", figure_of);
    figure("read/records one by one", records_one_by_one(samples), "ns/record", None);
}

/// One figure per store, each relative to the memory store.
fn compare(what: &str, unit: &str, measure: impl Fn(Kind) -> f64) {
    let baseline = format!("{what}/memory");
    for kind in KINDS {
        let beside = (kind != Kind::Memory).then_some(baseline.as_str());
        figure(format!("{what}/{}", kind.name()), measure(kind), unit, beside);
    }
}

/// Frames that each run appends in one measurement, each committed before the next.
const ROUNDS: usize = 20;

/// A token of an ordinary model.
const TOKEN: &str = " token";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Memory,
    SqliteProcessCrash,
    SqlitePowerLoss,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::SqliteProcessCrash => "sqlite process-crash",
            Self::SqlitePowerLoss => "sqlite power-loss",
        }
    }
}

const KINDS: [Kind; 3] = [Kind::Memory, Kind::SqliteProcessCrash, Kind::SqlitePowerLoss];

struct Setup {
    runtime: Runtime,
    log: Log,
    _directory: TempDir,
}

impl Setup {
    fn new(kind: Kind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = |durability| -> Arc<dyn Store> {
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            Arc::new(SqliteStore::open(directory.path().join("runs.db"), options).unwrap())
        };
        let store: Arc<dyn Store> = match kind {
            Kind::Memory => Arc::new(MemoryStore::with_bytes_max(usize::MAX)),
            Kind::SqliteProcessCrash => sqlite(Durability::ProcessCrash),
            Kind::SqlitePowerLoss => sqlite(Durability::PowerLoss),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Frames are not joined, so that frames of 100 deltas stay frames of 100 deltas.
        let options = LogOptions { join_past: usize::MAX, ..LogOptions::default() };
        Self { runtime, log: Log::new(store, options), _directory: directory }
    }

    fn owners(&self, count: usize) -> Vec<Owner> {
        (0..count).map(|_| self.runtime.block_on(create(&self.log))).collect()
    }
}

async fn create(log: &Log) -> Owner {
    let started = RunStarted {
        run: RunId::new(Uuid::now_v7()),
        thread: ThreadId::new(Uuid::now_v7()),
        agent: "bench".into(),
        after: None,
        request: RunRequest::text("go"),
    };
    let owner = log.create("tenant", started).await.unwrap();
    owner.push(AgentNo::ROOT, Event::PartStarted { part: PartId(0), kind: PartKind::TEXT });
    owner.commit().await.unwrap();
    owner
}

fn deltas(count: usize) -> impl Iterator<Item = (AgentNo, Event)> {
    let delta = || Event::PartDelta { part: PartId(0), chunk: TOKEN.into() };
    std::iter::repeat_with(move || (AgentNo::ROOT, delta())).take(count)
}

/// Every run has one frame in flight; the store may commit several runs together.
fn append(kind: Kind, runs: usize, deltas_per_frame: usize, samples: usize) -> f64 {
    let setup = Setup::new(kind);
    let owners = setup.owners(runs);
    let one = async |owner: &Owner| {
        for _ in 0..ROUNDS {
            owner.push_all(deltas(deltas_per_frame));
            owner.commit().await.unwrap();
        }
    };
    median(samples, runs * ROUNDS * deltas_per_frame, || {
        timed(|| {
            setup.runtime.block_on(futures::future::join_all(owners.iter().map(one)));
        })
    })
}

/// A cursor over a whole run that is not in memory.
fn read(kind: Kind, frames: usize, deltas_per_frame: usize, samples: usize) -> f64 {
    let setup = Setup::new(kind);
    let run = setup.runtime.block_on(async {
        let owner = create(&setup.log).await;
        for _ in 0..frames {
            owner.push_all(deltas(deltas_per_frame));
            owner.commit().await.unwrap();
        }
        owner.run()
    });
    let head = setup.runtime.block_on(setup.log.store().info(run)).unwrap().unwrap().head;
    median(samples, usize::try_from(head.0).unwrap(), || {
        timed(|| {
            setup.runtime.block_on(async {
                let mut cursor = setup.log.cursor(run, Seq(0)).await.unwrap();
                while cursor.position() < head {
                    std::hint::black_box(cursor.next().await.unwrap());
                }
            });
        })
    })
}

/// The time from the push of a delta until a waiting reader receives it.
fn push_to_reader(kind: Kind, samples: usize) -> f64 {
    let setup = Setup::new(kind);
    let owner = setup.owners(1).remove(0);
    let mut cursor = setup.runtime.block_on(setup.log.cursor(owner.run(), Seq(2))).unwrap();
    median(samples, 1, || {
        timed(|| {
            setup.runtime.block_on(async {
                owner.push_all(deltas(1));
                cursor.next().await.unwrap();
            });
        })
    })
}

/// Records one by one, as a library user reads them.
fn records_one_by_one(samples: usize) -> f64 {
    const RECORDS: usize = 10_000;
    let setup = Setup::new(Kind::Memory);
    let run = setup.runtime.block_on(async {
        let owner = create(&setup.log).await;
        for _ in 0..RECORDS / 50 {
            owner.push_all(deltas(50));
        }
        let outcome = wellspring_core::Outcome::Completed { stop: wellspring_core::Stop::EndTurn };
        owner.push(AgentNo::ROOT, Event::RunFinished { outcome: Box::new(outcome) });
        owner.run()
    });
    median(samples, RECORDS, || {
        timed(|| {
            setup.runtime.block_on(async {
                let cursor = setup.log.cursor(run, Seq(0)).await.unwrap();
                cursor.into_records().try_fold(0, async |count, _| Ok(count + 1)).await.unwrap();
            });
        })
    })
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}
