//! Reading runs: summaries, lists, transcripts, and cursors.

use std::sync::Arc;

use wellspring_core::{Event, Outline, RunId, RunStarted, Seq, Transcript};
use wellspring_log::{Cursor, HistoryQuery, RunFilter, RunInfo};

use super::{Control, ControlError};
use crate::principal::Permission;

impl Control {
    /// A run's summary, as in lists. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the store fails.
    pub async fn info(&self, run: RunId) -> Result<RunInfo, ControlError> {
        self.permit(Permission::Read)?;
        self.find(run).await
    }

    /// Runs of the principal's tenant, newest first; the filter's own tenant is ignored. Requires
    /// [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If the principal may not read, or the store fails.
    pub async fn list(&self, filter: RunFilter) -> Result<Vec<RunInfo>, ControlError> {
        self.permit(Permission::Read)?;
        if let Some(run) = filter.after_run {
            self.find(run).await?;
        }
        let tenant = Some((*self.who.tenant).into());
        Ok(self.log().store().list(RunFilter { tenant, ..filter }).await?)
    }

    /// The whole run as committed so far. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the log cannot be read.
    pub async fn transcript(&self, run: RunId) -> Result<Transcript, ControlError> {
        self.permit(Permission::Read)?;
        self.find(run).await?;
        Ok(self.log().transcript(run).await?)
    }

    /// What is open in a run after a record. Requires what [`attach`](Self::attach) does.
    ///
    /// # Errors
    ///
    /// If there is no such run or record, the principal may not read it, or the log cannot be
    /// read.
    pub async fn outline_at(&self, run: RunId, seq: Seq) -> Result<Outline, ControlError> {
        self.attach(run, seq).await?;
        Ok(self.log().outline_before(run, seq).await?)
    }

    /// Whether a live process works on a run.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn is_owned(&self, run: RunId) -> Result<bool, ControlError> {
        let info = self.find(run).await?;
        Ok(self.runtime.is_live(run) || self.log().is_owned(&info))
    }

    /// The name of a run's agent.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn agent_of(&self, run: RunId) -> Result<Box<str>, ControlError> {
        Ok(self.find(run).await?.agent)
    }

    /// A run and the runs that it continues, newest first, at most `max`. If a run was deleted, the
    /// thread's next older run follows. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the store fails.
    pub async fn history(&self, run: RunId, max: usize) -> Result<Vec<RunInfo>, ControlError> {
        self.info(run).await?;
        let query = HistoryQuery { run, max, folded: false };
        let past = self.log().store().history(query).await?;
        Ok(past.into_iter().map(|past| past.info).collect())
    }

    /// Reads a run from after a record. Detaching changes nothing. Requires
    /// [`Permission::Read`], except for the principal that started the run.
    ///
    /// # Errors
    ///
    /// If there is no such run or record, the principal may not read it, or the store fails.
    pub async fn attach(&self, run: RunId, after: Seq) -> Result<Cursor, ControlError> {
        self.find(run).await?;
        if !self.may_read(run).await? {
            return Err(ControlError::NotPermitted(Permission::Read));
        }
        Ok(self.log().cursor(run, after).await?)
    }

    /// Whether the principal may read a run of its tenant: with [`Permission::Read`], or because it
    /// started the run.
    pub(super) async fn may_read(&self, run: RunId) -> Result<bool, ControlError> {
        if self.who.may(Permission::Read) {
            return Ok(true);
        }
        let started = self.first_record(run).await?;
        Ok(started.is_some_and(|started| started.request.by.as_deref() == Some(&*self.who.id)))
    }

    /// The current state of a run, for a surface that checks a client's answers. Requires
    /// [`Permission::Run`]; do not show it to a caller that may not read.
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not answer it, or the log cannot be read.
    pub async fn waiting(&self, run: RunId) -> Result<Transcript, ControlError> {
        self.permit(Permission::Run)?;
        self.find(run).await?;
        Ok(self.log().transcript(run).await?)
    }

    /// Waits until a run has finished and returns its transcript. Requires what
    /// [`attach`](Self::attach) does.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub async fn wait(&self, run: RunId) -> Result<Transcript, ControlError> {
        let mut transcript = Transcript::default();
        let mut cursor = self.attach(run, Seq(0)).await?;
        while let Some(frames) = cursor.next().await? {
            for frame in &frames {
                transcript.extend(frame.records());
            }
        }
        Ok(transcript)
    }

    /// The first record of a run, which has its request.
    pub(super) async fn first_record(
        &self,
        run: RunId,
    ) -> Result<Option<Arc<RunStarted>>, ControlError> {
        let mut cursor = self.log().cursor(run, Seq(0)).await?;
        let frames = cursor.next().await?.unwrap_or_default();
        let first = frames.first().and_then(|frame| frame.records().first());
        let Some(Event::RunStarted(started)) = first.map(|record| &record.event) else {
            return Ok(None);
        };
        Ok(Some(Arc::clone(started)))
    }
}
