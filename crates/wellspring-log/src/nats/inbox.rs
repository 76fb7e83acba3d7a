//! Puts commands into the inboxes of runs.

use tokio::time::Instant;
use wellspring_core::{InboxNo, RunId};

use super::api::How;
use super::projection::Projection;
use super::shared::Shared;
use super::wire::{self, Entry, InboxLine};
use crate::inbox::{InboxEntry, NewCommand, Plan, PutAll};
use crate::lock;
use crate::store::StoreError;

impl Shared {
    pub(super) async fn put_inbox(
        &self,
        run: RunId,
        commands: Vec<NewCommand>,
    ) -> Result<PutAll, StoreError> {
        let _alone = self.deciding(&format!("put.{run}")).await;
        let until = Instant::now() + self.api.settle;
        loop {
            // A taken key or a full inbox is only reported if the projection is current.
            self.current().await?;
            let (plan, of, sequence) = {
                let projection = lock(&self.projection);
                let places = &projection.index.kept(run)?.frames;
                let (of, sequence) = (places.created, places.inbox_sequence);
                (projection.index.plan_inbox(run, commands.clone())?, of, sequence)
            };
            let (puts, new) = match plan {
                Plan::KeyTaken { index, number } => return Ok(PutAll::KeyTaken { index, number }),
                Plan::Put { puts, new } if new.is_empty() => return Ok(PutAll::Done(puts)),
                Plan::Put { puts, new } => (puts, new),
            };
            self.has_room()?;
            // Written first, because the audit entry and the command cannot be written in one step.
            for audit in new.iter().filter_map(|(_, new)| new.audit.clone()) {
                self.put_audit(audit).await?;
            }
            let line = |(number, new): (InboxNo, NewCommand)| InboxLine {
                number,
                key: new.key,
                command: new.command,
            };
            let entries = new.into_iter().map(line).collect();
            let message =
                self.outgoing(wire::inbox_subject(run), Entry::Inbox { of, entries }, &[])?;
            if message.payload.len() + 1024 > self.payload_max {
                return Err(StoreError::Full {
                    what: "a message with commands",
                    max: self.payload_max,
                    remedy: "put fewer at once, or raise `max_payload` of the NATS server",
                });
            }
            let seen = |projection: &Projection| {
                let places = projection.index.runs.get(&run).map(|kept| &kept.frames);
                places
                    .filter(|places| places.created == of && places.inbox_sequence == sequence)
                    .map(|_| sequence)
                    .ok_or(())
            };
            match self.publish_fenced(&message, How::default(), seen).await? {
                // The run may have ended just before. In that case every node ignores the commands,
                // and this returns the error.
                Ok(_) => {
                    lock(&self.projection).index.plan_inbox(run, commands)?;
                    return Ok(PutAll::Done(puts));
                }
                Err(()) if Instant::now() >= until => {
                    let cause = "others write to the same inbox all the time";
                    return Err(StoreError::failed("putting commands", cause));
                }
                // Another node wrote to the inbox first, so the commands are planned again.
                Err(()) => {}
            }
        }
    }

    /// Stores the inbox of a run that is being copied, with the original numbers. Each command is a
    /// message of its own, because commands may be large.
    pub(super) async fn import_inbox(
        &self,
        run: RunId,
        entries: Vec<InboxEntry>,
    ) -> Result<(), StoreError> {
        self.current().await?;
        for InboxEntry { number, key, command } in entries {
            self.has_room()?;
            let of = lock(&self.projection).index.kept(run)?.frames.created;
            let entries = vec![InboxLine { number, key, command }];
            let message =
                self.outgoing(wire::inbox_subject(run), Entry::Inbox { of, entries }, &[])?;
            self.publish(&message, How::default()).await?;
        }
        Ok(())
    }
}
