//! The NATS store passes the store suite, with one server and with three.

use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use async_nats::HeaderMap;
use futures::TryStreamExt as _;
use tokio::runtime::Handle;
use wellspring_core::{
    AgentNo, Event, Millis, Outcome, PartId, PartKind, Record, RunId, RunRequest, RunStarted, Seq,
    Stop, ThreadId,
};
use wellspring_log::suite::{Damage, Subject};
use wellspring_log::{
    Append, Created, Durability, ExternalId, Log, LogOptions, NatsOptions, NatsStore, NewFrame,
    NewRun, RunState, Store,
};
use wellspring_testkit::{NatsServers, soak};

/// A stream of its own, on servers that concurrent tests share.
pub(crate) struct Nats {
    servers: Arc<NatsServers>,
    stream: String,
}

/// One server, and three. They stop when the last test that uses them ends.
static SERVERS: [Mutex<Weak<NatsServers>>; 2] = [const { Mutex::new(Weak::new()) }; 2];

impl Nats {
    pub(crate) fn start(count: usize) -> Option<Self> {
        let mut shared = SERVERS[usize::from(count > 1)].lock().unwrap();
        let servers = match shared.upgrade() {
            Some(servers) => servers,
            None => Arc::new(NatsServers::start(count, false)?),
        };
        *shared = Arc::downgrade(&servers);
        Some(Self { servers, stream: format!("s{}", uuid::Uuid::now_v7().simple()) })
    }

    pub(crate) fn options(&self) -> NatsOptions {
        let (stream, replicas) = (self.stream.as_str().into(), self.servers.count());
        NatsOptions { stream, replicas, ..NatsOptions::at(self.servers.address()) }
    }

    async fn store(&self) -> NatsStore {
        NatsStore::open(self.options()).await.unwrap()
    }

    async fn client(&self) -> async_nats::Client {
        let address = self.servers.address();
        let addresses: Vec<_> = address.split(',').map(String::from).collect();
        async_nats::connect(addresses).await.unwrap()
    }

    /// All messages of a run's subject, in order.
    async fn messages(&self, run: RunId) -> Vec<(HeaderMap, bytes::Bytes)> {
        let client = self.client().await;
        let stream = async_nats::jetstream::new(client).get_stream(&self.stream).await.unwrap();
        let config = async_nats::jetstream::consumer::pull::OrderedConfig {
            filter_subject: format!("{}.run.{run}", self.stream),
            ..Default::default()
        };
        let mut consumer = stream.create_consumer(config).await.unwrap();
        let count = usize::try_from(consumer.info().await.unwrap().num_pending).unwrap();
        let messages = futures::StreamExt::take(consumer.messages().await.unwrap(), count);
        let messages: Vec<_> = messages.try_collect().await.unwrap();
        let parts = |it: async_nats::jetstream::Message| {
            (it.headers.clone().unwrap_or_default(), it.payload.clone())
        };
        messages.into_iter().map(parts).collect()
    }

    async fn damage(&self, run: RunId, what: Damage) -> bool {
        let mut messages = self.messages(run).await;
        match what {
            Damage::Frame => {
                let mut bytes = messages[1].1.to_vec();
                let last = bytes.len() - 2;
                bytes[last] ^= 1;
                messages[1].1 = bytes.into();
            }
            Damage::Missing => drop(messages.remove(1)),
            Damage::Foreign(other) => messages[1] = self.messages(other).await.swap_remove(1),
            Damage::State => {
                let last = messages.last_mut().unwrap();
                let bytes = String::from_utf8_lossy(&last.1).replace("completed", "running");
                last.1 = bytes.into_bytes().into();
            }
        }
        let client = self.client().await;
        let jetstream = async_nats::jetstream::new(client);
        let stream = jetstream.get_stream(&self.stream).await.unwrap();
        let subject = format!("{}.run.{run}", self.stream);
        stream.purge().filter(&subject).await.unwrap();
        for (headers, payload) in messages {
            let mut kept = HeaderMap::new();
            if let Some(sum) = headers.get("Wellspring-Sum") {
                kept.insert("Wellspring-Sum", sum.as_str());
            }
            let published = jetstream.publish_with_headers(subject.clone(), kept, payload);
            published.await.unwrap().await.unwrap();
        }
        true
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(future))
}

impl Subject for Nats {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(wait(self.store()))
    }

    fn damage(&self, run: RunId, what: Damage) -> bool {
        wait(self.damage(run, what))
    }
}

