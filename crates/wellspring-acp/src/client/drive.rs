//! Drives one run: opens or finds the session, prompts it, and handles messages until the answer.
//!
//! All of it happens while the run's stream is polled, so dropping the stream leaves
//! nothing behind. A question is asked only after the call that it is about has been yielded.

use std::iter;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use wellspring_core::{
    AgentNo, Answer, Ask, Batch, Context, Event, ModelError, QuestionId, RETURN_RESULT,
    RemoteRequest, Stop,
};
use wellspring_mcp::{ElicitReply, Elicitation};
use wellspring_wire::acp::{ORIGIN, OurTools, Permission, Reader, elicitation_response, merge};

use super::agent::Shared;
use super::config::FileAccess;
use super::connection::Incoming;
use super::error::AcpError;
use super::host::{Host, Hosted, Written};
use super::permission;
use super::prompt::{self, Before};
use super::running_agent::Serving;
use super::session::{Link, Opened, Session};
use super::terminal::{Terminals, Wrote};
use super::tools::SERVER_NAME;
use crate::rpc::{Request, RpcError};

/// How often an agent that stopped without its typed result is asked for it.
pub const REMINDERS_MAX: u32 = 3;

/// Requests of an agent that are handled at the same time; further ones are refused.
pub const SERVED_MAX: usize = 64;

/// The log's name for an agent's answer to `session/new`.
pub(crate) const SESSION_OPENED: &str = "session/new";

/// The log's name for an agent's answer to a prompt, if it holds more than we
/// understand.
pub(crate) const PROMPTED: &str = "session/prompt";

/// Bytes of text that are read before they are yielded.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// A run in progress.
pub(super) struct Drive {
    shared: Arc<Shared>,
    host: Option<Arc<dyn Host>>,
    request: Arc<RemoteRequest>,
    context: Context,
    batch: Batch,
    phase: Phase,
}

enum Phase {
    Start,
    /// The session is in the log; now it can be prompted.
    Ready(Box<Prompting>, Before),
    Prompting(Box<Prompting>),
    /// What was read before is yielded first.
    Failed(AcpError),
    Done,
}

impl Drive {
    pub(super) fn new(
        shared: Arc<Shared>,
        host: Option<Arc<dyn Host>>,
        request: RemoteRequest,
        context: Context,
    ) -> Self {
        let request = Arc::new(request);
        Self { shared, host, request, context, batch: Batch::default(), phase: Phase::Start }
    }

    /// The next batch of the run.
    pub(super) async fn next(&mut self) -> Option<Result<Batch, ModelError>> {
        loop {
            if !self.batch.is_empty() {
                return Some(Ok(self.batch.take()));
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Done);
            let went = match phase {
                Phase::Done => return None,
                Phase::Failed(error) => return Some(Err(error.of(&self.shared.name))),
                Phase::Start => self.start().await,
                Phase::Ready(prompting, before) => self.prompt(prompting, before).await,
                Phase::Prompting(mut prompting) => match prompting.step(&mut self.batch).await {
                    Ok(Step::On) => Ok(Phase::Prompting(prompting)),
                    Ok(Step::Over) => {
                        prompting.finish(&self.shared);
                        Ok(Phase::Done)
                    }
                    Err(error) => {
                        prompting.reader.close(&mut self.batch);
                        Err(error)
                    }
                },
            };
            self.phase = went.unwrap_or_else(|error| {
                // An outcome cannot hold everything that an agent says.
                if let Some(said) = error.said() {
                    self.batch.extended(ORIGIN, PROMPTED, json!({"error": said}));
                }
                Phase::Failed(error)
            });
        }
    }

