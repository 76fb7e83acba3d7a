//! The cost of serving over real sockets: `cargo bench -p wellspring-server --bench serve`.
//!
//! Server and clients run in one process, so each figure includes both. They run on separate
//! threads, and on separate cores if the machine has at least two. `viewers` is one run with many
//! viewers, measured again with one viewer that does not read. `held` is many runs with one delta
//! per 200 ms, in SQLite. `stream` is a whole run of 200 deltas, started and read over HTTP.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wellspring_core::RunId;
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, SqliteOptions, SqliteStore};
use wellspring_models::{Gate, Say, Scripted};
use wellspring_server::{Server, ServerConfig};

/// The amount of work.
struct Scale {
    viewers: usize,
    deltas: usize,
    held: usize,
    held_for: Duration,
    runs: usize,
}

fn scale() -> Scale {
    let measures = std::env::args().any(|arg| arg == "--bench");
    let quick = std::env::var_os("WELLSPRING_QUICK").is_some();
    match (measures, quick) {
        (false, _) => Scale { viewers: 3, deltas: 3, held: 2, held_for: Duration::ZERO, runs: 1 },
        (true, true) => Scale {
            viewers: 200,
            deltas: 50,
            held: 200,
            held_for: Duration::from_secs(2),
            runs: 200,
        },
        (true, false) => Scale {
            viewers: 1000,
            deltas: 200,
            held: 5000,
            held_for: Duration::from_secs(30),
            runs: 2000,
        },
    }
}

fn figure(name: &str, value: f64, unit: &str, baseline: Option<&str>) {
    let baseline = baseline.map_or(String::new(), |it| format!(r#","baseline":"{it}""#));
    println!(r#"{{"figure":"{name}","value":{value:.3},"unit":"{unit}"{baseline}}}"#);
}

/// A runtime with one thread, on a separate core if there are enough.
fn on_core(core: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().on_thread_start(move || {
        let mut cores = CpuSet::new();
        cores.set(core);
        // If the core is not available, the system chooses.
        let _ = sched_setaffinity(None, &cores);
    });
    builder.build().unwrap()
}

/// Raises the process's limit of open files to the system's maximum.
fn raise_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The runtime of the server.
static SERVER: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| on_core(0));

fn main() {
    raise_files();
    let scale = scale();
    let clients = on_core(1);
    let measured = clients.spawn(measure(scale));
    clients.block_on(measured).unwrap();
}

async fn measure(scale: Scale) {
    let alone = viewers(&scale, None).await;
    figure("serve/viewers/all-read", alone, "us/delta/viewer", None);
    let beside = viewers(&scale, Some(1)).await;
    let baseline = Some("serve/viewers/all-read");
    figure("serve/viewers/one-does-not", beside, "us/delta/viewer", baseline);
    let memory = streams(&scale, Log::in_memory()).await;
    figure("serve/stream/memory", memory, "us/delta", None);
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("runs.db"), SqliteOptions::default());
    let log = Log::new(Arc::new(store.unwrap()), LogOptions::default());
    let sqlite = streams(&scale, log).await;
    figure("serve/stream/sqlite", sqlite, "us/delta", Some("serve/stream/memory"));
    let store = SqliteStore::open(folder.path().join("held.db"), SqliteOptions::default());
    held(&scale, Log::new(Arc::new(store.unwrap()), LogOptions::default())).await;
}

async fn serve(log: Log, say: Say) -> (Runtime, Server) {
    SERVER.spawn(serve_here(log, say)).await.unwrap()
}

/// Starts a run on the server's runtime.
async fn start(runtime: &Runtime) -> RunId {
    let runtime = runtime.clone();
    let started =
        async move { runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run };
    SERVER.spawn(started).await.unwrap()
}

async fn serve_here(log: Log, say: Say) -> (Runtime, Server) {
    let runtime = Runtime::new(log);
    runtime.register(AgentDef::model("agent", Arc::new(Scripted::new([say]))));
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        drain: Duration::ZERO,
        ..ServerConfig::default()
    };
    let server = Server::builder(runtime.clone()).config(config).start().await.unwrap();
    (runtime, server)
}

async fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

async fn watch(address: SocketAddr, run: RunId) -> TcpStream {
    let path = format!("/v1/runs/{run}/events?dialect=agent_event");
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
        .await
}

