//! Our own API under `/v1`: runs and threads, their events, and commands to runs.
//!
//! Requests that create something accept an `Idempotency-Key`. A command to a run is durable before
//! its response is sent, and takes effect only once, even if it is repeated.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};
use wellspring_core::Outline;
use wellspring_log::RunInfo;

use super::Route;
use crate::app::{App, MayRead};
use crate::error::ApiError;
use wellspring_engine::Permission;

mod audit;
mod commands;
mod events;
mod runs;
mod socket;
mod threads;

pub(super) use runs::wants;

pub(super) fn routes() -> Vec<Route> {
    use Permission::{Admin, Approve, Read, Run};
    let route = |method, path, scope, handler: MethodRouter<App>| Route {
        method,
        path,
        scope: Some(scope),
        handler,
    };
    let (get_, post_) = (Method::GET, Method::POST);
    vec![
        route(get_.clone(), "/v1/agents", Read, get(agents)),
        route(post_.clone(), "/v1/runs", Run, post(runs::start)),
        route(get_.clone(), "/v1/runs", Read, get(runs::list)),
        route(get_.clone(), "/v1/runs/{run}", Read, get(runs::read)),
        route(Method::DELETE, "/v1/runs/{run}", Admin, delete(runs::remove)),
        route(get_.clone(), "/v1/runs/{run}/export", Read, get(runs::export)),
        route(get_.clone(), "/v1/runs/{run}/events", Read, get(events::read)),
        route(post_.clone(), "/v1/runs/{run}/stream-url", Read, post(events::sign)),
        route(post_.clone(), "/v1/runs/{run}/cancel", Run, post(commands::cancel)),
        route(post_.clone(), "/v1/runs/{run}/tool-results", Run, post(commands::tool_result)),
        route(post_.clone(), "/v1/runs/{run}/answers", Approve, post(commands::answer)),
        route(post_, "/v1/runs/{run}/input", Run, post(commands::input)),
        route(get_.clone(), "/v1/socket", Read, get(socket::open)),
        route(get_.clone(), "/v1/threads", Read, get(threads::list)),
        route(get_.clone(), "/v1/threads/{thread}", Read, get(threads::read)),
        route(Method::PATCH, "/v1/threads/{thread}", Run, patch(threads::change)),
        route(Method::DELETE, "/v1/threads/{thread}", Admin, delete(threads::remove)),
        route(get_, "/v1/audit", Admin, get(audit::read)),
    ]
}

async fn agents(State(app): State<App>, _: MayRead) -> Json<Value> {
    let agents: Vec<_> = app
        .runtime
        .agents()
        .iter()
        .map(|def| {
            let tools: Vec<_> = def.tools.iter().map(|tool| &*tool.spec().name).collect();
            json!({
                "name": def.name,
                "description": def.description,
                "tools": tools,
                "allows_model": def.allow_model,
            })
        })
        .collect();
    Json(json!({ "agents": agents }))
}

/// A run in lists.
#[derive(Serialize)]
struct RunJson<'a> {
    run: String,
    thread: String,
    agent: &'a str,
    after: Option<String>,
    title: &'a str,
    state: wellspring_log::RunState,
    head: u64,
    created_at: u64,
    updated_at: u64,
}

impl<'a> From<&'a RunInfo> for RunJson<'a> {
    fn from(info: &'a RunInfo) -> Self {
        Self {
            run: info.run.to_string(),
            thread: info.thread.to_string(),
            agent: &info.agent,
            after: info.after.map(|after| after.to_string()),
            title: &info.title,
            state: info.state,
            head: info.head.0,
            created_at: info.created_at.0,
            updated_at: info.updated_at.0,
        }
    }
}

fn run_json(info: &RunInfo) -> Value {
    // Strings and numbers always have a JSON form.
    serde_json::to_value(RunJson::from(info)).unwrap_or_default()
}

/// The questions and client calls that a run waits for.
fn waits(outline: &Outline, transcript: &wellspring_core::Transcript) -> Value {
    let questions: Vec<_> = outline
        .questions
        .keys()
        .filter_map(|id| transcript.questions.get(id))
        .map(|asked| json!(asked.question))
        .collect();
    let calls: Vec<_> = outline
        .calls
        .iter()
        .filter(|(_, call)| call.tool.runs_on == wellspring_core::RunsOn::Client)
        .map(|(id, call)| json!({"call": id, "tool": call.tool.name, "arguments": call.arguments}))
        .collect();
    json!({ "questions": questions, "calls": calls })
}

/// A whole number. JSON and the OpenAPI description allow `3.0` as well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Whole(u32);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        let whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        // In range and whole, so the conversion is exact.
        whole.then_some(Self(number as u32)).ok_or_else(|| {
            let message = format!("{number} is not a whole number from 0 to {}", u32::MAX);
            de::Error::custom(message)
        })
    }
}

/// Bytes of an idempotency key: a UUID, or a few of them.
const KEY_BYTES_MAX: usize = 255;

/// Checks an idempotency key from a header or a message.
fn idempotency_key(key: Option<&[u8]>) -> Result<Option<&str>, ApiError> {
    let Some(key) = key else { return Ok(None) };
    let is_key = |key: &&str| {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|it| it.is_ascii_graphic())
    };
    match std::str::from_utf8(key).ok().filter(is_key) {
        Some(key) => Ok(Some(key)),
        None => Err(ApiError::bad(
            "bad_idempotency_key",
            format!("an idempotency key has 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )),
    }
}
