//! Many silent connections and many clients that do not read, next to active runs with readers.
//!
//! The server is a separate process (this test binary again), so that its memory and its file
//! descriptors can be measured.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, SqliteOptions};
use wellspring_models::Say;
use wellspring_server::{Server, ServerConfig, ServerLimits};
use wellspring_testkit::soak;

use crate::kit::{agent, config, has_peer, parse_sse};

/// Active runs with readers in the meantime.
const RUNS: usize = 50;

/// Deltas of each of these runs.
const DELTAS: usize = 200;

/// Bytes of the run that the clients do not read.
const UNREAD_RUN_BYTES: usize = 7 * 1024 * 1024;

/// Memory of the server without these connections, in a build without optimisation: the long run in
/// the store and its folds, and the 50 runs.
const BASE_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum memory per silent connection.
const SILENT_BYTES: u64 = 16 * 1024;

/// Maximum memory per client that does not read: unsent bytes, and one page.
const UNREAD_BYTES: u64 = 320 * 1024;

/// Maximum duration of the runs next to these connections, relative to a run without them. On two
/// busy cores it can be one and a half times as long; if the connections cost CPU time, it would be
/// many times as long.
const SLOWER_MAX: f64 = 1.5;

/// Number of deltas of a run while most of its clients read nothing.
const LIVE_DELTAS: usize = 200;

/// The time between two deltas.
const LIVE_PACE: Duration = Duration::from_millis(5);

/// Time for the clients to connect, after the run has sent more than their buffers hold.
const LIVE_WAIT: Duration = Duration::from_secs(1);

/// Sent after the buffers are full.
const MARK: &str = "now-they-are-stuck";

/// Maximum CPU time of a run with idle clients, relative to a run without them.
const IDLE_CPU_MAX: f64 = 1.5;

/// Descriptors besides the connections'.
const DESCRIPTORS: usize = 64;

/// Deltas that a client of Socket.IO does not read.
const UNREAD_DELTAS: usize = 10_000;

/// Bytes of each of them. Together they are far more than the buffers of a connection hold.
const UNREAD_DELTA_BYTES: usize = 4_000;

/// How much the server's memory may grow while they are not read: less than half of them.
const GROWTH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The variable by which the binary knows that it is the server. Its value is the folder of the
/// runs; if it is empty, they are kept in memory.
const SERVER: &str = "WELLSPRING_TEST_CROWD_SERVER";

/// Settings of glibc's allocator: freed memory goes back to the system at once, so that the
/// memory of a process shows what it uses.
const EXACT_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
];

/// Not a test: the server of the one below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_server() {
    let Some(folder) = std::env::var_os(SERVER) else { return };
    let log = if folder.is_empty() {
        Log::in_memory()
    } else {
        Log::sqlite(Path::new(&folder).join("runs.db"), SqliteOptions::default()).unwrap()
    };
    let runtime = Runtime::new(log);
    let piece = "0123456789abcdef".repeat(64);
    let long = (0..UNREAD_RUN_BYTES / piece.len()).fold(Say::new(), |say, _| say.text(&piece));
    runtime.register(AgentDef { name: "long".into(), ..agent([long], []) });
    let short = (0..DELTAS).fold(Say::new(), |say, _| say.text("word "));
    let short = short.pace(Duration::from_millis(5));
    runtime.register(agent([short], []));
    let large = Say::new().burst().chunks(vec![piece.repeat(64); 16]).wait(LIVE_WAIT).text(MARK);
    let live = (0..LIVE_DELTAS).fold(large.pace(LIVE_PACE), |say, _| say.text("word "));
    runtime.register(AgentDef { name: "live".into(), ..agent([live], []) });
    let padding = "x".repeat(UNREAD_DELTA_BYTES);
    let words = (0..UNREAD_DELTAS).map(|index| format!("w{index}:{padding} "));
    runtime.register(AgentDef { name: "flood".into(), ..agent([Say::new().chunks(words)], []) });
    let limits = ServerLimits { connections: usize::MAX / 2, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let server = Server::builder(runtime).config(config).start().await.unwrap();
    println!("\nserver at http://{}", server.address());
    // Blocks until the test closes this end.
    let mut stdin = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut stdin).await;
}

/// The server of these tests, in a separate process.
struct Crowded {
    child: Child,
    address: String,
    client: Client,
}

impl Crowded {
    async fn start() -> Self {
        Self::keeping(Path::new(""), &[]).await
    }

    /// A server with its runs in a folder and more environment variables.
    async fn keeping(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crowd::crowd_server", "--nocapture"])
            .env(SERVER, folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if let Some(address) = line.strip_prefix("server at http://") {
                break address.to_owned();
            }
        };
        Self { child, address, client: Client::builder().no_proxy().build().unwrap() }
    }

    async fn start_run(&self, agent: &str) -> String {
        let request = self.client.post(format!("http://{}/v1/runs", self.address));
        let request = request.json(&json!({ "agent": agent, "input": "go" }));
        let started: Value = request.send().await.unwrap().json().await.unwrap();
        started["run"].as_str().unwrap().to_owned()
    }

    async fn events(&self, run: &str) -> Response {
        let url = format!("http://{}/v1/runs/{run}/events?dialect=record", self.address);
        self.client.get(url).send().await.unwrap()
    }

