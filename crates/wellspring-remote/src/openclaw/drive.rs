//! A run: sends the prompt and reads messages, until the run has ended.
//!
//! It advances only while its stream is polled. Messages that arrive in the meantime wait in
//! the run's inbox.

mod reconnect;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use wellspring_core::{
    Batch, Content, Context, Event as Fact, FailureKind, MediaSource, ModelError, RemoteRequest,
    Stop,
};
use wellspring_wire::openclaw::{Abort, End, Prompt, Reader, Response};

use self::reconnect::is_still_running;
use super::connection::{Heard, Inbox, Link};
use super::{RUNS_WAITING_MAX, Shared};

/// How long the gateway may take to stop a run. The run ends here in any case.
const ABORT_TIME: Duration = Duration::from_secs(2);

/// How long to wait after the run's end for the last response, which has the usage.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// How long `agent.wait` may take. It is then sent again.
const WAIT_TIME: Duration = Duration::from_secs(30);

/// The data for finding the run at the gateway again.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    session_key: Box<str>,
    run_id: Box<str>,
    /// The gateway's process. After a restart it does not know earlier runs.
    #[serde(default)]
    boot_id: Option<Box<str>>,
    /// Whether the gateway has acknowledged the prompt.
    #[serde(default)]
    accepted: bool,
}

/// A run in progress.
pub(super) struct Drive {
    shared: Arc<Shared>,
    request: RemoteRequest,
    context: Context,
    reader: Reader,
    batch: Batch,
    handle: Handle,
    inbox: Arc<Inbox>,
    link: Option<Arc<Link>>,
    place: Option<OwnedSemaphorePermit>,
    /// Whether the gateway may have the prompt: then a cancelled run is stopped there.
    prompted: bool,
    /// When the last message about the run arrived.
    heard_at: Instant,
    /// The number of connections made since then.
    reconnects: u32,
    /// Whether the last response will arrive on this connection.
    awaits_result: bool,
    phase: Phase,
}

enum Phase {
    /// A new prompt that waits for a slot.
    Queue,
    Prompt,
    /// A run that was started before, to be found again.
    Adopt,
    Listen,
    /// Events that were read before the error are returned first.
    Failed(ModelError),
    Done,
}

impl crate::drive::Drive for Drive {
    async fn next(&mut self) -> Option<Result<Batch, ModelError>> {
        loop {
            if !self.batch.is_empty() {
                return Some(Ok(self.batch.take()));
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Done);
            let next = match phase {
                Phase::Done => return None,
                Phase::Failed(error) => return Some(Err(error)),
                Phase::Queue => self.queue().await,
                Phase::Prompt => self.prompt().await,
                Phase::Adopt => self.find().await,
                Phase::Listen => self.listen().await,
            };
            self.phase = next.unwrap_or_else(|error| {
                self.leave();
                self.shared.circuit.note(Some(&error), Instant::now().into_std());
                self.reader.close(&mut self.batch);
                Phase::Failed(error)
            });
        }
    }
}

impl Drive {
    pub(super) fn new(shared: Arc<Shared>, request: RemoteRequest, context: Context) -> Self {
        let mut reader = Reader::default();
        let mut batch = Batch::default();
        let earlier = request.attached.as_ref().or(request.session.as_ref());
        let earlier = earlier.and_then(|it| serde_json::from_value::<Handle>(it.clone()).ok());
        let session_key = match &earlier {
            Some(handle) => handle.session_key.clone(),
            None => format!("agent:{}:wellspring-{}", shared.config.agent, request.thread).into(),
        };
        let mut phase = Phase::Queue;
        let mut handle = Handle {
            session_key,
            run_id: following(&request, earlier.as_ref().map_or("", |it| &it.run_id)),
            boot_id: None,
            accepted: false,
        };
        if request.attached.is_some() {
            match earlier {
                Some(earlier) => (handle, phase) = (earlier, Phase::Adopt),
                None => {
                    let what = "cannot go on: its handle cannot be read";
                    phase = Phase::Failed(shared.error(FailureKind::Lost, what));
                }
            }
            if let Some(so_far) = &request.so_far {
                reader = Reader::resume(so_far);
                batch = Batch::after(&so_far.outline);
            }
        }
        let prompted = matches!(phase, Phase::Adopt);
        Self {
            shared,
            request,
            context,
            reader,
            batch,
            handle,
            inbox: Arc::default(),
            link: None,
            place: None,
            prompted,
            heard_at: Instant::now(),
            reconnects: 0,
            awaits_result: false,
            phase,
        }
    }

