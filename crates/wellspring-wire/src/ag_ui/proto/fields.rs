//! The subset of protobuf that writing needs.

use serde_json::{Map, Value};

/// Values nested deeper than this are written as `null`. Our own values never are, and a peer's
/// must not exhaust the stack.
const DEPTH_MAX: u32 = 64;

/// The fields of one message, written one after the other.
pub(super) struct Fields<'a> {
    bytes: &'a mut Vec<u8>,
    depth: u32,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, depth: 0 }
    }

    /// Writes a message, also if it is empty.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Fields<'_>)) {
        self.key(field, 2);
        let start = self.bytes.len();
        // Most messages are shorter than 128 bytes, so that one byte holds the length.
        self.bytes.push(0);
        write(&mut Fields { bytes: self.bytes, depth: self.depth + 1 });
        let mut length = Vec::new();
        varint(&mut length, (self.bytes.len() - start - 1) as u64);
        match length[..] {
            [one] => self.bytes[start] = one,
            _ => drop(self.bytes.splice(start..=start, length)),
        }
    }

    /// A required string. Protobuf does not distinguish absent from empty.
    pub(super) fn string(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.present(field, text);
        }
    }

    /// An optional string that is present, possibly empty.
    pub(super) fn present(&mut self, field: u32, text: &str) {
        self.key(field, 2);
        varint(self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn optional(&mut self, field: u32, text: Option<&str>) {
        if let Some(text) = text {
            self.present(field, text);
        }
    }

    /// A required number. Protobuf does not distinguish absent from zero.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, 0);
            varint(self.bytes, number);
        }
    }

    pub(super) fn optional_integer(&mut self, field: u32, integer: Option<i64>) {
        if let Some(integer) = integer {
            self.key(field, 0);
            varint(self.bytes, integer.cast_unsigned());
        }
    }

    pub(super) fn optional_bool(&mut self, field: u32, flag: Option<bool>) {
        if let Some(flag) = flag {
            self.key(field, 0);
            varint(self.bytes, flag.into());
        }
    }

    /// Any JSON: `google.protobuf.Value`.
    pub(super) fn value(&mut self, field: u32, value: &Value) {
        self.message(field, |f| match value {
            Value::Bool(flag) => f.optional_bool(4, Some(*flag)),
            Value::Number(number) => {
                f.key(2, 1);
                let number = number.as_f64().unwrap_or_default();
                f.bytes.extend_from_slice(&number.to_le_bytes());
            }
            Value::String(text) => f.present(3, text),
            Value::Object(object) if f.depth < DEPTH_MAX => f.object(5, object),
            Value::Array(list) if f.depth < DEPTH_MAX => f.message(6, |f| {
                for value in list {
                    f.value(1, value);
                }
            }),
            Value::Null | Value::Object(_) | Value::Array(_) => f.optional_bool(1, Some(false)),
        });
    }

    /// A JSON object: `google.protobuf.Struct`.
    pub(super) fn object(&mut self, field: u32, object: &Map<String, Value>) {
        self.message(field, |f| {
            for (name, value) in object {
                f.message(1, |f| {
                    f.string(1, name);
                    f.value(2, value);
                });
            }
        });
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        varint(self.bytes, u64::from(field << 3 | wire_type));
    }
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
