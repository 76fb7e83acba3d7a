//! A cursor over JSON, for the most frequent shapes.
//!
//! A streamed answer is mostly deltas: small objects in which one string matters. A [`Scan`]
//! walks such an object without building a value, with members in any order and any white
//! space. Every method returns `None` for input that it does not expect; the caller then passes
//! the same bytes to `serde_json`, which distinguishes unusual from invalid input. So this code
//! need not be complete, but it must never be wrong.

use std::ops::Range;

use memchr::memchr2;

/// Maximum depth of a value to skip; deeper ones are left to `serde_json`.
const DEPTH_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) struct Scan<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
    varying: Varying,
}

/// The positions of values that differ between events and have no meaning.
#[derive(Clone, Debug, Default)]
struct Varying {
    ranges: [Range<usize>; VARYING_MAX],
    count: usize,
}

/// Values of one event whose positions are recorded; further ones are compared byte for byte.
pub(crate) const VARYING_MAX: usize = 16;

/// A string's bytes between its quotes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Quoted<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

impl<'a> Quoted<'a> {
    /// The text, if it contains no escapes and is UTF-8.
    pub(crate) fn plain(self) -> Option<&'a str> {
        if self.escaped { None } else { std::str::from_utf8(self.bytes).ok() }
    }

    /// Splits bytes at the quote that ends a string: the string's contents, and the rest from
    /// that quote on.
    pub(crate) fn cut(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (mut at, mut escaped) = (0, false);
        loop {
            at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                let (bytes, rest) = bytes.split_at(at);
                return has_no_controls(bytes).then_some((Self { bytes, escaped }, rest));
            }
            escaped = true;
            at += 2;
        }
    }

    /// Its range within `event`; `None` if it is not part of it.
    pub(crate) fn place(self, event: &[u8]) -> Option<Range<usize>> {
        let start = self.bytes.as_ptr().addr().checked_sub(event.as_ptr().addr())?;
        let end = start.checked_add(self.bytes.len())?;
        (end <= event.len()).then_some(start..end)
    }

    /// The text, unescaped into `scratch` if necessary.
    ///
    /// A peer that splits UTF-16 text may send a high surrogate at the end of one string and
    /// the low one at the start of the next: `half` keeps the high surrogate until then. A lone
    /// surrogate anywhere else becomes the replacement character.
    pub(crate) fn text<'s>(self, scratch: &'s mut String, half: &mut Half) -> Option<&'s str>
    where
        'a: 's,
    {
        let mut rest = std::str::from_utf8(self.bytes).ok()?;
        if rest.is_empty() || !self.escaped && half.0.is_none() {
            return Some(rest);
        }
        scratch.clear();
        if let Some(first) = half.0.take() {
            let second = rest.strip_prefix("\\u").and_then(unit).filter(|unit| is_second(*unit));
            if let Some(second) = second {
                rest = &rest[6..];
                scratch.push(joined(first, second));
            } else {
                scratch.push(char::REPLACEMENT_CHARACTER);
            }
        }
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            scratch.push_str(&rest[..at]);
            let escape = *rest.as_bytes().get(at + 1)?;
            rest = rest.get(at + 2..)?;
            scratch.push(match escape {
                b'n' => '\n',
                b'"' => '"',
                b'\\' => '\\',
                b't' => '\t',
                b'r' => '\r',
                b'/' => '/',
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'u' => {
                    let first = unit(rest)?;
                    rest = &rest[4..];
                    let second = rest.strip_prefix("\\u").and_then(unit);
                    match second.filter(|second| is_first(first) && is_second(*second)) {
                        Some(second) => {
                            rest = &rest[6..];
                            joined(first, second)
                        }
                        None if is_first(first) && rest.is_empty() => {
                            half.0 = Some(first);
                            break;
                        }
                        None => char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER),
                    }
                }
                _ => return None,
            });
        }
        scratch.push_str(rest);
        Some(scratch)
    }
}

/// A high surrogate whose low surrogate has not arrived.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Half(Option<u32>);

impl Half {
    /// Returns the replacement for a surrogate that is still pending at the end of the input.
    pub(crate) fn end(&mut self) -> &'static str {
        if self.0.take().is_some() { "\u{fffd}" } else { "" }
    }
}

