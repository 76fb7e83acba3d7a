//! The client as the `Host` of a proxied ACP agent: the agent's requests for files and terminals are
//! passed on unchanged.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::Value;
use wellspring_core::{Answer, CancellationToken, QuestionId};

use super::Client;
use super::session::Session;
use crate::client::{Host, Link, Listener, Prompted};
use crate::rpc::{Peer, RpcError};

/// How long a terminal is kept for a client that reads slowly.
pub(super) const SHOW_TIME: Duration = Duration::from_secs(10);

/// A client as the host of a session's agent.
pub(super) struct ClientHost {
    pub(super) peer: Peer,
    pub(super) session: Arc<Session>,
    pub(super) client: Client,
}

impl Host for ClientHost {
    fn offers(&self, method: &str) -> bool {
        match method {
            "fs/read_text_file" => self.client.reads_files,
            "fs/write_text_file" => self.client.writes_files,
            // Client and agent may have methods of their own.
            _ if method.starts_with('_') => true,
            _ => method.starts_with("terminal/") && self.client.has_terminals,
        }
    }

    fn ask(
        &self,
        method: &str,
        mut params: Value,
        cancelled: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        params["sessionId"] = (&*self.session.id).into();
        let place = match method {
            "terminal/create" => Some("cwd"),
            "fs/read_text_file" | "fs/write_text_file" => Some("path"),
            _ => None,
        };
        if let Some(place) = place {
            let path = params[place].as_str().unwrap_or(".");
            match self.session.below(path) {
                Ok(path) => params[place] = path.to_string_lossy().into(),
                Err(why) => return ready(Err(RpcError::invalid(why))).boxed(),
            }
        }
        let (peer, method) = (self.peer.clone(), method.to_owned());
        async move { peer.ask_until(&method, &params, &cancelled).await }.boxed()
    }

    fn shown(&self, terminal: &str) -> BoxFuture<'static, ()> {
        let (session, terminal) = (Arc::clone(&self.session), terminal.to_owned());
        async move {
            let _ = tokio::time::timeout(SHOW_TIME, session.showing(&terminal)).await;
        }
        .boxed()
    }

    fn prompted(&self) -> Option<Arc<Prompted>> {
        self.session.state().prompted.clone()
    }

    fn answered(&self, question: QuestionId, answer: &Answer) -> Option<Value> {
        self.session.state().answers.take(question, answer)
    }

    fn directories(&self) -> Vec<Box<str>> {
        self.session.others.clone()
    }

    fn opening(&self) -> Value {
        self.session.opening.clone()
    }

    fn listener(&self) -> Listener {
        super::proxied::listener(&self.session, &self.peer)
    }

    fn opened(&self, link: Arc<Link>) {
        self.session.state().link = Some(link);
    }

    fn choices(&self) -> Vec<(Box<str>, Value)> {
        self.session.state().options.choices()
    }
}
