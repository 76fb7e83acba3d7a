//! A host that records what tools report, and answers as scripted.

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::Value;
use tokio::sync::watch;
use wellspring_core::{
    AgentNo, Answer, Ask, CancellationToken, Content, Context, ContextFacts, Event, Form, Host,
    RunId, ThreadId, Tool, ToolError, ToolResult, ToolUpdate,
};

/// A report of a tool to its host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Updated(ToolUpdate),
    Stated(Event),
    Asked { prompt: Box<str>, form: Form },
    CalledAgent { agent: Box<str>, input: Vec<Content> },
}

impl Heard {
    /// Progress in the tool's own shape.
    pub(crate) fn progress(data: impl Into<Value>) -> Self {
        Self::Updated(ToolUpdate { data: Some(data.into()), ..ToolUpdate::default() })
    }
}

#[derive(Debug)]
pub(crate) struct RecordingHost {
    heard: Mutex<Vec<Heard>>,
    count: watch::Sender<usize>,
    answer: Answer,
    reply: Result<String, String>,
}

impl RecordingHost {
    pub(crate) fn new() -> Arc<Self> {
        Self::that_answers(Answer::Expired)
    }

    pub(crate) fn that_answers(answer: Answer) -> Arc<Self> {
        let reply = Err("there is no such agent".to_owned());
        Arc::new(Self { heard: Mutex::default(), count: watch::Sender::new(0), answer, reply })
    }

    pub(crate) fn whose_agent_says(reply: Result<&str, &str>) -> Arc<Self> {
        let reply = reply.map(str::to_owned).map_err(str::to_owned);
        let answer = Answer::Expired;
        Arc::new(Self { heard: Mutex::default(), count: watch::Sender::new(0), answer, reply })
    }

    pub(crate) fn context(self: &Arc<Self>) -> Context {
        self.context_with(CancellationToken::new())
    }

    pub(crate) fn context_with(self: &Arc<Self>, signal: CancellationToken) -> Context {
        let nil = "00000000-0000-0000-0000-000000000000";
        let (run, thread): (RunId, ThreadId) = (nil.parse().unwrap(), nil.parse().unwrap());
        let facts = ContextFacts {
            trace_id: "trace".into(),
            run,
            thread,
            agent: AgentNo::ROOT,
            call: None,
            messages: Arc::from([]),
            cwd: None,
            signal,
            deadline: None,
            resume_key: None,
        };
        Context::new(facts, Arc::clone(self) as Arc<dyn Host>)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// The data of all progress.
    pub(crate) fn progress(&self) -> Vec<Value> {
        let data = |heard| match heard {
            Heard::Updated(update) => update.data,
            Heard::Stated(_) | Heard::Asked { .. } | Heard::CalledAgent { .. } => None,
        };
        self.heard().into_iter().filter_map(data).collect()
    }

    /// Resolves once this many reports were recorded.
    pub(crate) async fn until(&self, count: usize) {
        self.count.subscribe().wait_for(|&heard| heard >= count).await.unwrap();
    }

    /// Calls a tool. Returns its reports and its result.
    pub(crate) async fn call(
        self: &Arc<Self>,
        tool: &dyn Tool,
        arguments: Value,
    ) -> (Vec<Heard>, Result<ToolResult, String>) {
        let result = tool.call(arguments, self.context()).await;
        (self.heard(), result.map_err(|error| error.to_string()))
    }

    fn hear(&self, heard: Heard) {
        self.heard.lock().unwrap().push(heard);
        self.count.send_modify(|count| *count += 1);
    }
}

impl Host for RecordingHost {
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()> {
        self.hear(Heard::Updated(update));
        ready(()).boxed()
    }

    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        self.hear(Heard::Stated(event));
        ready(Ok(())).boxed()
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        self.hear(Heard::Asked { prompt: ask.prompt, form: ask.form });
        ready(self.answer.clone()).boxed()
    }

    fn call_agent(
        &self,
        agent: Box<str>,
        input: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>> {
        self.hear(Heard::CalledAgent { agent, input });
        ready(self.reply.clone().map_err(|message| ToolError::new(message.as_str()))).boxed()
    }
}
