//! Copies from one kind of store to another, and back.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Command, Content, Event, InboxNo, Millis, Outcome, PartId, PartKind, RunId,
    RunRequest, RunStarted, Stop, ThreadId,
};

use super::Subject;
use crate::audit::{Act, NewAudit};
use crate::document::Expected;
use crate::inbox::{NewCommand, Put, PutAll};
use crate::log::{Beginning, Log};
use crate::memory::MemoryStore;
use crate::migrate::{MigrateError, migrate};
use crate::options::LogOptions;
use crate::store::{ExternalId, Store};
use crate::thread::ThreadChange;

/// No time to watch for heartbeats: these tests have no live nodes.
const NO_WAIT: Duration = Duration::ZERO;

/// A copy in another store, and a copy of that in a third one, equal the original. Commands keep
/// their numbers, and later commands get new ones. A store that is not empty is refused.
pub async fn everything_moves_and_comes_back(subject: &impl Subject) {
    let original = MemoryStore::default();
    let [running, _, _] = fill(&original).await;
    let copy = subject.open();
    let there = migrate(&original, &*copy, NO_WAIT).await.unwrap();
    let counts =
        (there.runs, there.commands, there.names, there.threads, there.documents, there.audit);
    assert_eq!(counts, (3, 9, 4, 3, 2, 1));
    let back = MemoryStore::default();
    assert_eq!(migrate(&*subject.open(), &back, NO_WAIT).await.unwrap(), there);

    let again = migrate(&original, &*copy, NO_WAIT).await;
    assert!(matches!(again, Err(MigrateError::NotEmpty("runs"))), "{again:?}");
    let put = copy.put_inbox(running, vec![input("1"), input("new")]).await.unwrap();
    let PutAll::Done(puts) = put else { panic!("{put:?}") };
    assert_eq!(puts[0], Put { number: InboxNo(1), existed: true });
    assert!(puts[1].number > InboxNo(3) && !puts[1].existed, "{puts:?}");
    // The owner is not copied, so another owner can adopt the run.
    let log = Log::new(copy, LogOptions::default());
    let due = log.due(None, 10).await.unwrap().runs;
    assert!(due.iter().any(|due| due.run == running && due.owner.is_none()), "{due:?}");
    log.adopt(running).await.unwrap();
}

fn input(key: &str) -> NewCommand {
    let command = Command::AddInput { content: vec![Content::text(key)], message: None };
    NewCommand { key: key.into(), command, audit: None }
}

/// Three runs: one is running, one is paused, one has finished.
async fn fill(store: &MemoryStore) -> [RunId; 3] {
    let log = Log::new(std::sync::Arc::new(store.reopen()), LogOptions::default());
    let name =
        |id: &str| ExternalId { tenant: "tenant".into(), surface: "test".into(), id: id.into() };
    let mut runs = Vec::new();
    for number in 1..=3_u128 {
        let run = RunId::new(Uuid::from_u128(number));
        let started = RunStarted {
            run,
            thread: ThreadId::new(Uuid::from_u128(100 + number)),
            agent: "agent".into(),
            after: None,
            request: RunRequest::text(format!("go {number}")),
        };
        let name = Some(name(&number.to_string()));
        let beginning = Beginning { name, ..Beginning::default() };
        let owner = log.begin("tenant", started.into(), beginning).await.unwrap();
        let commands = ["1", "2", "3"].map(input).into();
        log.send(run, commands).await.unwrap();
        let part = PartId(0);
        for chunk in ["some", " words"] {
            if chunk == "some" {
                owner.push(AgentNo::ROOT, Event::PartStarted { part, kind: PartKind::TEXT });
            }
            owner.push(AgentNo::ROOT, Event::PartDelta { part, chunk: chunk.into() });
            owner.commit().await.unwrap();
        }
        owner.push(AgentNo::ROOT, Event::PartFinished { part });
        // The second command has an effect; the third one has none.
        let accepted = Event::InputAccepted {
            inbox: InboxNo(2),
            content: vec![Content::text("2")],
            amended: None,
        };
        owner.push(AgentNo::ROOT, accepted);
        owner.dismiss(InboxNo(3));
        owner.commit().await.unwrap();
        if number == 2 {
            owner.pause(Vec::new(), Some(Millis(u64::MAX / 4)));
        } else if number == 3 {
            let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
            owner.push(AgentNo::ROOT, Event::InputApplied { inbox: InboxNo(2) });
            owner.push(AgentNo::ROOT, Event::RunFinished { outcome });
        }
        owner.commit().await.unwrap();
        runs.push(run);
    }
    store.bind(name("another"), runs[0]).await.unwrap();
    let thread = ThreadId::new(Uuid::from_u128(103));
    let change = ThreadChange { title: Some("A title".into()), archived: Some(true) };
    assert!(store.change_thread("tenant".into(), thread, change).await.unwrap());
    for name in ["token/one", "token/two"] {
        let text = Some(json!({ "name": name }).to_string().into());
        store.put_document(name.into(), text, Expected::Absent).await.unwrap();
    }
    let details = json!({ "tool": "shell" });
    let act =
        Act { at: Millis(5), by: "someone".into(), run: runs[0], did: "approve".into(), details };
    // A tenant without runs, which only has an audit entry.
    store.put_audit(NewAudit { tenant: "gone".into(), key: "key".into(), act }).await.unwrap();
    [runs[0], runs[1], runs[2]]
}
