//! Audit entries are independent of the runs.

use serde_json::json;
use wellspring_core::{Millis, RunId};

use super::{Subject, append, create, frame, run_id, with_state};
use crate::audit::{AUDIT_MAX, Act, AuditEntry, AuditFilter, NewAudit};
use crate::store::{RunState, Store};

fn act(run: RunId, at: u64) -> Act {
    let details = json!({ "tool": "shell" });
    Act { at: Millis(at), by: "someone".into(), run, did: "approve".into(), details }
}

fn new(tenant: &str, key: &str, run: RunId, at: u64) -> NewAudit {
    NewAudit { tenant: tenant.into(), key: key.into(), act: act(run, at) }
}

fn entry(number: u64, key: &str, run: RunId, at: u64) -> AuditEntry {
    AuditEntry { number, key: key.into(), act: act(run, at) }
}

async fn page(store: &dyn Store, tenant: &str, before: Option<u64>) -> Vec<AuditEntry> {
    let filter = AuditFilter { tenant: tenant.into(), before, limit: 2 };
    store.audit(filter).await.unwrap()
}

/// Contract 12: an entry is written once, in order and per tenant, and outlives its run.
pub async fn an_audit_outlives_its_runs(subject: &impl Subject) {
    let store = subject.open();
    let run = create(&*store, 1).await;
    let a = store.put_audit(new("one", "a", run, 1)).await.unwrap();
    let b = store.put_audit(new("one", "b", run, 2)).await.unwrap();
    let other = store.put_audit(new("two", "a", run_id(9), 7)).await.unwrap();
    assert_eq!(store.put_audit(new("one", "a", run, 1)).await.unwrap(), a);
    let c = store.put_audit(new("one", "c", run, 3)).await.unwrap();
    assert!(a < b && b < c, "{a}, {b}, {c}");
    append(&*store, with_state(frame(run, 1, &["b"]), RunState::Completed)).await.unwrap();
    assert!(store.delete(run).await.unwrap());
    for store in [store, subject.open()] {
        assert_eq!(
            page(&*store, "one", None).await,
            [entry(c, "c", run, 3), entry(b, "b", run, 2)]
        );
        assert_eq!(page(&*store, "one", Some(b)).await, [entry(a, "a", run, 1)]);
        assert_eq!(page(&*store, "one", Some(a)).await, []);
        assert_eq!(page(&*store, "two", None).await, [entry(other, "a", run_id(9), 7)]);
        assert_eq!(page(&*store, "three", None).await, []);
    }
}

/// Contracts 12 and 15: beyond [`AUDIT_MAX`], the oldest entry of the same tenant is dropped,
/// and no number is reused.
pub async fn an_audit_is_bounded(subject: &impl Subject) {
    let store = subject.open();
    let run = run_id(1);
    let other = store.put_audit(new("two", "x", run, 0)).await.unwrap();
    let last = AUDIT_MAX as u64 + 1;
    let keys: Vec<_> = (1..=last).map(|number| number.to_string()).collect();
    let puts: Vec<_> = keys.iter().map(|key| store.put_audit(new("one", key, run, 0))).collect();
    let mut numbers = futures::future::try_join_all(puts).await.unwrap();
    let filter = AuditFilter { tenant: "one".into(), before: None, limit: usize::MAX };
    let kept = store.audit(filter).await.unwrap();
    let kept: Vec<_> = kept.iter().map(|entry| entry.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), keys.len(), "each has its own number");
    assert_eq!(kept, numbers[1..].iter().rev().copied().collect::<Vec<_>>());
    let again = store.put_audit(new("one", "1", run, 0)).await.unwrap();
    assert!(again > kept[0], "{again} after {}", kept[0]);
    assert_eq!(page(&*store, "two", None).await, [entry(other, "x", run, 0)]);
}
