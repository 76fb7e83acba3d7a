//! Several machines, each with a server, share one NATS cluster. Every viewer sees the same events,
//! whatever happens to one machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use wellspring_core::{Checker, Event, Record};
use wellspring_testkit::{NATS, NatsServers, Proxy, nats_program, soak};

use crate::kit::{Home, json_lines, skipped};
use crate::serve::{answer, serving};

/// Time limit of a wait, after which a test fails.
const PATIENCE: Duration = Duration::from_secs(180);

/// The lease in tests that wait for a take-over.
const LEASE: &str = "lease = \"1s\"";

/// A machine: its own directories, and a server.
pub(crate) struct Machine {
    pub(crate) home: Home,
    pub(crate) address: SocketAddr,
    server: Child,
}

impl Machine {
    /// The configuration of every machine. Only the lines of `[store]` differ from one without
    /// NATS.
    pub(crate) fn config(nats: &str, replicas: usize, store: &str) -> String {
        format!(
            "default_agent = \"demo\"\n[store]\nkind = \"nats\"\naddress = \"{nats}\"\n{store}\n\
             [store.nats]\nreplicas = {replicas}\nsettle = \"20s\"\n"
        )
    }

    pub(crate) fn start(config: &str, pace_ms: u32, arguments: &[&str]) -> Self {
        let home = Home::with_files(&[("wellspring.toml", config)]);
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = address.to_string();
        let arguments = [&["serve", "--listen", &listen], arguments].concat();
        let mut command = home.paced(pace_ms, &arguments);
        command.stderr(Stdio::null());
        let server = serving(command, address);
        Self { home, address, server }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        answer(self.address, "POST", path, headers, &body.to_string())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        answer(self.address, "GET", path, "", "")
    }

    /// Starts a run and returns its id.
    pub(crate) fn ask(&self, input: &str) -> String {
        let (status, body) = self.post("/v1/runs", "", &json!({"agent": "demo", "input": input}));
        assert_eq!(status, 201, "{body}");
        body["run"].as_str().unwrap().to_owned()
    }