/// Reads to the end and counts the words: a slow store joins deltas, but loses no text.
async fn words(mut socket: TcpStream) -> usize {
    let (mut buffer, mut count, mut tail) = (vec![0; 16 * 1024], 0, Vec::new());
    loop {
        let read = socket.read(&mut buffer).await.unwrap();
        if read == 0 {
            return count;
        }
        tail.extend_from_slice(&buffer[..read]);
        count += tail.windows(5).filter(|it| it == b" word").count();
        tail.drain(..tail.len().saturating_sub(4));
    }
}

/// One run with many viewers, some of which do not read: the cost of an event per viewer.
async fn viewers(scale: &Scale, idle: Option<usize>) -> f64 {
    let gate = Gate::new();
    let say = Say::new().gate(&gate).chunks((0..scale.deltas).map(|n| format!(" word{n}")));
    let (runtime, server) = serve(Log::in_memory(), say).await;
    let run = start(&runtime).await;
    let mut idlers = Vec::new();
    for _ in 0..idle.unwrap_or(0) {
        idlers.push(watch(server.address(), run).await);
    }
    let mut readers = Vec::new();
    for _ in 0..scale.viewers {
        let mut socket = watch(server.address(), run).await;
        let mut head = [0; 64];
        socket.read_exact(&mut head).await.unwrap();
        readers.push(tokio::spawn(words(socket)));
    }
    let began = Instant::now();
    gate.open();
    let mut seen = 0;
    for reader in readers {
        seen += reader.await.unwrap();
    }
    let elapsed = began.elapsed();
    assert_eq!(seen, scale.viewers * scale.deltas, "every viewer saw every word");
    for idler in idlers {
        assert_eq!(words(idler).await, scale.deltas);
    }
    server.stop().await;
    elapsed.as_secs_f64() * 1e6 / seen as f64
}

/// Whole runs, 32 at a time: the cost of a delta from the model to the client.
async fn streams(scale: &Scale, log: Log) -> f64 {
    const DELTAS: usize = 200;
    let say = Say::new().burst().chunks((0..DELTAS).map(|n| format!(" word{n}")));
    let (_, server) = serve(log, say).await;
    let address = server.address();
    let body = r#"{"agent":"agent","input":"go"}"#;
    let request = format!(
        "POST /v1/runs?dialect=agent_event HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         accept: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let began = Instant::now();
    let mut left = scale.runs;
    while left > 0 {
        let now = left.min(32);
        left -= now;
        let runs = (0..now).map(|_| {
            let request = request.clone();
            tokio::spawn(async move { words(ask(address, &request).await).await })
        });
        for run in runs.collect::<Vec<_>>() {
            assert_eq!(run.await.unwrap(), DELTAS);
        }
    }
    let elapsed = began.elapsed();
    server.stop().await;
    elapsed.as_secs_f64() * 1e6 / (scale.runs * DELTAS) as f64
}

/// Many runs with one delta per 200 ms and one viewer each: memory, and whether the rate is kept.
async fn held(scale: &Scale, log: Log) {
    const PACE: Duration = Duration::from_millis(200);
    let deltas = (scale.held_for.as_millis() / PACE.as_millis()).max(1) as usize;
    let say = Say::new().pace(PACE).chunks((0..deltas).map(|n| format!(" word{n}")));
    let (runtime, server) = serve(log, say).await;
    let before = resident_kib();
    let began = Instant::now();
    let mut readers = Vec::new();
    for _ in 0..scale.held {
        let run = start(&runtime).await;
        readers.push(tokio::spawn(words(watch(server.address(), run).await)));
    }
    let opened = began.elapsed();
    tokio::time::sleep(scale.held_for / 2).await;
    let kib = (resident_kib() - before) / scale.held as f64;
    for reader in readers {
        assert_eq!(reader.await.unwrap(), deltas, "no stream lost a word");
    }
    let ideal = opened + PACE * deltas as u32;
    figure("serve/held/streams", scale.held as f64, "streams", None);
    figure("serve/held/both-sides", kib, "KiB/stream", None);
    let late = began.elapsed().as_secs_f64() / ideal.as_secs_f64();
    figure("serve/held/time-taken", late * 100.0, "% of the script's", None);
    server.stop().await;
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN)
}
