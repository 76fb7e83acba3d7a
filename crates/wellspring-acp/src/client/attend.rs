//! Clients that we serve hear what an agent says that is about no session.

use std::sync::{Arc, Mutex};

use super::connection::{Incoming, Queue, Route};
use crate::lock;
use crate::rpc::{RpcError, Wish};

/// Those who hear what the processes of an agent say about no session.
#[derive(Clone, Default)]
pub(super) struct Attending(Arc<Mutex<Vec<Route>>>);

/// Hears it; dropped, it does not any more. What nobody takes for long is dropped, for an agent
/// that many use must not wait for one of them: up to
/// [`QUEUE_MAX`](super::QUEUE_MAX) messages and [`QUEUE_BYTES_MAX`](super::QUEUE_BYTES_MAX) wait.
#[derive(Debug)]
pub(crate) struct Ear(Queue);

impl Ear {
    /// What the agent wishes next; nothing once the agent is gone for good.
    pub(crate) async fn next(&mut self) -> Option<Wish> {
        loop {
            match self.0.next().await? {
                Incoming::Notification(method, params) => {
                    return Some(Wish::Notification(method, params));
                }
                Incoming::Request(request) => return Some(Wish::Request(request)),
                // These are about a session.
                Incoming::Update(_) | Incoming::Prompted(_) => {}
            }
        }
    }
}

impl Attending {
    /// One more who hears it.
    pub(super) fn join(&self) -> Ear {
        let (route, queue) = Queue::new(None);
        lock(&self.0).push(route);
        Ear(queue)
    }

    /// Hands on what is about no session. All hear a notification. A request has one answer, so
    /// it is for somebody only if nobody else is there.
    pub(super) async fn deliver(&self, incoming: Incoming, bytes: usize) {
        let mut routes = self.present();
        match incoming {
            // What is not of the protocol, client and agent may know of. All else names a session,
            // or makes no sense.
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

    /// Those who are still there.
    fn present(&self) -> Vec<Route> {
        let mut routes = lock(&self.0);
        routes.retain(Route::is_open);
        routes.clone()
    }
}
