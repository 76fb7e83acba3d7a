//! The bytes around the text of a delta, which nearly always repeat in the next delta.

use super::scan::{Quoted, Scan, is_in_number};

/// Bytes around a text that are remembered: twice the length of the longest envelope seen.
const SURROUNDINGS_BYTES_MAX: usize = 1024;

/// The shape of an event, and its meaning.
///
/// Deltas of one part differ only in their text, and in values without meaning: a counter, a
/// time, padding. An event of the same shape has the same meaning with another text, and
/// checking the shape takes a few comparisons and no parser. The shape is learned from an event
/// that a [`Scan`] has walked.
#[derive(Debug)]
pub(crate) struct Surroundings<T> {
    /// All constant bytes, one stretch after the other.
    kept: Vec<u8>,
    /// The variable values between the stretches.
    gaps: Vec<Gap>,
    meaning: Option<T>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Gap {
    /// Its offset in the constant bytes.
    at: usize,
    holds: Holds,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Holds {
    /// The text of the delta.
    Text,
    /// A string without meaning.
    Word,
    /// A number without meaning.
    Number,
}

impl<T> Default for Surroundings<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), gaps: Vec::new(), meaning: None }
    }
}

impl<T: Copy> Surroundings<T> {
    /// The text of an event that has the remembered shape, and its meaning.
    pub(crate) fn find<'a>(&self, event: &'a [u8]) -> Option<(T, Quoted<'a>)> {
        let meaning = self.meaning?;
        let (mut rest, mut from) = (event, 0);
        let mut text = None;
        for gap in &self.gaps {
            rest = rest.strip_prefix(&self.kept[from..gap.at])?;
            from = gap.at;
            match gap.holds {
                Holds::Text => {
                    let (found, behind) = Quoted::cut(rest)?;
                    (text, rest) = (Some(found), behind);
                }
                Holds::Word => rest = Quoted::cut(rest)?.1,
                Holds::Number => {
                    let digits = rest.iter().take_while(|byte| is_in_number(**byte)).count();
                    rest = rest.get(digits..).filter(|_| digits > 0)?;
                }
            }
        }
        (rest == &self.kept[from..]).then_some((meaning, text?))
    }

    /// Remembers the shape of the event that `scan` walked. `text` is the delta's text in it.
    pub(crate) fn learn(&mut self, scan: &Scan<'_>, text: Quoted<'_>, meaning: T) {
        self.forget();
        let event = scan.whole();
        let Some(text) = text.place(event) else { return };
        if event.len() - text.len() > SURROUNDINGS_BYTES_MAX {
            return;
        }
        self.kept.clear();
        self.gaps.clear();
        let varying = scan.varying();
        let earlier = varying.partition_point(|range| range.start < text.start);
        let (earlier, later) = varying.split_at(earlier);
        let mut from = 0;
        for (range, is_text) in (earlier.iter().map(|range| (range, false)))
            .chain([(&text, true)])
            .chain(later.iter().map(|range| (range, false)))
        {
            self.kept.extend_from_slice(&event[from..range.start]);
            let holds = match self.kept.last() {
                _ if is_text => Holds::Text,
                Some(b'"') => Holds::Word,
                _ => Holds::Number,
            };
            self.gaps.push(Gap { at: self.kept.len(), holds });
            from = range.end;
        }
        self.kept.extend_from_slice(&event[from..]);
        self.meaning = Some(meaning);
    }

    /// Forgets the shape, because the next event of this shape may mean something else.
    pub(crate) fn forget(&mut self) {
        self.meaning = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::scan::{Half, VARYING_MAX};

    /// Learns from an event whose text is `t`; the value of `v` varies.
    fn learned(event: &str) -> Surroundings<u8> {
        let mut scan = Scan::new(event.as_bytes());
        let mut text = Quoted::default();
        let walked = scan.object(|key, scan| match key {
            b"t" => {
                text = scan.string()?;
                Some(())
            }
            b"v" => scan.vary(),
            _ => scan.skip(),
        });
        assert_eq!(walked, Some(()));
        let mut around = Surroundings::default();
        around.learn(&scan, text, 7);
        around
    }

    fn found(around: &Surroundings<u8>, event: &str) -> Option<String> {
        let (meaning, quoted) = around.find(event.as_bytes())?;
        assert_eq!(meaning, 7);
        quoted.text(&mut String::new(), &mut Half::default()).map(str::to_owned)
    }

    #[test]
    fn an_event_like_the_last_one() {
        assert_eq!(found(&Surroundings::default(), "{}"), None);
        let around = learned(r#"{"a":1,"t":"x","b":"y"}"#);
        for (event, text) in [
            (r#"{"a":1,"t":"z\n\"","b":"y"}"#, Some("z\n\"")),
            (r#"{"a":1,"t":"","b":"y"}"#, Some("")),
            (r#"{"a":2,"t":"z","b":"y"}"#, None),
            (r#"{"a":1,"t":"z","b":"z"}"#, None),
            (r#"{"a":1,"t":"z","b":"y"} "#, None),
            (r#"{"a":1,"t":"z","t":"q","b":"y"}"#, None),
            (r#"{"a":1,"t":"z\","b":"y"}"#, None),
            ("{\"a\":1,\"t\":\"\n\",\"b\":\"y\"}", None),
            (r#"{"a":1,"t":"#, None),
        ] {
            assert_eq!(found(&around, event).as_deref(), text, "{event}");
        }
    }

    #[test]
    fn what_differs_always_says_nothing() {
        let around = learned(r#"{"v":1,"t":"x","v":["y",2.5,{"n":true}],"v":""}"#);
        for (event, text) in [
            (r#"{"v":12,"t":"z","v":["",-3e7,{"n":true}],"v":"padding\n"}"#, Some("z")),
            (r#"{"v":,"t":"z","v":["y",2,{"n":true}],"v":""}"#, None),
            (r#"{"v":1,"t":"z","v":["y",2,{"n":false}],"v":""}"#, None),
            (r#"{"v":1,"t":"z","v":["y","2",{"n":true}],"v":""}"#, None),
            (r#"{"v":1,"t":"z","v":["y",2,{"n":true}],"v":""#, None),
        ] {
            assert_eq!(found(&around, event).as_deref(), text, "{event}");
        }
    }

    /// Beyond the limits it is only slower, not wrong.
    #[test]
    fn maxima() {
        let long = |bytes: usize| format!(r#"{{"a":"{}","t":"x"}}"#, "a".repeat(bytes));
        let around = r#"{"a":"","t":""}"#.len();
        let fits = long(SURROUNDINGS_BYTES_MAX - around);
        assert_eq!(found(&learned(&fits), &fits).as_deref(), Some("x"));
        let too_long = long(SURROUNDINGS_BYTES_MAX - around + 1);
        assert_eq!(found(&learned(&too_long), &too_long), None);

        let many = |last: u32| {
            let numbers = (0..VARYING_MAX).map(|_| "1,").collect::<String>();
            format!(r#"{{"v":[{numbers}{last}],"t":"x"}}"#)
        };
        let around = learned(&many(1));
        assert_eq!(found(&around, &many(1)).as_deref(), Some("x"));
        assert_eq!(found(&around, &many(2)), None);
    }
}
