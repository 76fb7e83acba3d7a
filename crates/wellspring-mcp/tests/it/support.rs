//! A run to call tools in, which records progress and questions.

#![expect(clippy::print_stderr, reason = "what is skipped is skipped out loud")]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, pending, ready};
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;
use wellspring_core::{
    Answer, Ask, CancellationToken, Content, Context, ContextFacts, Event, Form, Host, PartId,
    RunId, ThreadId, Tool, ToolError, ToolResult, ToolUpdate,
};

/// A run that records progress and questions, and answers these from a list.
#[derive(Clone)]
pub(crate) struct Run {
    host: Arc<Memory>,
    pub(crate) signal: CancellationToken,
    number: u128,
}

struct Memory {
    heard: watch::Sender<Vec<Value>>,
    asked: Mutex<Vec<(String, Form)>>,
    answers: Mutex<VecDeque<Answer>>,
    /// Whether questions without an answer in the list stay open.
    silent: AtomicBool,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self::numbered(1)
    }

    pub(crate) fn numbered(number: u128) -> Self {
        let host = Memory {
            heard: watch::Sender::new(Vec::new()),
            asked: Mutex::default(),
            answers: Mutex::default(),
            silent: AtomicBool::new(false),
        };
        Self { host: Arc::new(host), signal: CancellationToken::new(), number }
    }

    pub(crate) fn answers(self, answers: impl IntoIterator<Item = Answer>) -> Self {
        self.host.answers.lock().unwrap().extend(answers);
        self
    }

    /// Leaves its questions open; otherwise they expire.
    pub(crate) fn never_answers(self) -> Self {
        self.host.silent.store(true, Ordering::Relaxed);
        self
    }

    pub(crate) fn context(&self) -> Context {
        let outside = Context::create("trace", self.signal.clone());
        let facts = ContextFacts {
            run: RunId::new(Uuid::from_u128(self.number)),
            thread: ThreadId::new(Uuid::from_u128(self.number)),
            call: Some(PartId(1)),
            ..outside.facts().clone()
        };
        Context::new(facts, self.host.clone())
    }

    /// Calls a tool. An error is returned as its message.
    pub(crate) async fn call(
        &self,
        tool: &Arc<dyn Tool>,
        arguments: Value,
    ) -> Result<ToolResult, String> {
        let called = tool.call(arguments, self.context());
        soon(called).await.map_err(|error| error.to_string())
    }

    /// The progress so far.
    pub(crate) fn heard(&self) -> Vec<Value> {
        self.host.heard.borrow().clone()
    }

    /// Resolves once `count` progress reports have arrived.
    pub(crate) async fn heard_at_least(&self, count: usize) {
        let mut heard = self.host.heard.subscribe();
        soon(heard.wait_for(|heard| heard.len() >= count)).await.unwrap();
    }

    /// The questions so far.
    pub(crate) fn asked(&self) -> Vec<(String, Form)> {
        self.host.asked.lock().unwrap().clone()
    }
}

impl Host for Memory {
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()> {
        self.heard.send_modify(|heard| heard.push(update.data.unwrap_or_default()));
        ready(()).boxed()
    }

    fn emit(&self, _: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        ready(Ok(())).boxed()
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        self.asked.lock().unwrap().push((ask.prompt.into(), ask.form));
        let answer = self.answers.lock().unwrap().pop_front();
        if answer.is_none() && self.silent.load(Ordering::Relaxed) {
            return pending().boxed();
        }
        ready(answer.unwrap_or(Answer::Expired)).boxed()
    }

    fn call_agent(&self, _: Box<str>, _: Vec<Content>) -> BoxFuture<'_, Result<String, ToolError>> {
        ready(Err(ToolError::new("there are no agents here"))).boxed()
    }
}

/// Finds a tool by its name.
pub(crate) fn tool(tools: &[Arc<dyn Tool>], name: &str) -> Arc<dyn Tool> {
    let found = tools.iter().find(|tool| &*tool.spec().name == name);
    found.expect("there is a tool of this name").clone()
}

/// The directory of the external programs; `None`, with a message, if the variable is not set.
/// `cargo xtask test` installs them and sets the variable.
pub(crate) fn peers() -> Option<PathBuf> {
    const VARIABLE: &str = "WELLSPRING_PEER_MCP";
    if std::env::var_os(VARIABLE).is_none() {
        eprintln!("skipped: {VARIABLE} is not set; `cargo xtask test` sets it");
        return None;
    }
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer"))
}

/// Fails instead of waiting forever.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it takes too long")
}