mod one {
    wellspring_log::store_suite!(maybe: super::Nats::start(1));
}

mod three {
    wellspring_log::store_suite!(maybe: super::Nats::start(3));
}

/// If the servers' settings cannot provide the durability, opening fails and names the setting.
#[tokio::test]
async fn power_loss_is_promised_only_by_servers_that_sync() {
    let mut found = Vec::new();
    for sync in [false, true] {
        let Some(servers) = NatsServers::start(1, sync) else { return };
        for monitors in [Vec::new(), servers.monitors()] {
            let monitors = monitors.into_iter().map(Into::into).collect();
            let options = NatsOptions {
                durability: Durability::PowerLoss,
                monitors,
                ..NatsOptions::at(servers.address())
            };
            let named = |error: String| {
                let settings = ["`monitors`", "`sync_interval: always`"];
                settings.into_iter().find(|it| error.contains(it)).expect("a setting is named")
            };
            let opened = NatsStore::open(options).await;
            found.push(opened.map(drop).map_err(|error| named(error.to_string())));
        }
    }
    let sync = Err("`sync_interval: always`");
    assert_eq!(found, [Err("`monitors`"), sync, Err("`monitors`"), Ok(())]);
}

fn new_run(run: u128, thread: u128, name: &str, node: &str) -> (NewRun, NewFrame) {
    let id = |number| uuid::Uuid::from_u128(number);
    let new = NewRun {
        run: RunId::new(id(run)),
        thread: ThreadId::new(id(thread)),
        agent: "agent".into(),
        tenant: "tenant".into(),
        after: None,
        title: "go".into(),
        name: Some(ExternalId { tenant: "tenant".into(), surface: "test".into(), id: name.into() }),
        is_first: false,
        node: node.into(),
    };
    let state = Some(RunState::Running);
    (new, NewFrame { count: 1, body: "one".into(), state, ..NewFrame::default() })
}

/// Two nodes create runs of one thread, and runs of one name, at the same moment. Each time, one of
/// them succeeds and the other gets the existing run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_start_the_same_one_wins() {
    let Some(nats) = Nats::start(1) else { return };
    let stores = [nats.store().await, nats.store().await];
    let rounds = u128::from(soak(100, 10_000));
    for round in 1..=rounds {
        for (kind, thread, name) in [(0, [1, 1], ["a", "b"]), (1, [2, 3], ["same", "same"])] {
            let run = |node: usize| round * 1000 + kind * 10 + node as u128;
            let start = |node: usize| {
                let (thread, name) =
                    (round * 100 + thread[node], format!("{round}-{}", name[node]));
                let (new, first) = new_run(run(node), thread, &name, stores[node].node());
                stores[node].create(new, first)
            };
            let (one, other) = tokio::join!(start(0), start(1));
            let winner = |lost: Created| match lost {
                Created::ThreadBusy(run) | Created::Named(run) => run,
                other @ (Created::New | Created::Exists(_) | Created::NotFirst) => {
                    panic!("{other:?}")
                }
            };
            let (won, told) = match (one.unwrap(), other.unwrap()) {
                (Created::New, lost) => (run(0), winner(lost)),
                (lost, Created::New) => (run(1), winner(lost)),
                neither => panic!("{neither:?}"),
            };
            assert_eq!(told, RunId::new(uuid::Uuid::from_u128(won)));
        }
    }
}

/// Many runs of one process append at once, each token by itself, as fast as they can. Everything is
/// stored, and no run loses its owner, however late the stream's messages come.
#[tokio::test]
async fn many_runs_append_at_once() {
    let Some(nats) = Nats::start(1) else { return };
    let log = Log::new(Arc::new(nats.store().await), LogOptions::default());
    let tokens = soak(30, 1_000);
    let run = async || {
        let started = RunStarted {
            run: RunId::new(uuid::Uuid::now_v7()),
            thread: ThreadId::new(uuid::Uuid::now_v7()),
            agent: "agent".into(),
            after: None,
            request: RunRequest::text("go"),
        };
        let owner = log.create("tenant", started).await.unwrap();
        let part = PartId(0);
        owner.push(AgentNo::ROOT, Event::PartStarted { part, kind: PartKind::TEXT });
        for _ in 0..tokens {
            owner.push(AgentNo::ROOT, Event::PartDelta { part, chunk: "x".into() });
            owner.commit().await.unwrap();
        }
        log.store().info(owner.run()).await.unwrap().unwrap().head
    };
    let heads = futures::future::join_all((0..64).map(|_| run())).await;
    assert_eq!(heads, vec![Seq(u64::from(tokens) + 2); 64]);
}

