//! Attaching to a run: later, again, and in another process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wellspring::crates::log::MemoryStore;
use wellspring::models::Gate;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, from_function, function};
use wellspring::{Content, Log, LogOptions, Seq, ToolResult, ToolSpec};

use crate::kit::{line, lines, message, records, soon};

/// A run with every kind of visible event.
fn busy() -> Agent {
    let model = Scripted::new([
        Say::new().thought("Let me look.").call("show", json!({})),
        Say::new().text("Here it is."),
    ]);
    let show = from_function(ToolSpec::new("show", "Shows."), async |_, cx: Context| {
        cx.progress("looking").await;
        let content = wellspring::crates::core::ToolContent::Content(Content::text("a picture"));
        Ok(ToolResult { content: vec![content], ..ToolResult::new("ok") })
    });
    Agent::model(model).tool(show)
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_what_was_seen_live() {
    let agent = busy();
    let mut stream = agent.say("?").stream();
    let live: Vec<_> = soon(stream.by_ref().collect()).await;
    let run = soon(stream.run_id()).await.unwrap();
    let replayed: Vec<_> = soon(agent.attach::<String>(run).collect()).await;
    assert_eq!(replayed, live);
    assert_eq!(soon(agent.attach::<String>(run).result()).await.unwrap(), "Here it is.");
    assert_eq!(records(&agent.attach::<String>(run)).await, records(&stream).await);
}

#[tokio::test(start_paused = true)]
async fn from_wherever_one_broke_off_the_rest_follows() {
    let agent = busy();
    let stream = agent.say("?").stream();
    let run = soon(stream.run_id()).await.unwrap();
    let all: Vec<_> = soon(stream.collect()).await;
    for seen in 0..=all.len() {
        let mut stream = agent.attach::<String>(run);
        for want in &all[..seen] {
            assert_eq!(soon(stream.next()).await.as_ref(), Some(want));
        }
        let rest: Vec<_> =
            soon(agent.attach::<String>(run).after(stream.position()).collect()).await;
        // If the reader stopped between two events of one record, the first is yielded again.
        let between = seen > 0
            && matches!(&all[seen - 1], ThoughtEvent::ToolUpdate { status, .. }
                if *status == wellspring::thought_event::ToolStatus::Completed);
        assert_eq!(rest, all[seen - usize::from(between)..], "after {seen}");
        // The same handle can start again, too.
        let again: Vec<_> = soon(stream.after(Seq(0)).collect()).await;
        assert_eq!(again, all);
    }
}

#[tokio::test(start_paused = true)]
async fn two_readers_of_one_run_see_the_same_at_their_own_pace() {
    let gate = Gate::new();
    let words: Vec<String> = (0..50).map(|n| format!("{n} ")).collect();
    let model = Scripted::new([Say::new().gate_each(&gate).chunks(words.clone())]);
    let agent = Agent::model(model);
    let mut early = agent.say("?").stream();
    gate.pass();
    gate.pass();
    assert_eq!(soon(early.next()).await, Some(message("0 ")));
    let late = agent.attach::<String>(soon(early.run_id()).await.unwrap());
    let result = late.result();
    gate.open();
    let late: Vec<_> = soon(late.collect()).await;
    let mut all = vec![message("0 ")];
    all.extend(soon(early.collect::<Vec<_>>()).await);
    let want: Vec<_> = words.iter().map(|word| message(word)).collect();
    assert_eq!((&all, &late), (&want, &want));
    assert_eq!(soon(result).await.unwrap(), words.concat());
}

#[tokio::test(start_paused = true)]
async fn what_is_included_can_be_chosen_when_coming_back() {
    let agent = busy();
    let run = soon(agent.say("?").stream().run_id()).await.unwrap();
    let thoughts =
        agent.attach::<String>(run).include([ThoughtKind::Thought, ThoughtKind::ToolDone]);
    insta::assert_snapshot!(lines(thoughts).await.join("\n"), @r#"
    {"type":"thought","text":"Let "}
    {"type":"thought","text":"me "}
    {"type":"thought","text":"look."}
    {"type":"tool_done","id":"1","status":"completed"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn records_can_be_read_from_anywhere() {
    let stream = busy().say("?").stream();
    let all = records(&stream).await;
    for after in 0..=all.len() {
        let rest: Vec<_> = soon(stream.records(Seq(after as u64)).collect()).await;
        let rest: Vec<_> = rest.into_iter().map(Result::unwrap).collect();
        assert_eq!(rest, all[after..]);
    }
    let beyond = soon(stream.records(Seq(1000)).collect::<Vec<_>>()).await;
    assert!(matches!(beyond[..], [Err(ThinkError::Log(_))]), "{beyond:?}");
}

fn log(store: &Arc<MemoryStore>, node: &str) -> Log {
    let options = LogOptions { node: node.into(), ..LogOptions::default() };
    Log::new(Arc::clone(store) as _, options)
}

#[tokio::test(start_paused = true)]
async fn another_process_goes_on_with_what_the_first_left() {
    let store = Arc::new(MemoryStore::default());
    let gate = Gate::new();
    let agent = |node: &str| {
        let go = function("go", "Goes.", async |_: NoArguments, _| Ok("gone"));
        let model = Scripted::new([
            Say::new().text("First.").call("go", json!({})),
            Say::new().gate(&gate).text("Second."),
        ]);
        Agent::model(model).tool(go).log(log(&store, node))
    };
    let first = agent("one");
    let mut stream = first.say("?").stream();
    assert_eq!(soon(stream.next()).await, Some(message("First.")));
    let run = soon(stream.run_id()).await.unwrap();
    soon(gate.reached(1)).await;
    first.engine().shutdown(Duration::ZERO).await;

    gate.open();
    let second = agent("two");
    assert_eq!(second.recover().await.unwrap(), [run]);
    let again = second.attach::<String>(run);
    assert_eq!(soon(again.result()).await.unwrap(), "Second.");
    records(&again).await;
    let all: Vec<_> = soon(again.collect()).await;
    insta::assert_snapshot!(all.iter().map(line).collect::<Vec<_>>().join("\n"), @r#"
    {"type":"message","text":"First."}
    {"type":"tool_start","id":"1","title":"go","kind":"other"}
    {"type":"tool_update","id":"1","status":"in_progress"}
    {"type":"tool_done","id":"1","status":"completed"}
    {"type":"message","text":"Second."}
    "#);
}
