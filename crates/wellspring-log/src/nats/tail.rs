//! Follows the stream. The server pushes every message. After a gap, a new consumer starts after
//! the last message that was applied.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::{Message, StatusCode};
use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::api::{Api, Kept};
use super::wire::SUM;

/// Interval of the server's heartbeats while there are no messages.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Without a message or a heartbeat for this long, a new consumer is created.
const SILENCE: Duration = Duration::from_millis(1500);

/// Pause before a consumer is created again.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn follow(shared: Weak<Shared>) {
    let Some(mut last) = shared.upgrade().map(|shared| *shared.applied.borrow()) else { return };
    loop {
        let Some(api) = shared.upgrade().map(|shared| Arc::clone(&shared.api)) else { return };
        let followed = follow_once(&shared, &api, &mut last).await;
        if let Err(error) = followed {
            tracing::debug!(error, last, "the stream is followed again");
        }
        sleep(PAUSE).await;
    }
}

async fn follow_once(shared: &Weak<Shared>, api: &Api, last: &mut u64) -> Result<(), String> {
    let to = api.client.new_inbox();
    let mut messages = api.client.subscribe(to.clone()).await.map_err(|it| it.to_string())?;
    api.push_from(*last + 1, &to, HEARTBEAT).await.map_err(|it| it.to_string())?;
    let mut delivered = 0;
    loop {
        // However many wait for a message, a consumer that is heard is kept: each new one begins
        // with silence.
        let Ok(Some(message)) = timeout(SILENCE, messages.next()).await else {
            return Err("silence".into());
        };
        if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
            heard(api, &message, delivered).await?;
            continue;
        }
        let Some((sequence, number)) = message.reply.as_deref().and_then(places) else {
            continue;
        };
        if number != delivered + 1 {
            return Err(format!("message {number} after {delivered}"));
        }
        delivered = number;
        *last = sequence;
        let header = message.headers.as_ref().and_then(|headers| headers.get(SUM));
        let kept = Kept {
            subject: api.below(&message.subject).to_owned(),
            sum: header.map(|value| value.as_str().to_owned()),
            payload: message.payload,
            sequence,
        };
        let Some(shared) = shared.upgrade() else { return Ok(()) };
        shared.apply(&kept);
    }
}

/// Answers a heartbeat if it requests an answer, and detects gaps.
async fn heard(api: &Api, message: &Message, delivered: u64) -> Result<(), String> {
    let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
    let reply = message
        .reply
        .as_deref()
        .or_else(|| header("Nats-Consumer-Stalled").map(async_nats::HeaderValue::as_str));
    if let Some(reply) = reply {
        let answered = api.client.publish(reply.to_owned(), bytes::Bytes::new()).await;
        answered.map_err(|error| error.to_string())?;
    }
    match header("Nats-Last-Consumer").and_then(|last| last.as_str().parse::<u64>().ok()) {
        Some(last) if last != delivered => Err(format!("{last} were sent, {delivered} came")),
        Some(_) | None => Ok(()),
    }
}

/// The stream's sequence and the consumer's number of a message, parsed from its reply subject.
fn places(reply: &str) -> Option<(u64, u64)> {
    let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    // Newer servers put the domain and the account in front of the stream's name.
    let at = if tokens.len() == 7 { 3 } else { 5 };
    Some((tokens.get(at)?.parse().ok()?, tokens.get(at + 1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_are_read_from_both_forms_of_a_reply() {
        assert_eq!(super::places("$JS.ACK.s.c.1.42.7.1700000000.0"), Some((42, 7)));
        assert_eq!(super::places("$JS.ACK._.hash.s.c.1.42.7.1700000000.0"), Some((42, 7)));
        assert_eq!(super::places("$JS.ACK._.hash.s.c.1.42.7.1700000000.0.x"), Some((42, 7)));
        assert_eq!(super::places("_INBOX.x"), None);
    }
}