    fn metric(&self, name: &str) -> u64 {
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut text = String::new();
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A process that was suspended must be killed too.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The id and the data of each event that a viewer received.
type Seen = Vec<(String, String)>;

/// Reads a run to its end. Whenever the stream breaks off, it resumes after its last event, at the
/// next address.
pub(crate) struct Viewer {
    addresses: Vec<SocketAddr>,
    run: String,
    dialect: &'static str,
    /// Number of events after which it moves to the next address.
    moves_after: usize,
    seen: Arc<AtomicUsize>,
    adopted: Option<Instant>,
}

impl Viewer {
    pub(crate) fn new(addresses: &[SocketAddr], run: &str, dialect: &'static str) -> Self {
        Self {
            addresses: addresses.to_vec(),
            run: run.to_owned(),
            dialect,
            moves_after: usize::MAX,
            seen: Arc::default(),
            adopted: None,
        }
    }

    fn start(mut self) -> JoinHandle<(Seen, Option<Instant>)> {
        std::thread::spawn(move || (self.watch(), self.adopted))
    }

    pub(crate) fn watch(&mut self) -> Seen {
        let until = Instant::now() + PATIENCE;
        let mut events = Seen::new();
        for turn in 0.. {
            assert!(Instant::now() < until, "{} did not end: {:?}", self.run, events.last());
            let address = self.addresses[turn % self.addresses.len()];
            if self.watch_at(address, &mut events).unwrap_or_default() {
                break;
            }
            std::thread::yield_now();
        }
        events
    }

    /// Reads from one server. Returns whether the run ended.
    fn watch_at(&mut self, address: SocketAddr, events: &mut Seen) -> std::io::Result<bool> {
        let last = events.last().map_or("0", |(id, _)| id);
        let (run, dialect) = (&self.run, self.dialect);
        let request = format!(
            "GET /v1/runs/{run}/events?dialect={dialect} HTTP/1.1\r\nhost: localhost\r\n\
             connection: close\r\nlast-event-id: {last}\r\n\r\n"
        );
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(request.as_bytes())?;
        let mut lines = BufReader::new(socket);
        let (mut line, mut id, mut here) = (String::new(), String::new(), 0);
        // A line without a line break was cut off, so it is not an event yet.
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            if let Some(said) = line.strip_prefix("id: ") {
                id = said.trim_end().to_owned();
            } else if let Some(json) = line.strip_prefix("data: ") {
                // A notice that the stream breaks off is not an event of the run.
                if json.starts_with("{\"error\"") {
                    return Ok(false);
                }
                if json.contains("\"run_adopted\"") {
                    self.adopted.get_or_insert_with(Instant::now);
                }
                let is_over = json.contains("\"run_finished\"") || json.contains("RUN_FINISHED");
                events.push((id.clone(), json.trim_end().to_owned()));
                self.seen.fetch_add(1, Ordering::SeqCst);
                here += 1;
                if is_over {
                    return Ok(true);
                }
                if here >= self.moves_after {
                    return Ok(false);
                }
            }
            line.clear();
        }
        Ok(false)
    }
}

fn records(seen: &Seen) -> Vec<Record> {
    let records: Vec<_> =
        seen.iter().map(|(_, json)| serde_json::from_str::<Record>(json).unwrap()).collect();
    assert!(Checker::check(&records).unwrap().finished);
    records
}

fn is_adopted(records: &[Record]) -> bool {
    records.iter().any(|it| matches!(it.event, Event::RunAdopted { .. }))
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Prints the distribution of durations.
fn distribution(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!(
        "{what}: n={} p50={:?} p90={:?} p99={:?} max={:?}",
        times.len(),
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

/// One NATS server, and two machines that use it.
fn two(store: &str, pace_ms: u32) -> Option<(NatsServers, [Machine; 2])> {
    let nats = NatsServers::start(1, false)?;
    let config = Machine::config(&nats.address(), 1, store);
    let machines = [(); 2].map(|()| Machine::start(&config, pace_ms, &[]));
    Some((nats, machines))
}

/// Runs on one machine are read, answered and cancelled through the other. A client that moves
/// between the machines in the middle of a run misses no event and gets none twice.
#[test]
fn any_server_serves_any_reader_and_takes_any_command() {
    let Some((_nats, [one, other])) = two("", 4) else { return };
    let run = one.ask("long");
    let [mut moving, mut ag_ui] = ["record", "ag_ui"].map(|dialect| {
        let addresses = [one.address, other.address];
        Viewer { moves_after: 25, ..Viewer::new(&addresses, &run, dialect) }
    });
    let far = Viewer::new(&[other.address], &run, "record").start();
    let ag_ui_moved = std::thread::spawn(move || ag_ui.watch());
    let moved = moving.watch();
    assert!(records(&moved).len() > 100);
    assert_eq!(moved, far.join().unwrap().0);
    assert_eq!(moved, Viewer::new(&[one.address], &run, "record").watch());
    let whole = Viewer::new(&[other.address], &run, "ag_ui").watch();
    assert_eq!(ag_ui_moved.join().unwrap(), whole);

    // A question that is asked on one machine is answered on the other.
    let asked = one.ask("ask");
    until("a question", || other.get(&format!("/v1/runs/{asked}")).1["state"] == "paused");
    let yes = json!({"question": 0, "answer": {"choose": ["rain"]}});
    let (status, said) = other.post(&format!("/v1/runs/{asked}/answers"), "", &yes);
    assert!(status < 300, "{said}");
    let seen = Viewer::new(&[one.address], &asked, "record").watch();
    assert!(seen.iter().any(|(_, json)| json.contains("rain")));
    records(&seen);

    // Titles of threads and names of runs are visible on both machines.
    let (_, info) = other.get(&format!("/v1/runs/{asked}"));
    let thread = format!("/v1/threads/{}", info["thread"].as_str().unwrap());
    let titled = answer(one.address, "PATCH", &thread, "", r#"{"title":"Water"}"#);
    assert!(titled.0 < 300, "{}", titled.1);
    let (_, listed) = other.get("/v1/threads?search=Water");
    assert_eq!(listed["threads"][0]["title"], "Water", "{listed}");
    // A command on a third machine sees all runs.
    assert!(one.home.print(&["runs", "list"]).contains("long"));
    assert_eq!(other.home.print(&["store", "check"]), "everything is whole\n");
    assert!(other.metric("wellspring_leases") <= 1);
}

/// AG-UI's official client moves between the machines in the middle of a run, answers on one what
/// was asked on the other, and cancels there. It misses nothing and gets nothing twice.
#[test]
fn ag_uis_client_moves_between_servers() {
    if skipped("WELLSPRING_PEER_AG_UI") {
        return;
    }
    let Some((_nats, [one, other])) = two("", 24) else { return };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../wellspring-server/tests/peer/ag_ui_two_servers.mjs"
    );
    let servers = [&one, &other].map(|machine| format!("http://{}", machine.address));
    for _ in 0..soak(1, 30) {
        let output = Command::new("node").arg(script).args(&servers).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let scenes = json_lines(&String::from_utf8(output.stdout).unwrap());
        let (_, listed) = other.get("/v1/runs?limit=3");
        let runs = listed["runs"].as_array().unwrap();
        let answer = |title: &str, state: &str| {
            let run = runs.iter().find(|run| run["title"] == title && run["state"] == state);
            let run = run.unwrap_or_else(|| panic!("no {title} in {listed}"));
            other.get(&format!("/v1/runs/{}", run["run"].as_str().unwrap())).1["answer"].take()
        };
        assert_eq!(scenes[0], json!({"said": [answer("long", "completed")]}));
        let answered = json!({"outcome": "success", "said": [answer("ask", "completed")]});
        assert_eq!(scenes[1], answered);
        assert_eq!(scenes[2], json!({"outcome": "cancelled"}));
        answer("long", "cancelled");
    }
}

/// Two starts under the same name, on both machines at once, give one run.
#[test]
fn of_two_that_start_the_same_one_wins() {
    let Some((_nats, machines)) = two("", 0) else { return };
    for round in 0..soak(20, 2_000) {
        let key = format!("idempotency-key: start-{round}\r\n");
        let body = json!({"agent": "demo", "input": "help"});
        let runs: Vec<String> = std::thread::scope(|scope| {
            let starting: Vec<_> = machines
                .iter()
                .map(|machine| scope.spawn(|| machine.post("/v1/runs", &key, &body).1))
                .collect();
            let started = starting.into_iter().map(|it| it.join().unwrap());
            started.map(|body| body["run"].as_str().unwrap().to_owned()).collect()
        });
        assert_eq!(runs[0], runs[1]);
    }
}

/// Measures the time from a cancel on one machine until a viewer on the other one sees the end.
#[test]
fn a_cancel_from_the_other_server_is_quick() {
    let Some((_nats, [one, other])) = two("", 40) else { return };
    let mut times = Vec::new();
    for _ in 0..soak(20, 500) {
        let run = one.ask("long");
        let viewer = Viewer::new(&[one.address], &run, "record");
        let seen = Arc::clone(&viewer.seen);
        let viewing = viewer.start();
        until("a word", || seen.load(Ordering::SeqCst) > 5);
        let since = Instant::now();
        let (status, said) = other.post(&format!("/v1/runs/{run}/cancel"), "", &json!({}));
        assert!(status < 300, "{said}");
        let (seen, _) = viewing.join().unwrap();
        times.push(since.elapsed());
        assert!(seen.last().unwrap().1.contains("cancelled"));
    }
    distribution("cancel from the other server", times);
}

/// The server of many runs with viewers on both machines is killed. The other machine continues the
/// runs, and every viewer sees the same events and one end.
#[test]
fn runs_of_a_killed_server_go_on_at_the_other() {
    let mut times = Vec::new();
    for _ in 0..soak(1, 50) {
        let Some((_nats, [one, other])) = two(LEASE, 24) else { return };
        let runs: Vec<_> = (0..50).map(|_| one.ask("long")).collect();
        // The viewer at the killed server moves to the other one.
        let at = [one.address, other.address];
        let viewers: Vec<_> = runs
            .iter()
            .enumerate()
            .map(|(number, run)| Viewer::new(&at[number % 2..], run, "record"))
            .collect();
        let seen: Vec<_> = viewers.iter().map(|it| Arc::clone(&it.seen)).collect();
        let watching: Vec<_> = viewers.into_iter().map(Viewer::start).collect();
        until("words", || seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 10));
        let killed = Instant::now();
        drop(one);
        for (run, viewer) in runs.iter().zip(watching) {
            let (seen, adopted) = viewer.join().unwrap();
            assert!(is_adopted(&records(&seen)), "{run} was at work and went on");
            times.extend(adopted.map(|at| at - killed));
            assert_eq!(seen, Viewer::new(&[other.address], run, "record").watch());
        }
        assert_eq!(other.metric("wellspring_take_overs_total"), runs.len() as u64);
    }
    distribution("taken over after kill -9, lease 1 s", times);
}

/// A server that was suspended for longer than its lease writes nothing when it resumes, and its
/// viewers see what the other machine appended.
#[test]
fn a_stopped_server_that_is_continued_writes_nothing() {
    for _ in 0..soak(1, 50) {
        let Some((_nats, [one, other])) = two(LEASE, 24) else { return };
        let runs: Vec<_> = (0..5).map(|_| one.ask("long")).collect();
        let near: Vec<_> =
            runs.iter().map(|run| Viewer::new(&[one.address], run, "record")).collect();
        let seen: Vec<_> = near.iter().map(|it| Arc::clone(&it.seen)).collect();
        let near: Vec<_> = near.into_iter().map(Viewer::start).collect();
        until("words", || seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 10));
        one.signal(Signal::STOP);
        until("take-overs", || other.metric("wellspring_take_overs_total") == runs.len() as u64);
        one.signal(Signal::CONT);
        for (run, viewer) in runs.iter().zip(near) {
            let (seen, _) = viewer.join().unwrap();
            assert!(is_adopted(&records(&seen)), "{run}");
            assert_eq!(seen, Viewer::new(&[other.address], run, "record").watch());
        }
        until("losses", || one.metric("wellspring_runs_lost_total") == runs.len() as u64);
    }
}

/// NATS changes the stream's leader, and no run loses its owner.
#[test]
fn a_change_of_the_leader_costs_no_owner() {
    let Some(mut nats) = NatsServers::start(3, false) else { return };
    let config = Machine::config(&nats.address(), 3, "");
    let machines = [(); 2].map(|()| Machine::start(&config, 60, &[]));
    for round in 0..soak(1, 30) {
        let runs: Vec<_> = (0..20).map(|number| machines[number % 2].ask("long")).collect();
        let viewers: Vec<_> = runs
            .iter()
            .enumerate()
            .map(|(number, run)| Viewer::new(&[machines[number % 2].address], run, "record"))
            .collect();
        let seen: Vec<_> = viewers.iter().map(|it| Arc::clone(&it.seen)).collect();
        let watching: Vec<_> = viewers.into_iter().map(Viewer::start).collect();
        until("words", || seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 20));
        let leader = nats.leader("wellspring").unwrap();
        nats.kill(leader);
        for (run, viewer) in runs.iter().zip(watching) {
            let (seen, _) = viewer.join().unwrap();
            let records = records(&seen);
            assert!(!is_adopted(&records), "{run} lost its owner");
            let end = records.last().unwrap().event.to_string();
            assert!(end.contains("completed"), "{end}");
        }
        nats.restart(leader);
        // All three servers must be up before the next one stops.
        until("a whole cluster", || {
            machines.iter().all(|machine| machine.get("/readyz").0 == 200)
                && nats.is_whole("wellspring")
        });
        println!("round {round}: leader {leader} was killed under {} runs", runs.len());
    }
}

/// A machine without a connection to NATS reports it and loses its runs to the other machine. It
/// serves again once the connection is back.
#[test]
fn a_server_that_is_cut_off_says_so_and_comes_back() {
    for _ in 0..soak(1, 30) {
        let Some(nats) = NatsServers::start(1, false) else { return };
        let address = nats.address();
        let proxy = Proxy::start(address.strip_prefix("nats://").unwrap().parse().unwrap());
        let through = format!("nats://{}", proxy.address());
        let one = Machine::start(&Machine::config(&through, 1, LEASE), 24, &[]);
        let other = Machine::start(&Machine::config(&address, 1, LEASE), 24, &[]);
        let runs: Vec<_> = (0..5).map(|_| one.ask("long")).collect();
        let viewers: Vec<_> =
            runs.iter().map(|run| Viewer::new(&[other.address], run, "record")).collect();
        let seen: Vec<_> = viewers.iter().map(|it| Arc::clone(&it.seen)).collect();
        let watching: Vec<_> = viewers.into_iter().map(Viewer::start).collect();
        until("words", || seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 10));
        proxy.cut();
        let (status, said) = one.get("/readyz");
        assert_eq!(status, 503, "{said}");
        assert!(said["error"]["message"].as_str().unwrap().contains("NATS"), "{said}");
        for (run, viewer) in runs.iter().zip(watching) {
            let (seen, _) = viewer.join().unwrap();
            assert!(is_adopted(&records(&seen)), "{run}");
        }
        proxy.heal();
        until("readiness", || one.get("/readyz").0 == 200);
        for run in &runs {
            let here = Viewer::new(&[one.address], run, "record").watch();
            assert_eq!(here, Viewer::new(&[other.address], run, "record").watch());
        }
        let next = one.ask("help");
        records(&Viewer::new(&[other.address], &next, "record").watch());
    }
}

