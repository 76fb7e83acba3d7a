//! Starts and ends of items and responses, including whole ones.

use serde_json::Value;
use wellspring_core::{Batch, PartKind, Stop, Usage};

use super::super::items::{ItemType, action};
use super::super::types::{Response, UsageBody};
use super::Reader;
use super::item::{Form, Place, What, keep_opaque};
use crate::provider::text::member;
use crate::provider::{Failure, ReadError, stop_reason};

impl Reader {
    pub(super) fn begin_item(
        &mut self,
        index: Option<u64>,
        item: &Value,
        batch: &mut Batch,
    ) -> Result<usize, ReadError> {
        let id = member(item, "id").unwrap_or_default();
        let kind = ItemType::of(item);
        let what = match &kind {
            ItemType::Message => What::Message,
            ItemType::Reasoning => What::Reasoning,
            ItemType::FunctionCall => What::Call(Form::Json),
            ItemType::CustomToolCall => What::Call(Form::Text),
            ItemType::Hosted(hosted) if hosted.streams_code() => What::Call(Form::Code),
            ItemType::Hosted(hosted) if hosted.streams_arguments() => What::Call(Form::Json),
            ItemType::Hosted(_) => What::Hosted,
            ItemType::Action(_) | ItemType::Other => What::Late,
        };
        let at = self.add(index, id, what)?;
        match kind {
            ItemType::FunctionCall | ItemType::CustomToolCall => {
                self.called = true;
                let name = self.names.ours(member(item, "name").unwrap_or_default()).to_owned();
                self.items[at].open_call(PartKind::call(name), batch);
                let call_id = member(item, "call_id").or(member(item, "id"));
                self.items[at].identify(call_id, batch);
            }
            ItemType::Hosted(hosted) => {
                self.items[at].at_provider = true;
                self.items[at].open_call(hosted.call(item), batch);
                self.items[at].identify(member(item, "id"), batch);
                if what == What::Hosted {
                    if let Some(arguments) = hosted.arguments(item) {
                        self.items[at].delta(0, &arguments.to_string(), batch)?;
                    }
                    self.items[at].start_at_provider(0, batch);
                }
            }
            ItemType::Message | ItemType::Reasoning | ItemType::Action(_) | ItemType::Other => {}
        }
        Ok(at)
    }

    /// Completes an item: reads what was not streamed, closes its parts, and keeps the data
    /// that must be sent back with them.
    pub(super) fn finish_item(
        &mut self,
        index: Option<u64>,
        mut value: Value,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let id = member(&value, "id").unwrap_or_default();
        let known = self.items.iter().rposition(|item| match index {
            Some(index) => item.index == Some(index),
            None if id.is_empty() => !item.done && item.id.is_empty(),
            None => *item.id == *id,
        });
        let at = match known {
            Some(at) if self.items[at].done => return Ok(()),
            Some(at) => at,
            None => self.begin_item(index, &value, batch)?,
        };
        self.items[at].done = true;
        let item = &mut self.items[at];
        match ItemType::of(&value) {
            ItemType::Message => {
                self.refused |= list(&value, "content").any(|part| part.get("refusal").is_some());
                item.finish_pieces(&mut value, "content", Place::Content, batch)?;
                item.close_all(batch);
                item.keep(value, batch);
            }
            ItemType::Reasoning => {
                item.finish_pieces(&mut value, "summary", Place::Summary, batch)?;
                item.finish_pieces(&mut value, "content", Place::Content, batch)?;
                if item.pieces.is_empty() {
                    item.piece(Place::Summary, 0, batch)?;
                }
                item.close_all(batch);
                item.keep(value, batch);
            }
            ItemType::FunctionCall => item.finish_call(value, "arguments", batch)?,
            ItemType::CustomToolCall => item.finish_call(value, "input", batch)?,
            ItemType::Hosted(hosted) => item.finish_hosted(hosted, value, batch)?,
            ItemType::Action(name) => {
                self.called = true;
                item.open_call(PartKind::call(name), batch);
                item.identify(member(&value, "call_id").or(member(&value, "id")), batch);
                let arguments = action(&value).cloned().unwrap_or_default();
                item.delta(0, &arguments.to_string(), batch)?;
                item.close(0, batch);
                item.keep(value, batch);
            }
            ItemType::Other => keep_opaque(value, batch),
        }
        Ok(())
    }

    pub(super) fn finish(
        &mut self,
        response: Response,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        if let Some(error) = response.error {
            return Err(ReadError::Failed(Failure::of_error(&error)));
        }
        self.model = response.model.or(self.model.take());
        if let Some(id) = &response.id {
            batch.set_response_id(id);
        }
        for (index, item) in response.output.unwrap_or_default().into_iter().enumerate() {
            let index = self.index_of(index as u64, &item);
            self.finish_item(index, item, batch)?;
        }
        let status = response.status.as_deref().and_then(stop_reason);
        let completed = status != Some("incomplete");
        for item in &mut self.items {
            item.end(completed, batch)?;
        }
        let usage = response.usage.map(|usage| self.usage(&usage));
        let stop = match status {
            Some("completed") | None if self.refused => Stop::Refusal,
            Some("completed") | None if self.called => Stop::ToolCalls,
            Some("completed") | None => Stop::EndTurn,
            Some("incomplete") => {
                match response.incomplete_details.and_then(|details| details.reason).as_deref() {
                    Some("max_output_tokens" | "max_tokens") | None => Stop::MaxTokens,
                    Some("content_filter") => Stop::ContentFilter,
                    Some(reason) => Stop::Other(reason.into()),
                }
            }
            Some(status @ ("failed" | "cancelled")) => {
                let error = Value::from(format!("the response was {status}"));
                return Err(ReadError::Failed(Failure::of_error(&error)));
            }
            Some(status) => {
                return Err(ReadError::Order(format!("the response ended as {status}").into()));
            }
        };
        if !std::mem::replace(&mut self.stopped, true) {
            batch.stop(stop, usage);
        }
        Ok(())
    }

    /// The key of an item in a whole response: compatible servers that omit `output_index` give
    /// ids.
    fn index_of(&self, index: u64, item: &Value) -> Option<u64> {
        let id = member(item, "id").unwrap_or_default();
        let by_id = self.items.iter().find(|known| !id.is_empty() && &*known.id == id);
        match by_id {
            Some(known) => known.index,
            None if self.items.iter().all(|known| known.index.is_some()) => Some(index),
            None => None,
        }
    }

    fn usage(&self, usage: &UsageBody) -> Usage {
        Usage {
            provider: Some("openai".into()),
            model: self.model.clone(),
            input: usage.input_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            reasoning: usage
                .output_tokens_details
                .as_ref()
                .and_then(|details| details.reasoning_tokens),
            cached_input: usage
                .input_tokens_details
                .as_ref()
                .and_then(|details| details.cached_tokens),
            ..Usage::default()
        }
    }
}

fn list<'v>(item: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    item.get(name).and_then(Value::as_array).into_iter().flatten()
}