    async fn start(&mut self) -> Result<Phase, AcpError> {
        let signal = self.context.signal().clone();
        let (Opened { session, before, note, said }, serving) = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled()),
            opened = self.shared.session(&self.request, self.host.as_deref()) => opened?,
        };
        if let Some(host) = &self.host {
            host.opened(Arc::clone(&session.link));
        }
        if self.request.attached.is_some() && before == Before::New {
            return Err(AcpError::Lost(
                "the agent's work ended with the process that drove it, and the agent cannot \
                 continue a session; ask again",
            ));
        }
        let handle = Box::new(session.handle());
        self.batch.event(Event::Attached { origin: self.shared.name.clone(), handle });
        if let Some(note) = note {
            let value = json!({"session": session.link.id, "note": note});
            self.batch.extended(ORIGIN, "session", value);
        }
        let mut prompting = Prompting::new(session, serving, self);
        prompting.offers = said["modes"].is_object() || said["configOptions"].is_array();
        Ok(Phase::Ready(Box::new(prompting), before))
    }

    async fn prompt(
        &mut self,
        mut prompting: Box<Prompting>,
        before: Before,
    ) -> Result<Phase, AcpError> {
        prompting.show_tools(&mut self.batch).await?;
        if self.context.signal().is_cancelled() {
            return Ok(self.cancelled());
        }
        let prompted = prompting.host.as_ref().and_then(|host| {
            host.prompted(&self.request.request.input).filter(|_| self.request.attached.is_none())
        });
        let prompted = prompted.as_deref();
        let own_words = prompted.map(|it| &*it.blocks).unwrap_or_default();
        let peer = &prompting.session()?.link.peer;
        let prompt = || prompt::prompt(&self.request, before, peer, own_words);
        let blocks = match self.request.attached {
            Some(_) if has_spoken(&self.request) => prompt::go_on(),
            // The session was in the log before the agent was prompted, so it may not have been.
            Some(_) => iter::once(prompt::again()).chain(prompt()).collect(),
            None => prompt(),
        };
        prompting.catch_up(&mut self.batch).await?;
        prompting.apply_choices(&mut self.batch).await?;
        prompting.prompt(blocks, prompted.map(|it| &it.more)).await?;
        Ok(Phase::Prompting(prompting))
    }

    fn cancelled(&mut self) -> Phase {
        self.batch.stop(Stop::Other("cancelled".into()), None);
        Phase::Done
    }
}

/// Whether the log has anything of what the agent did for the request.
fn has_spoken(request: &RemoteRequest) -> bool {
    let root = request.so_far.as_ref().and_then(|so_far| so_far.agents.get(&AgentNo::ROOT));
    root.is_some_and(|root| !root.items.is_empty())
}

enum Step {
    On,
    Over,
}

/// A prompt in progress.
struct Prompting {
    /// `None` when the prompt has ended and the session is idle.
    session: Option<Session>,
    serving: Option<Serving>,
    shared: Arc<Shared>,
    request: Arc<RemoteRequest>,
    context: Context,
    reader: Reader,
    terminals: Terminals,
    /// The client whose files and terminals the agent uses, if there is one.
    host: Option<Hosted>,
    /// Questions about calls that are still in the batch.
    to_ask: Vec<(Request, Wanted)>,
    asking: FuturesUnordered<BoxFuture<'static, Asked>>,
    served: FuturesUnordered<BoxFuture<'static, Option<Written>>>,
    /// Whether to log what the agent offers.
    offers: bool,
    /// Whether the prompt is still without an answer.
    pending: bool,
    cancelling: bool,
    reminders: u32,
    heard_at: Instant,
    signs_of_life: usize,
    /// The calls of our tools that were known when the agent last spoke.
    calls_heard: usize,
}

/// A question of an agent to the user.
enum Wanted {
    Permission(Permission),
    Form(Elicitation),
}

/// An answer, and the question if a person was asked.
struct Asked {
    request: Request,
    wanted: Wanted,
    answer: Answer,
    question: Option<QuestionId>,
}

impl Prompting {
    fn new(session: Session, serving: Serving, drive: &Drive) -> Self {
        let Drive { shared, host, request, context, .. } = drive;
        let names = request.tools.iter().map(|tool| tool.spec().name.clone());
        Self {
            session: Some(session),
            serving: Some(serving),
            shared: Arc::clone(shared),
            request: Arc::clone(request),
            context: context.clone(),
            reader: Reader::new(OurTools::new(SERVER_NAME, names)),
            terminals: Terminals::new(),
            host: host.clone().map(Hosted::new),
            to_ask: Vec::new(),
            asking: FuturesUnordered::new(),
            served: FuturesUnordered::new(),
            offers: false,
            pending: false,
            cancelling: false,
            reminders: 0,
            heard_at: Instant::now(),
            signs_of_life: 0,
            calls_heard: 0,
        }
    }

