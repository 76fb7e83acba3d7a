//! The requests to JetStream.
//!
//! If no answer arrives, the outcome of a request is unknown. So a message is published again under
//! the same message id until the settle time has passed.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, RequestErrorKind, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::wire::{self, Incoming, Outgoing, SUM};
use crate::store::StoreError;

/// How long to wait for the answer to one request before it is repeated.
const ANSWER: Duration = Duration::from_secs(3);

/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// How long tombstones are kept. A node that is cut off for longer must be restarted.
pub(super) const TOMBSTONE_TTL: &str = "168h";

/// Error code: the subject's last sequence is not the expected one.
const WRONG_LAST_SEQUENCE: u64 = 10071;
/// Error code: the message does not exist.
const NO_MESSAGE: u64 = 10037;
/// Error code: the stream does not exist.
const NO_STREAM: u64 = 10059;
/// Error code: the stream has its maximum number of bytes or messages.
const STREAM_FULL: u64 = 10077;
/// Error codes of temporary errors: the leader changes, the last sequence is being decided, the
/// same message is being stored, too many batches are open.
const PASSING: [u64; 6] = [10008, 10164, 10158, 10210, 10211, 10176];

/// Maximum number of messages per read of frames.
pub(super) const READ_MESSAGES: usize = 256;

#[derive(Debug)]
pub(super) struct Api {
    pub(super) client: Client,
    pub(super) stream: Box<str>,
    /// See [`NATS_SETTLE`](super::NATS_SETTLE).
    pub(super) settle: Duration,
    /// Maximum size of the stream in bytes; `None` for no limit.
    pub(super) bytes_max: Option<u64>,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// The last sequence that the message's subject must have; `None` to skip the check.
    pub(super) expected: Option<u64>,
    /// Whether the message replaces all earlier messages of its subject.
    pub(super) replaces: bool,
    /// Whether the message expires after [`TOMBSTONE_TTL`].
    pub(super) expires: bool,
}

#[derive(Debug)]
pub(super) enum PublishError {
    /// The subject's last sequence is not the expected one.
    Conflict,
    Store(StoreError),
}

/// The last message of a subject.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) sequence: u64,
    pub(super) id: Option<Box<str>>,
}

/// A message of the stream.
#[derive(Debug)]
pub(super) struct Kept {
    /// The subject without the stream's name.
    pub(super) subject: String,
    pub(super) sum: Option<String>,
    pub(super) payload: Bytes,
    pub(super) sequence: u64,
}

impl Kept {
    pub(super) fn decode(&self) -> Result<Incoming, String> {
        wire::decode(&self.subject, self.sum.as_deref(), &self.payload)
    }
}

#[derive(Debug, Deserialize, thiserror::Error)]
#[error("{description} (code {err_code})")]
pub(super) struct ApiError {
    #[serde(default)]
    code: u64,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl ApiError {
    fn passes(&self) -> bool {
        self.code == 503 || self.code == 429 || PASSING.contains(&self.err_code)
    }
}

/// The cause of a failed request.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("the NATS server refused: {0}")]
    Refused(ApiError),
    #[error("the NATS server did not answer in time: {0}; check that it runs and can be reached")]
    NoAnswer(String),
    #[error("the NATS server answered something else: {0}")]
    Garbled(String),
}

impl AskError {
    pub(super) fn is_no_stream(&self) -> bool {
        matches!(self, Self::Refused(error) if error.err_code == NO_STREAM)
    }
}

fn failed(while_doing: &'static str) -> impl Fn(AskError) -> StoreError {
    move |error| StoreError::failed(while_doing, error)
}

