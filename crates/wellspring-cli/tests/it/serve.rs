//! `kill -9` of a server with many runs and a client for each: every client that reconnects gets
//! the rest.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wellspring_core::{Checker, Record};
use wellspring_testkit::soak;

use crate::kit::{Going, Home};

/// Number of runs that are active when the server is killed.
const RUNS: usize = 50;

/// The server, at a fixed address.
fn serve(home: &Home, address: SocketAddr) -> Child {
    serving(home.paced(4, &["serve", "--listen", &address.to_string()]), address)
}

pub(crate) fn serving(mut command: Command, address: SocketAddr) -> Child {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("Wellspring is at http://{address}\n"));
    child
}

fn ask(address: SocketAddr, request: &str) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(request.as_bytes())?;
    Ok(socket)
}

fn start(address: SocketAddr) -> String {
    let body = r#"{"agent":"demo","input":"long"}"#;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    ask(address, &request).unwrap().read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    body["run"].as_str().unwrap().to_owned()
}

/// The dialects that clients read, each with a part of its last event.
const CLIENTS: [(&str, &str); 3] =
    [("record", "run_finished"), ("ag_ui", "RUN_FINISHED"), ("agent_event", r#""type":"final""#)];

/// An event: its id and its data.
type Seen = (String, String);

/// Reads a run's events to the end. Whenever the stream breaks off, it resumes after the last id.
fn watch(
    address: SocketAddr,
    run: &str,
    (dialect, over): (&str, &str),
    seen: &AtomicUsize,
    gone: &AtomicBool,
) -> Vec<Seen> {
    let mut events: Vec<Seen> = Vec::new();
    loop {
        let last = events.last().map_or("0", |(id, _)| id);
        let request = format!(
            "GET /v1/runs/{run}/events?dialect={dialect} HTTP/1.1\r\nhost: localhost\r\n\
             connection: close\r\nlast-event-id: {last}\r\n\r\n"
        );
        let Ok(socket) = ask(address, &request) else {
            assert!(gone.load(Ordering::SeqCst), "the server is away only when it was killed");
            std::thread::yield_now();
            continue;
        };
        // A line without a line break was cut off, so it is not an event yet.
        let mut lines = BufReader::new(socket);
        let (mut line, mut id) = (String::new(), String::new());
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
            if let Some(said) = line.strip_prefix("id: ") {
                id = said.trim_end().to_owned();
            } else if let Some(json) = line.strip_prefix("data: ") {
                events.push((id.clone(), json.trim_end().to_owned()));
                seen.fetch_add(1, Ordering::SeqCst);
                if json.contains(over) {
                    return events;
                }
            }
            line.clear();
        }
    }
}

#[test]
fn clients_of_a_killed_server_get_the_rest() {
    for round in 0..soak(3, 100) {
        let home = Home::new();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = serve(&home, address);
        let gone = Arc::new(AtomicBool::new(false));
        // One counter per dialect, because dialects have different numbers of events.
        let seen: [Arc<AtomicUsize>; CLIENTS.len()] = std::array::from_fn(|_| Arc::default());
        let results = Arc::new(Mutex::new(Vec::new()));
        let runs: Vec<_> = (0..RUNS).map(|_| start(address)).collect();
        let watching: Vec<_> = runs
            .iter()
            .enumerate()
            .map(|(number, run)| {
                let client = number % CLIENTS.len();
                let (run, seen) = (run.clone(), Arc::clone(&seen[client]));
                let (gone, results) = (Arc::clone(&gone), Arc::clone(&results));
                std::thread::spawn(move || {
                    let events = watch(address, &run, CLIENTS[client], &seen, &gone);
                    results.lock().unwrap().push((run, client, events));
                })
            })
            .collect();
        // Killed at a different place each time.
        let records = &seen[0];
        while records.load(Ordering::SeqCst)
            < RUNS / CLIENTS.len() * (20 + 90 * (round as usize % 7))
        {
            std::thread::yield_now();
        }
        gone.store(true, Ordering::SeqCst);
        server.kill().unwrap();
        server.wait().unwrap();
        let mut server = serve(&home, address);
        for thread in watching {
            thread.join().unwrap();
        }
        let results = std::mem::take(&mut *results.lock().unwrap());
        assert_eq!(results.len(), RUNS);
        gone.store(false, Ordering::SeqCst);
        let mut adopted = 0;
        for (run, client, events) in results {
            // A client that was cut off has the same events as a client that joins now: all of
            // them, once.
            let whole = watch(address, &run, CLIENTS[client], &AtomicUsize::new(0), &gone);
            assert_eq!(events, whole, "{run} as {}", CLIENTS[client].0);
            let (records, _) = home.records(&run);
            let taken_up =
                |it: &Record| matches!(it.event, wellspring_core::Event::RunAdopted { .. });
            adopted += usize::from(records.iter().any(taken_up));
        }
        server.kill().unwrap();
        server.wait().unwrap();
        // On a busy machine some runs may have ended before.
        assert!(adopted >= RUNS * 9 / 10, "{adopted} were at work and went on");
    }
}

/// `wellspring` without a command serves: it prints its address and its agents, responds, and stops
/// on a signal.
#[test]
fn alone_it_serves_and_says_where() {
    let home = Home::new();
    let mut server = Going::start(home.paced(0, &["--listen", "127.0.0.1:0"]));
    let line = server.line().unwrap().to_owned();
    let address = line.strip_prefix("Wellspring is at http://").unwrap().parse().unwrap();
    assert_eq!(server.line(), Some("agents: demo"));
    let mut page = String::new();
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    ask(address, request).unwrap().read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<title>"), "{page}");

    let taken = home.output(&["serve", "--listen", &format!("{address}")]);
    let said = String::from_utf8_lossy(&taken.stderr);
    assert!(said.contains(&format!("{address} is in use")), "{said}");

    server.signal(rustix::process::Signal::INT);
    let (status, ..) = server.end();
    assert_eq!(status.code(), Some(0));
}

/// Reads a run to its end, reconnecting when the stream breaks off because the store fails. Checks
/// the records against the grammar. `look` is called after each line.
fn read_through_trouble(
    address: SocketAddr,
    run: &str,
    mut look: impl FnMut(&[Record], &[String]),
) {
    use wellspring_core::Event;

    let mut records: Vec<Record> = Vec::new();
    let mut told = Vec::new();
    while !records.last().is_some_and(|last| matches!(last.event, Event::RunFinished { .. })) {
        let last = records.last().map_or(0, |record| record.seq.0);
        let request = format!(
            "GET /v1/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             last-event-id: {last}\r\n\r\n"
        );
        for line in BufReader::new(ask(address, &request).unwrap()).lines() {
            let line = line.unwrap();
            let Some(json) = line.strip_prefix("data: ") else { continue };
            match serde_json::from_str(json) {
                Ok(record) => records.push(record),
                Err(_) => told.push(json.to_owned()),
            }
            look(&records, &told);
        }
    }
    Checker::check(&records).unwrap();
    let adopted = |it: &Record| matches!(it.event, Event::RunAdopted { .. });
    assert!(records.iter().any(adopted), "it was taken up again");
    let failed = json!({"error": {"code": "store", "message": "the store failed",
        "remedy": "try again; the server's log says more"}});
    assert_eq!(told, [failed.to_string()]);
}

/// A full disk: the run stops, the stream reports it, and no record is shown that was not stored.
/// Once there is room again, the run continues and its client gets the rest.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_the_run_goes_on_after_repair() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let arguments = ["serve", "--listen", &address.to_string()];
    let mut server = serving(home.paced_and_limitable(4, &arguments), address);
    let pid = Pid::from_raw(server.id().try_into().unwrap());
    let maximum = getrlimit(Resource::Fsize).maximum;
    // A file size limit fails like a full disk.
    let room = |current| prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    let run = start(address);
    read_through_trouble(address, &run, |records, told| {
        if !told.is_empty() {
            room(maximum);
        } else if records.len() == 20 {
            room(Some(0));
        }
    });
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A disk on which syncing fails for a while: the same.
#[cfg(target_os = "linux")]
#[test]
fn a_failing_sync_is_said_and_the_run_goes_on_after_repair() {
    if std::env::var_os("WELLSPRING_PEER_STRACE").is_none() {
        return;
    }
    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let arguments = ["serve", "--listen", &address.to_string(), "--durability", "power-loss"];
    let mut server = serving(home.paced_and_unsynced(4, 30..=45, &arguments), address);
    // Longer than an append is retried.
    read_through_trouble(address, &start(address), |_, _| {});
    server.kill().unwrap();
    server.wait().unwrap();
}

/// The status and the JSON body of an answer.
pub(crate) fn answer(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, Value) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
         accept: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut text = String::new();
    ask(address, &request).unwrap().read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// While a server runs, other commands create and revoke tokens and copy all runs. The server logs
/// who requested what, without secrets.
#[test]
fn a_live_server_takes_tokens_is_backed_up_and_logs_who_asks() {
    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = home.work().join("log");
    let mut command = home.paced(0, &["serve", "--listen", &address.to_string()]);
    command.env_remove("WELLSPRING_LOG").stderr(std::fs::File::create(&log).unwrap());
    let mut server = serving(command, address);
    assert_eq!(answer(address, "GET", "/v1/runs", "", "").0, 200, "nobody needs a token yet");
    let secret = home.print(&["token", "create", "ci", "--scope", "run", "--scope", "read"]);
    let secret = secret.trim();
    assert_eq!(home.print(&["token", "list"]), "ci\tdefault\trun,read\n");
    // The server soon sees what another process has written.
    while answer(address, "GET", "/v1/runs", "", "").0 != 401 {
        std::thread::yield_now();
    }
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers = format!(
        "authorization: Bearer {secret}\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n"
    );
    let body = r#"{"agent":"demo","input":"long"}"#;
    let (status, run) = answer(address, "POST", "/v1/runs", &headers, body);
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().unwrap();
    let (_, signed) =
        answer(address, "POST", &format!("/v1/runs/{run}/stream-url"), &headers, "{}");
    let signature = signed["url"].as_str().unwrap().rsplit_once("signature=").unwrap().1.to_owned();
    let path = signed["url"].as_str().unwrap();
    let mut done = false;
    let mut after = "0".to_owned();
    while !done {
        let (status, page) =
            answer(address, "GET", &format!("{path}&after={after}&wait=10"), "", "");
        assert_eq!(status, 200, "{page}");
        (done, after) = (page["done"] == true, page["next"].as_str().unwrap().to_owned());
    }
    let copy = home.work().join("copy").join("runs.db");
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    assert_eq!(home.print(&["backup", copy.to_str().unwrap()]), "");
    let again = home.output(&["backup", copy.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{said}");
    assert!(said.contains("exists already") && said.contains("name another file"), "{said}");
    let copied = copy.parent().unwrap().to_str().unwrap();
    let exported = home.print(&["--data-dir", copied, "runs", "export", run]);
    assert_eq!(exported, home.print(&["runs", "export", run]));
    home.print(&["token", "create", "other"]);
    home.print(&["token", "revoke", "ci"]);
    while answer(address, "GET", "/v1/runs", &headers, "").0 != 401 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_raw(server.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let stderr = std::fs::read_to_string(&log).unwrap();
    assert!(!stderr.contains(secret) && !stderr.contains(&signature), "{stderr}");
    let lines = stderr
        .lines()
        .filter(|line| *line != "waiting for runs to finish; press Ctrl-C again to stop now");
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let started: Vec<_> = lines
        .iter()
        .filter(|line| line["path"] == "/v1/runs" && line["method"] == "POST")
        .collect();
    let [started] = &started[..] else { panic!("{stderr}") };
    let mut started = (*started).clone();
    for measured in ["time", "micros"] {
        assert!(started.as_object_mut().unwrap().remove(measured).is_some());
    }
    assert_eq!(
        started,
        serde_json::json!({
            "level": "INFO", "target": "wellspring::access", "by": "ci", "method": "POST",
            "path": "/v1/runs", "status": 201, "code": "", "trace": trace,
        })
    );
    let events = format!("/v1/runs/{run}/events");
    assert!(lines.iter().any(|line| line["path"] == *events && line["by"] == "ci"), "{stderr}");
    assert!(lines.iter().any(|line| line["code"] == "no_token" && line["by"] == ""), "{stderr}");
    assert!(lines.iter().any(|line| line["code"] == "bad_token"), "{stderr}");
}

/// The user of this machine is the same principal in every surface.
#[test]
fn what_was_asked_on_the_page_is_answered_in_the_terminal_beside_it() {
    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = serve(&home, address);
    let body = r#"{"agent":"demo","input":"hello"}"#;
    let (status, run) = answer(address, "POST", "/v1/runs", "", body);
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().unwrap();
    let request = format!("GET /v1/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let events = BufReader::new(ask(address, &request).unwrap());
    let mut lines = events.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("run_paused")), "it waits for an answer");
    let resumed = home.output(&["runs", "resume", run, "--yes", "--events", "record"]);
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert!(lines.any(|line| line.contains("run_finished")), "whoever watches sees the rest");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Standard error is a pipe with a 60 KiB buffer that is never read: the server still answers every
/// request, and stops on a signal.
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    const REQUESTS: usize = 1000;
    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = home.paced(0, &["serve", "--listen", &address.to_string()]);
    command.env_remove("WELLSPRING_LOG");
    let mut server = serving(command, address);
    for _ in 0..REQUESTS {
        let mut socket = TcpStream::connect(address).unwrap();
        // A server that waits for its log would never answer.
        socket.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        let request = "GET /v1/agents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let pid = rustix::process::Pid::from_raw(server.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let whole = log.rsplit_once('\n').unwrap().0;
    let lines: Vec<Value> =
        whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let paths = lines.iter().filter(|line| line["path"] == "/v1/agents").count();
    assert!((1..REQUESTS).contains(&paths), "the pipe took {paths} lines");
}