    fn session(&self) -> Result<&Session, AcpError> {
        self.session.as_ref().ok_or(AcpError::Lost("the prompt has ended"))
    }

    /// Waits until the agent has listed our tools. If it does not in time, it is prompted
    /// anyway, since some agents list tools only when they need them.
    async fn show_tools(&mut self, batch: &mut Batch) -> Result<(), AcpError> {
        let Some(Session { queue, tools: Some(tools), link, .. }) = &mut self.session else {
            return Ok(());
        };
        tools.begin(&self.request.tools, self.context.clone());
        let mut seen = std::pin::pin!(tools.seen(self.shared.config.timeouts.tools));
        loop {
            tokio::select! {
                biased;
                () = self.context.signal().cancelled() => return Ok(()),
                _ = &mut seen => return Ok(()),
                incoming = queue.next() => match incoming {
                    Some(Incoming::Update(update)) => self.reader.update(update, batch),
                    Some(Incoming::Notification(method, params)) => {
                        batch.extended(ORIGIN, &method, params);
                    }
                    // Nothing was asked of it yet, so it has nothing to ask.
                    Some(Incoming::Request(_) | Incoming::Prompted(_)) => {}
                    None => return Err(ended(link.connection.ended())),
                },
            }
        }
    }

    /// Reads what the agent said before the first prompt, and reports what it offers.
    async fn catch_up(&mut self, batch: &mut Batch) -> Result<(), AcpError> {
        while let Some(message) = self.session.as_mut().and_then(|it| it.queue.next_now()) {
            self.take(message, batch).await?;
        }
        if std::mem::take(&mut self.offers) {
            batch.extended(ORIGIN, SESSION_OPENED, self.session()?.link.said());
        }
        Ok(())
    }

    /// Applies the user's choices among the agent's modes and options.
    async fn apply_choices(&mut self, batch: &mut Batch) -> Result<(), AcpError> {
        let choices = self.host.as_ref().map(Hosted::choices).unwrap_or_default();
        let Some(session) = &self.session else { return Ok(()) };
        for (option, value) in choices {
            let options = session.link.remind(&option, &value).await?;
            if let Some(options) = options {
                let name = "config_option_update";
                let update = json!({"sessionUpdate": name, "configOptions": options});
                batch.extended(ORIGIN, name, update);
            }
        }
        Ok(())
    }

    async fn prompt(&mut self, blocks: Vec<Value>, more: Option<&Value>) -> Result<(), AcpError> {
        self.pending = true;
        self.heard_at = Instant::now();
        let Link { id, connection, .. } = &*self.session()?.link;
        let mut params = json!({"sessionId": id, "prompt": blocks});
        if let Some(more) = more {
            merge(&mut params, more);
        }
        connection.prompt(id, params).await
    }

    /// Waits for the next thing to happen, and handles it.
    async fn step(&mut self, batch: &mut Batch) -> Result<Step, AcpError> {
        for (request, wanted) in std::mem::take(&mut self.to_ask) {
            self.asking.push(ask(self.context.clone(), request, wanted).boxed());
        }
        let silence = self.shared.config.timeouts.silence;
        let quiet = self.asking.is_empty() && self.served.is_empty() && !self.terminals.is_busy();
        let Some(session) = &mut self.session else { return Ok(Step::Over) };
        let incoming = tokio::select! {
            biased;
            () = self.context.signal().cancelled(), if !self.cancelling => {
                self.cancelling = true;
                let link = &session.link;
                link.connection.notify("session/cancel", &link.cancel()).await;
                return Ok(Step::On);
            }
            Some(asked) = self.asking.next() => {
                self.answer(asked).await;
                return Ok(Step::On);
            }
            Some(written) = self.served.next() => {
                self.heard_at = Instant::now();
                if let Some(Written { terminal, text }) = written {
                    self.reader.terminal_output(&terminal, &text, batch);
                    self.reader.terminal_over(&terminal, batch);
                }
                return Ok(Step::On);
            }
            wrote = self.terminals.wrote() => {
                self.heard_at = Instant::now();
                match wrote {
                    Wrote::Text(id, text) => self.reader.terminal_output(&id, &text, batch),
                    Wrote::Over(id) => self.reader.terminal_over(&id, batch),
                }
                return Ok(Step::On);
            }
            incoming = session.queue.next() => match incoming {
                Some(incoming) => incoming,
                None => return Err(ended(session.link.connection.ended())),
            },
            () = sleep_until(self.heard_at + silence), if quiet => {
                return self.still_there().map(|()| Step::On);
            }
        };
        self.heard_at = Instant::now();
        let mut incoming = Some(incoming);
        while let Some(message) = incoming {
            if let Step::Over = self.take(message, batch).await? {
                return Ok(Step::Over);
            }
            // Whatever follows a question is yielded after it is asked.
            let more = self.to_ask.is_empty() && batch.text_bytes() < BATCH_BYTES_MAX;
            let Some(session) = self.session.as_mut().filter(|_| more) else { break };
            incoming = session.queue.next_now();
        }
        Ok(Step::On)
    }

