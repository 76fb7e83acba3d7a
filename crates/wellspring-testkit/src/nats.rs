//! Real NATS servers, alone or as a cluster, each in a directory of its own.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test without its servers fails, or says that it is skipped"
)]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Tests with NATS servers run if this variable is set.
pub const NATS: &str = "WELLSPRING_PEER_NATS";

/// How long a server may take until it listens.
const LISTENS: Duration = Duration::from_secs(60);

/// NATS servers, which are stopped on drop.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<Server>,
    directory: TempDir,
}

#[derive(Debug)]
struct Server {
    child: Option<Child>,
    port: u16,
    monitor: u16,
    config: PathBuf,
}

impl NatsServers {
    /// Starts one server, or a cluster; `None` if the variable is not set. With `sync_always`,
    /// they sync to disk before they acknowledge.
    ///
    /// # Panics
    ///
    /// If the servers cannot be started.
    #[must_use]
    pub fn start(count: usize, sync_always: bool) -> Option<Self> {
        Self::launch(count, sync_always, "")
    }

    /// Starts one server with more lines in its configuration, such as `authorization { .. }`.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    #[must_use]
    pub fn start_with(lines: &str) -> Option<Self> {
        Self::launch(1, false, lines)
    }

    fn launch(count: usize, sync_always: bool, lines: &str) -> Option<Self> {
        if std::env::var_os(NATS).is_none() {
            assert!(std::env::var_os("CI").is_none(), "the NATS server is missing");
            eprintln!("skipped: there is no NATS server; `cargo xtask test` installs one");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let ports: Vec<[u16; 3]> = (0..count).map(|_| free_ports()).collect();
        let routes = ports.iter().map(|[_, _, route]| format!("nats://127.0.0.1:{route}"));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let sync = if sync_always { "sync_interval: always" } else { "" };
        let mut servers = Vec::new();
        for (number, [port, monitor, route]) in ports.into_iter().enumerate() {
            let home = directory.path().join(number.to_string());
            std::fs::create_dir_all(&home).expect("a directory for the server");
            let mut text = format!(
                "server_name: n{number}\nlisten: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitor}\n\
                 jetstream {{ store_dir: {:?}\n {sync}\n }}\n{lines}\n",
                home.join("data")
            );
            if count > 1 {
                let cluster = "cluster {\n name: test\n";
                let _ =
                    write!(text, "{cluster} listen: 127.0.0.1:{route}\n routes: [{routes}]\n}}\n");
            }
            let config = home.join("nats.conf");
            std::fs::write(&config, text).expect("the server's configuration");
            servers.push(Server { child: None, port, monitor, config });
        }
        let mut servers = Self { servers, directory };
        for number in 0..count {
            servers.restart(number);
        }
        Some(servers)
    }

    /// The addresses of all servers, separated by commas.
    #[must_use]
    pub fn address(&self) -> String {
        let address = |server: &Server| format!("nats://127.0.0.1:{}", server.port);
        self.servers.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// The monitoring addresses of all servers.
    #[must_use]
    pub fn monitors(&self) -> Vec<String> {
        self.servers.iter().map(|it| format!("http://127.0.0.1:{}", it.monitor)).collect()
    }

    /// The response of a server's monitoring address, such as `/varz`; `None` if it is not running.
    #[must_use]
    pub fn monitor(&self, number: usize, path: &str) -> Option<Value> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.servers[number].monitor)).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The number of the server that leads a stream.
    #[must_use]
    pub fn leader(&self, stream: &str) -> Option<usize> {
        (0..self.count()).find_map(|number| {
            let found = self.monitor(number, "/jsz?streams=true")?;
            let streams = found.pointer("/account_details/0/stream_detail")?.as_array()?;
            let named = streams.iter().find(|it| it["name"] == stream)?;
            named.pointer("/cluster/leader")?.as_str()?.strip_prefix('n')?.parse().ok()
        })
    }

    /// Whether every replica of a stream is running and up to date.
    #[must_use]
    pub fn is_whole(&self, stream: &str) -> bool {
        let whole = || {
            let found = self.monitor(self.leader(stream)?, "/jsz?streams=true")?;
            let streams = found.pointer("/account_details/0/stream_detail")?.as_array()?;
            let named = streams.iter().find(|it| it["name"] == stream)?;
            let replicas = named.pointer("/cluster/replicas")?.as_array()?;
            Some(
                replicas.len() + 1 == self.count()
                    && replicas.iter().all(|it| it["current"] == true),
            )
        };
        whole().unwrap_or_default()
    }

    /// The number of servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// The servers' data directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills a server as `kill -9` does.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.servers[number].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a stopped server, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn restart(&mut self, number: usize) {
        let server = &mut self.servers[number];
        let log = std::fs::File::create(server.config.with_extension("log")).expect("a log");
        let child = Command::new(nats_program())
            .arg("-c")
            .arg(&server.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server starts");
        server.child = Some(child);
        let until = Instant::now() + LISTENS;
        while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
            assert!(Instant::now() < until, "the NATS server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|number| self.kill(number));
    }
}

/// The server binary of the peer's Python package.
#[must_use]
pub fn nats_program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("target/peers/nats/bin/nats-server")
}

/// Unused ports for clients, monitoring and routes.
fn free_ports() -> [u16; 3] {
    let bound = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    bound.map(|it| it.local_addr().expect("an address").port())
}
