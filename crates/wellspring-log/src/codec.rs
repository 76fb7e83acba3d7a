//! The stored form of a frame.
//!
//! ```text
//! version: u8, base time: varint, records.., crc32 of all before it: u32, little-endian
//! record:  tag: u8, agent: varint, time since the record before: zigzag varint, then
//!   tag 1, a delta:        part: varint, length: varint, text
//!   tag 0, anything else:  length: varint, the event as externally tagged JSON
//! ```
//!
//! Sequence numbers are not included: a frame is stored with its position. Deltas are encoded
//! by hand because most records are deltas. The format is permanent: a new one gets a new
//! [`VERSION`], and this one stays readable.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{AgentNo, Event, EventBuffer, Millis, PartId, Record, Seq};

/// The version that [`encode`] writes.
pub const VERSION: u8 = 1;

/// Maximum nesting of an event: four times what JSON readers accept from a wire, and small
/// enough for any thread's stack.
pub const DEPTH_MAX: usize = 512;

const TAG_EVENT: u8 = 0;
const TAG_DELTA: u8 = 1;
const CRC_BYTES: usize = 4;

/// An event that cannot be stored.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// It nests deeper than [`DEPTH_MAX`].
    #[error("record {0} nests deeper than {DEPTH_MAX} levels")]
    TooDeep(Seq),
    /// It cannot be serialised as JSON.
    #[error("record {seq} cannot be written as JSON: {what}")]
    NotJson {
        /// The record.
        seq: Seq,
        /// The serialiser's message.
        what: String,
    },
}

/// Bytes that are not a frame.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the frame is cut short")]
    Truncated,
    /// A newer program wrote the frame.
    #[error("the frame has format {0}; this program reads up to {VERSION}")]
    Version(u8),
    /// The bytes were changed.
    #[error("the frame's checksum does not match")]
    Checksum,
    /// The checksum matches, but the content is invalid.
    #[error("the frame is malformed at byte {at}: {what}")]
    Malformed {
        /// The offset.
        at: usize,
        /// What was found there.
        what: String,
    },
}

/// Encodes records with consecutive numbers.
///
/// # Errors
///
/// If an event cannot be stored. Events that were parsed from JSON can.
pub fn encode(records: &[Record]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(16 + records.len() * 24);
    out.push(VERSION);
    let mut before = records.first().map_or(0, |record| record.at.0);
    put_varint(&mut out, before);
    let mut json = Vec::new();
    for record in records {
        let head = |out: &mut Vec<u8>, tag| {
            out.push(tag);
            put_varint(out, u64::from(record.agent.0));
            put_varint(out, zigzag(record.at.0.wrapping_sub(before).cast_signed()));
        };
        if let Event::PartDelta { part, chunk } = &record.event {
            head(&mut out, TAG_DELTA);
            put_varint(&mut out, u64::from(part.0));
            put_varint(&mut out, chunk.len() as u64);
            out.extend_from_slice(chunk.as_bytes());
        } else {
            json.clear();
            serde_json::to_writer(&mut json, &record.event).map_err(|error| {
                EncodeError::NotJson { seq: record.seq, what: error.to_string() }
            })?;
            if depth(&json) > DEPTH_MAX {
                return Err(EncodeError::TooDeep(record.seq));
            }
            head(&mut out, TAG_EVENT);
            put_varint(&mut out, json.len() as u64);
            out.extend_from_slice(&json);
        }
        before = record.at.0;
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(out)
}

/// Decodes a frame. The text of all deltas is in one buffer.
///
/// # Errors
///
/// If the bytes were not written by [`encode`] of this version or an earlier one.
pub fn decode(first: Seq, body: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let version = *body.first().ok_or(DecodeError::Truncated)?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let (content, crc) = body.split_last_chunk::<CRC_BYTES>().ok_or(DecodeError::Truncated)?;
    if crc32fast::hash(content).to_le_bytes() != *crc {
        return Err(DecodeError::Checksum);
    }
    let mut input = Input { bytes: content, at: 1 };
    let mut at = input.varint()?;
    // No capacity is reserved from lengths in the input, so memory is bounded by the input's
    // size.
    let mut events = EventBuffer::default();
    while input.at < content.len() {
        let tag = input.byte()?;
        let agent = AgentNo(input.varint_u32()?);
        at = at.wrapping_add(unzigzag(input.varint()?).cast_unsigned());
        let tagged = (agent, Millis(at));
        match tag {
            TAG_DELTA => {
                let part = PartId(input.varint_u32()?);
                let malformed = input.malformed("a delta is not UTF-8");
                let text = std::str::from_utf8(input.block()?).map_err(|_| malformed)?;
                events.delta(tagged, part, text);
            }
            TAG_EVENT => {
                let start = input.at;
                let event = from_json(input.block()?)
                    .map_err(|what| DecodeError::Malformed { at: start, what })?;
                events.event(tagged, event);
            }
            other => return Err(input.malformed(&format!("unknown tag {other}"))),
        }
    }
    let records = events.into_events().zip(first.0..);
    let records =
        records.map(|(((agent, at), event), seq)| Record { seq: Seq(seq), agent, at, event });
    Ok(records.collect())
}

/// Whether the bytes end with their own checksum, as everything that [`encode`] wrote does.
#[cfg(feature = "sqlite")]
pub(crate) fn is_whole(body: &[u8]) -> bool {
    body.split_last_chunk::<CRC_BYTES>()
        .is_some_and(|(content, crc)| crc32fast::hash(content).to_le_bytes() == *crc)
}

/// The approximate encoded size of an event, in bytes.
#[must_use]
pub fn weight(event: &Event) -> usize {
    /// Tag, agent, time, part and length.
    const RECORD_BYTES: usize = 8;
    if let Event::PartDelta { chunk, .. } = event {
        return RECORD_BYTES + chunk.len();
    }
    let mut counted = Counted(0);
    // An event that cannot be serialised is rejected when the frame is encoded.
    let _ = serde_json::to_writer(&mut counted, event);
    RECORD_BYTES + counted.0
}

/// Writes a value that [`from_json`] reads back.
pub(crate) fn to_json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    if depth(&json) > DEPTH_MAX { Err("it is nested too deeply".into()) } else { Ok(json) }
}

/// Parses our own JSON. serde's limit of 128 levels is too low: a value that arrived with 127
/// levels is a few levels deeper inside an event.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    if depth(json) > DEPTH_MAX {
        return Err("it is nested too deeply".into());
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number is too long"))
    }

    fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.malformed("an id is too large"))
    }

    /// A length, followed by as many bytes.
    fn block(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
        let end = self.at.checked_add(length).ok_or(DecodeError::Truncated)?;
        let block = self.bytes.get(self.at..end).ok_or(DecodeError::Truncated)?;
        self.at = end;
        Ok(block)
    }

    fn malformed(&self, what: &str) -> DecodeError {
        DecodeError::Malformed { at: self.at, what: what.into() }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// The maximum nesting of a JSON text, found without parsing it.
fn depth(json: &[u8]) -> usize {
    let (mut deepest, mut now) = (0usize, 0usize);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' => now = now.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => {
                            bytes.next();
                        }
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