    /// Waits for a slot on the connection, and emits the handle.
    async fn queue(&mut self) -> Result<Phase, ModelError> {
        self.shared.circuit.admit(Instant::now().into_std())?;
        if !self.take_place().await? {
            return Ok(self.cancelled().await);
        }
        let Some(link) = self.connected().await? else { return Ok(self.cancelled().await) };
        self.handle.boot_id.clone_from(&link.hello.boot_id);
        self.attach();
        Ok(Phase::Prompt)
    }

    /// Emits the handle.
    fn attach(&mut self) {
        // Our own type always serialises.
        let handle = Box::new(serde_json::to_value(&self.handle).unwrap_or_default());
        self.batch.event(Fact::Attached { origin: self.shared.name.clone(), handle });
    }

    /// Takes a slot; `false` if the run was cancelled while it waited.
    async fn take_place(&mut self) -> Result<bool, ModelError> {
        if self.place.is_some() {
            return Ok(true);
        }
        let Ok(_queued) = Arc::clone(&self.shared.queue).try_acquire_owned() else {
            let what = format!("{RUNS_WAITING_MAX} runs wait for the gateway already");
            return Err(self.shared.error(FailureKind::Unavailable, &what));
        };
        let place = Arc::clone(&self.shared.places).acquire_owned();
        tokio::select! {
            biased;
            () = self.context.signal().cancelled() => Ok(false),
            // The semaphore is never closed.
            place = place => {
                self.place = place.ok();
                Ok(true)
            }
        }
    }

    /// The connection, with this run registered; `None` if the run was cancelled.
    async fn connected(&mut self) -> Result<Option<Arc<Link>>, ModelError> {
        let link = tokio::select! {
            biased;
            () = self.context.signal().cancelled() => return Ok(None),
            link = self.shared.link() => link?,
        };
        link.register(&self.handle.run_id, &self.inbox);
        self.link = Some(Arc::clone(&link));
        Ok(Some(link))
    }

    /// Sends the prompt. The gateway recognises a repetition by its key.
    async fn prompt(&mut self) -> Result<Phase, ModelError> {
        let Some(link) = self.link.clone().filter(|link| !link.is_closed()) else {
            return self.reconnect().await;
        };
        let input = &self.request.request.input;
        let attachments = attachments(input);
        let params = Prompt {
            message: &message(input),
            session_key: &self.handle.session_key,
            run_id: &self.handle.run_id,
            instructions: &self.request.instructions,
            model: self.request.request.model.as_deref(),
            attachments: &attachments,
        };
        self.prompted = true;
        self.heard_at = Instant::now();
        link.request_for(&self.inbox, "agent", params.params());
        self.awaits_result = true;
        Ok(Phase::Listen)
    }

