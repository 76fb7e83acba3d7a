//! The AI SDK's `WebSocketChatTransport`: many requests on one socket, each with its own stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Extension;
use axum::extract::ws::Utf8Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use wellspring_core::{CancelWhen, RunId};
use wellspring_engine::Principal;
use wellspring_wire::ai_sdk::types::{ChatRequest, PageTool, QuestionAnswer, Trigger, UiMessage};

use super::{Chat, check};
use crate::app::{App, Trace};
use crate::error::ApiError;
use crate::lock;
use crate::socket::{Delivery, Messages, NotAdded, SocketProtocol, SocketRequest, Step};
use crate::stream::Wanted;

/// Opens a socket.
pub(super) async fn open(
    State(app): State<App>,
    Path(agent): Path<String>,
    Extension(trace): Extension<Trace>,
    request: SocketRequest,
) -> Result<Response, ApiError> {
    app.agent(&agent)?;
    let open = Mutex::default();
    Ok(request.accept(app.clone(), ChatSocket { app, agent, trace, open }))
}

/// The client's id of a request.
type Id = Arc<str>;

struct ChatSocket {
    app: App,
    agent: String,
    trace: Trace,
    /// The requests whose streams are open. The socket bounds how many there are.
    open: Mutex<BTreeMap<Id, Stream>>,
}

struct Stream {
    run: RunId,
    /// How many chunks were sent.
    sequence: u64,
}

/// A client's message.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Frame {
    Send {
        request_id: Id,
        id: Box<str>,
        #[serde(default)]
        trigger: Trigger,
        #[serde(default)]
        message_id: Option<Box<str>>,
        messages: Vec<UiMessage>,
        #[serde(default)]
        body: Body,
    },
    Resume {
        request_id: Id,
        id: Box<str>,
    },
    Abort {
        request_id: Id,
    },
}

/// What an application adds to the body of its requests.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    tools: Vec<PageTool>,
    model: Option<Box<str>>,
    answers: Vec<QuestionAnswer>,
}

impl SocketProtocol for ChatSocket {
    type Key = Id;

    fn handle(
        self: Arc<Self>,
        who: Principal,
        text: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<Id>>> {
        Box::pin(async move {
            let frame = match serde_json::from_str::<Frame>(&text) {
                Ok(frame) => frame,
                Err(error) => {
                    let error = ApiError::bad("bad_json", format!("the message: {error}"));
                    return vec![self.refused(request_id(&text).as_ref(), &error)];
                }
            };
            let id = match &frame {
                Frame::Send { request_id, .. }
                | Frame::Resume { request_id, .. }
                | Frame::Abort { request_id } => Arc::clone(request_id),
            };
            match self.take(&who, frame).await {
                Ok(steps) => steps,
                Err(error) => vec![self.refused(Some(&id), &error)],
            }
        })
    }

    fn deliver(&self, delivery: &Delivery<Id>, messages: &mut Messages) {
        let id = Value::from(&*delivery.key).to_string();
        let mut open = lock(&self.open);
        let Some(piece) = &delivery.piece else {
            open.remove(&delivery.key);
            messages.push(&format!(r#"{{"type":"end","requestId":{id}}}"#));
            return;
        };
        let Some(stream) = open.get_mut(&delivery.key) else { return };
        for event in delivery.framing.events(piece) {
            let sequence = stream.sequence.to_string();
            stream.sequence += 1;
            let pieces: [&[u8]; 7] = [
                br#"{"type":"chunk","requestId":"#,
                id.as_bytes(),
                br#","sequence":"#,
                sequence.as_bytes(),
                br#","chunk":"#,
                event.data,
                b"}",
            ];
            messages.write(|bytes| pieces.iter().for_each(|piece| bytes.extend_from_slice(piece)));
        }
    }

    fn failed(&self, key: Option<&Id>, error: &ApiError) -> String {
        if let Some(key) = key
            && error.code != NotAdded::EXISTS
        {
            lock(&self.open).remove(key);
        }
        error_message(key, error)
    }
}

impl ChatSocket {
    async fn take(&self, who: &Principal, frame: Frame) -> Result<Vec<Step<Id>>, ApiError> {
        let control = self.app.control(who);
        match frame {
            Frame::Send { request_id, id, trigger, message_id, messages, body } => {
                check(&request_id)?;
                let Body { tools, model, answers } = body;
                let request =
                    ChatRequest { id, messages, trigger, message_id, tools, model, answers };
                let asked_at = Instant::now();
                let chat = Chat::new(&self.app, control, &self.agent, &request.id)?;
                let wanted = chat.send(&request, self.trace.clone()).await?;
                self.subscribe(who, request_id, wanted, Some(asked_at)).await
            }
            Frame::Resume { request_id, id } => {
                check(&request_id)?;
                let chat = Chat::new(&self.app, control, &self.agent, &id)?;
                match chat.resume(false).await? {
                    Some(wanted) => self.subscribe(who, request_id, wanted, None).await,
                    None => {
                        let idle = json!({ "type": "no-active", "requestId": request_id });
                        Ok(vec![Step::Send(idle.to_string())])
                    }
                }
            }
            // Unlike a closed socket, this stops the run: the user asked for it.
            Frame::Abort { request_id } => {
                let stream = lock(&self.open).remove(&request_id);
                if let Some(stream) = stream {
                    control.stop(stream.run, CancelWhen::Now, None).await?;
                }
                let done = json!({ "type": "end", "requestId": request_id }).to_string();
                let (done, unknown) = (Some(done.clone()), Some(done));
                Ok(vec![Step::Unsubscribe { key: request_id, done, unknown }])
            }
        }
    }

    async fn subscribe(
        &self,
        who: &Principal,
        id: Id,
        wanted: Wanted,
        asked_at: Option<Instant>,
    ) -> Result<Vec<Step<Id>>, ApiError> {
        let run = wanted.run.id();
        let stream = Box::new(self.app.subscribe(who, wanted, asked_at).await?);
        let begun = json!({ "type": "start", "requestId": id }).to_string();
        let mut open = lock(&self.open);
        // A request id that is used twice is refused by the socket.
        open.entry(Arc::clone(&id)).or_insert(Stream { run, sequence: 0 });
        drop(open);
        Ok(vec![Step::Subscribe { key: id, stream, credit: None, done: Some(begun) }])
    }

    fn refused(&self, id: Option<&Id>, error: &ApiError) -> Step<Id> {
        self.app.metrics.error(error.code);
        Step::Send(error_message(id, error))
    }
}

/// The request id of a message that cannot be read as a whole.
fn request_id(text: &str) -> Option<Id> {
    let value: Value = serde_json::from_str(text).ok()?;
    value.get("requestId").and_then(Value::as_str).map(Into::into)
}

/// The protocol has no error without a request; clients ignore one of a request they do not know.
fn error_message(id: Option<&Id>, error: &ApiError) -> String {
    let text = format!("{}; {}", error.message, error.remedy);
    let id = id.map_or("", |id| id);
    json!({ "type": "error", "requestId": id, "errorText": text }).to_string()
}