    /// Opens streams of a run whose clients read one byte each.
    async fn unread(&self, run: &str, clients: usize) -> Vec<TcpStream> {
        let ask = format!("GET /v1/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut crowd = Vec::new();
        for _ in 0..clients {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(8 * 1024).unwrap();
            let mut connection = socket.connect(self.address.parse().unwrap()).await.unwrap();
            connection.write_all(ask.as_bytes()).await.unwrap();
            crowd.push(connection);
        }
        for connection in &mut crowd {
            let mut first = [0; 1];
            connection.read_exact(&mut first).await.unwrap();
        }
        crowd
    }

    fn about(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.child.id().unwrap()).into()
    }

    /// The CPU time of the server so far.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(self.about("stat")).unwrap();
        // The program's name, in parentheses, may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|it| it.parse::<u64>().unwrap()).sum();
        // Linux reports hundredths of a second to all programs.
        Duration::from_millis(ticks * 10)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_says_or_reads_nothing_costs_little() {
    let silent = soak(200, 10_000) as usize;
    let unread = soak(50, 2_000) as usize;
    let server = Crowded::start().await;
    let watch = async |run: String| {
        let text = server.events(&run).await.text().await.unwrap();
        parse_sse(&text).len()
    };
    let all = async || {
        let since = Instant::now();
        let watched =
            join_all((0..RUNS).map(async |_| watch(server.start_run("agent").await).await)).await;
        assert!(watched.iter().all(|events| *events == watched[0]), "{watched:?}");
        assert!(watched[0] > DELTAS / 2, "{watched:?}");
        since.elapsed()
    };
    let long = server.start_run("long").await;
    watch(long.clone()).await;
    // The first round allocates what later rounds reuse.
    all().await;
    let alone = all().await;
    let mut crowd = server.unread(&long, unread).await;
    for number in 0..silent {
        let mut connection = TcpStream::connect(&server.address).await.unwrap();
        // Some send nothing; others send the beginning of a request in HTTP/1.1 or HTTP/2.
        let said: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\n",
            _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        };
        // The server may have closed the earliest ones already.
        let _ = connection.write_all(said).await;
        crowd.push(connection);
    }
    let descriptors = std::fs::read_dir(server.about("fd")).unwrap().count();
    let beside = all().await;
    let status = std::fs::read_to_string(server.about("status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
    println!(
        "{silent} silent, {unread} unread: {} MB at most, {descriptors} descriptors; \
         {RUNS} runs took {alone:?} alone and {beside:?} beside them",
        peak / 1024 / 1024
    );
    let allowed = BASE_BYTES + silent as u64 * SILENT_BYTES + unread as u64 * UNREAD_BYTES;
    assert!(peak < allowed, "{peak} bytes of memory, where {allowed} are allowed");
    assert!(descriptors <= silent + unread + RUNS * 2 + DESCRIPTORS, "{descriptors} descriptors");
    // A rate can only be compared where nothing else is running.
    if soak(0, 1) == 1 {
        let allowed = alone.mul_f64(SLOWER_MAX);
        assert!(beside < allowed, "{beside:?} beside the crowd, where {allowed:?} are allowed");
    }
}

/// Clients that do not read an active run cost hardly any CPU time per delta.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_nothing_costs_no_cpu() {
    let server = Crowded::start().await;
    let work = async |unread: usize| {
        let run = server.start_run("live").await;
        let _crowd = server.unread(&run, unread).await;
        let mut events = server.events(&run).await;
        let mut said = Vec::new();
        let says = |said: &[u8]| said.windows(MARK.len()).any(|it| it == MARK.as_bytes());
        while !says(&said) {
            let chunk = events.chunk().await.unwrap().unwrap();
            said.drain(..said.len().saturating_sub(MARK.len()));
            said.extend_from_slice(&chunk);
        }
        let before = server.cpu();
        while events.chunk().await.unwrap().is_some() {}
        server.cpu() - before
    };
    let unread = soak(100, 500) as usize;
    let (alone, beside) = (work(0).await, work(unread).await);
    println!("{LIVE_DELTAS} deltas cost {alone:?} of CPU, and {beside:?} beside {unread} unread");
    let allowed = alone.mul_f64(IDLE_CPU_MAX) + Duration::from_millis(100);
    assert!(beside < allowed, "{beside:?} of CPU, where {allowed:?} are allowed");
}

/// A client of Socket.IO stops reading for 10,000 deltas and later gets all of them. Meanwhile
/// the memory of the server's process does not grow with what is unread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_deltas_are_not_in_memory() {
    if !has_peer("WELLSPRING_PEER_SOCKET_IO") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Crowded::keeping(folder.path(), &EXACT_MEMORY).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/use_ai/socket_io.mjs");
    let mut client = Command::new("node");
    client.arg(script).arg(format!("http://{}", server.address)).arg("unread");
    client.env("UNREAD_DELTAS", UNREAD_DELTAS.to_string());
    client.env("SERVER_STATUS", server.about("status"));
    client.env("GROWTH_BYTES_MAX", GROWTH_BYTES_MAX.to_string());
    let output = client.kill_on_drop(true).output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{errors}");
    println!("{said}");
}