    async fn listen(&mut self) -> Result<Phase, ModelError> {
        let Some(link) = self.link.clone() else { return self.reconnect().await };
        let signal = self.context.signal().clone();
        let idle = self.shared.config.idle;
        let heard = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled().await),
            heard = self.inbox.next() => heard,
            () = link.lost() => return self.reconnect().await,
            () = tokio::time::sleep_until(self.heard_at + idle) => {
                self.abort(&link).await;
                let what = format!("said nothing for {} s and was aborted", idle.as_secs_f32());
                return Err(self.shared.error(FailureKind::TimedOut, &what));
            }
        };
        self.hear(heard, &link);
        while let Some(heard) = self.inbox.pop() {
            self.hear(heard, &link);
        }
        match self.reader.end().cloned() {
            Some(end) => self.ended(end, &link).await,
            None => Ok(Phase::Listen),
        }
    }

    fn hear(&mut self, heard: Heard, link: &Arc<Link>) {
        match heard {
            Heard::Event(event) => {
                self.is_heard();
                self.reader.event(event, &mut self.batch);
            }
            // A response that the run is still active does not reset the idle timeout.
            Heard::Response(response) if response.ok && is_still_running(&response) => {
                link.request_for(&self.inbox, "agent.wait", wait(&self.handle.run_id));
            }
            Heard::Response(response) => {
                self.is_heard();
                if response.ok && !self.handle.accepted {
                    self.handle.accepted = true;
                    self.attach();
                }
                if response.ok && response.status() == "in_flight" {
                    // Its last response went to the lost connection.
                    link.request_for(&self.inbox, "agent.wait", wait(&self.handle.run_id));
                }
                self.awaits_result &= response.is_interim();
                self.reader.response(&response, &mut self.batch);
            }
        }
    }

    fn is_heard(&mut self) {
        self.heard_at = Instant::now();
        self.reconnects = 0;
    }

    async fn ended(&mut self, end: End, link: &Arc<Link>) -> Result<Phase, ModelError> {
        let stop = match end {
            End::Failed { kind, message } => return Err(self.shared.error(kind, &message)),
            // We did not abort it: an incomplete answer is not a success.
            End::Aborted => {
                let what = "was aborted at the gateway by another client";
                return Err(self.shared.error(FailureKind::Lost, what));
            }
            End::Finished { stop } => {
                self.settle(link).await;
                stop
            }
        };
        self.leave();
        self.shared.circuit.note(None, Instant::now().into_std());
        self.batch.stop(stop, None);
        Ok(Phase::Done)
    }

    /// Waits for the last response, which has the usage. All text has arrived.
    async fn settle(&mut self, link: &Arc<Link>) {
        let signal = self.context.signal().clone();
        let deadline = tokio::time::Instant::now() + SETTLE_TIME;
        while self.awaits_result {
            tokio::select! {
                biased;
                () = signal.cancelled() => return,
                heard = self.inbox.next() => self.hear(heard, link),
                () = link.lost() => return,
                () = tokio::time::sleep_until(deadline) => return,
            }
        }
    }

    /// Asks the gateway to stop the run; `false` if the request may not have arrived.
    async fn abort(&self, link: &Link) -> bool {
        let Handle { session_key, run_id, .. } = &self.handle;
        let asked = link.request("chat.abort", Abort { session_key, run_id }.params());
        match tokio::time::timeout(ABORT_TIME, asked).await {
            Ok(Some(Response { ok: true, .. })) => true,
            _ => {
                tracing::warn!(agent = &*self.shared.name, "the run could not be aborted");
                false
            }
        }
    }

    /// Stops the run at the gateway, and reads its last events.
    async fn cancelled(&mut self) -> Phase {
        // The connection may already be lost without our noticing.
        let mut link = self.link_to_abort().await;
        if let Some(lost) = &link
            && !self.abort(lost).await
        {
            link = self.link_to_abort().await;
            if let Some(link) = &link {
                self.abort(link).await;
            }
        }
        if let Some(link) = link {
            while let Some(heard) = self.inbox.pop() {
                self.hear(heard, &link);
            }
        }
        self.leave();
        self.reader.close(&mut self.batch);
        self.batch.stop(Stop::Other("cancelled".into()), None);
        Phase::Done
    }

    /// The connection over which a cancelled run is aborted. A lost connection is reopened, because
    /// the gateway would otherwise continue the run.
    async fn link_to_abort(&mut self) -> Option<Arc<Link>> {
        if !self.prompted {
            return None;
        }
        if self.link.as_ref().is_none_or(|link| link.is_closed()) {
            let link = tokio::time::timeout(ABORT_TIME, self.shared.link()).await;
            let link = link.ok()?.ok()?;
            link.register(&self.handle.run_id, &self.inbox);
            self.link = Some(link);
        }
        self.link.clone()
    }

    /// Releases the slot on the connection.
    fn leave(&mut self) {
        if let Some(link) = self.link.take() {
            link.unregister(&self.handle.run_id);
        }
        self.place = None;
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.leave();
    }
}

fn wait(run_id: &str) -> Value {
    json!({"runId": run_id, "timeoutMs": WAIT_TIME.as_millis()})
}

/// The text of a prompt. The gateway requires one.
fn message(input: &[Content]) -> String {
    let texts = input.iter().filter_map(|content| match content {
        Content::Text(text) => Some(text.to_string()),
        Content::Link { uri, .. } => Some(uri.to_string()),
        Content::Resource { uri, text, .. } => Some(format!("{uri}:\n{text}")),
        Content::Media { source: MediaSource::Url(url), .. } => Some(url.to_string()),
        Content::Media { source: MediaSource::Data(_), .. } => None,
    });
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    if texts.is_empty() { "(see the attachment)".into() } else { texts.join("\n\n") }
}

fn attachments(input: &[Content]) -> Vec<Value> {
    let attachments = input.iter().filter_map(|content| match content {
        Content::Media { media_type, source: MediaSource::Data(data), name } => {
            Some(Prompt::attachment(media_type, name.as_deref(), data))
        }
        Content::Media { .. }
        | Content::Text(_)
        | Content::Link { .. }
        | Content::Resource { .. } => None,
    });
    attachments.collect()
}

/// The id of the run after another one. It is derived from the handle, so that a prompt that is
/// repeated after a crash has the same id.
fn following(request: &RemoteRequest, run_id: &str) -> Box<str> {
    let number = run_id.strip_prefix(&format!("{}-", request.run));
    let number = number.and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    format!("{}-{}", request.run, number.saturating_add(1)).into()
}
