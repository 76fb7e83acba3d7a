//! Limits for requests to additional routes, such as webhooks.
//!
//! Those routes authenticate their own callers, some only from the whole body. Anyone can send them
//! a request, so this module limits its cost.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::app::App;
use crate::limits::BytesPass;

/// Timeout for a body: chat networks send a few kilobytes, and repeat rejected requests.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts a request for its address, and limits its body in time and in the total size of all such
/// bodies.
pub(crate) async fn bounded(State(app): State<App>, request: Request, next: Next) -> Response {
    app.metrics.request();
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>()
        && let Err(error) = app.gates.address(peer.ip())
    {
        app.metrics.error(error.code);
        return error.into_response();
    }
    // The callers are unknown, so all of them share the memory limit of one token.
    let held = app.gates.bytes("");
    let patience = Box::pin(tokio::time::sleep(BODY_TIMEOUT));
    next.run(request.map(|body| Body::new(Bounded { body, held, patience }))).await
}

/// A body that fails if it is too slow or exceeds the memory limit.
struct Bounded {
    body: Body,
    held: BytesPass,
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
            && let Err(error) = self.held.grow(data.len())
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
