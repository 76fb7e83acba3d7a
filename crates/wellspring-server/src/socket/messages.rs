//! Messages that wait for a connection.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;

/// Messages in one buffer: a frame of a run can be hundreds of messages, and a text for each would
/// be an allocation for each.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// The end of each message in `bytes`.
    ends: Vec<usize>,
}

impl Messages {
    /// Adds a message.
    pub(crate) fn push(&mut self, text: &str) {
        self.write(|bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Adds a message that is written in pieces. It must be UTF-8.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The size of all messages.
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the messages. They share one buffer.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Utf8Bytes> + Send + use<> {
        let all = Bytes::from(std::mem::take(&mut self.bytes));
        let mut start = 0;
        std::mem::take(&mut self.ends).into_iter().filter_map(move |end| {
            let message = all.slice(start..end);
            start = end;
            // What is written is UTF-8.
            Utf8Bytes::try_from(message).ok()
        })
    }
}

impl<'a> Extend<&'a str> for Messages {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_as_they_were_written() {
        let mut messages = Messages::default();
        messages.extend(["one", "", "größer"]);
        messages.write(|bytes| bytes.extend_from_slice(b"[1,2]"));
        assert_eq!((messages.is_empty(), messages.bytes_len()), (false, 16));
        let taken: Vec<String> = messages.take().map(|it| it.to_string()).collect();
        assert_eq!(taken, ["one", "", "größer", "[1,2]"]);
        assert_eq!((messages.is_empty(), messages.take().count()), (true, 0));
    }
}
