//! Text deltas that share one buffer.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A piece of text inside a buffer that neighbouring deltas share.
///
/// A frame of fifty deltas holds one allocation, not fifty; cloning copies no text.
#[derive(Clone)]
pub struct Chunk {
    buffer: Arc<str>,
    start: u32,
    end: u32,
}

impl Chunk {
    /// The piece of `buffer` between two byte offsets.
    ///
    /// Offsets that do not lie on character boundaries, or are beyond the buffer, give an empty
    /// chunk.
    #[must_use]
    pub fn slice(buffer: &Arc<str>, start: usize, end: usize) -> Self {
        match (buffer.get(start..end), u32::try_from(start), u32::try_from(end)) {
            (Some(_), Ok(start), Ok(end)) => Self { buffer: Arc::clone(buffer), start, end },
            _ => Self { buffer: Arc::from(""), start: 0, end: 0 },
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.buffer[self.start as usize..self.end as usize]
    }
}

impl Deref for Chunk {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Chunk {
    fn from(text: &str) -> Self {
        Self::slice(&Arc::from(text), 0, text.len())
    }
}

impl From<String> for Chunk {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Chunk {}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Chunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}
