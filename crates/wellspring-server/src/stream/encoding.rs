//! Events as the wire has them.

use std::cell::RefCell;
use std::collections::BTreeSet;

use bytes::{BufMut as _, Bytes, BytesMut};
use wellspring_log::FrameSlice;
use wellspring_wire::{DialectName, Encoder, Out, WirePosition, ag_ui};

use super::Form;
use crate::error::ApiError;
use crate::kind::kind;

/// AG-UI's events as the wire has them, without ids: they stand for no record.
pub(crate) fn ag_ui_bytes(events: &[ag_ui::types::Event], form: Form) -> Bytes {
    let mut bytes = Vec::new();
    for event in events {
        match form {
            Form::Bare => ag_ui::proto::frame(event, &mut bytes),
            Form::Sse => {
                bytes.extend_from_slice(b"data: ");
                if serde_json::to_writer(&mut bytes, event).is_ok() {
                    bytes.extend_from_slice(b"\n\n");
                }
            }
        }
    }
    bytes.into()
}

thread_local! {
    /// Where frames are encoded; what readers get is cut to size.
    static SCRATCH: RefCell<Out> = RefCell::default();
}

pub(super) fn encode(encoder: &mut Encoder, slice: &FrameSlice, form: Form) -> Bytes {
    #[cfg(test)]
    super::tests::ENCODED.with(|count| count.set(count.get() + 1));
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        encoder.frame(slice, out);
        match form {
            Form::Sse => sse(out),
            Form::Bare => bare(out),
        }
    })
}

fn bare(out: &Out) -> Bytes {
    let mut bytes = BytesMut::with_capacity(out.bytes_len());
    for (_, event) in out.events() {
        bytes.put_slice(event);
    }
    bytes.freeze()
}

/// Server-sent events; JSON has no line breaks of its own.
fn sse(out: &Out) -> Bytes {
    if out.is_empty() {
        return Bytes::new();
    }
    // "id: ", "data: ", three line breaks and a position of usual length.
    let mut bytes = BytesMut::with_capacity(out.bytes_len() + out.len() * 24);
    for (position, json) in out.events() {
        bytes.put_slice(b"id: ");
        put_position(&mut bytes, position);
        bytes.put_slice(b"\ndata: ");
        bytes.put_slice(json);
        bytes.put_slice(b"\n\n");
    }
    bytes.freeze()
}

fn put_position(bytes: &mut BytesMut, position: WirePosition) {
    put_number(bytes, position.seq.0);
    if let Some(k) = position.k {
        bytes.put_u8(b'.');
        put_number(bytes, u64::from(k));
    }
}

/// Decimal digits, without the machinery of formatting: this runs once per event.
fn put_number(bytes: &mut BytesMut, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    bytes.put_slice(&digits[at..]);
}

/// The records of some kinds, in their own JSON.
pub(super) fn some_records(kinds: &BTreeSet<&'static str>, slice: &FrameSlice) -> Bytes {
    let mut out = Out::default();
    for record in slice.iter().filter(|record| kinds.contains(kind(&record.event))) {
        out.begin(record.seq);
        out.event(record);
    }
    sse(&out)
}

/// A wire that closes before its run has ended says so in its own words, and without an id.
pub(super) fn closed(dialect: DialectName, form: Form, error: &ApiError) -> Bytes {
    let message = format!("{}; {}", error.message, error.remedy);
    if form == Form::Bare {
        let error = ag_ui::types::RunError {
            message: message.into(),
            code: Some(error.code.into()),
            ..ag_ui::types::RunError::default()
        };
        let mut bytes = Vec::new();
        ag_ui::proto::frame(&error.into(), &mut bytes);
        return bytes.into();
    }
    let json = match dialect {
        DialectName::AgentEvent => serde_json::json!({"type": "error", "error": message}),
        DialectName::TurnEvent => {
            serde_json::json!({"type": "error", "error": {"message": message}})
        }
        DialectName::AgUi => {
            serde_json::json!({"type": "RUN_ERROR", "message": message, "code": error.code})
        }
        DialectName::StreamDelta => serde_json::json!({"phase": "error", "error": message}),
        DialectName::Record
        | DialectName::ThoughtEvent
        | DialectName::StreamingEvent
        | DialectName::Acp => {
            return Bytes::from(format!("event: closed\ndata: {}\n\n", error.json()));
        }
    };
    Bytes::from(format!("data: {json}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn numbers_are_written_as_people_write_them() {
        for number in [0, 7, 10, 12345, u64::MAX] {
            let mut bytes = BytesMut::new();
            put_number(&mut bytes, number);
            assert_eq!(bytes, number.to_string());
        }
    }
}
