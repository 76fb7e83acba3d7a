//! Limits for requests to additional routes, such as webhooks.
//!
//! Those routes authenticate their own callers, some only from the whole body. Anyone can send them
//! a request, so this module limits its cost.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::app::App;
use crate::limits::BytesPass;

/// Timeout for a body: chat networks send a few kilobytes, and repeat rejected requests.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts a request for its address, and limits its body in time and in the total size of all such
/// bodies. A body counts until its request is handled. A closed connection does not interrupt that.
pub(crate) async fn bounded(State(app): State<App>, request: Request, next: Next) -> Response {
    app.metrics.request();
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>()
        && let Err(error) = app.gates.address(peer.ip())
    {
        app.metrics.error(error.code);
        return error.into_response();
    }
    // The callers are unknown, so all of them share the memory limit of one token.
    let held = Arc::new(Mutex::new(app.gates.bytes("")));
    let counted = Arc::clone(&held);
    let patience = Box::pin(tokio::time::sleep(BODY_TIMEOUT));
    let request = request.map(|body| Body::new(Bounded { body, held: counted, patience }));
    let handled = tokio::spawn(async move {
        let response = next.run(request).await;
        drop(held);
        response
    });
    handled.await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to handle a request to a webhook");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}

/// A body that fails if it is too slow or exceeds the memory limit.
struct Bounded {
    body: Body,
    held: Arc<Mutex<BytesPass>>,
    patience: Pin<Box<Sleep>>,
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.patience.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new("the body took too long"))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(error) = crate::lock(&self.held).grow(data.len())
        {
            return Poll::Ready(Some(Err(axum::Error::new(error.message))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
