//! Our own API on one WebSocket: many runs, each read at its own pace.
//!
//! A message is an object with an `id` of the client's choice and a `type`. Each is answered
//! with its id. The id of a `subscribe`, or of a `start` that subscribes, names the subscription,
//! and comes with all of its events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::Utf8Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use wellspring_core::RunId;
use wellspring_engine::Principal;
use wellspring_wire::{DialectChoice, WirePosition};

use super::commands::{CallResult, Cancel, Decision, More};
use super::events::{Chosen, chosen, position};
use super::runs::{Begun, Start};
use super::{Whole, idempotency_key, run_json};
use crate::app::{App, Trace, run_id};
use crate::error::ApiError;
use crate::socket::{Delivery, Messages, SocketProtocol, SocketRequest, Step};
use crate::stream::{Begin, Readable, Until, Wanted};

/// Bytes of a message's id: a UUID, or a few of them.
const ID_BYTES_MAX: usize = 255;

/// Opens a socket.
pub(super) async fn open(
    State(app): State<App>,
    Extension(trace): Extension<Trace>,
    request: SocketRequest,
) -> Response {
    request.accept(app.clone(), NativeSocket { app, trace })
}

struct NativeSocket {
    app: App,
    trace: Trace,
}

/// A client's name for a message or subscription.
type Id = Arc<str>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unsubscribe {
    subscription: Id,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credit {
    subscription: Id,
    more: Whole,
}

impl SocketProtocol for NativeSocket {
    type Key = Id;

    fn handle(
        self: Arc<Self>,
        who: Principal,
        text: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<Id>>> {
        Box::pin(async move {
            let (id, kind, body) = match read(&text) {
                Ok(read) => read,
                Err((id, error)) => return vec![self.refused(id.as_ref(), &error)],
            };
            self.done(&who, &id, &kind, body)
                .await
                .unwrap_or_else(|error| vec![self.refused(Some(&id), &error)])
        })
    }

    fn deliver(&self, delivery: &Delivery<Id>, messages: &mut Messages) {
        let Some(piece) = &delivery.piece else {
            messages.push(&message(&delivery.key, "ended", json!({})));
            return;
        };
        let key = Value::from(&*delivery.key).to_string();
        messages.write(|bytes| {
            // Written by hand for speed: every delta passes here.
            bytes.reserve(piece.len() + key.len() + 64);
            let mut put = |text: &str| bytes.extend_from_slice(text.as_bytes());
            put(r#"{"type":"events","id":"#);
            put(&key);
            put(r#","events":["#);
            for (index, event) in delivery.framing.events(piece).enumerate() {
                let mut put = |text: &str| bytes.extend_from_slice(text.as_bytes());
                // Positions and names are ours and need no escaping, and the event is JSON.
                put(if index == 0 { "{" } else { ",{" });
                for (field, value) in [("id", event.position), ("name", event.name)] {
                    if let Some(value) = value {
                        ["\"", field, "\":\"", value, "\","].into_iter().for_each(&mut put);
                    }
                }
                put("\"data\":");
                bytes.extend_from_slice(event.data);
                bytes.push(b'}');
            }
            bytes.extend_from_slice(b"]}");
        });
    }

    fn failed(&self, key: Option<&Id>, error: &ApiError) -> String {
        error_message(key, error)
    }
}

impl NativeSocket {
    /// Handles a message.
    async fn done(
        &self,
        who: &Principal,
        id: &Id,
        kind: &str,
        mut body: Map<String, Value>,
    ) -> Result<Vec<Step<Id>>, ApiError> {
        let control = self.app.control(who);
        let sent = match kind {
            "subscribe" => return Ok(vec![self.subscribe(who, id, body).await?]),
            "start" => return self.start(who, id, body).await,
            "unsubscribe" => {
                let Unsubscribe { subscription: key } = parse(body)?;
                let done = Some(message(id, "unsubscribed", json!({})));
                let unknown = Some(error_message(Some(id), &no_subscription(&key)));
                return Ok(vec![Step::Unsubscribe { key, done, unknown }]);
            }
            "credit" => {
                let Credit { subscription: key, more: Whole(more) } = parse(body)?;
                let done = Some(message(id, "credited", json!({})));
                let unknown = Some(error_message(Some(id), &no_subscription(&key)));
                return Ok(vec![Step::Credit { key, more, done, unknown }]);
            }
            "cancel" => {
                let run = take_run(&mut body)?;
                parse::<Cancel>(body)?.send(&control, run).await?
            }
            "answer" => {
                let run = take_run(&mut body)?;
                parse::<Decision>(body)?.send(&control, run).await?
            }
            "tool_result" => {
                let run = take_run(&mut body)?;
                parse::<CallResult>(body)?.send(&control, run).await?
            }
            "input" => {
                let run = take_run(&mut body)?;
                let key = take_key(&mut body)?;
                let key = idempotency_key(key.as_deref().map(str::as_bytes))?;
                parse::<More>(body)?.send(&control, run, key).await?
            }
            other => {
                let message = format!(
                    "{other:?} is not a type of message: known are subscribe, unsubscribe, \
                     credit, start, cancel, answer, tool_result, input"
                );
                return Err(ApiError::bad("unknown_type", message));
            }
        };
        Ok(vec![Step::Send(message(id, "accepted", sent.json()))])
    }

    /// Starts a run. With the member `subscribe`, its events follow at once.
    async fn start(
        &self,
        who: &Principal,
        id: &Id,
        mut body: Map<String, Value>,
    ) -> Result<Vec<Step<Id>>, ApiError> {
        let asked_at = Instant::now();
        let key = take_key(&mut body)?;
        let key = idempotency_key(key.as_deref().map(str::as_bytes))?;
        let reading = match body.remove("subscribe") {
            Some(Value::Object(reading)) => Some(read_as(reading)?),
            Some(_) => {
                let message = "the message: `subscribe` is not an object";
                return Err(ApiError::bad("bad_json", message));
            }
            None => None,
        };
        let start: Start = parse(body)?;
        let Begun { info, replayed, cursor } =
            start.begin(&self.app, who, key, self.trace.clone()).await?;
        let run = json!({ "run": run_json(&info), "replayed": replayed });
        let mut steps = vec![Step::Send(message(id, "started", run))];
        if let Some((dialect, credit)) = reading {
            let run = cursor.map_or_else(|| Readable::Run(info), Readable::At);
            let start = Begin::After(WirePosition::START);
            let wanted = Wanted { run, dialect, start, until: Until::End };
            steps.push(match self.app.subscribe(who, wanted, Some(asked_at)).await {
                Ok(stream) => {
                    let (key, stream) = (Arc::clone(id), Box::new(stream));
                    Step::Subscribe { key, stream, credit, done: None }
                }
                // The run has started: the client gets both answers.
                Err(error) => self.refused(Some(id), &error),
            });
        }
        Ok(steps)
    }

    async fn subscribe(
        &self,
        who: &Principal,
        id: &Id,
        mut body: Map<String, Value>,
    ) -> Result<Step<Id>, ApiError> {
        let run = take_run(&mut body)?;
        let after: Option<String> = take(&mut body, "after")?;
        let (dialect, credit) = read_as(body)?;
        let info = self.app.control(who).info(run).await?;
        let after = position(&HeaderMap::new(), after.as_deref(), &info)?;
        let done = Some(message(id, "subscribed", json!({ "run": run_json(&info) })));
        let (start, until) = (Begin::After(after), Until::End);
        let wanted = Wanted { run: Readable::Run(info), dialect, start, until };
        let stream = Box::new(self.app.subscribe(who, wanted, None).await?);
        Ok(Step::Subscribe { key: Arc::clone(id), stream, credit, done })
    }

    fn refused(&self, id: Option<&Id>, error: &ApiError) -> Step<Id> {
        self.app.metrics.error(error.code);
        Step::Send(error_message(id, error))
    }
}

/// A message: its id, its type and the rest.
type Read = (Id, String, Map<String, Value>);

/// Reads a message. The error has the id, if that could be read.
fn read(text: &str) -> Result<Read, (Option<Id>, ApiError)> {
    let bad = |message: String| (None, ApiError::bad("bad_json", message));
    let value = serde_json::from_str(text).map_err(|error| bad(format!("the message: {error}")))?;
    let Value::Object(mut body) = value else {
        return Err(bad("the message is not an object".to_owned()));
    };
    let id: Id = match body.remove("id") {
        Some(Value::String(id)) if (1..=ID_BYTES_MAX).contains(&id.len()) => id.into(),
        _ => {
            let message = format!("`id` is a text of 1 to {ID_BYTES_MAX} bytes");
            return Err((None, ApiError::bad("bad_id", message)));
        }
    };
    match body.remove("type") {
        Some(Value::String(kind)) => Ok((id, kind, body)),
        _ => Err((Some(id), ApiError::bad("unknown_type", "`type` is a text"))),
    }
}

fn parse<T: DeserializeOwned>(body: Map<String, Value>) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(body))
        .map_err(|error| ApiError::bad("bad_json", format!("the message: {error}")))
}

fn take_run(body: &mut Map<String, Value>) -> Result<RunId, ApiError> {
    match body.remove("run") {
        Some(Value::String(run)) => run_id(&run),
        _ => Err(ApiError::bad("bad_json", "the message: `run` is a run's id")),
    }
}

fn take_key(body: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    match body.remove("idempotency_key") {
        None => Ok(None),
        Some(Value::String(key)) => Ok(Some(key)),
        Some(_) => Err(ApiError::bad("bad_idempotency_key", "`idempotency_key` is a text")),
    }
}

/// The dialect and the credit of a subscription.
fn read_as(mut body: Map<String, Value>) -> Result<(DialectChoice, Option<u32>), ApiError> {
    let credit: Option<Whole> = take(&mut body, "credit")?;
    let asked: Chosen = parse(body)?;
    Ok((chosen(&asked)?, credit.map(|Whole(credit)| credit)))
}

/// An optional member.
fn take<T: DeserializeOwned>(
    body: &mut Map<String, Value>,
    member: &str,
) -> Result<Option<T>, ApiError> {
    let value = body.remove(member).unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| ApiError::bad("bad_json", format!("the message: `{member}`: {error}")))
}

fn no_subscription(key: &str) -> ApiError {
    let message = format!("there is no subscription {key:?}, or it has ended");
    ApiError::bad("no_subscription", message)
}

/// An answer: the members of `body` with the id and the type.
fn message(id: &str, kind: &str, mut body: Value) -> String {
    body["type"] = kind.into();
    body["id"] = id.into();
    body.to_string()
}

/// `{"type":"error","id","error":{"code","message","remedy"}}`; without an id it is about the
/// socket, or about a message without one.
fn error_message(id: Option<&Id>, error: &ApiError) -> String {
    let ApiError { code, message, remedy, retry_after, .. } = error;
    let mut body = json!({
        "type": "error",
        "error": { "code": code, "message": message, "remedy": remedy },
    });
    if let Some(id) = id {
        body["id"] = (**id).into();
    }
    if let Some(seconds) = retry_after {
        body["error"]["retry_after"] = (*seconds).into();
    }
    body.to_string()
}
