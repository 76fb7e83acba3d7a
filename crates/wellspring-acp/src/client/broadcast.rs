//! Forwards messages that belong to no session to the clients that we serve.

use std::sync::{Arc, Mutex};

use super::connection::{Incoming, Queue, Route};
use crate::lock;
use crate::rpc::{RpcError, Wish};

/// The listeners for messages that belong to no session.
#[derive(Clone, Default)]
pub(super) struct Attending(Arc<Mutex<Vec<Route>>>);

/// A listener; it is removed when dropped. Messages that it does not take are dropped, so that one
/// slow listener cannot block an agent that many use: up to
/// [`QUEUE_MAX`](super::QUEUE_MAX) messages and [`QUEUE_BYTES_MAX`](super::QUEUE_BYTES_MAX) wait.
#[derive(Debug)]
pub(crate) struct Ear(Queue);

impl Ear {
    /// The next message; `None` once the agent is gone.
    pub(crate) async fn next(&mut self) -> Option<Wish> {
        loop {
            match self.0.next().await? {
                Incoming::Notification(method, params) => {
                    return Some(Wish::Notification(method, params));
                }
                Incoming::Request(request) => return Some(Wish::Request(request)),
                // These belong to a session.
                Incoming::Update(_) | Incoming::Prompted(_) => {}
            }
        }
    }
}

impl Attending {
    /// Adds a listener.
    pub(super) fn join(&self) -> Ear {
        let (route, queue) = Queue::new(None);
        lock(&self.0).push(route);
        Ear(queue)
    }

    /// Forwards a message that belongs to no session. Every listener gets a notification. A request
    /// can have only one answer, so it is forwarded only if there is exactly one listener.
    pub(super) async fn deliver(&self, incoming: Incoming, bytes: usize) {
        let mut routes = self.present();
        match incoming {
            // Extensions may be known to client and agent. All other methods name a session,
            // or are invalid here.
            Incoming::Notification(method, params) if method.starts_with('_') => {
                for route in &routes {
                    let said = Incoming::Notification(method.clone(), params.clone());
                    route.send_now(said, bytes);
                }
            }
            Incoming::Request(request) => match (routes.pop(), routes.is_empty()) {
                (Some(only), true) if request.method.starts_with('_') => {
                    only.send_now(Incoming::Request(request), bytes);
                }
                (Some(_) | None, _) => {
                    let unknown = RpcError::no_method(&request.method);
                    request.give(Err(unknown)).await;
                }
            },
            Incoming::Notification(..) | Incoming::Update(_) | Incoming::Prompted(_) => {}
        }
    }

    /// The listeners that still exist.
    fn present(&self) -> Vec<Route> {
        let mut routes = lock(&self.0);
        routes.retain(Route::is_open);
        routes.clone()
    }
}
