//! Large response bodies: they are sent in pieces, and the bytes not yet sent are counted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};

use crate::app::App;
use crate::limits::BytesPass;
use crate::middleware::Caller;

/// Response bodies up to this size are not counted: the limit of connections bounds them.
const SMALL_BYTES: u64 = 64 * 1024;

/// Bytes that are handed to the connection at a time; it takes more once these are sent.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

/// Middleware that counts large response bodies until their client has read them.
pub(crate) async fn counted(State(app): State<App>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    let response = next.run(request).await;
    let Some(bytes) = response.body().size_hint().exact().filter(|it| *it > SMALL_BYTES) else {
        return response;
    };
    let mut pass = app.gates.bytes(caller.name());
    match pass.grow(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(()) => response.map(|body| Body::new(Answer { body, piece: Bytes::new(), pass })),
        Err(error) => error.into_response(),
    }
}

struct Answer {
    body: Body,
    /// The unsent rest of the last frame of `body`.
    piece: Bytes,
    pass: BytesPass,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.piece = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.piece.len().min(PIECE_BYTES);
        let piece = self.piece.split_to(length);
        self.pass.shrink(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let left = self.piece.len() as u64;
        if let Some(exact) = hint.exact() {
            return SizeHint::with_exact(exact + left);
        }
        hint.set_lower(hint.lower() + left);
        hint
    }
}
