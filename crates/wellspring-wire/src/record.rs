//! The native form: the record's own JSON. Nothing is lost.

use wellspring_core::{Event, Outline, Record};

use crate::dialect::Dialect;
use crate::out::Out;

#[cfg(test)]
mod tests;

/// The records as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records;

impl Dialect for Records {
    fn encode(&mut self, _: &Outline, record: &Record, out: &mut Out) {
        // Nearly all records are the root's deltas: these are written by hand.
        if let Event::PartDelta { part, chunk } = &record.event
            && record.agent.is_root()
        {
            out.write(|json| {
                json.raw(r#"{"seq":"#).value(&record.seq).raw(r#","at":"#).value(&record.at);
                json.raw(r#","event":{"part_delta":{"part":"#).value(part);
                json.raw(r#","chunk":"#).string(chunk).raw("}}}");
            });
        } else {
            out.event(record);
        }
    }
}