impl Api {
    /// Sends a request to the JetStream API once.
    async fn ask_once<T: DeserializeOwned>(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<T, AskError> {
        let mut request = async_nats::Request::new().payload(payload).timeout(Some(ANSWER));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = match self.client.send_request(subject, request).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
                return Err(AskError::Garbled(
                    "the message is larger than the server takes".into(),
                ));
            }
            Err(error) => return Err(AskError::NoAnswer(error.to_string())),
        };
        let mut value: Value = serde_json::from_slice(&answer.payload)
            .map_err(|error| AskError::Garbled(error.to_string()))?;
        if let Some(error) = value.get_mut("error").map(Value::take) {
            let error = serde_json::from_value(error)
                .map_err(|error| AskError::Garbled(error.to_string()))?;
            return Err(AskError::Refused(error));
        }
        serde_json::from_value(value).map_err(|error| AskError::Garbled(error.to_string()))
    }

    /// Sends a request until it is answered or the settle time has passed.
    async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        payload: &Bytes,
    ) -> Result<T, AskError> {
        let until = Instant::now() + self.settle;
        loop {
            let asked = self.ask_once(subject.to_owned(), headers.cloned(), payload.clone()).await;
            let passes = match &asked {
                Ok(_) | Err(AskError::Garbled(_)) => false,
                Err(AskError::Refused(error)) => error.passes(),
                Err(AskError::NoAnswer(_)) => true,
            };
            if !passes || Instant::now() >= until {
                return asked;
            }
            sleep(PAUSE).await;
        }
    }

    async fn api<T: DeserializeOwned>(&self, what: &str, body: Value) -> Result<T, AskError> {
        let subject = format!("$JS.API.{what}.{}", self.stream);
        self.ask(&subject, None, &body.to_string().into()).await
    }

    pub(super) async fn stream_info(&self) -> Result<Value, AskError> {
        self.api("STREAM.INFO", json!({})).await
    }

    pub(super) async fn create_stream(&self, config: Value) -> Result<Value, AskError> {
        self.api("STREAM.CREATE", config).await
    }

    /// The stream's last sequence.
    pub(super) async fn last_sequence(&self) -> Result<u64, StoreError> {
        let info = self.stream_info().await.map_err(failed("asking for the stream's state"))?;
        info.pointer("/state/last_seq").and_then(Value::as_u64).ok_or_else(|| {
            StoreError::failed("asking for the stream's state", "there is no last sequence")
        })
    }

    /// Fails if nothing can be written now. Sends one request without repeating it, so that the
    /// answer arrives in time.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        if self.client.connection_state() != State::Connected {
            let cause = "there is no connection to any of its servers";
            return Err(StoreError::failed("reconnecting to NATS", cause));
        }
        let subject = format!("$JS.API.STREAM.INFO.{}", self.stream);
        let info: Value = self
            .ask_once(subject, None, Bytes::from_static(b"{}"))
            .await
            .map_err(failed("asking NATS for the stream's state"))?;
        // A server outside a cluster reports no cluster name.
        let cluster = info.get("cluster").filter(|cluster| cluster.get("name").is_some());
        let leader = cluster.and_then(|cluster| cluster.get("leader")?.as_str());
        if cluster.is_some() && leader.is_none_or(str::is_empty) {
            let cause = "too few of the servers that keep the stream are there";
            return Err(StoreError::failed("waiting for the stream to have a leader", cause));
        }
        Ok(())
    }

    /// Creates a consumer that pushes all messages from a sequence on.
    pub(super) async fn push_from(
        &self,
        sequence: u64,
        to: &str,
        heartbeat: Duration,
    ) -> Result<(), AskError> {
        let body = json!({
            "stream_name": self.stream,
            "config": {
                "deliver_subject": to,
                "ack_policy": "none",
                "max_deliver": 1,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": sequence,
                "replay_policy": "instant",
                "flow_control": true,
                "idle_heartbeat": u64::try_from(heartbeat.as_nanos()).unwrap_or(u64::MAX),
                "inactive_threshold": 30_000_000_000_u64,
                "mem_storage": true,
                "num_replicas": 1,
            },
        });
        let subject = format!("$JS.API.CONSUMER.CREATE.{}", self.stream);
        self.ask_once::<Value>(subject, None, body.to_string().into()).await.map(drop)
    }

    fn subject(&self, below: &str) -> String {
        format!("{}.{below}", self.stream)
    }

    /// Writes a message and returns its sequence.
    pub(super) async fn publish(&self, out: &Outgoing, how: How) -> Result<u64, PublishError> {
        let mut headers = headers(out, how.expected);
        headers.insert("Nats-Msg-Id", &*out.id);
        if how.replaces {
            headers.insert("Nats-Rollup", "sub");
        }
        if how.expires {
            headers.insert("Nats-TTL", TOMBSTONE_TTL);
        }
        let subject = self.subject(&out.subject);
        self.acknowledged(self.ask(&subject, Some(&headers), &out.payload).await)
    }

    /// Writes messages in one step, each with the last sequence that its subject must have. Returns
    /// the sequence of the last message.
    pub(super) async fn publish_batch(
        &self,
        batch: &[(Outgoing, Option<u64>)],
    ) -> Result<u64, PublishError> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let store = |error: &dyn std::fmt::Display| {
            PublishError::Store(StoreError::failed("writing a batch", error.to_string()))
        };
        let [begin @ .., (last, expected)] = batch else { return Err(store(&"it is empty")) };
        let with_place = |out: &Outgoing, expected: Option<u64>, place: usize| {
            let mut headers = headers(out, expected);
            headers.insert("Nats-Batch-Id", &*id);
            headers.insert("Nats-Batch-Sequence", place.to_string().as_str());
            headers
        };
        for (place, (out, expected)) in begin.iter().enumerate() {
            let headers = with_place(out, *expected, place + 1);
            let published = self.client.publish_with_headers(
                self.subject(&out.subject),
                headers,
                out.payload.clone(),
            );
            published.await.map_err(|error| store(&error))?;
        }
        let mut headers = with_place(last, *expected, batch.len());
        headers.insert("Nats-Batch-Commit", "1");
        let subject = self.subject(&last.subject);
        // Not repeated: repeating the end of a batch would be a new batch.
        self.acknowledged(self.ask_once(subject, Some(headers), last.payload.clone()).await)
    }

    /// The last message of a subject, read from the leader.
    pub(super) async fn last_of(&self, below: &str) -> Result<Option<Last>, StoreError> {
        let found = self.get(json!({ "last_by_subj": self.subject(below) })).await?;
        Ok(found.map(|found| Last {
            sequence: found.sequence,
            id: found.decode().ok().map(|incoming| incoming.line.id),
        }))
    }

    /// The sequence of the first message at or after a sequence that still exists.
    pub(super) async fn next_after(&self, sequence: u64) -> Result<Option<u64>, StoreError> {
        let wanted = json!({ "seq": sequence + 1, "next_by_subj": self.subject(">") });
        Ok(self.get(wanted).await?.map(|found| found.sequence))
    }

    /// A message, read from the leader.
    pub(super) async fn at(&self, sequence: u64) -> Result<Option<Kept>, StoreError> {
        self.get(json!({ "seq": sequence })).await
    }

    async fn get(&self, wanted: Value) -> Result<Option<Kept>, StoreError> {
        #[derive(Deserialize)]
        struct Got {
            message: GotMessage,
        }
        #[derive(Deserialize)]
        struct GotMessage {
            subject: String,
            seq: u64,
            #[serde(default)]
            data: String,
            #[serde(default)]
            hdrs: String,
        }
        let message = match self.api::<Got>("STREAM.MSG.GET", wanted).await {
            Ok(got) => got.message,
            Err(AskError::Refused(error)) if error.err_code == NO_MESSAGE => return Ok(None),
            Err(error) => return Err(failed("reading a message")(error)),
        };
        let garbled = |what: &str| StoreError::failed("reading a message", what.to_owned());
        let payload = BASE64.decode(&message.data).map_err(|_| garbled("it is not base64"))?;
        let headers = BASE64.decode(&message.hdrs).map_err(|_| garbled("it is not base64"))?;
        let headers = String::from_utf8_lossy(&headers);
        let sum = headers.lines().filter_map(|line| line.split_once(':'));
        let mut sum =
            sum.filter(|(name, _)| *name == SUM).map(|(_, value)| value.trim().to_owned());
        Ok(Some(Kept {
            subject: self.below(&message.subject).to_owned(),
            sum: sum.next_back(),
            payload: payload.into(),
            sequence: message.seq,
        }))
    }

    /// Messages of a subject from a sequence on, until `bytes_max` is exceeded. Any replica may
    /// answer, so the newest messages may be missing. Repeated like every request, because a
    /// replica may be lost in the middle of its answer.
    pub(super) async fn read_from(
        &self,
        below: &str,
        sequence: u64,
        bytes_max: usize,
    ) -> Result<Vec<Kept>, StoreError> {
        let until = Instant::now() + self.settle;
        loop {
            match self.read_once(below, sequence, bytes_max).await {
                Err(AskError::NoAnswer(_)) if Instant::now() < until => sleep(PAUSE).await,
                read => return read.map_err(failed("reading frames")),
            }
        }
    }

    async fn read_once(
        &self,
        below: &str,
        sequence: u64,
        bytes_max: usize,
    ) -> Result<Vec<Kept>, AskError> {
        let no_answer = |error: &dyn std::fmt::Display| AskError::NoAnswer(error.to_string());
        let inbox = self.client.new_inbox();
        let answers = self.client.subscribe(inbox.clone()).await;
        let mut answers = answers.map_err(|error| no_answer(&error))?;
        let wanted = json!({
            "seq": sequence,
            "next_by_subj": self.subject(below),
            "batch": READ_MESSAGES,
            "max_bytes": bytes_max.clamp(1, 8 * 1024 * 1024),
        });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let until = Instant::now() + ANSWER;
        let asked = self.client.publish_with_reply(subject, inbox, wanted.to_string().into()).await;
        asked.map_err(|error| no_answer(&error))?;
        let mut found = Vec::new();
        loop {
            let answer = timeout_at(until, answers.next()).await;
            let answer = answer.map_err(|_| no_answer(&"timed out"))?;
            let answer = answer.ok_or_else(|| no_answer(&"the connection ended"))?;
            match answer.status {
                None | Some(StatusCode::OK) => found.push(
                    self.direct(answer)
                        .ok_or_else(|| AskError::Garbled("an answer without a sequence".into()))?,
                ),
                // The end of the subject, or an empty subject.
                Some(status) if matches!(status.as_u16(), 204 | 404) => return Ok(found),
                // No replica can be read while the servers elect a leader.
                Some(StatusCode::NO_RESPONDERS) => return Err(no_answer(&"no replica answers")),
                Some(status) => return Err(AskError::Garbled(format!("status {status}"))),
            }
        }
    }

    fn direct(&self, answer: Message) -> Option<Kept> {
        let headers = answer.headers.as_ref()?;
        let sequence = headers.get("Nats-Sequence")?.as_str().parse().ok()?;
        let subject = self.below(headers.get("Nats-Subject")?.as_str()).to_owned();
        let sum = headers.get(SUM).map(|value| value.as_str().to_owned());
        Some(Kept { subject, sum, payload: answer.payload, sequence })
    }

    /// Removes the messages of a subject before a sequence.
    pub(super) async fn purge(&self, below: &str, before: u64) -> Result<(), StoreError> {
        let body = json!({ "filter": self.subject(below), "seq": before });
        let purged = self.api::<Value>("STREAM.PURGE", body).await;
        purged.map(drop).map_err(failed("deleting messages"))
    }

    /// A subject without the stream's name.
    pub(super) fn below<'a>(&self, subject: &'a str) -> &'a str {
        let rest = subject.strip_prefix(&*self.stream);
        rest.and_then(|rest| rest.strip_prefix('.')).unwrap_or(subject)
    }

    fn acknowledged(&self, answer: Result<Value, AskError>) -> Result<u64, PublishError> {
        let store = |error| PublishError::Store(StoreError::failed("writing to the stream", error));
        match answer {
            Ok(value) => value.get("seq").and_then(Value::as_u64).ok_or_else(|| {
                store(AskError::Garbled("an acknowledgement without a sequence".into()))
            }),
            Err(AskError::Refused(error)) if error.err_code == WRONG_LAST_SEQUENCE => {
                Err(PublishError::Conflict)
            }
            Err(AskError::Refused(error)) if error.err_code == STREAM_FULL => {
                Err(PublishError::Store(StoreError::Full {
                    what: "the stream",
                    max: self.bytes_max.and_then(|it| it.try_into().ok()).unwrap_or(usize::MAX),
                    remedy: "delete old runs, or raise `max_bytes` of the stream",
                }))
            }
            Err(error) => Err(store(error)),
        }
    }
}

