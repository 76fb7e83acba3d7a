//! A bot in a network over HTTP, for the networks' tests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{Approval, ToolResult, ToolSpec};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, LogOptions, MemoryStore};
use wellspring_models::{Say, Scripted};

use crate::channel::Channel;
use crate::instance::{Access, Instance, InstanceConfig};

/// Timeout of every wait, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bot {
    pub(crate) instance: Instance,
    runtime: Runtime,
    config: InstanceConfig,
}

impl Bot {
    /// A bot that streams and that everyone may use.
    pub(crate) async fn new(channel: Arc<dyn Channel>, agent: AgentDef) -> Self {
        let runtime =
            Runtime::new(Log::new(Arc::new(MemoryStore::default()), LogOptions::default()));
        runtime.register(agent);
        let mut config = InstanceConfig::new("bot", "agent");
        config.access = Access { everyone: true, ..Access::default() };
        config.stream = true;
        let instance = Instance::start(config.clone(), channel, runtime.clone()).await.unwrap();
        Self { instance, runtime, config }
    }

    /// Stops the bot and starts the next process.
    pub(crate) async fn restart(&mut self, channel: Arc<dyn Channel>) {
        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        self.instance = Instance::start(config, channel, runtime).await.unwrap();
    }
}

/// An agent that asks for approval before it runs its tool.
pub(crate) fn risky() -> AgentDef {
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("launch", "launches") };
    let tool = from_function(spec, |_: Value, _| async move { Ok(ToolResult::new("up")) });
    let says = [Say::new().call("launch", json!({"rocket": 5})), Say::new().text("It is up.")];
    let mut agent = AgentDef::model("agent", Arc::new(Scripted::new(says)));
    agent.tools.push(Arc::new(tool));
    agent
}

/// Waits until `is_so` returns `true`; fails with `what` after [`PATIENCE`].
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("it does not come: {what}"));
}
