//! The one way to act on runs.
//!
//! A surface turns its caller into a [`Principal`] and acts through its [`Control`]: start, attach,
//! read back, list, cancel, answer, finish client calls, add input, amend, delete. The decisions
//! whether an action is allowed and whether it was done before are made here, once for all
//! surfaces.
//!
//! # What is promised
//!
//! 1. Another tenant's run or thread is reported as not found.
//! 2. A command takes effect at most once, however often it is sent. A command that is not
//!    accepted is refused with a named error.
//! 3. All commands of one [`respond`](Control::respond) are one durable step: all or none.
//! 4. An answer, a cancellation or a deletion that takes effect has one audit entry, which is
//!    durable before.

pub(crate) mod admission;
mod audit;
mod commands;
mod documents;
mod errors;
mod feedback;
pub(crate) mod key;
mod read;
mod start;
mod threads;

use wellspring_core::{RunId, ThreadId};
use wellspring_log::{Log, ReadError, RunInfo, StoreError};

pub use self::admission::AdmissionLimits;
use self::audit::Entry;
pub use self::documents::{Documents, SURFACE_DOCUMENTS_MAX};
pub use self::errors::{ControlError, StartError};
pub use self::feedback::{FEEDBACK_BYTES_MAX, Feedback};
use self::key::Key;
pub use self::key::{ClientId, RequestKey, StartKey};
pub use self::start::{AgentRef, InThread, StartRun, Started, StartedAs};
pub use self::threads::RecentRuns;
use crate::principal::{Permission, Principal};
use crate::runtime::Runtime;

/// Acts on the runs of a [`Runtime`] for a principal. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_core::{AgentNo, Seq};
/// use wellspring_engine::{AgentDef, ControlError, Permission, Principal, Runtime, StartRun};
/// use wellspring_log::Log;
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// runtime.register(AgentDef::model("greeter", Arc::new(Scripted::new([Say::new().text("Hello.")]))));
/// let ada = runtime.control(Principal::new("acme", "ada", [Permission::Run, Permission::Read]));
/// let run = ada.start(StartRun::text("greeter", "Hi")).await?.run;
/// assert_eq!(ada.wait(run).await?.answer(AgentNo::ROOT), "Hello.");
///
/// let stranger = runtime.control(Principal::new("other", "eve", [Permission::Admin]));
/// assert!(matches!(stranger.attach(run, Seq(0)).await, Err(ControlError::NoRun(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    runtime: Runtime,
    who: Principal,
}

impl Runtime {
    /// Acts on the runs for a principal.
    #[must_use]
    pub fn control(&self, who: Principal) -> Control {
        Control { runtime: self.clone(), who }
    }

    /// Acts on the runs for the user of this machine: [`control`](Self::control) of
    /// [`Principal::local`].
    #[must_use]
    pub fn local(&self) -> Control {
        self.control(Principal::local())
    }
}

impl Control {
    /// The principal that acts.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.who
    }

    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The thread that a client's id stands for. It need not have runs.
    #[must_use]
    pub fn thread(&self, id: &ClientId) -> ThreadId {
        id.thread(&self.who)
    }

    /// The run that a client's id is bound to, if there is one.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn resolve(&self, id: &ClientId) -> Result<Option<RunId>, ControlError> {
        Ok(self.log().store().resolve(id.external(&self.who)).await?)
    }

    /// Binds a client's id to a run, unless it is bound already. Returns the run that it is bound
    /// to. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn name(&self, id: &ClientId, run: RunId) -> Result<RunId, ControlError> {
        self.permit(Permission::Run)?;
        self.find(run).await?;
        Ok(self.log().store().bind(id.external(&self.who), run).await?)
    }

    /// Deletes a finished run. Its thread continues without it. Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If there is no such run, it is not over, the principal may not delete it, or the store
    /// fails.
    pub async fn delete(&self, run: RunId) -> Result<(), ControlError> {
        self.permit(Permission::Admin)?;
        let info = self.find(run).await?;
        if !info.state.is_final() && !self.is_damaged(run).await {
            return Err(ControlError::Unfinished(run));
        }
        let entry = self.audited(&info, &Key::Delete.encode(), Entry::delete());
        self.log().store().put_audit(entry).await?;
        self.log().store().delete(run).await?;
        self.forget_feedback(run).await
    }

    /// Whether a run is so damaged that it can neither continue nor be cancelled.
    async fn is_damaged(&self, run: RunId) -> bool {
        let read = self.log().transcript(run).await;
        matches!(read, Err(ReadError::Store(StoreError::Damaged { .. })))
    }

    /// A run of the principal's tenant.
    async fn find(&self, run: RunId) -> Result<RunInfo, ControlError> {
        let info = self.log().store().info(run).await?;
        info.filter(|info| *info.tenant == *self.who.tenant).ok_or(ControlError::NoRun(run))
    }

    async fn unfinished(&self, run: RunId) -> Result<RunInfo, ControlError> {
        let info = self.find(run).await?;
        if info.state.is_final() { Err(ControlError::Finished(Box::new(info))) } else { Ok(info) }
    }

    /// The error for a finished run.
    async fn finished(&self, run: RunId) -> ControlError {
        match self.find(run).await {
            Ok(info) => ControlError::Finished(Box::new(info)),
            Err(error) => error,
        }
    }

    pub(crate) fn permit(&self, permission: Permission) -> Result<(), ControlError> {
        if self.who.may(permission) { Ok(()) } else { Err(ControlError::NotPermitted(permission)) }
    }

    fn log(&self) -> &Log {
        self.runtime.log()
    }
}
