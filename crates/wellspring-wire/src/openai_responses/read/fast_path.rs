//! Reads deltas, the most frequent events, without a parser.

use wellspring_core::Batch;

use super::Reader;
use super::item::Place;
use crate::provider::ReadError;
use crate::provider::scan::{Quoted, Scan};

/// A delta as on the wire.
#[derive(Default)]
struct HotDelta<'a> {
    place: Option<Place>,
    refuses: bool,
    output_index: Option<u64>,
    content_index: u64,
    summary_index: u64,
    item_id: Quoted<'a>,
    text: Quoted<'a>,
}

impl Reader {
    /// Reads a delta of a known item; `None` leaves the event to the parser.
    pub(super) fn hot(&mut self, data: &[u8], batch: &mut Batch) -> Option<Result<(), ReadError>> {
        if let Some(((item, piece), text)) = self.last.find(data) {
            return self.take(item, piece, text, batch);
        }
        let mut scan = Scan::new(data);
        let delta = hot_delta(&mut scan)?;
        let place = delta.place?;
        let index = match place {
            Place::Content => delta.content_index,
            Place::Summary => delta.summary_index,
            Place::Arguments => 0,
        };
        let id = Some(delta.item_id.plain()?).filter(|id| !id.is_empty());
        let item = self.find(delta.output_index, id)?;
        let piece = match self.items[item].piece(place, index, batch) {
            Ok(piece) => piece,
            Err(error) => return Some(Err(error)),
        };
        let taken = self.take(item, piece, delta.text, batch)?;
        self.refused |= delta.refuses;
        self.last.learn(&scan, delta.text, (item, piece));
        Some(taken)
    }

    /// Adds a delta. It may end in a high surrogate, which no parser accepts.
    fn take(
        &mut self,
        item: usize,
        piece: usize,
        text: Quoted<'_>,
        batch: &mut Batch,
    ) -> Option<Result<(), ReadError>> {
        let item = self.items.get_mut(item)?;
        let text = text.text(&mut self.scratch, &mut item.pieces.get_mut(piece)?.half)?;
        Some(item.delta(piece, text, batch))
    }
}

fn hot_delta<'a>(scan: &mut Scan<'a>) -> Option<HotDelta<'a>> {
    let mut delta = HotDelta::default();
    scan.object(|key, scan| {
        match key {
            b"type" => {
                let kind = scan.string()?.plain()?;
                delta.refuses = kind == "response.refusal.delta";
                delta.place = Some(match kind {
                    "response.output_text.delta"
                    | "response.refusal.delta"
                    | "response.reasoning_text.delta" => Place::Content,
                    "response.reasoning_summary_text.delta" => Place::Summary,
                    "response.function_call_arguments.delta"
                    | "response.mcp_call_arguments.delta"
                    | "response.custom_tool_call_input.delta"
                    | "response.code_interpreter_call_code.delta" => Place::Arguments,
                    _ => return None,
                });
            }
            b"output_index" => delta.output_index = Some(scan.number()?),
            b"content_index" => delta.content_index = scan.number()?,
            b"summary_index" => delta.summary_index = scan.number()?,
            b"item_id" => delta.item_id = scan.string()?,
            b"delta" => delta.text = scan.string()?,
            b"sequence_number" | b"obfuscation" => scan.vary()?,
            _ => scan.skip()?,
        }
        Some(())
    })?;
    scan.end()?;
    Some(delta)
}
