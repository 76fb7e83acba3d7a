//! Threads: listed, changed and found.

use wellspring_core::{Millis, RunId};

use super::{Subject, append, first_frame, frame, new_run, run_id, thread_id, with_state};
use crate::store::{NewRun, RunState, Store, StoreError};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};

async fn run(store: &dyn Store, number: u128, thread: u128, tenant: &str, title: &str) -> RunId {
    let run = run_id(number);
    let (tenant, title) = (tenant.into(), title.into());
    let new = NewRun { tenant, title, after: None, ..new_run(run, thread) };
    store.create(new, first_frame("a")).await.unwrap();
    run
}

async fn end(store: &dyn Store, run: RunId, text: &str) {
    let mut end = with_state(frame(run, 1, &["end"]), RunState::Completed);
    end.frame.search = Some(text.into());
    append(store, end).await.unwrap();
}

fn of(tenant: &str) -> ThreadFilter {
    ThreadFilter { tenant: tenant.into(), ..ThreadFilter::default() }
}

async fn numbers(store: &dyn Store, filter: ThreadFilter) -> Vec<u128> {
    let found = store.threads(filter).await.unwrap();
    found.into_iter().map(|info| info.thread.uuid().as_u128()).collect()
}

/// Contract 14: threads are ordered by their newest runs, paged, per tenant; a title that was
/// set replaces that of the first run; deleting the last run deletes its thread.
pub async fn threads_are_listed_and_changed(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    for (number, thread, tenant) in [(1, 1, "a"), (2, 2, "a"), (3, 3, "b"), (4, 4, "a")] {
        let run = run(&*store, number, thread, tenant, &format!("title {number}")).await;
        end(&*store, run, "").await;
    }
    let newest = run(&*store, 5, 1, "a", "later").await;
    assert_eq!(numbers(&*other, of("a")).await, [1, 4, 2]);
    assert_eq!(numbers(&*other, of("b")).await, [3]);
    assert_eq!(numbers(&*other, of("nobody")).await, []);
    assert_eq!(numbers(&*other, ThreadFilter { limit: 2, ..of("a") }).await, [1, 4]);
    let rest = ThreadFilter { limit: 2, after: Some(run_id(4)), ..of("a") };
    assert_eq!(numbers(&*other, rest).await, [2]);

    let one = ThreadFilter { thread: Some(thread_id(1)), ..of("a") };
    let mut want = ThreadInfo {
        thread: thread_id(1),
        tenant: "a".into(),
        title: "title 1".into(),
        archived: false,
        runs: 2,
        latest: newest,
        agent: "demo".into(),
        state: RunState::Running,
        created_at: Millis(1001),
        updated_at: Millis(1001),
    };
    assert_eq!(other.threads(one.clone()).await.unwrap(), [want.clone()]);
    let change =
        |title: Option<&str>, archived| ThreadChange { title: title.map(Into::into), archived };
    let change_one =
        async |tenant: &str, change| store.change_thread(tenant.into(), thread_id(1), change).await;
    assert!(!change_one("b", change(Some("stolen"), None)).await.unwrap());
    assert!(change_one("a", change(Some("Mine"), None)).await.unwrap());
    assert!(change_one("a", change(None, Some(true))).await.unwrap());
    (want.title, want.archived) = ("Mine".into(), true);
    assert_eq!(other.threads(one.clone()).await.unwrap(), [want.clone()]);
    assert_eq!(numbers(&*other, ThreadFilter { archived: Some(true), ..of("a") }).await, [1]);
    assert_eq!(numbers(&*other, ThreadFilter { archived: Some(false), ..of("a") }).await, [4, 2]);
    assert!(change_one("a", change(Some(""), Some(false))).await.unwrap());
    (want.title, want.archived) = ("title 1".into(), false);
    assert_eq!(other.threads(one.clone()).await.unwrap(), [want.clone()]);
    for bad in ["x".repeat(201), "two\nlines".into()] {
        let refused = change_one("a", change(Some(&bad), None)).await;
        assert!(matches!(refused, Err(StoreError::BadTitle(_))), "{refused:?}");
    }

    end(&*store, newest, "").await;
    store.delete(newest).await.unwrap();
    (want.runs, want.latest, want.state) = (1, run_id(1), RunState::Completed);
    want.updated_at = Millis(1002);
    assert_eq!(other.threads(one.clone()).await.unwrap(), [want]);
    assert_eq!(numbers(&*other, of("a")).await, [4, 2, 1]);
    store.delete(run_id(1)).await.unwrap();
    assert_eq!(other.threads(one).await.unwrap(), []);
}

/// Contract 14: a thread is found by prefixes of words, in its title or in the text of one of
/// its finished runs, and only by its tenant.
pub async fn threads_are_found_by_words(subject: &impl Subject) {
    let (store, other) = (subject.open(), subject.open());
    let texts = [
        (1, 1, "a", "Weather in Rome", "how is it? Sunny, 30 degrees."),
        (2, 2, "a", "A \"quoted\" title", "nothing of note"),
        (3, 3, "b", "Rome again", "sunny there, too"),
    ];
    for (number, thread, tenant, title, text) in texts {
        let run = run(&*store, number, thread, tenant, title).await;
        end(&*store, run, text).await;
    }
    let unfinished = run(&*store, 4, 2, "a", "").await;
    let find = async |tenant: &str, search: &str| {
        numbers(&*other, ThreadFilter { search: search.into(), ..of(tenant) }).await
    };
    for (search, want) in [
        ("", vec![2, 1]),
        ("rome", vec![1]),
        ("ROM wea", vec![1]),
        ("sun degr", vec![1]),
        ("sunny rome", vec![]),
        ("quoted", vec![2]),
        ("\"quoted\" OR rome", vec![]),
        ("nothing -note *", vec![2]),
        ("oted", vec![]),
        ("?!", vec![2, 1]),
    ] {
        assert_eq!(find("a", search).await, want, "{search:?}");
    }
    assert_eq!(find("b", "rome").await, [3]);
    let title = ThreadChange { title: Some("Trip to Naples".into()), archived: None };
    assert!(store.change_thread("a".into(), thread_id(1), title).await.unwrap());
    assert_eq!(find("a", "naples").await, [1]);
    end(&*store, unfinished, "about penguins").await;
    assert_eq!(find("a", "penguin").await, [2]);
    store.delete(unfinished).await.unwrap();
    assert_eq!(find("a", "penguin").await, [], "deleted text is not found");
}
