//! A model that follows a script: for tests, demonstrations and examples.
//!
//! It is deterministic, and it keeps no state between turns: the next turn of the script
//! follows from the request alone. So it also continues correctly in another process that
//! adopted the run. ([`Gate`] and [`Attempts`] are state of the test, not of the model.)
//!
//! ```
//! use futures::TryStreamExt as _;
//! use serde_json::json;
//! use wellspring_core::{Message, Model as _, ModelSettings, TurnRequest};
//! use wellspring_models::{Say, Scripted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let model = Scripted::new([
//!     Say::new().thought("Let me look.").call("clock", json!({"tz": "UTC"})),
//!     Say::new().text("It is noon."),
//! ]);
//! let request = TurnRequest {
//!     model: None,
//!     instructions: "".into(),
//!     messages: [Message::user("What time is it?")].into(),
//!     tools: [].into(),
//!     streaming: true,
//!     settings: ModelSettings::default(),
//! };
//! let mut said = Vec::new();
//! let mut stream = model.attempt(request).await?;
//! while let Some(batch) = stream.try_next().await? {
//!     said.extend(batch.into_events().map(|(_, event)| event.to_string()));
//! }
//! assert_eq!(said[..3], [
//!     "part 0 started thought",
//!     r#"part 0 delta "Let ""#,
//!     r#"part 0 delta "me ""#,
//! ]);
//! # Ok::<(), wellspring_core::ModelError>(()) }).unwrap();
//! ```

mod control;
mod pieces;
mod play;
mod say;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use wellspring_core::{AttemptStream, FailureKind, Message, Model, ModelError, TurnRequest};

pub use control::{Attempts, Failure, Gate};
pub use say::{ARGUMENT_FRAGMENT_CHARS, Say};

use play::Player;

/// A model that follows a script.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Scripted {
    name: Arc<str>,
    script: Arc<Script>,
}

/// Decides the turn for a request.
type Author = dyn Fn(&TurnRequest) -> Result<Say, Failure> + Send + Sync;

struct Script(Box<Author>);

impl Scripted {
    /// Plays these turns after each message of the user. The next one is chosen by the number
    /// of the model's turns since that message.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = Say>) -> Self {
        Self::numbered(turns, |messages| {
            let last_user = messages.iter().rposition(is_user).map_or(0, |at| at + 1);
            &messages[last_user..]
        })
    }

    /// Plays these turns over a whole conversation. The next one is chosen by the number of the
    /// model's turns so far, independent of the user's messages.
    #[must_use]
    pub fn conversation(turns: impl IntoIterator<Item = Say>) -> Self {
        Self::numbered(turns, |messages| messages)
    }

    /// Calls `author` for each request. It should depend on the request alone; otherwise the
    /// script does not survive a restart of the process.
    #[must_use]
    pub fn with(author: impl Fn(&TurnRequest) -> Say + Send + Sync + 'static) -> Self {
        Self::by(move |request| Ok(author(request)))
    }

    /// Sets the model's name [default: `scripted`].
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    fn numbered(
        turns: impl IntoIterator<Item = Say>,
        counted: fn(&[Message]) -> &[Message],
    ) -> Self {
        let turns: Vec<Say> = turns.into_iter().collect();
        Self::by(move |request| {
            let turn = counted(&request.messages).iter().filter(|m| is_assistant(m)).count();
            turns.get(turn).cloned().ok_or_else(|| {
                let message = format!("turn {} is not in the script of {}", turn + 1, turns.len());
                Failure::new(FailureKind::BadRequest, message)
            })
        })
    }

    fn by(author: impl Fn(&TurnRequest) -> Result<Say, Failure> + Send + Sync + 'static) -> Self {
        Self { name: "scripted".into(), script: Arc::new(Script(Box::new(author))) }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Model for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        async move {
            let say = (self.script.0)(&request).map_err(|failure| failure.of(&self.name))?;
            let mut player = Player::new(Arc::clone(&self.name), say, request.streaming);
            player.connect().await?;
            Ok(player.into_stream())
        }
        .boxed()
    }
}

fn is_user(message: &Message) -> bool {
    match message {
        Message::User { .. } => true,
        Message::Assistant { .. } | Message::Results { .. } => false,
    }
}

fn is_assistant(message: &Message) -> bool {
    match message {
        Message::Assistant { .. } => true,
        Message::User { .. } | Message::Results { .. } => false,
    }
}
