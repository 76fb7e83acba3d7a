use futures::FutureExt as _;
use rmcp::model::ProgressToken;
use uuid::Uuid;
use wellspring_core::{ContextFacts, RunId};

use super::*;

/// A context of the run with this number.
fn context(run: u128) -> Context {
    let outside = Context::create("trace", CancellationToken::new());
    let facts = ContextFacts { run: RunId::new(Uuid::from_u128(run)), ..outside.facts().clone() };
    struct Nobody(Context);
    impl wellspring_core::Host for Nobody {
        fn update(&self, _: wellspring_core::ToolUpdate) -> futures::future::BoxFuture<'_, ()> {
            std::future::ready(()).boxed()
        }
        fn emit(
            &self,
            event: wellspring_core::Event,
        ) -> futures::future::BoxFuture<'_, Result<(), wellspring_core::ToolError>> {
            self.0.emit(event).boxed()
        }
        fn ask(
            &self,
            ask: wellspring_core::Ask,
        ) -> futures::future::BoxFuture<'_, wellspring_core::Answer> {
            self.0.ask(ask).boxed()
        }
        fn call_agent(
            &self,
            agent: Box<str>,
            input: Vec<wellspring_core::Content>,
        ) -> futures::future::BoxFuture<'_, Result<String, wellspring_core::ToolError>> {
            self.0.call_agent(agent, input).boxed()
        }
    }
    Context::new(facts, Arc::new(Nobody(outside)))
}

fn id(number: i64) -> NumberOrString {
    NumberOrString::Number(number)
}

fn progress(token: NumberOrString, progress: f64) -> ProgressNotificationParam {
    ProgressNotificationParam::new(ProgressToken(token), progress)
}

#[test]
fn progress_reaches_its_call_and_no_other() {
    let calls = Arc::new(Calls::default());
    let (first, second) = (calls.begin(context(1)), calls.begin(context(1)));
    calls.sent(&first.call, &id(1), Some(&id(10)));
    calls.sent(&second.call, &id(2), Some(&id(20)));
    calls.progress(progress(id(10), 1.0).with_total(2.0).with_message("half"));
    // Some servers convert numbers to strings.
    calls.progress(progress(NumberOrString::String("20".into()), 5.0));
    calls.progress(progress(id(30), 9.0));
    let half = json!({"progress": 1.0, "total": 2.0, "message": "half"});
    assert_eq!(first.call.next_progress().now_or_never(), Some(half));
    assert_eq!(first.call.waiting(), None);
    assert_eq!(second.call.waiting(), Some(json!({"progress": 5.0})));
}

#[test]
fn the_oldest_progress_is_forgotten_beyond_the_maximum() {
    let calls = Arc::new(Calls::default());
    let ticket = calls.begin(context(1));
    calls.sent(&ticket.call, &id(1), Some(&id(1)));
    for n in 0..PROGRESS_WAITING_MAX + 2 {
        calls.progress(progress(id(1), n as f64));
    }
    let waiting: Vec<Value> = std::iter::from_fn(|| ticket.call.waiting()).collect();
    assert_eq!(waiting.len(), PROGRESS_WAITING_MAX);
    assert_eq!(waiting[0], json!({"progress": 2.0}));
}

#[test]
fn a_long_message_is_cut() {
    let calls = Arc::new(Calls::default());
    let ticket = calls.begin(context(1));
    calls.sent(&ticket.call, &id(1), Some(&id(1)));
    let mut long = progress(id(1), 1.0);
    long.message = Some("x".repeat(PROGRESS_BYTES_MAX + 3));
    calls.progress(long);
    let message = format!("{}\n[... 3 bytes left out ...]", "x".repeat(PROGRESS_BYTES_MAX));
    assert_eq!(ticket.call.waiting(), Some(json!({"progress": 1.0, "message": message})));
}

#[test]
fn what_is_over_hears_nothing() {
    let calls = Arc::new(Calls::default());
    let ticket = calls.begin(context(1));
    let call = ticket.call.clone();
    calls.sent(&call, &id(1), Some(&id(1)));
    drop(ticket);
    calls.progress(progress(id(1), 1.0));
    // Its request may be sent after its end, and must not register it again.
    calls.sent(&call, &id(2), Some(&id(2)));
    calls.progress(progress(id(2), 1.0));
    assert_eq!(call.waiting(), None);
    assert!(call.over().now_or_never().is_some());
    assert!(calls.asked(Some(&id(1))).is_none() && calls.asked(None).is_none());
}

#[test]
fn whom_a_question_is_for() {
    let calls = Arc::new(Calls::default());
    let is = |got: Option<Arc<Call>>, want: &Ticket| Arc::ptr_eq(&got.unwrap(), &want.call);
    assert!(calls.asked(None).is_none());
    let first = calls.begin(context(1));
    calls.sent(&first.call, &id(1), None);
    let second = calls.begin(context(1));
    assert!(is(calls.asked(None), &second));
    assert!(is(calls.asked(Some(&id(1))), &first));
    assert!(calls.asked(Some(&id(7))).is_none());
    let stranger = calls.begin(context(2));
    assert!(calls.asked(None).is_none());
    assert!(is(calls.asked(Some(&id(1))), &first));
    drop(stranger);
    assert!(is(calls.asked(None), &second));
}
