//! The running calls of a server: routes progress and questions to them.
//!
//! # Why not with the SDK alone
//!
//! `rmcp` creates a request's progress token while it sends it, and handles each notification
//! in its own task: progress could arrive before the call is registered, out of order, and
//! without limit. So a [`Tap`](crate::transport::Tap) in front of the SDK registers a call
//! before its bytes are sent, and delivers progress here, in order, before it reads any later
//! message.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{NumberOrString, ProgressNotificationParam};
use serde_json::{Value, json};
use tokio::sync::Notify;
use wellspring_core::{CancellationToken, Context};

/// Progress reports of a call that wait to be delivered. Beyond that the oldest is dropped,
/// since the latest is more useful.
pub const PROGRESS_WAITING_MAX: usize = 64;

/// Bytes of a progress message that are kept: one line.
pub const PROGRESS_BYTES_MAX: usize = 4 * 1024;

/// A running call.
#[derive(Debug)]
pub(crate) struct Call {
    context: Context,
    progress: Mutex<VecDeque<Value>>,
    arrived: Notify,
    /// Cancelled when the call ends.
    over: CancellationToken,
}

impl Call {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Resolves when the call ends.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Waits for the next progress report.
    ///
    /// # Cancel safety
    ///
    /// No report is lost if the future is dropped.
    pub(crate) async fn next_progress(&self) -> Value {
        loop {
            // Created before checking, so that a change in between is noticed.
            let arrived = self.arrived.notified();
            if let Some(progress) = self.waiting() {
                return progress;
            }
            arrived.await;
        }
    }

    /// A progress report that has already arrived.
    pub(crate) fn waiting(&self) -> Option<Value> {
        lock(&self.progress).pop_front()
    }

    fn push(&self, progress: Value) {
        let mut waiting = lock(&self.progress);
        if waiting.len() >= PROGRESS_WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(progress);
        drop(waiting);
        self.arrived.notify_one();
    }
}

/// All running calls of one server.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    /// In the order in which they started. A call stays here until it ends.
    calls: Vec<Arc<Call>>,
    /// The SDK counts its requests and its tokens from 0.
    by_request: BTreeMap<i64, Arc<Call>>,
    by_token: BTreeMap<i64, Arc<Call>>,
}

impl Calls {
    /// Registers a call. It ends when the ticket is dropped.
    pub(crate) fn begin(self: &Arc<Self>, context: Context) -> Ticket {
        let call = Arc::new(Call {
            context,
            progress: Mutex::default(),
            arrived: Notify::new(),
            over: CancellationToken::new(),
        });
        lock(&self.0).calls.push(call.clone());
        Ticket { call, calls: self.clone() }
    }

    /// Registers that a call's request is about to be sent.
    pub(crate) fn sent(
        &self,
        call: &Arc<Call>,
        request: &NumberOrString,
        token: Option<&NumberOrString>,
    ) {
        let mut running = lock(&self.0);
        // The call may have been dropped while its request waited to be sent.
        if call.over.is_cancelled() {
            return;
        }
        if let Some(number) = number(request) {
            running.by_request.insert(number, call.clone());
        }
        if let Some(number) = token.and_then(number) {
            running.by_token.insert(number, call.clone());
        }
    }

    /// Delivers a progress report. A report for a call that has ended is dropped.
    pub(crate) fn progress(&self, progress: ProgressNotificationParam) {
        let call = number(&progress.progress_token.0)
            .and_then(|number| lock(&self.0).by_token.get(&number).cloned());
        let Some(call) = call else {
            tracing::debug!("ignored progress of a finished call");
            return;
        };
        let mut data = json!({ "progress": progress.progress });
        if let Some(total) = progress.total {
            data["total"] = total.into();
        }
        if let Some(message) = progress.message {
            data["message"] = cut(message, PROGRESS_BYTES_MAX).into();
        }
        call.push(data);
    }

    /// The call that a server's question belongs to: over HTTP, the one whose stream it came
    /// on. Over stdio a server does not say; then it is the latest call if all running calls
    /// belong to one run, and `None` otherwise, because the question must not reach another
    /// user.
    pub(crate) fn asked(&self, request: Option<&NumberOrString>) -> Option<Arc<Call>> {
        let running = lock(&self.0);
        if let Some(number) = request.and_then(number) {
            return running.by_request.get(&number).cloned();
        }
        let latest = running.calls.last()?;
        let run = latest.context.facts().run;
        let one_run = running.calls.iter().all(|call| call.context.facts().run == run);
        one_run.then(|| latest.clone())
    }
}

/// A running call. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) call: Arc<Call>,
    calls: Arc<Calls>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let others = |call: &Arc<Call>| !Arc::ptr_eq(call, &self.call);
        let mut running = lock(&self.calls.0);
        self.call.over.cancel();
        running.calls.retain(others);
        running.by_request.retain(|_, call| others(call));
        running.by_token.retain(|_, call| others(call));
    }
}

/// The number that the SDK assigned, also if the server returned it as a string.
fn number(id: &NumberOrString) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

/// Truncates a text, with a note on how much was left out.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let left_out = text.len() - bytes_max;
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str(&format!("\n[... {left_out} bytes left out ...]"));
    }
    text
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
