//! The gateway: events over a WebSocket with heartbeats. A lost session is resumed.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use tokio::time::{Instant, sleep, sleep_until};
use wellspring_log::Expected;

use super::Discord;
use super::session::{After, Heard, Session};
use crate::channel::CallError;
use crate::incoming::Incoming;
use crate::instance::Instance;
use crate::socket::{Again, Closed, Socket};

/// Maximum number of events handled at once. At the maximum, the socket is not read.
const TAKING_MAX: usize = 64;

/// Timeout for the gateway's first frame.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait before an event that could not be stored is handled again.
const TAKE_AGAIN: Duration = Duration::from_secs(1);

/// The name of the document that stores the session.
const DOCUMENT: &str = "gateway";

impl Discord {
    /// Receives events until the bot stops. A lost session is resumed, also after a restart, and
    /// Discord then sends the missed events again.
    pub async fn listen(&self, instance: &Instance) {
        let mut session = kept(instance).await;
        let mut again = Again::default();
        loop {
            let over = tokio::select! {
                over = self.connected(instance, &mut session, &mut again) => over,
                () = instance.stopped() => return,
            };
            match over {
                Ok(After::Resume) => {}
                Ok(After::Identify) => session.id = None,
                Ok(After::GiveUp(why)) => {
                    tracing::error!(bot = instance.name(), why, "Discord closed the gateway");
                    return;
                }
                Err(error) => {
                    tracing::warn!(bot = instance.name(), %error, "could not open the gateway");
                }
            }
            if !again.wait(instance).await {
                return;
            }
        }
    }

    async fn connected(
        &self,
        instance: &Instance,
        session: &mut Session,
        again: &mut Again,
    ) -> Result<After, CallError> {
        let url = if session.id.is_some() && !session.url.is_empty() {
            session.url.to_string()
        } else {
            let found = self.asked("GET", "/gateway/bot", &serde_json::Value::Null).await?;
            found["url"].as_str().unwrap_or_default().to_owned()
        };
        let url = format!("{}/?v=10&encoding=json", url.trim_end_matches('/'));
        let mut socket = match Socket::open(&url).await {
            Ok(socket) => socket,
            Err(error) => {
                // The session's URL may no longer work, so the next attempt asks for a new URL.
                session.url = "".into();
                return Err(error);
            }
        };
        let hello = socket.next(HELLO_TIMEOUT).await;
        let every = match hello.map(|frame| session.hear(&frame)) {
            Ok(Heard::Hello(millis)) => Duration::from_millis(millis.max(1)),
            Ok(_) => return Ok(After::Resume),
            Err(Closed(code)) => return Ok(Session::after(code)),
        };
        if let Err(Closed(code)) = socket.send(&session.introduction(&self.token)).await {
            return Ok(Session::after(code));
        }
        let mut seen = session.seq;
        let mut beat_at = Instant::now() + every.mul_f64(jitter());
        let mut was_beaten = true;
        let mut taking = FuturesOrdered::new();
        loop {
            let mut beats = false;
            tokio::select! {
                // Heartbeats notice a dead connection earlier.
                heard = socket.next(every * 3), if taking.len() < TAKING_MAX => {
                    let frame = match heard {
                        Ok(frame) => frame,
                        Err(Closed(code)) => return Ok(Session::after(code)),
                    };
                    match session.hear(&frame) {
                        Heard::Ready => {
                            again.worked();
                            seen = seen.max(session.seq);
                            keep(instance, session).await;
                        }
                        Heard::Beaten => was_beaten = true,
                        Heard::Beat => beats = true,
                        Heard::Reconnect => return Ok(After::Resume),
                        Heard::Event(seq, incoming) => {
                            seen = seen.max(seq);
                            if let Some(incoming) = incoming {
                                taking.push_back(async move {
                                    take(instance, incoming).await;
                                    seq
                                });
                            }
                        }
                        Heard::Hello(_) | Heard::Nothing => {}
                    }
                }
                Some(seq) = taking.next() => {
                    session.seq = session.seq.max(seq);
                    keep(instance, session).await;
                }
                () = sleep_until(beat_at) => {
                    // Without an acknowledgement of the last heartbeat, the connection is dead.
                    if !was_beaten {
                        return Ok(After::Resume);
                    }
                    (beats, was_beaten) = (true, false);
                    beat_at = Instant::now() + every;
                }
            }
            if beats && let Err(Closed(code)) = socket.send(&Session::beat(seen)).await {
                return Ok(Session::after(code));
            }
        }
    }
}

/// Handles an event until it is stored: Discord delivers each event once per session.
async fn take(instance: &Instance, incoming: Incoming) {
    while !crate::http::take(instance, incoming.clone()).await.is_success() {
        sleep(TAKE_AGAIN).await;
    }
}

async fn kept(instance: &Instance) -> Session {
    match instance.inner.documents.get(DOCUMENT).await {
        Ok(document) => {
            let read = document.and_then(|document| serde_json::from_str(&document.text).ok());
            read.unwrap_or_default()
        }
        Err(error) => {
            tracing::error!(%error, "failed to read the session of a bot");
            Session::default()
        }
    }
}

async fn keep(instance: &Instance, session: &Session) {
    let text = serde_json::to_string(session).unwrap_or_default();
    let kept = instance.inner.documents.put(DOCUMENT, Some(&text), Expected::Anything);
    if let Err(error) = kept.await {
        // Events that are delivered again are recognised.
        tracing::warn!(%error, "failed to keep the session of a bot");
    }
}

/// The fraction of the first heartbeat interval to wait, so that bots that start together do not
/// send heartbeats together.
fn jitter() -> f64 {
    let mut byte = [0u8; 1];
    match getrandom::fill(&mut byte) {
        Ok(()) => f64::from(byte[0]) / 256.0,
        Err(_) => 0.5,
    }
}
