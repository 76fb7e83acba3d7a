//! NATS passes the one suite, with one server and with three.

use std::sync::{Arc, Mutex, Weak};

use async_nats::HeaderMap;
use futures::TryStreamExt as _;
use tokio::runtime::Handle;
use wellspring_core::RunId;
use wellspring_log::suite::{Damage, Subject};
use wellspring_log::{Durability, NatsOptions, NatsStore, Store};
use wellspring_testkit::NatsServers;

/// A stream of its own on servers that the tests of the same moment share.
pub(crate) struct Nats {
    servers: Arc<NatsServers>,
    stream: String,
}

/// One server, and three. They end with the last test that uses them.
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

/// A promise that the servers' settings cannot keep is refused, and the setting is named.
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
