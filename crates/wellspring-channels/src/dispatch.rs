//! Answers messages, for any agent and any channel.

#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::Engine as _;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use wellspring_core::{
    CancelWhen, Content, MediaSource, Millis, Outcome, PartKind, RunId, RunRequest, Seq, Transcript,
};
use wellspring_engine::{
    ClientId, ControlError, InThread, RequestKey, StartError, StartKey, StartRun,
};
use wellspring_log::document::segment;
use wellspring_log::{AppendError, Expected, RunState, StoreError};
use wellspring_wire::stream_delta::StreamDelta;

use crate::channel::{Body, ChatKind, File, StreamSender};
use crate::incoming::{Incoming, IncomingFile, What};
use crate::instance::{Entry, Instance, Live, WhenBusy};
use crate::schedule::PostState;
use crate::state::{AnswerState, ChatState, Message, NOTES_MAX, answer_key};
use crate::view::{Reader, ThinkingMode, note};

/// Maximum size of a file in a message: it is stored in the run's first record.
pub const INCOMING_FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum total size of the files of one request. A request is one record of its run: encoded,
/// the files are a third larger, and stores accept 16 MiB.
const REQUEST_FILES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum number of files per message. Networks allow about ten.
const FILES_MAX: usize = 10;

/// Maximum number of files per answer.
const PRODUCED_FILES_MAX: usize = 20;

/// How long to wait before a failed read of a run is retried.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A message could not be stored; the network should deliver it again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IncomingError {
    /// The chat's state could not be read or stored.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The run could not be started.
    #[error(transparent)]
    Start(StartError),
    /// The bot has stopped, and nothing was stored.
    #[error("the bot has stopped")]
    Stopped,
}

/// How an answer is shown in the chat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum How {
    /// Step by step, if the bot is configured to stream.
    AsConfigured,
    /// Only when it is finished. Used for an answer to messages that waited for another answer.
    InOnePiece,
}

/// A person's settings.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct UserSettings {
    #[serde(default)]
    thinking: ThinkingMode,
}

impl Instance {
    /// Handles a message or a press from the network. When it returns, everything is durable and
    /// the delivery can be acknowledged. A second delivery changes nothing.
    ///
    /// # Errors
    ///
    /// If it could not be stored. The network should deliver it again.
    pub async fn incoming(&self, incoming: Incoming) -> Result<(), IncomingError> {
        let chat = incoming.chat.clone();
        let taken = self.take_in(incoming).await;
        self.forget_if_idle(&chat);
        taken
    }

    async fn take_in(&self, incoming: Incoming) -> Result<(), IncomingError> {
        self.inner.metrics.received();
        let thinking = self.settings(&incoming.user.id).await?.thinking;
        let language = incoming.user.language.unwrap_or(self.inner.config.language);
        let reader = Reader { language, thinking };
        if !self.may_use(&incoming).await? {
            return self.stranger(&incoming, reader).await;
        }
        let mut entry = self.entry(&incoming.chat).await?;
        entry.state.chat = Some(incoming.chat.clone());
        entry.state.kind = incoming.kind;
        if !entry.state.is_new(&incoming.id) {
            return Ok(());
        }
        if entry.state.is_idle() {
            let streams = self.inner.config.stream;
            self.set_live(&incoming.chat, Live { kind: incoming.kind, reader, streams });
        }
        let taken = self.take_new(&incoming, reader, &mut entry).await;
        if taken.is_err() {
            // The next delivery is not a repetition.
            entry.state.forget(&incoming.id);
        }
        taken?;
        if self.keep(&incoming.chat, &mut entry).await {
            Ok(())
        } else {
            Err(IncomingError::Stopped)
        }
    }

