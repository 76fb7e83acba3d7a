//! The server's cost per token on each wire: `cargo bench -p wellspring-server --bench wires`.
//!
//! Each row is one server in a separate process on one core. Its clients and its provider run on
//! another core. Every row has the same load: 64 clients with one connection each, on which runs
//! follow each other. Each run makes one request to a fake of Anthropic's API, which sends 200
//! words in writes of 32. The figure is the CPU time per word, in user and kernel mode. Every
//! client checks that the text is complete.
//!
//! Wellspring stores every run in SQLite before it sends it. `node/` is a typical JavaScript server
//! with `socket.io` and `streamText`, which stores nothing. A measurement installs its packages
//! first, with npm; without npm or a network its rows are skipped.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a bench")]

mod clients;
mod process;
mod provider;
mod server;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use wellspring_testkit::figures::{Scale, figure};

use self::clients::{Wire, client};
use self::process::{Core, Process};

/// Number of concurrent clients.
const CLIENTS: usize = 64;

/// Number of measurements per row; the figure is their median. The rows alternate, so that other
/// load on the machine affects all of them.
const ROUNDS: usize = 3;

/// Runs per measurement. A peer that is a hundred times slower gets fewer.
const RUNS: usize = 4000;
const RUNS_OF_PEER: usize = 400;

/// A server and its protocol.
struct Row {
    name: &'static str,
    wire: Wire,
    process: Process,
    runs: usize,
    /// CPU time per word, in microseconds.
    costs: Vec<f64>,
}

fn main() {
    if let Some(provider) = std::env::var_os(process::PROVIDER) {
        return server::serve(provider.to_str().unwrap());
    }
    let scale = Scale::asked();
    // Children are started first, because they inherit the core of the thread that starts them.
    let provider = provider::Provider::bind();
    let mut rows = ours(&provider, scale);
    rows.extend(node(&provider, scale));
    process::pin(Core::Clients);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let text: Arc<str> = provider.text().into();
        tokio::spawn(provider.serve());
        for row in &mut rows {
            row.run(row.runs.div_ceil(10), &text).await;
        }
        for _ in 0..scale.rounds(ROUNDS).min(ROUNDS) {
            for row in &mut rows {
                let cost = row.run(row.runs, &text).await;
                row.costs.push(cost);
            }
        }
    });
    for row in &mut rows {
        row.costs.sort_by(f64::total_cmp);
        let cost = row.costs[row.costs.len() / 2];
        let name = format!("wires/{}", row.name);
        let baseline = if row.name.starts_with("node/") {
            // Compared with our row on the same wire.
            Some(name.replacen("node/", "", 1))
        } else {
            (row.name != BASELINE).then(|| format!("wires/{BASELINE}"))
        };
        figure(&name, cost, "µs/token", baseline.as_deref());
    }
}

/// The row that all others are compared with.
const BASELINE: &str = "ag-ui";

fn ours(provider: &provider::Provider, scale: Scale) -> Vec<Row> {
    let rows = [
        (BASELINE, Wire::AgUi),
        ("ai-sdk", Wire::AiSdk { path: "/ai-sdk/bench" }),
        ("ai-sdk-socket", Wire::AiSdkSocket),
        ("websocket", Wire::Native),
        ("use-ai", Wire::UseAi),
        ("socket.io", Wire::SocketIo),
    ];
    let program = std::env::current_exe().unwrap();
    rows.map(|(name, wire)| {
        let process = Process::start(Command::new(&program), &provider.url());
        Row { name, wire, process, runs: scale.rounds(RUNS), costs: Vec::new() }
    })
    .into()
}

/// The JavaScript servers, if their packages are installed or can be.
fn node(provider: &provider::Provider, scale: Scale) -> Vec<Row> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/wires/node");
    let installs = || {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        // Standard output is for figures.
        npm.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if !folder.join("node_modules").exists() && (scale == Scale::Smoke || !installs()) {
        println!("skipped: Node's rows; `npm ci --prefix {}` installs them", folder.display());
        return Vec::new();
    }
    let rows =
        [("node/ai-sdk", Wire::AiSdk { path: "/ai-sdk" }), ("node/socket.io", Wire::SocketIo)];
    rows.map(|(name, wire)| {
        let mut command = Command::new("node");
        command.arg(folder.join("server.mjs")).env("NODE_ENV", "production");
        let process = Process::start(command, &provider.url());
        Row { name, wire, process, runs: scale.rounds(RUNS_OF_PEER), costs: Vec::new() }
    })
    .into()
}

impl Row {
    /// Measures `runs` runs, and returns the CPU time per word.
    #[expect(clippy::cast_precision_loss, reason = "a figure has few digits")]
    async fn run(&self, runs: usize, text: &Arc<str>) -> f64 {
        let clients = CLIENTS.min(runs);
        let runs_each = runs.div_ceil(clients);
        let before = self.process.cpu();
        let going: Vec<_> = (0..clients)
            .map(|_| {
                let client = client(self.wire, self.process.address(), runs_each, text.clone());
                tokio::spawn(client)
            })
            .collect();
        for client in going {
            client.await.unwrap();
        }
        let words = clients * runs_each * provider::WORDS;
        self.process.cpu().since(&before).as_secs_f64() * 1e6 / words as f64
    }
}