    /// Whether the agent was silent because our tools were running.
    fn still_there(&mut self) -> Result<(), AcpError> {
        let tools = self.session.as_ref().and_then(|session| session.tools.as_ref());
        let signs = tools.map_or(0, |tools| tools.signs_of_life());
        if tools.is_some_and(|tools| tools.is_busy()) || signs != self.signs_of_life {
            self.signs_of_life = signs;
            self.heard_at = Instant::now();
            return Ok(());
        }
        let limit = self.shared.config.timeouts.silence;
        Err(AcpError::TimedOut { what: "saying anything at all", limit })
    }

    async fn take(&mut self, incoming: Incoming, batch: &mut Batch) -> Result<Step, AcpError> {
        let tools = self.session.as_ref().and_then(|session| session.tools.as_ref());
        let calls = tools.map_or(0, |tools| tools.signs_of_life());
        if calls != self.calls_heard {
            self.calls_heard = calls;
            self.reader.pause(batch);
        }
        match incoming {
            Incoming::Update(update) => {
                if let Some(session) = &self.session {
                    session.link.track(&update);
                }
                self.reader.update(update, batch);
            }
            Incoming::Notification(method, params) => batch.extended(ORIGIN, &method, params),
            Incoming::Request(request) => self.serve(request, batch).await?,
            Incoming::Prompted(answer) => {
                self.pending = false;
                return self.prompted(answer, batch).await;
            }
        }
        Ok(Step::On)
    }

    async fn serve(&mut self, request: Request, batch: &mut Batch) -> Result<(), AcpError> {
        let files = self.session()?.files.clone();
        match &*request.method {
            "session/request_permission" => {
                let permission = self.reader.permission(&request.params, batch);
                if self.cancelling {
                    request.give(Ok(permission::cancelled().response(None))).await;
                } else if permission.our_tool {
                    request.give(Ok(permission::wave_through(&permission).response(None))).await;
                } else {
                    self.want(request, Wanted::Permission(permission)).await;
                }
            }
            "elicitation/create" if self.cancelling => {
                request.give(Ok(ElicitReply::Cancel.json())).await;
            }
            "elicitation/create" => match Elicitation::read(&request.params) {
                Some(form) => {
                    self.reader.elicitation(&request.params, batch);
                    self.want(request, Wanted::Form(form)).await;
                }
                None => request.give(Ok(ElicitReply::Decline.json())).await,
            },
            _ if self.served.len() >= SERVED_MAX => {
                request.give(Err(RpcError::failed("too many concurrent requests"))).await;
            }
            method if self.is_the_hosts(method) => {
                let terminal = request.params["terminalId"].as_str();
                let is_shown = terminal.is_some_and(|id| self.reader.has_shown(id));
                self.served.extend(self.host.as_ref().map(|host| host.serve(request, is_shown)));
            }
            "fs/read_text_file" => {
                let work = files.read(request.params.clone());
                self.served.push(give(request, work).boxed());
            }
            "fs/write_text_file" => {
                let work = files.write(request.params.clone());
                self.served.push(give(request, work).boxed());
            }
            method if method.starts_with("terminal/") && self.shared.config.terminals => {
                let work = self.terminals.serve(method, &request.params, &files);
                self.served.push(give(request, work).boxed());
            }
            method => {
                let unknown = RpcError::no_method(method);
                request.give(Err(unknown)).await;
            }
        }
        Ok(())
    }

