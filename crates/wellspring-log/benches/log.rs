//! Measures appending, reading, and the latency from a push to a reader: in memory, in SQLite, and
//! with `WELLSPRING_PEER_NATS=1` in NATS with one server and with three on this machine.
//!
//! `cargo bench -p wellspring-log --bench log`
#![expect(clippy::unwrap_used, reason = "a bench that cannot run should say so loudly")]

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Event, PartId, PartKind, RunId, RunRequest, RunStarted, Seq, ThreadId,
};
use wellspring_log::{
    Durability, Log, LogOptions, MemoryStore, NatsOptions, NatsStore, Owner, SqliteOptions,
    SqliteStore, Store,
};
use wellspring_testkit::NatsServers;
use wellspring_testkit::figures::{Scale, figure, median};

fn main() {
    let scale = Scale::asked();
    // They end with this function.
    let servers = [1, 3].map(|count| NatsServers::start(count, false));
    if let [Some(one), Some(three)] = &servers {
        let _ = NATS.set([one.address(), three.address()]);
    }
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
    for kind in kinds() {
        tokens_as_they_come(kind, scale.rounds(200));
    }
    let figure_of = |kind| push_to_reader(kind, scale.rounds(500));
    compare("push to reader", "ns", figure_of);
    figure("read/records one by one", records_one_by_one(samples), "ns/record", None);
}

/// One figure per store, each relative to the memory store.
fn compare(what: &str, unit: &str, measure: impl Fn(Kind) -> f64) {
    let baseline = format!("{what}/memory");
    for kind in kinds() {
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
    NatsOne,
    NatsThree,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::SqliteProcessCrash => "sqlite process-crash",
            Self::SqlitePowerLoss => "sqlite power-loss",
            Self::NatsOne => "nats, one server",
            Self::NatsThree => "nats, three servers",
        }
    }
}

/// The stores that can be measured here.
fn kinds() -> Vec<Kind> {
    let mut kinds = vec![Kind::Memory, Kind::SqliteProcessCrash, Kind::SqlitePowerLoss];
    if NATS.get().is_some() {
        kinds.extend([Kind::NatsOne, Kind::NatsThree]);
    }
    kinds
}

/// The addresses of one NATS server, and of three. All measurements use them, each with its own
/// stream.
static NATS: OnceLock<[String; 2]> = OnceLock::new();

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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let nats = |replicas: usize| -> Arc<dyn Store> {
            let address = NATS.get().unwrap()[usize::from(replicas > 1)].as_str();
            let stream = format!("s{}", Uuid::now_v7().simple()).into();
            let options = NatsOptions { stream, replicas, ..NatsOptions::at(address) };
            Arc::new(runtime.block_on(NatsStore::open(options)).unwrap())
        };
        let store: Arc<dyn Store> = match kind {
            Kind::NatsOne => nats(1),
            Kind::NatsThree => nats(3),
            Kind::Memory => Arc::new(MemoryStore::with_bytes_max(usize::MAX)),
            Kind::SqliteProcessCrash => sqlite(Durability::ProcessCrash),
            Kind::SqlitePowerLoss => sqlite(Durability::PowerLoss),
        };
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

/// 64 runs, each of which commits a token before the next: appends per second, the 99th percentile
/// of an append's duration, and the cost of a token for this process.
#[expect(clippy::cast_precision_loss, reason = "a figure has few digits")]
fn tokens_as_they_come(kind: Kind, rounds: usize) {
    const RUNS: usize = 64;
    let setup = Setup::new(kind);
    let owners = setup.owners(RUNS);
    let one = async |owner: &Owner| {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let since = Instant::now();
            owner.push_all(deltas(1));
            owner.commit().await.unwrap();
            times.push(since.elapsed());
        }
        times
    };
    let (began, cpu) = (Instant::now(), cpu_time());
    let all = setup.runtime.block_on(futures::future::join_all(owners.iter().map(one)));
    let (took, cpu) = (began.elapsed(), cpu_time().zip(cpu).map(|(after, before)| after - before));
    let mut times: Vec<Duration> = all.into_iter().flatten().collect();
    times.sort();
    let what = |figure: &str| format!("tokens of {RUNS} runs/{figure}/{}", kind.name());
    figure(what("appends"), times.len() as f64 / took.as_secs_f64(), "appends/s", None);
    figure(what("p50"), times[times.len() / 2].as_secs_f64() * 1e3, "ms", None);
    figure(what("p99"), times[times.len() * 99 / 100].as_secs_f64() * 1e3, "ms", None);
    if let Some(cpu) = cpu {
        figure(what("processor"), cpu.as_secs_f64() * 1e6 / times.len() as f64, "µs/token", None);
    }
}

/// The CPU time of this process in steps of 10 ms; `None` if the system does not report it.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, which may have spaces, ends with the last parenthesis.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 10))
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
