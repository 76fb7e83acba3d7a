//! Typed results: valid ones, repaired ones, and errors.

use std::collections::BTreeMap;
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wellspring::models::Failure;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};
use wellspring::{Event, FailureKind, Limits, RunId, Stop};

use crate::kit::{lines, records, soon};

fn gives(arguments: Value) -> Agent {
    Agent::model(Scripted::new([Say::new().call("return_result", arguments)]))
}

async fn given<T: DeserializeOwned + JsonSchema + Debug>(arguments: Value) -> T {
    let agent = gives(arguments).limits(Limits { repairs: 0, ..Limits::default() });
    soon(agent.think::<T>().text("?").run()).await.unwrap()
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Point {
    x: i32,
    y: Option<i32>,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
enum Shape {
    Nothing,
    Dot(Point),
    Both { left: Box<Shape>, right: Box<Shape> },
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(untagged)]
enum Loose {
    Word(String),
    Point(Point),
}

#[tokio::test(start_paused = true)]
async fn a_result_can_be_of_any_type() {
    assert_eq!(given::<Point>(json!({"x": 1})).await, Point { x: 1, y: None });
    assert_eq!(given::<u32>(json!({"value": 7})).await, 7);
    assert_eq!(given::<String>(json!({"value": "word"})).await, "word");
    assert_eq!(given::<Vec<String>>(json!({"value": ["a", "b"]})).await, ["a", "b"]);
    assert_eq!(given::<Option<u32>>(json!({"value": 7})).await, Some(7));
    assert_eq!(given::<Option<u32>>(json!({"value": null})).await, None);
    assert_eq!(given::<Option<Point>>(json!({"value": {"x": 1}})).await.unwrap().x, 1);
    assert_eq!(given::<(u8, String)>(json!({"value": [1, "a"]})).await, (1, "a".into()));
    given::<()>(json!({"value": null})).await;
    assert_eq!(given::<Value>(json!({"value": {"any": 1}})).await, json!({"any": 1}));
    let map: BTreeMap<String, u32> = given(json!({"a": 1, "b": 2})).await;
    assert_eq!(map, BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
    assert_eq!(given::<Vec<Point>>(json!({"value": [{"x": 1}]})).await[0].x, 1);
    assert_eq!(given::<Loose>(json!({"value": "w"})).await, Loose::Word("w".into()));
}

#[tokio::test(start_paused = true)]
async fn a_result_can_be_of_a_type_that_contains_itself() {
    let tree = json!({"name": "a", "children": [{"name": "b", "children": []}]});
    let leaf = Tree { name: "b".into(), children: vec![] };
    assert_eq!(given::<Tree>(tree.clone()).await, Tree { name: "a".into(), children: vec![leaf] });
    assert_eq!(given::<Vec<Tree>>(json!({"value": [tree]})).await[0].children[0].name, "b");
    let both = json!({"Both": {"left": "Nothing", "right": {"Dot": {"x": 1}}}});
    let want = Shape::Both {
        left: Box::new(Shape::Nothing),
        right: Box::new(Shape::Dot(Point { x: 1, y: None })),
    };
    assert_eq!(given::<Shape>(json!({"value": both})).await, want);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_result_is_repaired() {
    let model = Scripted::new([
        Say::new().thought("One.").call("return_result", json!({"x": "one"})),
        Say::new().thought("As a number.").call("return_result", json!({"x": 1})),
    ]);
    let stream = Agent::model(model).think::<Point>().text("?").stream();
    assert_eq!(soon(stream.result()).await.unwrap(), Point { x: 1, y: None });
    let told: Vec<_> = records(&stream)
        .await
        .into_iter()
        .filter_map(|record| match record.event {
            Event::ToolFinished { outcome, result, .. } => Some((outcome, result.output)),
            _ => None,
        })
        .collect();
    insta::assert_debug_snapshot!(told, @r#"
    [
        (
            Error,
            String("the result does not fit its schema: /x: value is not of type \"integer\"; call it again, corrected"),
        ),
        (
            Ok,
            String("the result was taken"),
        ),
    ]
    "#);
    // The call that returns the result is not shown as a tool.
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"thought","text":"One."}
    {"type":"thought","text":"As "}
    {"type":"thought","text":"a "}
    {"type":"thought","text":"number."}
    "#);
}

#[tokio::test(start_paused = true)]
async fn of_two_results_the_first_counts() {
    let model = Scripted::new([Say::new()
        .call("return_result", json!({"value": 1}))
        .call("return_result", json!({"value": 2}))]);
    let stream = Agent::model(model).think::<u32>().text("?").stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 1);
    let ready = records(&stream).await;
    let ready = ready.iter().filter(|record| matches!(record.event, Event::ResultReady { .. }));
    assert_eq!(ready.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_never_comes_is_an_error_with_what_was_said() {
    let model = Scripted::with(|_| Say::new().text("I would rather talk."));
    let error = soon(Agent::model(model).think::<u32>().text("?").run()).await.unwrap_err();
    let ThinkError::NoResult { stop, answer } = &error else { panic!("{error:?}") };
    assert_eq!((stop, answer.as_str()), (&Stop::EndTurn, "I would rather talk."));
    assert_eq!(
        error.to_string(),
        "the run ended without a result: the agent did not return one; \
         the agent said \"I would rather talk.\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_turns_is_named() {
    let model =
        Scripted::with(|request| Say::new().call("look", json!({"n": request.messages.len()})));
    let look = function("look", "Looks.", async |arguments: Value, _| Ok(arguments));
    let think = Agent::model(model).think::<u32>().text("?").tool(look);
    let limits = Limits { turns: 2, ..Limits::default() };
    let error = soon(think.limits(limits).run()).await.unwrap_err();
    let ThinkError::NoResult { stop: Stop::TurnLimit, .. } = &error else { panic!("{error:?}") };
    assert_eq!(
        error.to_string(),
        "the run ended without a result: it reached its limit of turns (Limits::turns); \
         the agent said \"\""
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_cut_off_is_no_answer() {
    let model = Scripted::new([Say::new().text("Half a sen").stop(Stop::MaxTokens)]);
    let error = soon(Agent::model(model).say("?").run()).await.unwrap_err();
    let ThinkError::NoResult { stop: Stop::MaxTokens, answer } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(answer, "Half a sen");
}

#[tokio::test(start_paused = true)]
async fn a_failing_model_is_an_error_of_its_kind() {
    let failure = Failure::new(FailureKind::Refused, "the key is not valid");
    let model = Scripted::new([Say::new().fail(failure)]);
    let stream = Agent::model(model).think::<u32>().text("?").stream();
    let error = soon(stream.result()).await.unwrap_err();
    let ThinkError::Failed { kind: FailureKind::Refused, retryable: false, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(error.to_string(), "the run failed: scripted: the key is not valid");
    assert_eq!(lines(stream).await, [""; 0]);
}

/// Its schema allows more than it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
#[schemars(with = "u32")]
struct Even(#[expect(dead_code, reason = "it is never read")] u32);

impl TryFrom<u32> for Even {
    type Error = String;

    fn try_from(n: u32) -> Result<Self, String> {
        if n.is_multiple_of(2) { Ok(Self(n)) } else { Err(format!("{n} is odd")) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_fits_the_schema_but_not_the_type_says_why() {
    let error = soon(gives(json!({"value": 3})).think::<Even>().text("?").run()).await.unwrap_err();
    assert_eq!(error.to_string(), "the result does not match the requested type");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "3 is odd");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_started_for_another_type_says_so() {
    let agent = gives(json!({"x": 1}));
    let run = soon(agent.think::<Point>().text("?").stream().run_id()).await.unwrap();
    let error = soon(agent.attach::<u32>(run).result()).await.unwrap_err();
    assert!(matches!(error, ThinkError::InvalidResult(_)), "{error:?}");
    assert_eq!(soon(agent.attach::<Point>(run).result()).await.unwrap().x, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_fails_and_the_run_goes_on() {
    let model = Scripted::new([
        Say::new().call("burst", json!({})),
        Say::new().call("return_result", json!({"value": 1})),
    ]);
    let burst = function("burst", "Panics.", async |_: NoArguments, _| {
        if true {
            panic!("a pipe burst");
        }
        Ok(())
    });
    let stream = Agent::model(model).think::<u32>().text("?").tool(burst).stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 1);
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"burst","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_done","id":"0","status":"failed"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_exist_cannot_be_read() {
    let run: RunId = "00000000-0000-7000-8000-000000000000".parse().unwrap();
    let mut stream = gives(json!({})).attach::<u32>(run);
    let error = soon(stream.result()).await.unwrap_err();
    assert_eq!(error.to_string(), "the run could not be read");
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "there is no run 00000000-0000-7000-8000-000000000000"
    );
    assert_eq!(soon(stream.next()).await, None);
    assert!(matches!(stream.error(), Some(ThinkError::Log(_))));
    assert!(matches!(soon(stream.cancel()).await, Err(ThinkError::Log(_))));
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_is_only_known_at_run_time() {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    });
    let model = Scripted::new([
        Say::new().call("return_result", json!({"n": "four"})),
        Say::new().call("return_result", json!({"n": 4})),
    ]);
    let think = Agent::model(model).think_json(schema).text("?");
    assert_eq!(soon(think.run()).await.unwrap(), json!({"n": 4}));
}
