//! Agents that speak [AG-UI](https://docs.ag-ui.com) over HTTP and SSE.
//!
//! A Wellspring run is one or more runs of the agent: the agent ends its run when it leaves a
//! call to us or has a question, and we answer with the next run. In between nothing is open,
//! so our run pauses and needs no process. The agent is offered our tools, the client's tools
//! and, for a typed result, the tool that returns it.
//!
//! # What is deliberately absent
//!
//! Input while the agent works: the protocol cannot add input to an active run. The input is
//! the user's next message once the agent has finished. The expiry of an interrupt: our own
//! limit for questions applies.
//!
//! # What is promised
//!
//! After a lost connection, or a restart of this process, a run continues without repeated text
//! if the server can attach to runs ([`AgUiConfig::resumable`]). Otherwise it fails, because
//! another request would run the agent twice.

mod drive;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use reqwest::{Client, Url};
use wellspring_core::{
    Batch, Context, ModelError, RemoteAgent, RemoteCapabilities, RemoteInputs, RemoteRequest,
    RemoteResume,
};

use self::drive::Drive;
pub use crate::http::SetupError;
use crate::http::client;

/// Default time that an agent may send nothing, not even a comment.
pub const SILENCE_DEFAULT: Duration = Duration::from_secs(120);

/// The configuration of an AG-UI agent.
#[derive(Clone, PartialEq)]
pub struct AgUiConfig {
    /// The URL that requests are posted to.
    pub url: Box<str>,
    /// Headers of every request. Their values are redacted in `Debug`.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// How long the agent may send nothing, not even a comment.
    pub silence: Duration,
    /// Whether a request that names a known run attaches to it, and `URL/runs/RUN/cancel` stops
    /// it, as on a Wellspring server. The protocol itself defines neither.
    pub resumable: bool,
}

impl AgUiConfig {
    /// An agent at a URL, with default options.
    #[must_use]
    pub fn new(url: impl Into<Box<str>>) -> Self {
        Self { url: url.into(), headers: Vec::new(), silence: SILENCE_DEFAULT, resumable: false }
    }
}

impl fmt::Debug for AgUiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgUiConfig")
            .field("url", &self.url)
            .field("silence", &self.silence)
            .field("resumable", &self.resumable)
            .finish_non_exhaustive()
    }
}

/// A remote agent that speaks AG-UI.
#[derive(Clone)]
pub struct AgUiAgent {
    shared: Arc<Shared>,
}

struct Shared {
    name: Box<str>,
    config: AgUiConfig,
    url: Url,
    client: Client,
}

impl AgUiAgent {
    /// Creates an agent. `name` is its name in the log. Nothing is sent before its first run.
    ///
    /// # Errors
    ///
    /// If the URL or a header is invalid.
    pub fn new(name: impl Into<Box<str>>, config: AgUiConfig) -> Result<Self, SetupError> {
        let (url, client) = client(&config.url, &config.headers)?;
        Ok(Self { shared: Arc::new(Shared { name: name.into(), config, url, client }) })
    }
}

impl RemoteAgent for AgUiAgent {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities { inputs: RemoteInputs::FollowUp, resume: RemoteResume::SameParts }
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        crate::drive::run(Drive::new(Arc::clone(&self.shared), request, context))
    }
}

impl fmt::Debug for AgUiAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, config, .. } = &*self.shared;
        f.debug_struct("AgUiAgent").field("name", name).field("config", config).finish()
    }
}
