use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream;
use serde_json::json;

use super::*;
use crate::tools::test_host::{Heard, RecordingHost};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// A city.
    city: String,
    #[serde(default)]
    unit: Unit,
}

#[derive(Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Celsius,
    Kelvin,
}

#[derive(Serialize)]
struct Degrees {
    degrees: f32,
    unit: Unit,
}

fn weather() -> FunctionTool {
    function("weather", "Tells the weather.", async |input: Weather, cx: Context| {
        if input.city == "Atlantis" {
            return Err(ToolError::new("Atlantis is under water"));
        }
        cx.progress("looking out of the window").await;
        Ok(Degrees { degrees: 21.5, unit: input.unit })
    })
}

#[test]
fn the_spec_is_derived_and_can_be_told_more() {
    let tool = weather()
        .title("Weather")
        .kind(ToolKind::Fetch)
        .sequential()
        .priority(3)
        .approval(Approval::Ask)
        .idle_timeout(Duration::from_secs(1))
        .timeout(Duration::from_secs(2))
        .idempotent();
    assert_eq!(
        serde_json::to_value(tool.spec()).unwrap(),
        json!({
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A city."},
                    "unit": {
                        "type": "string",
                        "enum": ["celsius", "kelvin"],
                        "default": "celsius"
                    }
                },
                "required": ["city"]
            },
            "title": "Weather",
            "kind": "fetch",
            "runs_on": "here",
            "mode": "sequential",
            "priority": 3,
            "idempotent": true,
            "approval": "ask",
            "timeouts": {"idle": {"secs": 1, "nanos": 0}, "total": {"secs": 2, "nanos": 0}}
        })
    );
}

#[test]
fn a_call_may_have_a_priority_of_its_own() {
    let arguments = json!({"city": "Rome"});
    let tool = weather().priority(7);
    assert_eq!(Tool::priority(&tool, &arguments), 7);
    let tool = tool.priority_by(|arguments| if arguments["city"] == "Rome" { 9 } else { 1 });
    assert_eq!(Tool::priority(&tool, &arguments), 9);
    assert_eq!(Tool::priority(&tool, &json!({"city": "Oslo"})), 1);
}

#[tokio::test]
async fn progress_and_a_typed_result() {
    let host = RecordingHost::new();
    let (heard, result) = host.call(&weather(), json!({"city": "Rome", "unit": "kelvin"})).await;
    assert_eq!(heard, [Heard::progress("looking out of the window")]);
    assert_eq!(result, Ok(ToolResult::new(json!({"degrees": 21.5, "unit": "kelvin"}))));
}

#[tokio::test]
async fn errors_are_for_the_model() {
    for (arguments, want) in [
        (json!({"city": "Atlantis"}), "Atlantis is under water"),
        (json!({}), "the arguments do not fit: missing field `city`"),
        (
            json!({"city": 3}),
            "the arguments do not fit: invalid type: integer `3`, expected a string",
        ),
    ] {
        let (heard, result) = RecordingHost::new().call(&weather(), arguments).await;
        assert_eq!((heard, result), (vec![], Err(want.to_owned())));
    }
}

#[tokio::test]
async fn a_tool_without_arguments_takes_the_empty_object() {
    let tool = function("ping", "Answers.", async |_: NoArguments, _| Ok("pong"));
    assert_eq!(*tool.spec().parameters, json!({"type": "object"}));
    let (_, result) = RecordingHost::new().call(&tool, json!({})).await;
    assert_eq!(result, Ok(ToolResult::new("pong")));
}

/// Contract 1 of `Tool`: the code before the function's first await is not run before the first
/// poll either.
#[tokio::test]
async fn nothing_happens_before_the_first_poll() {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    let tool = from_function(ToolSpec::new("eager", "Acts at once."), move |_, _| {
        seen.store(true, Ordering::SeqCst);
        std::future::ready(Ok(ToolResult::default()))
    });
    let call = tool.call(json!({}), RecordingHost::new().context());
    assert!(!ran.load(Ordering::SeqCst));
    call.await.unwrap();
    assert!(ran.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_stream_says_progress_and_then_one_result() {
    let titled = ToolUpdate { title: Some("Halfway".into()), ..ToolUpdate::default() };
    let update = titled.clone();
    let tool = from_stream(ToolSpec::new("steps", "Goes in steps."), move |arguments, _| {
        stream::iter([
            ToolYield::Progress(arguments),
            ToolYield::Update(update.clone()),
            ToolYield::Result(ToolResult::new("done")),
            ToolYield::Progress(json!("never heard")),
        ])
    });
    let (heard, result) = RecordingHost::new().call(&tool, json!({"a": 1})).await;
    assert_eq!(heard, [Heard::progress(json!({"a": 1})), Heard::Updated(titled)]);
    assert_eq!(result, Ok(ToolResult::new("done")));
}

#[tokio::test]
async fn a_stream_that_fails_or_forgets_its_result() {
    let spec = || ToolSpec::new("steps", "Goes in steps.");
    let fails =
        from_stream(spec(), |_, _| stream::iter([ToolYield::Failed(ToolError::new("too steep"))]));
    let ends = from_stream(spec(), |_, _| stream::iter([ToolYield::Progress(json!(1))]));
    let (_, failed) = RecordingHost::new().call(&fails, json!({})).await;
    let (heard, ended) = RecordingHost::new().call(&ends, json!({})).await;
    assert_eq!(failed, Err("too steep".to_owned()));
    assert_eq!(
        (heard, ended),
        (vec![Heard::progress(1)], Err("steps ended without a result".to_owned()))
    );
}

#[test]
fn tools_are_named_after_their_functions() {
    for (name, want) in [
        ("app::files::read_file", Some("read_file")),
        ("read_file", Some("read_file")),
        ("app::fetch<app::Client>", Some("fetch")),
        ("app::main::{{closure}}", None),
        ("fn(app::Sum, wellspring_core::Context) -> u8", None),
    ] {
        assert_eq!(super::function_name(name).as_deref(), want, "{name}");
    }
    for (name, want) in [
        ("ReadFile", "read_file"),
        ("Sum", "sum"),
        ("read_file", "read_file"),
        ("Area51Map", "area51_map"),
        ("HTTPGet", "httpget"),
    ] {
        assert_eq!(super::snake_case(name), want);
    }
}
