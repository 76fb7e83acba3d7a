//! Documents: compare-and-set, listing by prefix, and their maxima.

use std::collections::BTreeSet;

use super::Subject;
use crate::document::{
    DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENTS_PAGE_MAX, Document, DocumentFilter,
    Expected, Written,
};
use crate::store::{Store, StoreError};

async fn put(store: &dyn Store, name: &str, text: &str, expected: Expected) -> Written {
    store.put_document(name.into(), Some(text.into()), expected).await.unwrap()
}

async fn delete(store: &dyn Store, name: &str, expected: Expected) -> Written {
    store.put_document(name.into(), None, expected).await.unwrap()
}

fn done(written: Written) -> u64 {
    match written {
        Written::Done(revision) => revision,
        Written::Conflict(found) => panic!("found {found:?}"),
    }
}

/// A write whose precondition fails changes nothing and returns the current document. No
/// revision is reused.
pub async fn documents_are_written_by_compare_and_set(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let document = |revision, text: &str| {
        Some(Document { name: "token/ci".into(), revision, text: text.into() })
    };
    let read = async || other.document("token/ci".into()).await.unwrap();
    assert_eq!(read().await, None);
    let nothing = put(&*store, "token/ci", "x", Expected::Revision(1)).await;
    assert_eq!(nothing, Written::Conflict(None));
    let first = done(put(&*store, "token/ci", "1", Expected::Absent).await);
    assert_eq!(read().await, document(first, "1"));
    for expected in [Expected::Absent, Expected::Revision(first + 1)] {
        let conflict = put(&*other, "token/ci", "x", expected).await;
        assert_eq!(conflict, Written::Conflict(document(first, "1")));
        assert_eq!(delete(&*other, "token/ci", expected).await, conflict);
    }
    let second = done(put(&*other, "token/ci", "2", Expected::Revision(first)).await);
    let third = done(put(&*store, "token/ci", "3", Expected::Anything).await);
    assert_eq!(read().await, document(third, "3"));
    delete(&*store, "token/ci", Expected::Revision(second)).await;
    assert_eq!(read().await, document(third, "3"));
    let deleted = done(delete(&*store, "token/ci", Expected::Revision(third)).await);
    assert_eq!(read().await, None);
    assert_eq!(
        delete(&*store, "token/ci", Expected::Revision(third)).await,
        Written::Conflict(None)
    );
    done(delete(&*store, "token/ci", Expected::Anything).await);
    let anew = done(put(&*other, "token/ci", "1", Expected::Absent).await);
    let revisions = [first, second, third, deleted, anew];
    assert!(revisions.is_sorted_by(|before, after| before < after), "{revisions:?}");
}

/// Two processes increment a counter by compare-and-set: no increment is lost.
pub async fn of_two_writers_of_a_document_one_wins(subject: &impl Subject) {
    const EACH: u64 = 50;
    let increment = |store: std::sync::Arc<dyn Store>| async move {
        for _ in 0..EACH {
            loop {
                let found = store.document("counter".into()).await.unwrap();
                let count = found.as_ref().map_or(0, |it| it.text.parse::<u64>().unwrap());
                let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
                let written = put(&*store, "counter", &(count + 1).to_string(), expected).await;
                if matches!(written, Written::Done(_)) {
                    break;
                }
            }
        }
    };
    let (first, second) =
        (tokio::spawn(increment(subject.open())), tokio::spawn(increment(subject.open())));
    first.await.unwrap();
    second.await.unwrap();
    let count = subject.open().document("counter".into()).await.unwrap().unwrap();
    assert_eq!(*count.text, *(2 * EACH).to_string());
}

/// A prefix matches whole segments; pages continue by name.
pub async fn documents_are_listed_by_prefix(subject: &impl Subject) {
    let store = subject.open();
    let names = ["a", "a-b", "a/b", "a/b/c", "a/b0", "a/~", "a0", "b/a"];
    for name in names.iter().rev() {
        done(put(&*store, name, name, Expected::Absent).await);
    }
    done(put(&*store, "a/gone", "", Expected::Absent).await);
    done(delete(&*store, "a/gone", Expected::Anything).await);
    for (prefix, want) in [
        ("", &names[..]),
        ("a/", &["a/b", "a/b/c", "a/b0", "a/~"]),
        ("a/b/", &["a/b/c"]),
        ("b/", &["b/a"]),
        ("c/", &[]),
    ] {
        for limit in [0, 1, 2, 100] {
            let mut found = Vec::new();
            let mut filter = DocumentFilter { limit, ..DocumentFilter::below(prefix) };
            loop {
                let page = subject.open().documents(filter.clone()).await.unwrap();
                assert!(limit == 0 || page.len() <= limit);
                let Some(last) = page.last() else { break };
                filter.after = Some(last.name.clone());
                assert!(page.iter().all(|document| document.name == document.text));
                found.extend(page.into_iter().map(|document| document.name));
            }
            let found: Vec<_> = found.iter().map(|name| &**name).collect();
            assert_eq!(found, want, "{prefix:?} in pages of {limit}");
        }
    }
    let early = DocumentFilter { after: Some("Z".into()), ..DocumentFilter::below("b/") };
    assert_eq!(store.documents(early).await.unwrap().len(), 1);
    let late = DocumentFilter { after: Some("c".into()), ..DocumentFilter::below("b/") };
    assert_eq!(store.documents(late).await.unwrap(), []);
}

/// Names, texts and pages have limits, and exceeding them changes nothing.
pub async fn documents_are_bounded(subject: &impl Subject) {
    let store = subject.open();
    let put_any = |name: &str, text: &str| {
        store.put_document(name.into(), Some(text.into()), Expected::Anything)
    };
    let name_max = "n".repeat(DOCUMENT_NAME_BYTES_MAX);
    let text_max = "t".repeat(DOCUMENT_BYTES_MAX);
    done(put_any(&name_max, &text_max).await.unwrap());
    for (name, text) in [(name_max.clone() + "n", String::new()), ("n".into(), text_max + "t")] {
        let refused = put_any(&name, &text).await;
        assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    }
    for name in ["", "/", "a/", "/a", "a//b", "a b", "é", "a\n"] {
        let refused = put_any(name, "").await;
        assert!(matches!(refused, Err(StoreError::BadDocument { .. })), "{name:?}: {refused:?}");
    }
    for prefix in ["a", "/", "a//", "a b/"] {
        let refused = store.documents(DocumentFilter::below(prefix)).await;
        assert!(matches!(refused, Err(StoreError::BadDocument { .. })), "{prefix}: {refused:?}");
    }
    let names: BTreeSet<_> = (0..=DOCUMENTS_PAGE_MAX).map(|it| format!("many/{it}")).collect();
    let puts: Vec<_> = names.iter().map(|name| put_any(name, "x")).collect();
    futures::future::try_join_all(puts).await.unwrap();
    for limit in [0, DOCUMENTS_PAGE_MAX, usize::MAX] {
        let filter = DocumentFilter { limit, ..DocumentFilter::below("many/") };
        assert_eq!(store.documents(filter).await.unwrap().len(), DOCUMENTS_PAGE_MAX);
    }
    let all = crate::document::all_documents(&*store, "many/", names.len()).await.unwrap();
    assert!(all.iter().map(|document| &*document.name).eq(names.iter().map(|name| &**name)));
    assert!(crate::document::all_documents(&*store, "many/", names.len() - 1).await.is_err());
}