    /// Handles what was not seen before. The caller stores the chat's state.
    async fn take_new(
        &self,
        incoming: &Incoming,
        reader: Reader,
        entry: &mut Entry,
    ) -> Result<(), IncomingError> {
        match incoming.what.clone() {
            What::Press { press, data } => {
                let says = self.pressed(incoming, reader.language, &data).await?;
                if let Err(error) = self.inner.channel.acknowledge(&press, says).await {
                    tracing::debug!(%error, "a press could not be confirmed");
                }
            }
            What::Message { message, text, files } => {
                let mark = self.capabilities().command;
                let command = text.strip_prefix(mark).map(|it| it.split_whitespace());
                if let Some(mut words) = command
                    && files.is_empty()
                {
                    // In groups, a command may name its bot: /stop@my_bot.
                    let name = words.next().unwrap_or_default();
                    let name = name.split('@').next().unwrap_or_default().to_lowercase();
                    let argument = words.next().map(str::to_lowercase);
                    let said = self.command(incoming, reader, &name, argument.as_deref(), entry);
                    if let Some(text) = said.await? {
                        self.say(incoming, &message, &text, entry);
                        return Ok(());
                    }
                }
                if self.fill_in(incoming, reader.language, &text, &message, entry).await? {
                    return Ok(());
                }
                let files = files.into_iter().take(FILES_MAX).collect();
                let (topic, user) = (incoming.topic.clone(), incoming.user.id.clone());
                let message = Message { message, topic, user, reader, text, files };
                self.take(incoming, message, entry).await?;
            }
        }
        Ok(())
    }