/// A server that is asked to stop hands its runs over at once, without waiting for a lease.
#[test]
fn draining_hands_runs_over_at_once() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let config = Machine::config(&nats.address(), 1, "lease = \"10m\"");
    let one = Machine::start(&config, 24, &["--drain", "0"]);
    let other = Machine::start(&config, 24, &[]);
    let runs: Vec<_> = (0..10).map(|_| one.ask("long")).collect();
    let viewers: Vec<_> =
        runs.iter().map(|run| Viewer::new(&[other.address], run, "record")).collect();
    let seen: Vec<_> = viewers.iter().map(|it| Arc::clone(&it.seen)).collect();
    let watching: Vec<_> = viewers.into_iter().map(Viewer::start).collect();
    until("words", || seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 10));
    let told = Instant::now();
    one.signal(Signal::TERM);
    let mut times = Vec::new();
    for (run, viewer) in runs.iter().zip(watching) {
        let (seen, adopted) = viewer.join().unwrap();
        assert!(is_adopted(&records(&seen)), "{run}");
        times.extend(adopted.map(|at| at - told));
    }
    distribution("handed over by draining", times);
}

/// A limit per tenant counts the runs of all machines, but not runs that start at the same moment.
#[test]
fn a_limit_per_tenant_holds_across_servers() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let limited = "[server.limits]\nruns_per_tenant = 6\n";
    let config = format!("{}{limited}", Machine::config(&nats.address(), 1, ""));
    let machines = [(); 2].map(|()| Machine::start(&config, 40, &[]));
    let body = json!({"agent": "demo", "input": "long"});
    let statuses: Vec<u16> =
        (0..8).map(|number| machines[number % 2].post("/v1/runs", "", &body).0).collect();
    assert_eq!(statuses, [201, 201, 201, 201, 201, 201, 429, 429]);
}