fn headers(out: &Outgoing, expected: Option<u64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(SUM, format!("{:08x}", out.sum).as_str());
    if let Some(expected) = expected {
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string().as_str());
    }
    headers
}

#[cfg(test)]
mod tests {
    use wellspring_testkit::{NatsServers, Proxy};

    use super::*;

    /// The answer to a read is lost, as it is when its replica dies. The read is repeated.
    #[tokio::test]
    async fn a_read_without_an_answer_is_repeated() {
        let Some(servers) = NatsServers::start(1, false) else { return };
        let address = servers.address();
        let proxy = Proxy::start(address.strip_prefix("nats://").unwrap().parse().unwrap());
        let client = async_nats::connect(format!("nats://{}", proxy.address())).await.unwrap();
        let api = |settle| Api {
            client: client.clone(),
            stream: "s".into(),
            settle: Duration::from_secs(settle),
            bytes_max: None,
        };
        let (patient, hasty) = (api(60), api(0));
        let config = json!({"name": "s", "subjects": ["s.>"], "allow_direct": true});
        patient.create_stream(config).await.unwrap();
        for text in ["one", "two"] {
            client.request("s.run.x", text.into()).await.unwrap();
        }
        proxy.cut();
        let read = patient.read_from("run.x", 1, 1024);
        let read_once = async {
            let read = hasty.read_from("run.x", 1, 1024).await;
            proxy.heal();
            read
        };
        let (found, found_once) = tokio::join!(read, read_once);
        let found: Vec<_> =
            found.unwrap().into_iter().map(|it| (it.sequence, it.payload)).collect();
        assert_eq!(found, [(1, "one".into()), (2, "two".into())]);
        assert!(found_once.is_err());
    }
}
