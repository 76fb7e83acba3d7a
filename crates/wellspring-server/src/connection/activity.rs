//! Activity on a connection: its requests, and when its client last read something.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::capacity::{Place, Places};
use super::{HEAD_TIMEOUT, Protocol, UNREAD_TIMEOUT};
use crate::lock;

/// The requests of one connection.
pub(super) struct Activity {
    me: Weak<Self>,
    places: Places,
    evicted: Notify,
    now: Mutex<Now>,
}

struct Now {
    /// How many requests there are.
    requests: usize,
    next: u64,
    /// Requests with a piece of their response that the connection may not have sent, and since
    /// when. HTTP/2 only; the socket notices this itself for HTTP/1.
    unread: Vec<(u64, Instant)>,
    /// Its number among the idle ones, and since when it has been one.
    idle: Option<(u64, Instant)>,
}

impl Activity {
    /// A new connection's: it has no request yet.
    pub(super) fn new(places: Places) -> Arc<Self> {
        Arc::new_cyclic(|me| {
            let idle = Some((places.idle(Weak::clone(me)), Instant::now()));
            let now = Mutex::new(Now { requests: 0, next: 0, unread: Vec::new(), idle });
            Self { me: Weak::clone(me), places, evicted: Notify::new(), now }
        })
    }

    /// The place that was taken for it; to be held by its socket.
    pub(super) fn place(&self) -> Place {
        Place(self.places.clone())
    }

    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Resolves when another connection needs the place, unless a request came in between.
    pub(super) async fn evicted(&self) {
        loop {
            self.evicted.notified().await;
            if lock(&self.now).requests == 0 {
                return;
            }
        }
    }

    /// Resolves when the connection has had no request for too long, or a client has not taken
    /// an answer for too long, or another connection needs the place.
    pub(super) async fn given_up(&self) {
        loop {
            let due = self.due();
            tokio::select! {
                () = self.evicted() => return,
                () = tokio::time::sleep_until(due) => {
                    if self.due() <= Instant::now() {
                        return;
                    }
                }
            }
        }
    }

    /// When the connection is closed if nothing happens.
    fn due(&self) -> Instant {
        let now = lock(&self.now);
        let unread = now.unread.iter().map(|(_, at)| *at + UNREAD_TIMEOUT).min();
        let idle = now.idle.map(|(_, since)| since + HEAD_TIMEOUT);
        // Otherwise check again at the earliest time at which a limit can be reached.
        unread.or(idle).unwrap_or_else(|| Instant::now() + HEAD_TIMEOUT)
    }

    /// A request has begun; it ends when what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Request {
        let mut now = lock(&self.now);
        let number = now.next;
        now.next += 1;
        now.requests += 1;
        let idle = now.idle.take();
        drop(now);
        if let Some((number, _)) = idle {
            self.places.not_idle(number);
        }
        Request { activity: Arc::clone(self), number }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some((number, _)) = lock(&self.now).idle {
            self.places.not_idle(number);
        }
    }
}

/// A request that is being answered.
pub(super) struct Request {
    activity: Arc<Activity>,
    number: u64,
}

impl Request {
    /// Notes whether the connection has a piece of the answer that it may not have sent.
    fn handed_over(&self, at: Option<Instant>) {
        let mut now = lock(&self.activity.now);
        now.unread.retain(|(number, _)| *number != self.number);
        now.unread.extend(at.map(|at| (self.number, at)));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut now = lock(&self.activity.now);
        now.requests -= 1;
        now.unread.retain(|(number, _)| *number != self.number);
        if now.requests == 0 {
            let number = self.activity.places.idle(Weak::clone(&self.activity.me));
            now.idle = Some((number, Instant::now()));
        }
    }
}

/// An answer's body; its request ends with it.
pub(super) struct Watched {
    body: Body,
    request: Request,
    protocol: Protocol,
}

impl Watched {
    pub(super) fn new(body: Body, request: Request, protocol: Protocol) -> Self {
        Self { body, request, protocol }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if self.protocol == Protocol::Http2 {
            self.request.handed_over(polled.is_ready().then(Instant::now));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