/// From SQLite to NATS and back: every run reads the same, and a run that waits for an answer
/// accepts it in the new store.
#[test]
fn everything_moves_from_sqlite_to_nats_and_back() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let address = nats.address();
    let config =
        |kind: &str| format!("demo = true\n[store]\nkind = \"{kind}\"\naddress = \"{address}\"\n");
    let home = Home::with_files(&[("wellspring.toml", &config("sqlite"))]);
    let serve = |home: &Home| {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = address.to_string();
        let mut command = home.paced(0, &["serve", "--listen", &listen, "--drain", "5"]);
        command.stderr(Stdio::null());
        (serving(command, address), address)
    };
    let stop = |mut server: Child| {
        let pid = Pid::from_raw(server.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        server.wait().unwrap();
    };
    let (server, at) = serve(&home);
    let start = |input: &str| {
        let body = json!({"agent": "demo", "input": input}).to_string();
        let (status, body) = answer(at, "POST", "/v1/runs", "idempotency-key: k\r\n", &body);
        assert_eq!(status, 201, "{body}");
        body["run"].as_str().unwrap().to_owned()
    };
    let asked = start("ask");
    until("a question", || {
        answer(at, "GET", &format!("/v1/runs/{asked}"), "", "").1["state"] == "paused"
    });
    stop(server);
    home.print(&["run", "--yes", "long"]);
    let exported = |home: &Home| -> Vec<String> {
        let listed = home.print(&["runs", "list", "--json"]);
        let runs: Value = serde_json::from_str(&listed).unwrap();
        let ids = runs.as_array().unwrap().iter().map(|run| run["run"]["run"].as_str().unwrap());
        ids.map(|run| home.print(&["runs", "export", run])).collect()
    };
    let before = exported(&home);
    assert_eq!(before.len(), 2);
    let moved: Value =
        serde_json::from_str(&home.print(&["store", "migrate", "--to", "nats", "--json"])).unwrap();
    assert_eq!((&moved["runs"], &moved["names"]), (&json!(2), &json!(1)), "{moved}");
    let again = home.output(&["store", "migrate", "--to", "nats"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"), "{again:?}");

    std::fs::write(home.work().join("wellspring.toml"), config("nats")).unwrap();
    assert_eq!(exported(&home), before);
    let (server, at) = serve(&home);
    let yes = json!({"question": 0, "answer": {"choose": ["river"]}}).to_string();
    let (status, said) = answer(at, "POST", &format!("/v1/runs/{asked}/answers"), "", &yes);
    assert!(status < 300, "{said}");
    records(&Viewer::new(&[at], &asked, "record").watch());
    stop(server);

    let after = exported(&home);
    let back = home.work().join("back");
    let moved: Value = serde_json::from_str(&home.print(&[
        "store",
        "migrate",
        "--to",
        "sqlite",
        "--json",
        "--data-dir",
        back.to_str().unwrap(),
    ]))
    .unwrap();
    assert_eq!((&moved["runs"], &moved["commands"]), (&json!(2), &json!(1)), "{moved}");
    let config = format!("demo = true\n[store]\ndirectory = {:?}\n", back.display());
    let there = Home::with_files(&[("wellspring.toml", &config)]);
    let there_exported = |arguments: &[&str]| {
        there.print(&[&["--data-dir", back.to_str().unwrap()], arguments].concat())
    };
    let listed: Value = serde_json::from_str(&there_exported(&["runs", "list", "--json"])).unwrap();
    let ids = listed.as_array().unwrap().iter().map(|run| run["run"]["run"].as_str().unwrap());
    let found: Vec<_> = ids.map(|run| there_exported(&["runs", "export", run])).collect();
    assert_eq!(found, after);
}

/// Commands that only read need no server; `doctor` shows where the runs are stored, and what is
/// wrong.
#[test]
fn doctor_looks_at_nats() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let checked = |address: &str| -> Value {
        let config = Machine::config(address, 1, "");
        let home = Home::with_files(&[("wellspring.toml", &config)]);
        let output = home.output(&["doctor", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = all["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["check"] == "NATS").unwrap()
    };
    let address = nats.address();
    let good = checked(&address);
    assert_eq!(
        good,
        json!({"check": "NATS", "state": "good", "remedy": null,
            "says": format!("the stream wellspring at {address}")})
    );
    drop(nats);
    let bad = checked(&address);
    assert_eq!(bad["state"], "bad");
    let says = bad["says"].as_str().unwrap();
    assert!(says.starts_with(&format!("cannot use the stream wellspring at {address}")), "{says}");
}

/// NATS accepts the configuration in `docs/deploy/three-nodes`.
#[test]
fn nats_accepts_the_layout_of_three_nodes() {
    if skipped(NATS) {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy/three-nodes/nats.conf");
    let mut server = Command::new(nats_program());
    server.args(["-t", "-c", file]).env("NATS_NAME", "nats-1").env("NATS_TOKEN", "secret");
    server.env("NATS_ROUTES", r#"["nats://nats-1:6222", "nats://nats-2:6222"]"#);
    let output = server.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A login that the servers refuse is reported by `doctor`, with what to do.
#[test]
fn doctor_says_how_to_log_in() {
    let Some(nats) = NatsServers::start_with("authorization { token: \"a-secret\" }") else {
        return;
    };
    let checked = |login: &str| -> Value {
        let config = Machine::config(&nats.address(), 1, "") + login;
        let files = [("wellspring.toml", &*config), ("right", "a-secret"), ("wrong", "a-guess")];
        let output = Home::with_files(&files).output(&["doctor", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = all["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "NATS").unwrap()["says"].clone()
    };
    let address = nats.address();
    let shown = format!("the stream wellspring at {address}");
    let cannot = format!("cannot use {shown}: could not connect to NATS at {address}");
    assert_eq!(checked("token_file = \"right\"\n"), shown);
    assert_eq!(
        checked("token_file = \"wrong\"\n"),
        format!(
            "{cannot}: the server refused the login; check the user and the password, the token \
             or the credentials file that [store.nats] names"
        )
    );
    assert_eq!(
        checked(""),
        format!(
            "{cannot}: the server requires a login; set `user`, `token_env` or \
             `credentials_file` in [store.nats]"
        )
    );
}
