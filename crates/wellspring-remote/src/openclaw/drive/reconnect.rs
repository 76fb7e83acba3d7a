//! Finds a run at the gateway again: after a lost connection, and in another process.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use wellspring_core::{FailureKind, ModelError};
use wellspring_wire::openclaw::{InFlightRun, Response};

use super::{Drive, Phase, wait};

/// How often the wait before the next connection is doubled: from 0.1 s to 6.4 s.
const DOUBLINGS_MAX: u32 = 6;

impl Drive {
    /// Reconnects and finds the run again.
    pub(super) async fn reconnect(&mut self) -> Result<Phase, ModelError> {
        self.awaits_result = false;
        self.link = None;
        if !self.pause().await {
            return Ok(self.cancelled().await);
        }
        self.find().await
    }

    /// Tries to find the run until its idle timeout. Runs survive lost connections, so an
    /// unreachable gateway does not mean that the run has ended.
    pub(super) async fn find(&mut self) -> Result<Phase, ModelError> {
        let until = self.heard_at + self.shared.config.idle;
        let signal = self.context.signal().clone();
        loop {
            // A gateway that answers nothing must not delay a cancel.
            let adopted = tokio::select! {
                biased;
                () = signal.cancelled() => return Ok(self.cancelled().await),
                adopted = self.adopt() => adopted,
            };
            match adopted {
                Err(error)
                    if error.kind() == FailureKind::Unavailable && Instant::now() < until =>
                {
                    tracing::warn!(agent = &*self.shared.name, %error, "reconnecting");
                }
                found => return found,
            }
            if !self.pause().await {
                return Ok(self.cancelled().await);
            }
        }
    }

    /// Waits before the next connection; `false` if the run was cancelled during the wait.
    async fn pause(&mut self) -> bool {
        let wait = Duration::from_millis(100 << self.reconnects.min(DOUBLINGS_MAX));
        self.reconnects = self.reconnects.saturating_add(1);
        tokio::select! {
            biased;
            () = self.context.signal().cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// Finds the run again: subscribes to its session, continues its text, and requests to be
    /// notified of its end.
    async fn adopt(&mut self) -> Result<Phase, ModelError> {
        if !self.take_place().await? {
            return Ok(self.cancelled().await);
        }
        let Some(link) = self.connected().await? else { return Ok(self.cancelled().await) };
        let lost = || self.shared.error(FailureKind::Unavailable, "the connection was lost again");
        let same_process = self.handle.boot_id == link.hello.boot_id;
        let key = json!({"key": &self.handle.session_key});
        link.request("sessions.messages.subscribe", key).await.ok_or_else(lost)?;
        let history = json!({"sessionKey": &self.handle.session_key, "limit": 1});
        let history = link.request("chat.history", history).await.ok_or_else(lost)?;
        let going_on =
            InFlightRun::of(&history.payload).filter(|run| run.run_id == self.handle.run_id);
        if let Some(run) = &going_on {
            self.reader.adopt(run, &mut self.batch);
        }
        let mut asked = wait(&self.handle.run_id);
        asked["timeoutMs"] = json!(0);
        let known = link.request("agent.wait", asked).await.ok_or_else(lost)?;
        if known.ok && !is_still_running(&known) {
            // Unread events may contain the last text.
            while let Some(heard) = self.inbox.pop() {
                self.hear(heard, &link);
            }
            self.reader.response(&known, &mut self.batch);
            return match self.reader.end().cloned() {
                Some(end) => self.ended(end, &link).await,
                None => Ok(Phase::Listen),
            };
        }
        if !same_process && going_on.is_none() {
            let what = "cannot go on: the gateway was restarted and its run is gone; ask again";
            return Err(self.shared.error(FailureKind::Lost, what));
        }
        // The gateway has just reported that the run is active.
        self.heard_at = Instant::now();
        if !self.handle.accepted && going_on.is_none() {
            // The gateway may not have received the prompt. If it has, it recognises the key.
            return Ok(Phase::Prompt);
        }
        link.request_for(&self.inbox, "agent.wait", wait(&self.handle.run_id));
        Ok(Phase::Listen)
    }
}

/// Whether a response to `agent.wait` means that the run is still active.
pub(super) fn is_still_running(response: &Response) -> bool {
    match response.status() {
        "pending" => true,
        "timeout" => {
            // An `agent` response with this status has a summary.
            response.payload["endedAt"].is_null() && response.payload["summary"].is_null()
        }
        _ => false,
    }
}
