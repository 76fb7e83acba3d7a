//! Positions in a stream.

use std::fmt;
use std::str::FromStr;

use wellspring_core::Seq;

/// A position in a stream: after some of a record's events, or after all of them.
///
/// A record can produce several wire events, or no event, so the record's number alone is not
/// enough to resume. As text, a position is `seq.k` after the record's `k`th event, and `seq` after
/// its last. This is the `id:` of an SSE event.
///
/// ```
/// use wellspring_core::Seq;
/// use wellspring_wire::WirePosition;
///
/// assert_eq!("7.1".parse(), Ok(WirePosition { seq: Seq(7), k: Some(1) }));
/// assert_eq!(WirePosition::after(Seq(7)).to_string(), "7");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct WirePosition {
    /// The record.
    pub seq: Seq,
    /// The number of its events that were received; `None` if all were.
    pub k: Option<u32>,
}

impl WirePosition {
    /// Before the first record.
    pub const START: Self = Self::after(Seq(0));

    /// After all events of a record.
    #[must_use]
    pub const fn after(seq: Seq) -> Self {
        Self { seq, k: None }
    }

    /// The last record whose events were all received: reading continues after it.
    #[must_use]
    pub fn whole(self) -> Seq {
        match self.k {
            None => self.seq,
            Some(_) => Seq(self.seq.0.saturating_sub(1)),
        }
    }
}

impl fmt::Display for WirePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.k {
            None => self.seq.fmt(f),
            Some(k) => write!(f, "{}.{k}", self.seq),
        }
    }
}

/// A text that is not a position.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a position: expected a record's number, or `number.k` within a record")]
pub struct ParsePositionError {
    text: String,
}

impl FromStr for WirePosition {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        fn number<T: FromStr>(text: &str) -> Option<T> {
            // `parse` also accepts a plus sign, which would give one position two texts.
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        }
        let position = match text.split_once('.') {
            None => number(text).map(|seq| Self::after(Seq(seq))),
            Some((seq, k)) => {
                number(seq).zip(number(k)).map(|(seq, k)| Self { seq: Seq(seq), k: Some(k) })
            }
        };
        position.ok_or_else(|| ParsePositionError { text: text.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_position_says_so() {
        for text in ["", "x", "1.", ".1", "1.2.3", "-1", "+1", "1.+1", " 1", "18446744073709551616"]
        {
            let error = text.parse::<WirePosition>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{text:?} is not a position: expected a record's number, or `number.k` \
                     within a record"
                ),
            );
        }
    }

    #[test]
    fn reading_goes_on_after_the_last_whole_record() {
        assert_eq!(WirePosition::after(Seq(5)).whole(), Seq(5));
        assert_eq!(WirePosition { seq: Seq(5), k: Some(1) }.whole(), Seq(4));
        assert_eq!(WirePosition { seq: Seq(0), k: Some(1) }.whole(), Seq(0));
    }

    proptest! {
        #[test]
        fn text_and_back(seq: u64, k: Option<u32>) {
            let position = WirePosition { seq: Seq(seq), k };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }
    }
}
