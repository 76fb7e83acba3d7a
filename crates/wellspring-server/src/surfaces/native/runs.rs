//! Runs: starting, listing, reading, exporting and deleting them.

use std::fmt;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};
use tokio::time::Instant;
use wellspring_core::{AgentNo, Content, ContextNote, Millis, RunRequest, Seq, ToolSpec};
use wellspring_engine::{InThread, Principal, StartKey, StartRun, StartedAs};
use wellspring_log::{Cursor, RunFilter, RunInfo, RunState};
use wellspring_wire::{DialectName, WirePosition};

use super::{events, idempotency_key, run_json, waits};
use crate::app::{App, JsonBody, MayAdminister, MayRead, MayRun, Params, Prefix, Trace, run_id};
use crate::error::ApiError;
use crate::stream::{Begin, Readable, Until, Wanted};

/// Default number of runs per page.
const PAGE_DEFAULT: usize = 50;

/// Maximum number of runs per page.
pub(super) const PAGE_MAX: usize = 200;

/// A run to be started.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    agent: Box<str>,
    input: Input,
    #[serde(default)]
    thread: Option<Box<str>>,
    #[serde(default)]
    after: Option<Box<str>>,
    #[serde(default)]
    model: Option<Box<str>>,
    #[serde(default)]
    streaming: Option<bool>,
    #[serde(default)]
    result_schema: Option<Value>,
    #[serde(default)]
    client_tools: Vec<ToolSpec>,
    #[serde(default)]
    context: Vec<ContextNote>,
    #[serde(default)]
    state: Option<Value>,
}

/// A run that was started, now or before.
pub(super) struct Begun {
    pub(super) info: RunInfo,
    /// The idempotency key had started it before.
    pub(super) replayed: bool,
    pub(super) cursor: Option<Cursor>,
}

impl Start {
    /// Starts the run, or finds the run that the same idempotency key has started.
    pub(super) async fn begin(
        self,
        app: &App,
        who: &Principal,
        key: Option<&str>,
        trace: Trace,
    ) -> Result<Begun, ApiError> {
        if self.input.0.is_empty() {
            return Err(ApiError::bad("no_input", "`input` is empty"));
        }
        let request = RunRequest {
            input: self.input.0,
            model: self.model,
            streaming: self.streaming,
            result_schema: self.result_schema,
            client_tools: self.client_tools,
            context: self.context,
            state: self.state,
            ..RunRequest::default()
        };
        let mut new = StartRun::new(&*self.agent, trace.with(request));
        let thread = self.thread.as_deref();
        let parse = |it: &str| it.parse().map_err(|_| ApiError::no_thread(it));
        new.thread = thread.map(parse).transpose()?;
        new.in_thread = InThread::Existing;
        new.after = self.after.as_deref().map(run_id).transpose()?;
        new.key = key.map(|key| StartKey::Idempotency(key.into()));
        let control = app.control(who);
        let started = control.start(new).await?;
        let replayed = match started.how {
            StartedAs::New | StartedAs::Input => false,
            StartedAs::Existing { same: true } => true,
            StartedAs::Existing { same: false } => {
                let message = "this idempotency key was used for another request";
                return Err(ApiError::key_reused(message));
            }
        };
        if !replayed {
            app.metrics.run_started();
        }
        let info = control.started(&started).await?;
        Ok(Begun { info, replayed, cursor: started.cursor })
    }
}

/// User input: a string, or content blocks.
pub(super) struct Input(pub(super) Vec<Content>);

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of content blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Input, E> {
                Ok(Input(vec![Content::text(text)]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Input, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Input)
            }
        }
        from.deserialize_any(Visitor)
    }
}

/// Query parameters of a start.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartQuery {
    dialect: Option<String>,
    /// Same as in the body, for clients that cannot change their body.
    model: Option<Box<str>>,
}