    /// Sends a code to a person who may not use the bot, in a direct chat only.
    async fn stranger(&self, incoming: &Incoming, reader: Reader) -> Result<(), IncomingError> {
        self.inner.metrics.refused();
        match &incoming.what {
            What::Press { press, data } => {
                if let Some((run, question, _)) = crate::questions::read_data(data) {
                    let control = self.control_of(&incoming.user.id);
                    match control.audit_refusal(run, question).await {
                        Ok(()) | Err(ControlError::NoRun(_)) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                let says = reader.language.not_yours();
                if let Err(error) = self.inner.channel.acknowledge(press, says).await {
                    tracing::debug!(%error, "a press could not be confirmed");
                }
            }
            What::Message { message, .. } if incoming.kind == ChatKind::Direct => {
                let Some(code) = self.pairing_code(incoming).await? else { return Ok(()) };
                let mut entry = self.entry(&incoming.chat).await?;
                entry.state.chat = Some(incoming.chat.clone());
                if entry.state.is_new(&incoming.id) {
                    let live = Live { kind: incoming.kind, reader, streams: false };
                    self.set_live(&incoming.chat, live);
                    let text = format!("{} {code}", reader.language.not_allowed());
                    self.say(incoming, message, &text, &mut entry);
                    if !self.keep(&incoming.chat, &mut entry).await {
                        return Err(IncomingError::Stopped);
                    }
                }
            }
            What::Message { .. } => {}
        }
        Ok(())
    }

    /// Sends one of the bot's own messages.
    pub(crate) fn say(&self, incoming: &Incoming, reply_to: &str, text: &str, entry: &mut Entry) {
        self.say_in(&incoming.chat, incoming.topic.as_deref(), reply_to, text, entry);
    }

    /// Sends one of the bot's own messages to a chat. If too many of them wait already, the message
    /// is dropped: people can write faster than the network lets the bot respond.
    fn say_in(
        &self,
        chat: &str,
        topic: Option<&str>,
        reply_to: &str,
        text: &str,
        entry: &mut Entry,
    ) {
        if entry.state.notes.len() >= NOTES_MAX {
            tracing::debug!(chat, "too much is still to be said in a chat");
            return;
        }
        let key: Box<str> = format!("note:{}", Uuid::now_v7()).into();
        entry.state.notes.insert(key.clone(), text.into());
        let state = PostState {
            key: key.clone(),
            reply_to: Some(reply_to.into()),
            topic: topic.map(Into::into),
            ..PostState::default()
        };
        self.open(chat, state);
        self.want(chat, &key, note(text, self.capabilities()), true);
    }

    /// A text with commands in this network's form.
    fn with_mark(&self, text: &str) -> String {
        text.replace(" /", &format!(" {}", self.capabilities().command))
    }

    async fn settings(&self, user: &str) -> Result<UserSettings, ControlError> {
        let document = self.inner.documents.get(&format!("user/{}", segment(user))).await?;
        let read = document.and_then(|document| serde_json::from_str(&document.text).ok());
        Ok(read.unwrap_or_default())
    }

    /// Executes a command; `None` if the text is not a command.
    async fn command(
        &self,
        incoming: &Incoming,
        reader: Reader,
        name: &str,
        argument: Option<&str>,
        entry: &mut Entry,
    ) -> Result<Option<String>, ControlError> {
        let language = reader.language;
        Ok(Some(match name {
            "start" | "help" => self.with_mark(language.help()),
            "stop" => match entry.state.active().map(|active| active.run) {
                Some(run) => {
                    entry.state.form = None;
                    let control = self.control_of(&incoming.user.id);
                    entry.state.waiting.clear();
                    match control.cancel(run, CancelWhen::Now, Some("/stop")).await {
                        Ok(_) | Err(ControlError::Finished(_)) => language.stopping().to_owned(),
                        Err(error) => return Err(error),
                    }
                }
                None => language.nothing_to_stop().to_owned(),
            },
            "new" => {
                entry.state.generation += 1;
                language.new_thread().to_owned()
            }
            "agent" => {
                let agents = self.inner.runtime.agents();
                let names: Vec<&str> = agents.iter().map(|agent| &*agent.name).collect();
                match argument {
                    None => format!("{} {}", language.agents(), names.join(", ")),
                    Some(wanted) => match names.iter().find(|it| it.to_lowercase() == wanted) {
                        Some(found) => {
                            entry.state.agent = Some((*found).into());
                            format!("{} {found}.", language.agent_now())
                        }
                        None => format!(
                            "{} {wanted}. {} {}",
                            language.no_agent(),
                            language.agents(),
                            names.join(", ")
                        ),
                    },
                }
            }
            "thinking" => match argument.and_then(ThinkingMode::of_word) {
                Some(thinking) => {
                    let text =
                        serde_json::to_string(&UserSettings { thinking }).unwrap_or_default();
                    let name = format!("user/{}", segment(&incoming.user.id));
                    self.inner.documents.put(&name, Some(&text), Expected::Anything).await?;
                    format!("{} {}.", language.thinking_now(), argument.unwrap_or_default())
                }
                None => self.with_mark(language.thinking_usage()),
            },
            _ => return Ok(None),
        }))
    }

    /// Answers a message, or queues it.
    async fn take(
        &self,
        incoming: &Incoming,
        message: Message,
        entry: &mut Entry,
    ) -> Result<(), IncomingError> {
        let Some(active) = entry.state.active() else {
            let how = How::AsConfigured;
            return self.begin(&incoming.chat, vec![message], how, entry).await;
        };
        let run = active.run;
        let control = self.control_of(&message.user);
        if self.inner.control.info(run).await?.state == RunState::Paused {
            // The run waits for an answer, but the person continues with something else.
            match control.cancel(run, CancelWhen::Now, Some("superseded")).await {
                Ok(_) | Err(ControlError::Finished(_)) => {}
                Err(error) => return Err(error.into()),
            }
        } else if self.inner.config.when_busy == WhenBusy::Steer {
            let content = self.content(std::slice::from_ref(&message)).await;
            let key = RequestKey::Named(incoming.id.clone());
            match control.add_input(run, key, content).await {
                Ok(_) => return Ok(()),
                // Then it becomes the next request.
                Err(ControlError::Finished(_) | ControlError::NoInput { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if entry.state.has_room_for(&message) {
            entry.state.waiting.push(message);
        } else {
            let text = message.reader.language.too_many();
            self.say(incoming, &message.message, text, entry);
        }
        Ok(())
    }

    /// Starts the run that answers messages. The network's id of the last one is the
    /// idempotency key, so that a second delivery does not start another run.
    async fn begin(
        &self,
        chat: &str,
        messages: Vec<Message>,
        how: How,
        entry: &mut Entry,
    ) -> Result<(), IncomingError> {
        let Some(last) = messages.last().cloned() else { return Ok(()) };
        let config = &self.inner.config;
        let agent = entry.state.agent.clone().unwrap_or_else(|| config.agent.clone());
        let content = self.content(&messages).await;
        let control = self.control_of(&last.user);
        let topic = last.topic.as_deref().unwrap_or_default();
        let generation = entry.state.generation;
        let thread = format!("{}/{chat}/{topic}/{generation}", config.name);
        let id = format!("{}/{chat}/{}", config.name, last.message);
        let trace_id = Uuid::now_v7().simple().to_string();
        let request =
            RunRequest { input: content, trace_id: Some(trace_id.into()), ..RunRequest::default() };
        let start = StartRun {
            thread: Some(control.thread(&ClientId::new("channel.thread", thread))),
            in_thread: InThread::Any,
            key: Some(StartKey::Client(ClientId::new("channel.message", id))),
            ..StartRun::new(&*agent, request)
        };
        let streams = config.stream && how == How::AsConfigured;
        self.set_live(chat, Live { kind: entry.state.kind, reader: last.reader, streams });
        self.start_typing(chat, last.topic.as_deref());
        match control.start(start).await {
            Ok(started) => {
                let answer = AnswerState {
                    run: started.run,
                    reply_to: last.message,
                    topic: last.topic,
                    user: last.user,
                    reader: last.reader,
                    streams,
                    finished: false,
                    delivered: Vec::new(),
                };
                entry.state.answers.push(answer.clone());
                self.inner.tasks.spawn(self.clone().follow_boxed(chat.into(), answer));
            }
            // The store failed: the network delivers the message again.
            Err(error @ StartError::Log(_)) if !is_too_large(&error) => {
                self.pause_typing(chat);
                return Err(IncomingError::Start(error));
            }
            Err(error) => {
                self.pause_typing(chat);
                let text = format!("{} {error}", last.reader.language.not_started());
                self.say_in(chat, last.topic.as_deref(), &last.message, &text, entry);
            }
        }
        Ok(())
    }

    /// The content of messages, with their files.
    async fn content(&self, messages: &[Message]) -> Vec<Content> {
        let mut content = Vec::new();
        let mut room = REQUEST_FILES_BYTES_MAX;
        for message in messages {
            if !message.text.trim().is_empty() {
                content.push(Content::Text(message.text.clone()));
            }
            for file in &message.files {
                content.push(self.file(file, &mut room).await);
            }
        }
        if content.is_empty() {
            content.push(Content::text(""));
        }
        content
    }

    /// Fetches a file, if it fits into `room`.
    async fn file(&self, file: &IncomingFile, room: &mut usize) -> Content {
        let bytes_max = INCOMING_FILE_BYTES_MAX.min(*room);
        match self.inner.channel.download(&file.id, bytes_max).await {
            Ok(bytes) => {
                *room -= bytes.len().min(*room);
                let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
                Content::Media {
                    media_type: file.media_type.clone(),
                    source: MediaSource::Data(data.into()),
                    name: file.name.clone(),
                }
            }
            Err(error) => {
                // The agent gets a note, and can mention it.
                tracing::warn!(%error, "a file that someone sent could not be fetched");
                let name = file.name.as_deref().unwrap_or("a file");
                Content::text(format!("[{name} was sent but could not be fetched: {error}]"))
            }
        }
    }

    /// Resumes a chat after a restart.
    pub(crate) fn resume(&self, chat: &str, state: &ChatState) {
        for (key, text) in &state.notes {
            self.want(chat, key, note(text, self.capabilities()), true);
        }
        for answer in &state.answers {
            let (kind, reader, streams) = (state.kind, answer.reader, answer.streams);
            self.set_live(chat, Live { kind, reader, streams });
            self.inner.tasks.spawn(self.clone().follow_boxed(chat.into(), answer.clone()));
        }
        if state.answers.is_empty() && !state.waiting.is_empty() {
            let (this, chat) = (self.clone(), Box::<str>::from(chat));
            self.inner.tasks.spawn(async move { this.next_message(&chat).await });
        }
    }

    /// [`follow`](Self::follow) starts the next answer, which is followed in turn.
    fn follow_boxed(self, chat: Box<str>, answer: AnswerState) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(chat, answer))
    }

    /// Shows a run in a chat until it ends: a view over a cursor. States that the chat has no
    /// capacity for are folded and never rendered.
    async fn follow(self, chat: Box<str>, answer: AnswerState) {
        let since = self.now();
        let key = answer_key(&answer.reply_to);
        let stopping = self.inner.stopping.clone();
        let is_new = !answer.delivered.contains(&key);
        let mut sender = is_new.then(|| {
            let (reply_to, topic) = (Some(&*answer.reply_to), answer.topic.as_deref());
            self.inner.channel.create_stream_sender(&self, &chat, reply_to, topic)
        });
        let mut transcript = Transcript::default();
        let mut position = Seq(0);
        let mut changed = false;
        'attach: while transcript.outcome.is_none() {
            let mut cursor = match self.inner.control.attach(answer.run, position).await {
                Ok(cursor) => cursor,
                Err(ControlError::NoRun(_)) => break,
                Err(error) => {
                    tracing::warn!(run = %answer.run, %error, "a run cannot be read; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(READ_AGAIN) => continue,
                        () = stopping.cancelled() => return,
                    }
                }
            };
            loop {
                let due = if changed { self.preview_at(&chat, &key) } else { None };
                let wait = due.map(|due| due.since(self.now()));
                tokio::select! {
                    frames = cursor.next() => match frames {
                        Ok(Some(frames)) => {
                            for frame in &frames {
                                transcript.extend(frame.records());
                            }
                            position = cursor.position();
                            changed = true;
                            self.show_questions(&chat, &answer, &transcript).await;
                        }
                        Ok(None) => break 'attach,
                        Err(error) => {
                            tracing::warn!(run = %answer.run, %error, "reading a run failed");
                            tokio::time::sleep(READ_AGAIN).await;
                            continue 'attach;
                        }
                    },
                    () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                        changed = false;
                        if let Some(sender) = &mut sender {
                            self.show(&chat, &mut **sender, &transcript);
                        }
                    }
                    () = stopping.cancelled() => return,
                }
            }
        }
        self.pause_typing(&chat);
        if let Some(sender) = &mut sender {
            finish(&mut **sender, &transcript);
        }
        self.show_files(&chat, &answer, &transcript);
        self.log_trigger(&chat, &answer, &transcript, since);
        match self.entry(&chat).await {
            Ok(mut entry) => {
                for it in &mut entry.state.answers {
                    it.finished |= it.run == answer.run;
                }
                if entry.state.form.as_ref().is_some_and(|form| form.run == answer.run) {
                    entry.state.form = None;
                }
                self.keep(&chat, &mut entry).await;
            }
            Err(error) => tracing::error!(%chat, %error, "failed to read the state of a chat"),
        }
        self.next_message(&chat).await;
        self.forget_if_idle(&chat);
    }

    /// Shows the current state of an answer.
    fn show(&self, chat: &str, sender: &mut dyn StreamSender, transcript: &Transcript) {
        let tool = running_tool(transcript).filter(|_| self.inner.config.show_tools);
        let delta = StreamDelta::of(transcript, self.now());
        if tool.is_none() && delta.is_none() {
            return;
        }
        self.pause_typing(chat);
        sender.on_tool(tool.as_deref());
        match &delta {
            Some(delta @ StreamDelta::Thinking { .. }) => sender.on_thinking_delta(delta),
            Some(delta @ StreamDelta::Content { .. }) => sender.on_content_delta(delta),
            // The end is shown when the run has ended.
            Some(StreamDelta::Final { .. } | StreamDelta::Error { .. }) | None => {}
        }
    }

    fn show_files(&self, chat: &str, answer: &AnswerState, transcript: &Transcript) {
        for (index, file) in transcript.files.iter().take(PRODUCED_FILES_MAX).enumerate() {
            let key: Box<str> = format!("file:{}:{index}", answer.run).into();
            if answer.delivered.contains(&key) {
                continue;
            }
            let state =
                PostState { key: key.clone(), topic: answer.topic.clone(), ..PostState::default() };
            let name = file.name.clone().unwrap_or_else(|| format!("file-{}", index + 1).into());
            let (media_type, source) = (file.media_type.clone(), file.source.clone());
            let body = Body {
                texts: vec![String::new()],
                file: Some(File { name, media_type, source }),
                shows_words: true,
                ..Body::default()
            };
            self.open(chat, state);
            self.want(chat, &key, vec![body], true);
        }
    }

    /// Logs the person, and the duration of the answer.
    fn log_trigger(
        &self,
        chat: &str,
        answer: &AnswerState,
        transcript: &Transcript,
        since: Millis,
    ) {
        let started = transcript.started.as_ref();
        let trace_id = started.and_then(|it| it.request.trace_id.as_deref()).unwrap_or_default();
        let provider = started.map_or("", |it| &*it.agent);
        let duration_ms = u64::try_from(self.now().since(since).as_millis()).unwrap_or(u64::MAX);
        let outcome = transcript.outcome.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::info!(
            target: "wellspring::channels",
            bot = &*self.inner.config.name, chat, run = %answer.run, trace_id, duration_ms, provider,
            streamed = answer.streams, outcome, "answered"
        );
    }

    /// Answers the messages that have waited for the answer.
    async fn next_message(&self, chat: &str) {
        let mut entry = match self.entry(chat).await {
            Ok(entry) => entry,
            Err(error) => {
                tracing::error!(chat, %error, "failed to read the state of a chat");
                return;
            }
        };
        if entry.state.active().is_some() || entry.state.waiting.is_empty() {
            return;
        }
        let (many, how) = match self.inner.config.when_busy {
            WhenBusy::Queue => (1, How::AsConfigured),
            WhenBusy::Accumulate | WhenBusy::Steer => (entry.state.waiting.len(), How::InOnePiece),
        };
        let messages: Vec<Message> = entry.state.waiting.drain(..many).collect();
        let began = self.begin(chat, messages.clone(), how, &mut entry).await;
        if let Err(error) = began {
            tracing::error!(chat, %error, "could not answer a message that waited; it still waits");
            entry.state.waiting.splice(..0, messages);
        }
        self.keep(chat, &mut entry).await;
    }

    /// The run that is being answered in a chat, for tests and tools.
    ///
    /// # Errors
    ///
    /// If the chat's state cannot be read.
    pub async fn active_run(&self, chat: &str) -> Result<Option<RunId>, ControlError> {
        let active = self.entry(chat).await?.state.active().map(|active| active.run);
        self.forget_if_idle(chat);
        Ok(active)
    }
}

/// Whether the start failed because the request is too large for the store. Such a request can
/// never be stored. If the network delivered it again, it would block later messages for ever.
fn is_too_large(error: &StartError) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |it| it.source());
    let store = causes.find_map(|cause| cause.downcast_ref());
    let Some(StoreError::Failed { cause, .. }) = store else { return false };
    matches!(cause.downcast_ref(), Some(AppendError::TooLarge { .. }))
}

