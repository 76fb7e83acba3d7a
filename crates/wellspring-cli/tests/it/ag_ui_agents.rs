//! An AG-UI agent on another server of ours: two real processes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::Event;
use wellspring_testkit::FakeProvider;

use crate::kit::Home;
use crate::providers::{anthropic, anthropic_held};

/// A server at a fixed address, until it is killed.
pub(crate) struct Server(Child, SocketAddr);

impl Server {
    pub(crate) fn start(home: &Home, address: SocketAddr) -> Self {
        let mut command = home.paced(0, &["serve", "--listen", &address.to_string()]);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("Wellspring is at http://{address}\n"));
        Self(child, address)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.1).unwrap();
        // Long enough that only a hang exceeds it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        socket
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = String::new();
        self.ask("POST", path, &body.to_string()).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Reads a run's records until `count` of them contain this text.
    pub(crate) fn wait_for(&self, run: &str, what: &str, count: usize) {
        let stream = self.ask("GET", &format!("/v1/runs/{run}/events?dialect=record"), "");
        let mut seen = Vec::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            seen.push(line);
            if seen.iter().filter(|line| line.contains(what)).count() == count {
                return;
            }
        }
        panic!("{what:?} did not come {count} times, only {seen:#?}");
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

pub(crate) fn address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Two servers: the inner one has the agent `tailor`, which the outer one calls `far`.
struct Pair {
    inner: Home,
    outer: Home,
    inner_at: SocketAddr,
    outer_at: SocketAddr,
}

impl Pair {
    fn new(provider: &FakeProvider) -> Self {
        let (inner_at, outer_at) = (address(), address());
        let config = format!(
            "[providers.anthropic]\nbase_url = \"{}\"\nkey_file = \"key\"\n\
             [agents.tailor]\nmodel = \"anthropic/m\"\ntools = [\"ask_user\"]\n",
            provider.url()
        );
        let inner = Home::with_files(&[("wellspring.toml", &config), ("key", "k")]);
        let config = format!(
            "[agents.far.ag_ui]\nurl = \"http://{inner_at}/ag-ui/tailor\"\nresumable = true\n"
        );
        let outer = Home::with_files(&[("wellspring.toml", &config)]);
        Self { inner, outer, inner_at, outer_at }
    }

    fn start_inner(&self) -> Server {
        Server::start(&self.inner, self.inner_at)
    }

    fn start_outer(&self) -> Server {
        Server::start(&self.outer, self.outer_at)
    }

    /// The events of a run of the outer server, without the inner server's own extensions.
    fn told(&self, run: &str) -> String {
        let (records, _) = self.outer.records(run);
        let hidden = |event: &Event| {
            matches!(
                event,
                Event::RunStarted(_)
                    | Event::RunAdopted { .. }
                    | Event::Extended(_)
                    | Event::PartAnnotated { .. }
            )
        };
        let told = records.iter().filter(|record| !hidden(&record.event));
        // The handle has random ids.
        let told = told.map(|record| {
            let is_attached = matches!(record.event, Event::Attached { .. });
            if is_attached { "attached\n".to_owned() } else { format!("{}\n", record.event) }
        });
        told.collect()
    }
}

/// Input is added in the middle of a sentence, the run is paused while both processes are
/// restarted, and it continues without repeated text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_agent_is_steered_parked_over_a_restart_of_both_and_resumed() {
    let question = r#"{"question":"Which colour?"}"#;
    let fake = FakeProvider::start([
        anthropic_held(["A coat, ", "of course."], "ask_user", question),
        anthropic("Blue it is."),
        anthropic("And a hat."),
    ])
    .await
    .unwrap();
    let fake = tokio::task::spawn_blocking(move || {
        let pair = Pair::new(&fake);
        let (inner, outer) = (pair.start_inner(), pair.start_outer());
        let run = outer.post("/v1/runs", &json!({"agent": "far", "input": "A coat."}));
        let run = run["run"].as_str().unwrap().to_owned();
        outer.wait_for(&run, "A coat, ", 1);
        outer.post(&format!("/v1/runs/{run}/input"), &json!({"content": "With a hat."}));
        outer.wait_for(&run, "input_accepted", 1);
        fake.release();
        outer.wait_for(&run, "run_paused", 1);
        inner.kill();
        outer.kill();

        let (inner, outer) = (pair.start_inner(), pair.start_outer());
        let blue = json!({"question": 0, "answer": {"value": "blue"}});
        outer.post(&format!("/v1/runs/{run}/answers"), &blue);
        outer.wait_for(&run, "run_finished", 1);
        insta::assert_snapshot!(pair.told(&run), @r#"
        attached
        part 0 started text
        part 0 delta "A coat, "
        input 1 accepted [{"text":"With a hat."}]
        part 0 delta "of course."
        part 0 finished
        part 1 started call ask_user on agent
        part 1 delta "{\"question\":\"Which colour?\"}"
        part 1 finished
        attached
        question 0 asked {"schema":{"type":"string"}} "Which colour?"
        run paused for [{"question":0}]
        run resumed
        question 0 answered {"value":"blue"}
        attached
        tool 1 finished ok "blue"
        part 2 started text
        part 2 delta "Blue it is."
        part 2 finished
        attached
        input 1 applied
        part 3 started text
        part 3 delta "And a hat."
        part 3 finished
        run finished completed end_turn
        "#);
        inner.kill();
        outer.kill();
        fake
    })
    .await
    .unwrap();
    assert_eq!(fake.asked().len(), 3, "the model is asked once for each answer");
}

/// Our process is killed in the middle of a sentence. The remote agent's process continues, and so
/// does the sentence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentence_goes_on_where_our_process_was_killed() {
    let question = r#"{"question":"Which colour?"}"#;
    let fake = FakeProvider::start([
        anthropic_held(["A coat, ", "of course."], "ask_user", question),
        anthropic("Blue it is."),
    ])
    .await
    .unwrap();
    let fake = tokio::task::spawn_blocking(move || {
        let pair = Pair::new(&fake);
        let (inner, outer) = (pair.start_inner(), pair.start_outer());
        let run = outer.post("/v1/runs", &json!({"agent": "far", "input": "A coat."}));
        let run = run["run"].as_str().unwrap().to_owned();
        outer.wait_for(&run, "A coat, ", 1);
        outer.kill();
        let outer = pair.start_outer();
        outer.wait_for(&run, "attached", 2);
        fake.release();
        outer.wait_for(&run, "run_paused", 1);
        let blue = json!({"question": 0, "answer": {"value": "blue"}});
        outer.post(&format!("/v1/runs/{run}/answers"), &blue);
        outer.wait_for(&run, "run_finished", 1);
        insta::assert_snapshot!(pair.told(&run), @r#"
        attached
        part 0 started text
        part 0 delta "A coat, "
        attached
        part 0 delta "of course."
        part 0 finished
        part 1 started call ask_user on agent
        part 1 delta "{\"question\":\"Which colour?\"}"
        part 1 finished
        attached
        question 0 asked {"schema":{"type":"string"}} "Which colour?"
        run paused for [{"question":0}]
        run resumed
        question 0 answered {"value":"blue"}
        attached
        tool 1 finished ok "blue"
        part 2 started text
        part 2 delta "Blue it is."
        part 2 finished
        run finished completed end_turn
        "#);
        inner.kill();
        outer.kill();
        fake
    })
    .await
    .unwrap();
    assert_eq!(fake.asked().len(), 2, "the model is asked once for each answer");
}
