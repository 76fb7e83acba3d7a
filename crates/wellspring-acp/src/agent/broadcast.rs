//! Messages of proxied agents that belong to no session. The client gets them immediately,
//! independently of its sessions.

use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::RemoteAgent as _;

use super::Agent;
use crate::client::{AcpAgent, Ear, SERVED_MAX};
use crate::lock;
use crate::rpc::{Peer, Request, RpcError, Wish};

impl Agent {
    /// Passes an agent's messages that belong to no session on to the client from now on.
    pub(super) fn attend(&self, agent: &AcpAgent) {
        let mut attended = lock(&self.attended);
        if !attended.contains_key(agent.name()) {
            let passing = tokio::spawn(pass_on(agent.attend(), self.peer.clone()));
            attended.insert(agent.name().into(), AbortOnDropHandle::new(passing));
        }
    }
}

/// Passes messages on until the agent or the client disconnects.
async fn pass_on(mut ear: Ear, peer: Peer) {
    let mut asked = JoinSet::new();
    loop {
        let wish = tokio::select! {
            wish = ear.next() => wish,
            Some(_) = asked.join_next() => continue,
        };
        match wish {
            None => return,
            Some(Wish::Notification(method, params)) => {
                if peer.notify(&method, &params).await.is_err() {
                    return;
                }
            }
            Some(Wish::Request(request)) if asked.len() >= SERVED_MAX => {
                request.give(Err(RpcError::failed("too many concurrent requests"))).await;
            }
            Some(Wish::Request(request)) => {
                asked.spawn(ask(peer.clone(), request));
            }
        }
    }
}

async fn ask(peer: Peer, mut request: Request) {
    let params = request.params.take();
    let answer = peer.ask_until(&request.method, &params, &request.cancelled).await;
    request.give(answer).await;
}
