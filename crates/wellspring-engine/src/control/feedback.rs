//! Users' ratings of answers, stored in addition to the run.

use serde::{Deserialize, Serialize};
use wellspring_core::{Millis, PartId, RunId};
use wellspring_log::document::segment;
use wellspring_log::{DocumentFilter, Expected};

use super::{Control, ControlError};
use crate::principal::Permission;
use crate::telemetry;

/// The most bytes of a rating: a word, or a sentence.
pub const FEEDBACK_BYTES_MAX: usize = 4 * 1024;

/// A user's rating of a part of a run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Feedback {
    /// The run.
    pub run: RunId,
    /// The text that is rated; `None` for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartId>,
    /// The rating, such as `upvote`.
    pub rating: Box<str>,
    /// The principal that gave it.
    pub by: Box<str>,
    /// The trace that the client names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<str>>,
    /// When it was given.
    pub at: Millis,
}

impl Control {
    /// Rates a part of a run, or withdraws the rating with `None`. A principal has one rating of a
    /// part: the last. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the rating is too long, the principal may not rate, or the store
    /// fails.
    pub async fn rate(
        &self,
        run: RunId,
        part: Option<PartId>,
        rating: Option<&str>,
        trace: Option<&str>,
    ) -> Result<(), ControlError> {
        self.permit(Permission::Run)?;
        let info = self.find(run).await?;
        let is_long = |text: Option<&str>| text.is_some_and(|it| it.len() > FEEDBACK_BYTES_MAX);
        if is_long(rating) || is_long(trace) {
            let why = format!("a rating has at most {FEEDBACK_BYTES_MAX} bytes");
            return Err(ControlError::BadAnswer(why.into()));
        }
        let about = part.map_or_else(|| "run".to_owned(), |part| part.to_string());
        let name = format!("{}{about}/{}", self.feedback_prefix(run), segment(&self.who.id));
        let kept = rating.map(|rating| Feedback {
            run,
            part,
            rating: rating.into(),
            by: (*self.who.id).into(),
            trace: trace.map(Into::into),
            at: self.runtime.now(),
        });
        let text = kept.and_then(|kept| serde_json::to_string(&kept).ok()).map(Into::into);
        self.log().store().put_document(name.into(), text, Expected::Anything).await?;
        if let Some(rating) = rating {
            let span = telemetry::rating(&info, part, rating, &self.who.id);
            if !span.is_disabled()
                && let Some(started) = self.first_record(run).await?
            {
                self.runtime.set_span_parent(&span, &started.request);
            }
        }
        Ok(())
    }

    /// The ratings of a run, ordered by the names of its parts. Requires
    /// [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If there is no such run, the principal may not read it, or the store fails.
    pub async fn feedback(&self, run: RunId) -> Result<Vec<Feedback>, ControlError> {
        self.info(run).await?;
        let filter = DocumentFilter::below(self.feedback_prefix(run));
        let kept = self.log().store().documents(filter).await?;
        Ok(kept.iter().filter_map(|kept| serde_json::from_str(&kept.text).ok()).collect())
    }

    /// Deletes the ratings of a deleted run.
    pub(super) async fn forget_feedback(&self, run: RunId) -> Result<(), ControlError> {
        let store = self.log().store();
        let filter = DocumentFilter::below(self.feedback_prefix(run));
        for kept in store.documents(filter).await? {
            store.put_document(kept.name, None, Expected::Anything).await?;
        }
        Ok(())
    }

    fn feedback_prefix(&self, run: RunId) -> String {
        format!("feedback/{}/{run}/", segment(&self.who.tenant))
    }
}