fn unit(text: &str) -> Option<u32> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

fn is_first(unit: u32) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_second(unit: u32) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

fn joined(first: u32, second: u32) -> char {
    let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Whether the positions of values are recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Noting {
    On,
    Off,
}

/// Whether the byte can be part of a number.
pub(crate) fn is_in_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

/// Whether a string has no control characters: JSON forbids them.
fn has_no_controls(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |bad, byte| bad | u8::from(*byte < 0x20)) == 0
}

impl<'a> Scan<'a> {
    pub(crate) fn new(json: &'a [u8]) -> Self {
        Self { whole: json, rest: json, varying: Varying::default() }
    }

    /// The whole input.
    pub(crate) fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// The ranges of the values that were skipped with [`vary`](Self::vary): numbers, and the
    /// contents of strings, in order.
    pub(crate) fn varying(&self) -> &[Range<usize>] {
        &self.varying.ranges[..self.varying.count]
    }

    /// Walks an object; `each` must read the member's value.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&'a [u8], &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.byte(b'{')?;
        if self.byte(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.string()?;
            if key.escaped {
                return None;
            }
            self.byte(b':')?;
            each(key.bytes, self)?;
            if self.byte(b',').is_none() {
                return self.byte(b'}');
            }
        }
    }

    /// Walks an array; `each` must read the element.
    pub(crate) fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.byte(b'[')?;
        if self.byte(b']').is_some() {
            return Some(());
        }
        loop {
            each(self)?;
            if self.byte(b',').is_none() {
                return self.byte(b']');
            }
        }
    }

    /// A string.
    pub(crate) fn string(&mut self) -> Option<Quoted<'a>> {
        self.byte(b'"')?;
        let (quoted, rest) = Quoted::cut(self.rest)?;
        self.rest = rest.get(1..)?;
        Some(quoted)
    }

    /// A non-negative integer.
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.space();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        // A fraction or an exponent is left to `serde_json`.
        if matches!(rest, [b'.' | b'e' | b'E', ..]) {
            return None;
        }
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// Reads `null` if it comes next.
    pub(crate) fn null(&mut self) -> Option<()> {
        self.space();
        self.rest = self.rest.strip_prefix(b"null")?;
        Some(())
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Option<bool> {
        self.space();
        let (value, rest) = match self.rest {
            [b't', b'r', b'u', b'e', rest @ ..] => (true, rest),
            [b'f', b'a', b'l', b's', b'e', rest @ ..] => (false, rest),
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    /// A number or a literal such as `true`, unparsed.
    pub(crate) fn scalar(&mut self) -> Option<&'a [u8]> {
        self.space();
        if matches!(self.rest.first()?, b'"' | b'{' | b'[') {
            return None;
        }
        let before = self.rest;
        self.skip()?;
        before.get(..before.len() - self.rest.len())
    }

    /// Skips any value. Only its end is found; it is not validated.
    pub(crate) fn skip(&mut self) -> Option<()> {
        self.pass(Noting::Off, 0)
    }

    /// Skips a value that differs between events and has no meaning: a counter, a time,
    /// padding.
    pub(crate) fn vary(&mut self) -> Option<()> {
        self.pass(Noting::On, 0)
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.space();
        self.rest.is_empty().then_some(())
    }

    fn pass(&mut self, noting: Noting, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.space();
        match self.rest.first()? {
            b'"' => {
                let inside = self.string()?;
                self.note(noting, inside.bytes.len(), 1);
                Some(())
            }
            b'{' => self.object(|_, scan| scan.pass(noting, depth + 1)),
            b'[' => self.array(|scan| scan.pass(noting, depth + 1)),
            first => {
                let is_number = is_in_number(*first);
                let word = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = self.rest.iter().take_while(word).count();
                let (word, rest) = self.rest.split_at(length);
                self.rest = rest;
                if is_number && word.iter().all(|byte| is_in_number(*byte)) {
                    self.note(noting, length, 0);
                }
                (length > 0).then_some(())
            }
        }
    }

    /// Records the range of the value that was just skipped; `behind` is the length of its
    /// closing quote.
    fn note(&mut self, noting: Noting, length: usize, behind: usize) {
        if noting == Noting::On
            && let Some(range) = self.varying.ranges.get_mut(self.varying.count)
        {
            let end = self.whole.len() - self.rest.len() - behind;
            *range = end - length..end;
            self.varying.count += 1;
        }
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        self.space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                Some(())
            }
            _ => None,
        }
    }

    fn space(&mut self) {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn text(json: &str) -> Option<String> {
        let mut scan = Scan::new(json.as_bytes());
        let quoted = scan.string()?;
        scan.end()?;
        let mut half = Half::default();
        let text = quoted.text(&mut String::new(), &mut half).map(str::to_owned);
        text.map(|text| text + half.end())
    }

    #[test]
    fn strings() {
        for (json, want) in [
            (r#""plain""#, Some("plain")),
            (r#" "\"\\\/\b\f\n\r\tä\u00e4\ud83d\ude00" "#, Some("\"\\/\u{8}\u{c}\n\r\tää😀")),
            (r#""half \ud83d pair \ude00""#, Some("half \u{fffd} pair \u{fffd}")),
            (r#""\ud83d\u0041""#, Some("\u{fffd}A")),
            (r#""\x""#, None),
            (r#""\u12""#, None),
            (r#""\u+123""#, None),
            (r#""open"#, None),
            (r#""open\"#, None),
            ("\"line\nfeed\"", None),
        ] {
            assert_eq!(text(json).as_deref(), want, "{json}");
        }
    }

    /// Split surrogate pairs are joined.
    #[test]
    fn halves() {
        let read = |pieces: &[&str]| {
            let (mut scratch, mut half, mut all) = (String::new(), Half::default(), String::new());
            for piece in pieces {
                let piece = format!("{piece}\"");
                let (quoted, _) = Quoted::cut(piece.as_bytes()).unwrap();
                all += quoted.text(&mut scratch, &mut half).unwrap();
            }
            all + half.end()
        };
        assert_eq!(read(&[r"a\ud83d", r"\ude00b"]), "a😀b");
        assert_eq!(read(&[r"\ud83d", "", r"\ude00"]), "😀");
        assert_eq!(read(&[r"\ud83d", "b"]), "\u{fffd}b");
        assert_eq!(read(&[r"\ud83d", r"\ud83d", r"\ude00"]), "\u{fffd}😀");
        assert_eq!(read(&[r"\ud83d"]), "\u{fffd}");
    }

    #[test]
    fn the_end_of_any_value_is_found() {
        for json in ["1", "-1.5e+3", "true", "null", r#""a\"b""#, "[]", r#"[1,{"a":[{}]}, "]"]"#] {
            let doubled = format!("[{json} , {json}]");
            let mut scan = Scan::new(doubled.as_bytes());
            let mut count = 0;
            let walked = scan.array(|scan| {
                count += 1;
                scan.skip()
            });
            assert_eq!((walked, scan.end(), count), (Some(()), Some(()), 2), "{json}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(Scan::new(deep.as_bytes()).skip(), None);
        assert_eq!(Scan::new(b"1.5").number(), None);
    }

    proptest! {
        /// What it accepts, `serde_json` reads the same way; what it rejects may be anything.
        #[test]
        fn never_mistaken(json in prop_oneof![
            any::<String>().prop_map(|text| Value::from(text).to_string()),
            r#""([a-z]|\\u[0-9a-f]{4}|\\[nrtbf"/\\]|ä){0,12}""#,
            r#""[ -~]{0,12}""#,
        ]) {
            if let Ok(want) = serde_json::from_str::<String>(&json) {
                prop_assert_eq!(text(&json), Some(want));
            } else if let Some(got) = text(&json) {
                prop_assert!(got.contains(char::REPLACEMENT_CHARACTER), "{} gave {}", json, got);
            }
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let mut scan = Scan::new(&bytes);
            let _ = scan.clone().skip();
            let _ = scan.clone().number();
            if let Some(quoted) = scan.string() {
                let _ = quoted.text(&mut String::new(), &mut Half::default());
            }
        }
    }
}
