//! use-ai's plain WebSocket: bare JSON in every frame. Named Socket.IO events are sent as CUSTOM
//! events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::ws::Utf8Bytes;
use axum::extract::{OriginalUri, State};
use axum::response::Response;
use futures::future::BoxFuture;
use wellspring_core::RunId;
use wellspring_engine::Principal;
use wellspring_wire::use_ai::ClientMessage;
use wellspring_wire::use_ai::types::Custom;

use super::{Client, error_event, json};
use crate::app::{App, Trace};
use crate::error::ApiError;
use crate::socket::{Delivery, Messages, SocketProtocol, SocketRequest, Step};

/// Opens a socket.
pub(super) async fn open(
    State(app): State<App>,
    Extension(trace): Extension<Trace>,
    OriginalUri(address): OriginalUri,
    request: SocketRequest,
) -> Response {
    let client = Client::new(app.clone(), trace, &address);
    request.accept(app, Plain(client))
}

struct Plain(Client);

impl SocketProtocol for Plain {
    type Key = RunId;

    fn hello(&self) -> Vec<String> {
        let agents = json(&Custom::new("agents", self.0.agents()));
        vec![text(&agents), text(&json(&Custom::new("config", self.0.config())))]
    }

    fn handle(
        self: Arc<Self>,
        who: Principal,
        message: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<RunId>>> {
        Box::pin(async move {
            let message = ClientMessage::read(message.as_bytes());
            self.0.handle(&who, message, text).await
        })
    }

    fn deliver(&self, delivery: &Delivery<RunId>, messages: &mut Messages) {
        match &delivery.piece {
            Some(piece) => {
                for event in delivery.framing.events(piece) {
                    messages.write(|bytes| bytes.extend_from_slice(event.data));
                }
            }
            None => self.0.ended(delivery.key),
        }
    }

    fn failed(&self, key: Option<&RunId>, error: &ApiError) -> String {
        if let Some(run) = key {
            self.0.ended(*run);
        }
        text(&error_event(None, error))
    }
}

/// JSON, which is UTF-8.
fn text(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}