    /// Whether a request goes to the client that we serve.
    fn is_the_hosts(&self, method: &str) -> bool {
        let config = &self.shared.config;
        let is_allowed = match method {
            "fs/read_text_file" => config.files != FileAccess::None,
            "fs/write_text_file" => config.files == FileAccess::Write,
            _ if method.starts_with('_') => true,
            _ => method.starts_with("terminal/") && config.terminals,
        };
        is_allowed && self.host.as_ref().is_some_and(|host| host.offers(method))
    }

    /// Queues a question; it is asked once everything before it is in the log.
    async fn want(&mut self, request: Request, wanted: Wanted) {
        if self.to_ask.len() + self.asking.len() >= SERVED_MAX {
            request.give(Err(RpcError::failed("too many concurrent questions"))).await;
        } else {
            self.to_ask.push((request, wanted));
        }
    }

    async fn answer(&mut self, asked: Asked) {
        self.heard_at = Instant::now();
        let Asked { request, wanted, answer, question } = asked;
        let host = self.host.as_ref();
        let said = question.and_then(|question| host?.answered(question, &answer));
        let told = match wanted {
            // The agent has withdrawn the request.
            _ if request.cancelled.is_cancelled() => Err(RpcError::cancelled()),
            Wanted::Permission(permission) => {
                let decided = permission::decide(&permission, &answer);
                if !decided.allowed {
                    self.reader.denied(&permission.call);
                }
                Ok(decided.response(said.as_ref()))
            }
            Wanted::Form(form) => {
                Ok(elicitation_response(form.reply(answer).json(), said.as_ref()))
            }
        };
        request.give(told).await;
    }

    /// Handles the answer to the prompt.
    async fn prompted(
        &mut self,
        answer: Result<Value, AcpError>,
        batch: &mut Batch,
    ) -> Result<Step, AcpError> {
        let response = match answer {
            Ok(response) => response,
            // Some agents report a cancel as an error.
            Err(AcpError::Answer { .. }) if self.cancelling => json!({"stopReason": "cancelled"}),
            Err(error) => return Err(error),
        };
        let tools = self.session.as_ref().and_then(|session| session.tools.as_ref());
        if let Some(tools) = tools.filter(|_| !self.cancelling) {
            // The tools have been listed by now, or never will be.
            tools.seen(std::time::Duration::ZERO).await?;
            let wanted = self.request.tools.iter().any(|it| &*it.spec().name == RETURN_RESULT);
            let forgotten = wanted && !tools.has_result() && response["stopReason"] == "end_turn";
            if forgotten && self.reminders < REMINDERS_MAX {
                self.reminders += 1;
                self.reader.turn(&response, batch);
                self.prompt(prompt::reminder(), None).await?;
                return Ok(Step::On);
            }
        }
        self.reader.end(&response, batch);
        Ok(Step::Over)
    }

    /// Keeps the session for the thread's next run.
    fn finish(mut self: Box<Self>, shared: &Shared) {
        if let Some(session) = self.session.take() {
            shared.keep(session);
        }
    }
}

impl Drop for Prompting {
    /// Cancels a prompt that is still active, or gives up its process.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let Some(tools) = &session.tools {
            tools.rest();
        }
        let Link { id, connection, .. } = &*session.link;
        if self.pending {
            connection.notify_now("session/cancel", &session.link.cancel());
        }
        connection.forget(id);
        if let Some(serving) = self.serving.take().filter(|_| self.pending) {
            serving.give_up();
        }
    }
}

async fn ask(context: Context, request: Request, wanted: Wanted) -> Asked {
    let (question, call) = match &wanted {
        Wanted::Permission(permission) => (permission::question(permission), permission.part),
        Wanted::Form(form) => (form.ask(str::to_owned), None),
    };
    let question: Ask = question.until(request.cancelled.clone());
    let asked_as = Arc::clone(&question.asked_as);
    let answer = match call {
        Some(call) => context.permit(call, question).await,
        None => context.ask(question).await,
    };
    Asked { request, wanted, answer, question: asked_as.get().copied() }
}

async fn give(
    request: Request,
    work: impl Future<Output = Result<Value, RpcError>>,
) -> Option<Written> {
    request.give_unless_cancelled(work).await;
    None
}

fn ended(error: Option<AcpError>) -> AcpError {
    error.unwrap_or(AcpError::Ended { status: None, last_words: "".into() })
}
