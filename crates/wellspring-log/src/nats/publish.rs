//! Publishes a message, again and again until it is known whether it was stored.

use tokio::time::Instant;

use super::api::{How, PublishError};
use super::projection::Projection;
use super::shared::Shared;
use super::wire::Outgoing;
use crate::lock;
use crate::store::StoreError;

impl Shared {
    /// Waits until this node has applied the last message of a subject. Returns its sequence: `Ok`
    /// if the message has this id, otherwise `Err`.
    pub(super) async fn last_of(
        &self,
        subject: &str,
        id: &str,
    ) -> Result<Result<u64, u64>, StoreError> {
        let Some(last) = self.api.last_of(subject).await? else { return Ok(Err(0)) };
        self.applied_to(last.sequence).await?;
        Ok(if last.id.as_deref() == Some(id) { Ok(last.sequence) } else { Err(last.sequence) })
    }

    /// Writes a message until it is stored or refused. `judge` decides from the projection: it
    /// returns the last sequence that the message's subject must have, or the refusal. A refusal is
    /// final only if the projection is current.
    pub(super) async fn publish_fenced<T>(
        &self,
        message: &Outgoing,
        how: How,
        mut judge: impl FnMut(&Projection) -> Result<u64, T>,
    ) -> Result<Result<u64, T>, StoreError> {
        let _alone = self.alone(&message.subject).await;
        let until = Instant::now() + self.api.settle;
        let (mut is_current, mut known) = (false, None);
        loop {
            let judged = judge(&lock(&self.projection));
            let expected = match judged {
                Ok(expected) => known.unwrap_or(expected),
                Err(refused) if is_current => return Ok(Err(refused)),
                Err(_) => {
                    self.current().await?;
                    is_current = true;
                    continue;
                }
            };
            let how = How { expected: Some(expected), ..how };
            match self.api.publish(message, how).await {
                Ok(sequence) => {
                    self.applied_to(sequence).await?;
                    return Ok(Ok(sequence));
                }
                Err(PublishError::Store(error)) => return Err(error),
                Err(PublishError::Conflict) if Instant::now() >= until => {
                    let cause = "others write to the same subject all the time";
                    return Err(StoreError::failed("writing to the stream", cause));
                }
                Err(PublishError::Conflict) => {
                    match self.last_of(&message.subject, &message.id).await? {
                        Ok(sequence) => return Ok(Ok(sequence)),
                        Err(last) => (known, is_current) = (Some(last), true),
                    }
                }
            }
        }
    }

    /// Writes a message without a fence and returns its sequence.
    pub(super) async fn publish(&self, message: &Outgoing, how: How) -> Result<u64, StoreError> {
        match self.api.publish(message, how).await {
            Ok(sequence) => self.applied_to(sequence).await.map(|()| sequence),
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("writing to the stream", "a conflict without a fence"))
            }
        }
    }
}
