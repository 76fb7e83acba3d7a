//! The cost of a reader that sleeps while a million deltas are appended to SQLite.
//!
//! `cargo bench -p wellspring-log --features sqlite --bench sleeping_reader`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use wellspring_core::{
    AgentNo, Event, Outcome, PartId, PartKind, RunId, RunRequest, RunStarted, Seq, Stop, ThreadId,
};
use wellspring_log::{Log, LogOptions, Owner, SqliteOptions, SqliteStore, TAIL_BYTES_MAX};
use wellspring_testkit::figures::{Scale, figure};

/// Deltas per batch of the source.
const BATCH: usize = 50;

/// Maximum memory of the whole process, however many deltas wait for the reader: the tail (a
/// quarter MiB), uncommitted events (1 MiB), the store's caches, and the text itself, which is
/// folded for the owner and read back at the end.
const MEMORY_MIB_MAX: f64 = 128.0;

/// Pairs of measurements; the figure is the median of their ratios.
const PAIRS: usize = 9;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let deltas = Scale::asked().rounds(1_000_000).max(BATCH);
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(directory.path().join("runs.db"), SqliteOptions::default())?;
    let log = Log::new(Arc::new(store), LogOptions::default());
    let mut costs = Vec::new();
    for pair in 0..PAIRS {
        let (alone, watched);
        // The second of a pair works on a larger file, so the order alternates.
        if pair % 2 == 0 {
            alone = append(&log, deltas, Reader::None).await?;
            watched = append(&log, deltas, Reader::Sleeping).await?;
        } else {
            watched = append(&log, deltas, Reader::Sleeping).await?;
            alone = append(&log, deltas, Reader::None).await?;
        }
        costs.push((watched.as_secs_f64() / alone.as_secs_f64() - 1.0) * 100.0);
    }
    costs.sort_by(f64::total_cmp);
    figure("sleeping reader/what it costs the agent", costs[PAIRS / 2], "% CPU", None);
    let peak = peak_memory()?;
    figure("sleeping reader/peak memory of the process", peak, "MiB", None);
    figure("sleeping reader/most that it may take", MEMORY_MIB_MAX, "MiB", None);
    assert!(peak <= MEMORY_MIB_MAX, "peak memory is {peak} MiB, more than the maximum");
    Ok(())
}

enum Reader {
    None,
    Sleeping,
}

/// Appends a run and returns the processor time: that is what a reader takes from the agent,
/// and other load on the machine does not change it. The reader wakes at the end and must
/// receive everything.
async fn append(log: &Log, deltas: usize, reader: Reader) -> Result<Duration, Box<dyn Error>> {
    let owner = create(log).await?;
    let run = owner.run();
    let mut cursor = match reader {
        Reader::None => None,
        Reader::Sleeping => Some(log.cursor(run, Seq(0)).await?),
    };
    let start = cpu_time()?;
    let mut tail = 0;
    for batch in 0..deltas / BATCH {
        owner.room().await?;
        owner.push_all((0..BATCH).map(|place| {
            let chunk = format!(" {}", (batch * BATCH + place) % 1000).into();
            (AgentNo::ROOT, Event::PartDelta { part: PartId(0), chunk })
        }));
        tail = tail.max(log.tail_bytes());
        // A source yields between two reads.
        tokio::task::yield_now().await;
    }
    let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
    owner.push(AgentNo::ROOT, Event::PartFinished { part: PartId(0) });
    owner.push(AgentNo::ROOT, Event::RunFinished { outcome });
    owner.commit().await?;
    let took = cpu_time()?.saturating_sub(start);
    assert!(tail <= TAIL_BYTES_MAX, "the tail held {tail} bytes");
    if let Some(cursor) = &mut cursor {
        let mut text = String::new();
        while let Some(frames) = cursor.next().await? {
            for record in frames.iter().flat_map(|slice| slice.records()) {
                if let Event::PartDelta { chunk, .. } = &record.event {
                    text.push_str(chunk);
                }
            }
        }
        let want: String =
            (0..deltas / BATCH * BATCH).map(|number| format!(" {}", number % 1000)).collect();
        assert!(text == want, "the reader missed something");
    }
    Ok(took)
}

async fn create(log: &Log) -> Result<Owner, Box<dyn Error>> {
    let started = RunStarted {
        run: RunId::new(Uuid::now_v7()),
        thread: ThreadId::new(Uuid::now_v7()),
        agent: "bench".into(),
        after: None,
        request: RunRequest::text("go"),
    };
    let owner = log.create("tenant", started).await?;
    owner.push(AgentNo::ROOT, Event::PartStarted { part: PartId(0), kind: PartKind::TEXT });
    Ok(owner)
}

/// Processor time of all threads. Linux only.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may end while its file is read.
        let Ok(stat) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanos = stat.split_whitespace().next().ok_or("no processor time")?.parse()?;
        total += Duration::from_nanos(nanos);
    }
    Ok(total)
}

/// Peak memory of the process. Linux only.
fn peak_memory() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .ok_or("no peak memory in /proc/self/status")?
        .parse()?;
    Ok(kib / 1024.0)
}
