//! A cursor over JSON, for the few shapes that come by the thousand.
//!
//! A streamed answer is nearly all deltas: small objects of which one string matters. A
//! [`Scan`] walks such an object without building anything, whatever the order of its
//! members and the spaces between them. Every method gives `None` when it meets something it
//! does not expect; the caller then hands the same bytes to `serde_json`, which can tell
//! rare from wrong. So nothing here has to be complete, only never mistaken.

use memchr::memchr2;

/// How deep a value to be skipped may nest; deeper ones go to `serde_json`.
const DEPTH_MAX: u32 = 64;

/// A cursor.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'a> {
    rest: &'a [u8],
}

/// A string's bytes between its quotes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Quoted<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

impl<'a> Quoted<'a> {
    /// The text, if no escape is in it and it is UTF-8.
    pub(crate) fn plain(self) -> Option<&'a str> {
        if self.escaped { None } else { std::str::from_utf8(self.bytes).ok() }
    }

    /// The bytes of a string without its quotes, if that is what they are.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (mut at, mut escaped) = (0, false);
        while let Some(found) = memchr2(b'"', b'\\', bytes.get(at..)?) {
            if bytes[at + found] == b'"' {
                return None;
            }
            escaped = true;
            at += found + 2;
        }
        has_no_controls(bytes).then_some(Self { bytes, escaped })
    }

    /// The text, unescaped into `scratch` where it has to be.
    ///
    /// A peer that cuts UTF-16 into pieces sends half a character at the end of one string
    /// and the rest in the next: `half` keeps the first until then. Half a character anywhere
    /// else becomes the replacement character.
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

/// The first half of a character of which the second has not come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Half(Option<u32>);

impl Half {
    /// What is left when nothing more comes: half a character is none.
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

/// JSON has no control characters in strings.
fn has_no_controls(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |bad, byte| bad | u8::from(*byte < 0x20)) == 0
}

/// What surrounds the string in one event, as the next one will nearly always have it.
///
/// Deltas of one part differ in their text and in nothing else. An event that begins and ends
/// like the last one, with a string's inside in between, says the same of another text; that
/// takes two comparisons.
#[derive(Debug)]
pub(crate) struct Surroundings<T> {
    before: Vec<u8>,
    after: Vec<u8>,
    meaning: Option<T>,
}

impl<T> Default for Surroundings<T> {
    fn default() -> Self {
        Self { before: Vec::new(), after: Vec::new(), meaning: None }
    }
}

/// Bytes around a string that are worth remembering: the longest envelopes of providers are
/// half as long.
const SURROUNDINGS_BYTES_MAX: usize = 1024;

impl<T: Copy> Surroundings<T> {
    /// The string in an event that is otherwise like the last one, and what that meant.
    pub(crate) fn find<'a>(&self, event: &'a [u8]) -> Option<(T, Quoted<'a>)> {
        let meaning = self.meaning?;
        let inner = event.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        Some((meaning, Quoted::of(inner)?))
    }

    /// Remembers what surrounds `quoted`, a string of this event.
    pub(crate) fn learn(&mut self, event: &[u8], quoted: Quoted<'_>, meaning: T) {
        let start = quoted.bytes.as_ptr().addr().wrapping_sub(event.as_ptr().addr());
        let around = event.get(..start).zip(event.get(start.saturating_add(quoted.bytes.len())..));
        self.meaning = None;
        if let Some((before, after)) = around
            && before.len() + after.len() <= SURROUNDINGS_BYTES_MAX
            && before.ends_with(b"\"")
            && after.starts_with(b"\"")
        {
            self.before.clear();
            self.before.extend_from_slice(before);
            self.after.clear();
            self.after.extend_from_slice(after);
            self.meaning = Some(meaning);
        }
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn new(json: &'a [u8]) -> Self {
        Self { rest: json }
    }

    /// Walks an object; `each` has to read the member's value.
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

    /// Walks an array; `each` has to read the element.
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
        let (mut at, mut escaped) = (0, false);
        loop {
            at += memchr2(b'"', b'\\', self.rest.get(at..)?)?;
            if self.rest[at] == b'"' {
                let bytes = &self.rest[..at];
                self.rest = &self.rest[at + 1..];
                return has_no_controls(bytes).then_some(Quoted { bytes, escaped });
            }
            escaped = true;
            at += 2;
        }
    }

    /// A whole number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.space();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        // A fraction or an exponent is for `serde_json`.
        if matches!(rest, [b'.' | b'e' | b'E', ..]) {
            return None;
        }
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// `null`, if that is what comes.
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

    /// Any value, passed over. It is not checked beyond finding its end.
    pub(crate) fn skip(&mut self) -> Option<()> {
        self.skip_at(0)
    }

    /// Nothing but spaces is left.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.space();
        self.rest.is_empty().then_some(())
    }

    fn skip_at(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.space();
        match self.rest.first()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|_, scan| scan.skip_at(depth + 1)),
            b'[' => self.array(|scan| scan.skip_at(depth + 1)),
            _ => {
                let word = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let end = self.rest.iter().take_while(word).count();
                self.rest = &self.rest[end..];
                (end > 0).then_some(())
            }
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

    /// Characters that were cut in two come out whole.
    #[test]
    fn halves() {
        let read = |pieces: &[&str]| {
            let (mut scratch, mut half, mut all) = (String::new(), Half::default(), String::new());
            for piece in pieces {
                let quoted = Quoted::of(piece.as_bytes()).unwrap();
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
    fn an_event_like_the_last_one() {
        let event = br#"{"a":1,"text":"x","b":"y"}"#;
        let mut around = Surroundings::default();
        assert_eq!(around.find(event), None);
        around.learn(event, Quoted { bytes: &event[15..16], escaped: false }, 7);
        let found = |event: &str| {
            let (meaning, quoted) = around.find(event.as_bytes())?;
            let text = quoted.text(&mut String::new(), &mut Half::default()).map(str::to_owned);
            Some((meaning, text))
        };
        let other = Some((7, Some("z\n\"".to_owned())));
        assert_eq!(found(r#"{"a":1,"text":"z\n\"","b":"y"}"#), other);
        assert_eq!(found(r#"{"a":1,"text":"","b":"y"}"#), Some((7, Some(String::new()))));
        for event in [
            r#"{"a":2,"text":"z","b":"y"}"#,
            r#"{"a":1,"text":"z","b":"z"}"#,
            r#"{"a":1,"text":"z","text":"q","b":"y"}"#,
            r#"{"a":1,"text":"z\","b":"y"}"#,
            "{\"a\":1,\"text\":\"\n\",\"b\":\"y\"}",
            r#"{"a":1,"text":"#,
        ] {
            assert_eq!(found(event), None, "{event}");
        }
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
        /// What it reads is what `serde_json` reads; what it refuses may be anything.
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
