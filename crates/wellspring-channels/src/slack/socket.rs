//! Events over a socket (Slack's Socket Mode), for a bot without a public address.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::json;

use super::{Slack, event};
use crate::channel::CallError;
use crate::instance::Instance;
use crate::socket::{Again, Socket};

/// Maximum number of envelopes handled at once. At the maximum, the socket is not read.
const TAKING_MAX: usize = 32;

/// Maximum silence of a socket. Slack pings several times a minute, so a longer silence means that
/// the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Why a socket ended.
enum Over {
    /// Slack requests a new connection, as it does every few hours.
    Refresh,
    Lost,
}

impl Slack {
    /// Receives events until the bot stops. Each event is durable before it is acknowledged;
    /// repeated deliveries are recognised.
    pub async fn listen(&self, instance: &Instance) {
        let mut again = Again::default();
        loop {
            let over = tokio::select! {
                over = self.socket(instance, &mut again) => over,
                () = instance.stopped() => return,
            };
            match over {
                Ok(Over::Refresh) => continue,
                Ok(Over::Lost) => tracing::info!(bot = instance.name(), "the socket was closed"),
                Err(error) => {
                    tracing::warn!(bot = instance.name(), %error, "could not open a socket");
                }
            }
            if !again.wait(instance).await {
                return;
            }
        }
    }

    async fn socket(&self, instance: &Instance, again: &mut Again) -> Result<Over, CallError> {
        let token = &self.secrets.app_token;
        let place = self.asked(token, "apps.connections.open", &json!({})).await?;
        let mut socket = Socket::open(place["url"].as_str().unwrap_or_default()).await?;
        let mut taking = FuturesUnordered::new();
        let mut greeted = false;
        loop {
            let heard = tokio::select! {
                heard = socket.next(SILENCE_MAX), if taking.len() < TAKING_MAX => heard,
                Some(taken) = taking.next() => {
                    if let Some(envelope) = taken
                        && socket.send(&json!({ "envelope_id": envelope })).await.is_err()
                    {
                        return Ok(Over::Lost);
                    }
                    continue;
                }
            };
            let Ok(frame) = heard else { return Ok(Over::Lost) };
            match (frame["type"].as_str(), frame["envelope_id"].as_str()) {
                (Some("hello"), _) => {
                    greeted = true;
                    again.worked();
                }
                (Some("disconnect"), _) => {
                    socket.close().await;
                    // Without a greeting, a new connection at once would end the same way.
                    return Ok(if greeted { Over::Refresh } else { Over::Lost });
                }
                (_, Some(envelope)) => {
                    let (envelope, incoming) =
                        (envelope.to_owned(), event::read(&frame["payload"]));
                    taking.push(async move {
                        match incoming {
                            Some(incoming) => {
                                let status = crate::http::take(instance, incoming).await;
                                status.is_success().then_some(envelope)
                            }
                            None => Some(envelope),
                        }
                    });
                }
                (_, None) => {}
            }
        }
    }
}