/// Starts a run. The response is the run, or its event stream.
pub(super) async fn start(
    State(app): State<App>,
    MayRun(who): MayRun,
    Params(query): Params<StartQuery>,
    Extension(trace): Extension<Trace>,
    Prefix(prefix): Prefix,
    headers: HeaderMap,
    JsonBody(start): JsonBody<Start>,
) -> Result<Response, ApiError> {
    let asked_at = Instant::now();
    let dialect = events::dialect(query.dialect.as_deref())?;
    let key = idempotency_key(headers.get("idempotency-key").map(HeaderValue::as_bytes))?;
    let start = Start { model: start.model.or(query.model), ..start };
    let Begun { info, replayed, cursor } = start.begin(&app, &who, key, trace).await?;
    let mut response = if wants(&headers, "text/event-stream") {
        let wanted = Wanted {
            run: cursor.map_or_else(|| Readable::Run(info.clone()), Readable::At),
            dialect: dialect.into(),
            start: Begin::After(WirePosition::START),
            until: Until::End,
        };
        app.stream(&who, wanted, Some(asked_at)).await?.into_response()
    } else {
        let mut body = run_json(&info);
        body["events"] = json!(format!("{prefix}/v1/runs/{}/events", info.run));
        let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
        (status, Json(body)).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&info.run.to_string()) {
        headers.insert("x-run-id", value);
    }
    if replayed {
        headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Filter of a list of runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    thread: Option<String>,
    agent: Option<Box<str>>,
    state: Option<RunState>,
    since: Option<u64>,
    before: Option<u64>,
    after: Option<String>,
    limit: Option<usize>,
}

/// Runs of the caller's tenant, newest first.
pub(super) async fn list(
    State(app): State<App>,
    MayRead(who): MayRead,
    Params(query): Params<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let bad_id = |text: &str| ApiError::bad("bad_id", format!("{text:?} is not an id"));
    let thread =
        query.thread.as_deref().map(|it| it.parse().map_err(|_| bad_id(it))).transpose()?;
    let after_run = query.after.as_deref().map(run_id).transpose()?;
    let filter = RunFilter {
        tenant: None,
        thread,
        agent: query.agent,
        states: query.state.into_iter().collect(),
        since: query.since.map(Millis),
        before: query.before.map(Millis),
        after_run,
        limit,
    };
    let found = app.control(&who).list(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.run.to_string());
    let runs: Vec<_> = found.iter().map(run_json).collect();
    Ok(Json(json!({ "runs": runs, "next": next })))
}

pub(super) fn page_size(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit {
        None => Ok(PAGE_DEFAULT),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::bad("bad_limit", format!("`limit` is 1 to {PAGE_MAX}"))),
    }
}

/// A run's current state.
pub(super) async fn read(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path(run): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let control = app.control(&who);
    let info = control.info(run_id(&run)?).await?;
    let transcript = control.transcript(info.run).await?;
    let mut body = run_json(&info);
    body["input"] = json!(transcript.started.as_ref().map(|started| &started.request.input));
    body["answer"] = json!(transcript.answer(AgentNo::ROOT));
    body["result"] = json!(transcript.result);
    body["outcome"] = json!(transcript.outcome);
    body["usage"] = json!(transcript.usage);
    body["plan"] = json!(transcript.plan);
    body["feedback"] = json!(control.feedback(info.run).await?);
    body["waits_for"] = waits(&transcript.outline, &transcript);
    Ok(Json(body))
}

/// Deletes a finished run. Requires the `admin` permission.
pub(super) async fn remove(
    State(app): State<App>,
    MayAdminister(who): MayAdminister,
    Path(run): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.control(&who).delete(run_id(&run)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// All current records of a run, one per line.
pub(super) async fn export(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path(run): Path<String>,
) -> Result<Response, ApiError> {
    let control = app.control(&who);
    let info = control.info(run_id(&run)?).await?;
    let mut cursor = control.attach(info.run, Seq(0)).await?;
    // The first page is read before the response begins: most damage is found there, and the
    // response can then be an error.
    let first = cursor.next().await?.unwrap_or_default();
    let start = Some((cursor, info.head, Some(first)));
    let lines = stream::unfold(start, |state| async move {
        let (mut cursor, head, first) = state?;
        let frames = match first {
            Some(frames) => Ok(Some(frames)),
            None if cursor.position() >= head => return None,
            None => cursor.next().await,
        };
        match frames {
            Ok(None) => None,
            Ok(Some(frames)) => {
                let mut lines = Vec::new();
                for record in frames.iter().flat_map(|frame| frame.iter()) {
                    if serde_json::to_writer(&mut lines, record).is_ok() {
                        lines.push(b'\n');
                    }
                }
                Some((Ok(Bytes::from(lines)), Some((cursor, head, None))))
            }
            // Breaks the connection, so that a client does not treat a partial run as complete.
            Err(error) => Some((Err(error), None)),
        }
    });
    let name = format!("attachment; filename=\"{}.jsonl\"", info.run);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment")),
        ),
    ];
    Ok((headers, Body::from_stream(lines.fuse())).into_response())
}

/// Whether the caller accepts this media type by name.
pub(in crate::surfaces) fn wants(headers: &HeaderMap, media_type: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|accepted| accepted.split(';').next().is_some_and(|it| it.trim() == media_type))
}

/// The default dialect: the one that leaves nothing out.
pub(super) const DIALECT_DEFAULT: DialectName = DialectName::Record;
