use std::cell::Cell;
use std::collections::HashMap;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Outcome, PartId, PartKind, Role, RunRequest, RunStarted, Stop, ThreadId, TurnStarted,
};
use wellspring_log::Owner;

use wellspring_wire::DialectName;

use super::*;
use crate::config::ServerLimits;
use crate::limits::Gates;
use wellspring_engine::Principal;

thread_local! {
    /// How often frames were encoded on this thread.
    pub(super) static ENCODED: Cell<usize> = const { Cell::new(0) };
}

const DIALECTS: [DialectName; 3] =
    [DialectName::Record, DialectName::AgUi, DialectName::AgentEvent];

/// A run that a test writes while streams read it.
struct Watched {
    log: Log,
    owner: Owner,
    folds: Arc<Folds>,
    gates: Gates,
}

impl Watched {
    /// The first text has begun.
    async fn new() -> Self {
        let log = Log::in_memory();
        let started = RunStarted {
            run: RunId::new(Uuid::now_v7()),
            thread: ThreadId::new(Uuid::now_v7()),
            agent: "agent".into(),
            after: None,
            request: RunRequest::text("go"),
        };
        let owner = log.create("default", started).await.unwrap();
        let turn = TurnStarted { turn: 1, attempt: 1, model: "scripted".into(), streaming: true };
        owner.push(AgentNo::ROOT, Event::TurnStarted(Box::new(turn)));
        let kind = PartKind::Text { role: Role::Assistant };
        owner.push(AgentNo::ROOT, Event::PartStarted { part: PartId(0), kind });
        owner.commit().await.unwrap();
        let gates = Gates::new(&ServerLimits::default());
        let watched = Self { log, owner, folds: Arc::default(), gates };
        watched.say("first ").await;
        watched
    }

    /// Appends a word in its own frame.
    async fn say(&self, word: &str) {
        let delta = Event::PartDelta { part: PartId(0), chunk: word.into() };
        self.owner.push(AgentNo::ROOT, delta);
        self.owner.commit().await.unwrap();
    }

    /// Ends the run, in one frame.
    async fn end(&self) {
        let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
        self.owner.push_all(
            [
                Event::PartFinished { part: PartId(0) },
                Event::TurnFinished { stop: Stop::EndTurn, usage: None },
                Event::RunFinished { outcome },
            ]
            .map(|event| (AgentNo::ROOT, event)),
        );
        self.owner.commit().await.unwrap();
    }

    /// A reader that has read everything so far.
    async fn viewer(&self, dialect: DialectName) -> EventStream {
        let cursor = self.log.cursor(self.owner.run(), Seq(0)).await.unwrap();
        let wanted = Wanted {
            run: Readable::At(cursor),
            dialect: dialect.into(),
            start: Begin::After(WirePosition::START),
            until: Until::End,
        };
        let around = Surroundings {
            carrier: Carrier::Response,
            log: self.log.clone(),
            folds: Arc::clone(&self.folds),
            metrics: Metrics::default(),
            keep_alive: Duration::from_secs(3600),
            closing: CancellationToken::new().cancelled_owned(),
            _pass: self.gates.stream(&Principal::local()).unwrap_or_else(|_| unreachable!("room")),
            held: self.gates.bytes(""),
            asked_at: None,
        };
        let mut stream = EventStream::open(wanted, around).await.unwrap();
        assert!(stream.next().await.unwrap().starts_with(b"retry: "));
        let there = stream.next().await.unwrap();
        assert!(there.windows(5).any(|five| five == b"first"));
        stream
    }
}

fn encoded() -> usize {
    ENCODED.with(Cell::get)
}

/// A frame is encoded once per dialect, however many readers there are.
#[tokio::test]
async fn a_frame_is_encoded_once_per_dialect() {
    const VIEWERS: usize = 100;
    const WORDS: usize = 20;
    let watched = Watched::new().await;
    let mut viewers = Vec::new();
    for dialect in DIALECTS {
        for _ in 0..VIEWERS {
            viewers.push((dialect, watched.viewer(dialect).await));
        }
    }
    let before = encoded();
    for round in 0..WORDS {
        watched.say("word ").await;
        let mut said: HashMap<DialectName, Bytes> = HashMap::new();
        for (dialect, viewer) in &mut viewers {
            let bytes = viewer.next().await.unwrap();
            let first = said.entry(*dialect).or_insert_with(|| bytes.clone());
            assert_eq!(bytes, *first, "{dialect} in round {round}");
        }
    }
    assert_eq!(encoded() - before, DIALECTS.len() * WORDS);
}

/// A reader that lags gets everything that it missed in few pieces, and frames are not encoded
/// again for it while another reader is ahead.
#[tokio::test]
async fn a_lagging_reader_gets_batches() {
    const WORDS: usize = 200;
    let watched = Watched::new().await;
    let mut quick = watched.viewer(DialectName::Record).await;
    let mut slow = watched.viewer(DialectName::Record).await;
    let mut pieces = Vec::new();
    for _ in 0..WORDS {
        watched.say("word ").await;
        pieces.push(quick.next().await.unwrap());
    }
    watched.end().await;
    while let Some(bytes) = quick.next().await {
        pieces.push(bytes);
    }
    let before = encoded();
    let mut batches = Vec::new();
    while let Some(bytes) = slow.next().await {
        batches.push(bytes);
    }
    assert_eq!(batches.concat(), pieces.concat());
    assert!(pieces.len() > WORDS, "{} pieces", pieces.len());
    let bytes: usize = batches.iter().map(Bytes::len).sum();
    let most = 2 * bytes / JOIN_BELOW_BYTES + 1;
    assert!(batches.len() <= most, "{} batches of {bytes} bytes", batches.len());
    assert_eq!(encoded(), before, "they were encoded for the other one");
}