/// The number of messages per commit does not depend on how many idle runs other nodes watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_commit_costs_the_same_however_many_runs_are_idle() {
    const COMMITS: u64 = 50;
    let mut costs = Vec::new();
    for idle in [10_u128, 1000] {
        // Servers of its own, so that no messages of other tests are counted.
        let Some(servers) = NatsServers::start(1, false) else { return };
        let servers = Arc::new(servers);
        let nats = Nats { servers: Arc::clone(&servers), stream: "counted".into() };
        let (watcher, writer) = (Arc::new(nats.store().await), nats.store().await);
        let mut watches = Vec::new();
        for number in 1..=idle {
            let (new, first) = new_run(number, number, &number.to_string(), writer.node());
            let run = new.run;
            writer.create(new, first).await.unwrap();
            watches.push(watcher.watch(run));
        }
        let log = Log::new(watcher, LogOptions::default());
        let run = RunId::new(uuid::Uuid::from_u128(1));
        let mut cursor = log.cursor(run, Seq(1)).await.unwrap();
        let asked = || {
            let varz = servers.monitor(0, "/varz").unwrap();
            varz["in_msgs"].as_u64().unwrap()
        };
        let before = asked();
        for number in 0..COMMITS {
            let text = Event::PartDelta { part: PartId(0), chunk: "x".into() };
            let (seq, agent, at) = (Seq(number + 2), AgentNo::ROOT, Millis(1));
            let record = Record { seq, agent, at, event: text };
            let body = wellspring_log::codec::encode(&[record]).unwrap().into();
            let frame = NewFrame { count: 1, body, ..NewFrame::default() };
            let append = Append { run, expected: Seq(number + 1), frame, adopt: None };
            let (decided, decision) = tokio::sync::oneshot::channel();
            writer.append(append, Box::new(|it| drop(decided.send(it))));
            decision.await.unwrap().unwrap();
            assert!(cursor.next().await.unwrap().is_some());
        }
        costs.push((asked() - before) / COMMITS);
    }
    println!("messages to the server per foreign commit, with 10 and 1,000 idle runs: {costs:?}");
    // The append, the reader's requests, and periodic messages.
    assert!(costs[1] <= costs[0] + 1 && costs[1] <= 8, "{costs:?}");
}

/// The subjects, messages and checksums in `docs/nats.md` are sufficient to write another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_reads_a_run_and_its_checksums_agree() {
    let Some(nats) = Nats::start(1) else { return };
    let store = Arc::new(nats.store().await);
    let log = Log::new(store.clone(), LogOptions::default());
    let run = RunId::new(uuid::Uuid::now_v7());
    let started = RunStarted {
        run,
        thread: ThreadId::new(uuid::Uuid::now_v7()),
        agent: "agent".into(),
        after: None,
        request: RunRequest::text("grüße"),
    };
    let owner = log.create("tenant", started).await.unwrap();
    let part = PartId(0);
    owner.push(AgentNo::ROOT, Event::PartStarted { part, kind: PartKind::TEXT });
    for word in ["Ein ", "Wort ", "gibt ", "das ", "andere."] {
        owner.push(AgentNo::ROOT, Event::PartDelta { part, chunk: word.into() });
        owner.commit().await.unwrap();
    }
    owner.push(AgentNo::ROOT, Event::PartFinished { part });
    let outcome = Outcome::Completed { stop: Stop::EndTurn };
    owner.push(AgentNo::ROOT, Event::RunFinished { outcome: Box::new(outcome) });
    owner.commit().await.unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer/read_run.py");
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/nats/bin/python");
    let mut command = Command::new(python);
    let address = nats.servers.address();
    command.arg(script).args([&address, &nats.stream, &run.to_string()]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let hex = |bytes: &[u8]| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
    let page = store.read(run, Seq(0), usize::MAX).await.unwrap();
    let ours = page
        .frames
        .iter()
        .map(|frame| format!("[{}, {}, \"{}\"]\n", frame.first.0, frame.count, hex(&frame.body)));
    assert_eq!(said, ours.collect::<String>());
}