/// The end of an answer.
fn finish(sender: &mut dyn StreamSender, transcript: &Transcript) {
    sender.on_tool(None);
    let at = transcript.updated_at;
    let Some(delta) = StreamDelta::of(transcript, at) else { return sender.abort() };
    // The text so far, before the reason why the answer is incomplete.
    let mut unfinished = transcript.clone();
    unfinished.outcome = None;
    let so_far = StreamDelta::of(&unfinished, at);
    match &transcript.outcome {
        Some(Outcome::Completed { .. }) => sender.on_final(&delta),
        Some(Outcome::Cancelled { .. }) => {
            so_far.iter().for_each(|delta| sender.on_content_delta(delta));
            sender.abort();
        }
        Some(Outcome::Failed { .. }) => {
            so_far.iter().for_each(|delta| sender.on_content_delta(delta));
            sender.on_error(&delta);
        }
        None => sender.abort(),
    }
}

/// The title of the running tool; the last one if there are several.
fn running_tool(transcript: &Transcript) -> Option<String> {
    transcript.parts.values().rev().find_map(|part| {
        let call = part.call.as_ref().filter(|call| call.started && call.finished.is_none())?;
        match &part.kind {
            PartKind::ToolCall(tool) => {
                let title = call.title.as_deref().or(tool.title.as_deref());
                Some(title.unwrap_or(&tool.name).to_owned())
            }
            PartKind::Text { .. }
            | PartKind::Thought
            | PartKind::Output { .. }
            | PartKind::Opaque(_) => None,
        }
    })
}
