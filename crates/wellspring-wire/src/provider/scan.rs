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

    /// The text, unescaped into `scratch` where it has to be.
    ///
    /// Half a surrogate pair, which a peer that cuts UTF-16 into pieces sends, becomes the
    /// replacement character.
    pub(crate) fn text<'s>(self, scratch: &'s mut String) -> Option<&'s str>
    where
        'a: 's,
    {
        let text = std::str::from_utf8(self.bytes).ok()?;
        if !self.escaped {
            return Some(text);
        }
        scratch.clear();
        let mut rest = text;
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            scratch.push_str(&rest[..at]);
            let escape = *rest.as_bytes().get(at + 1)?;
            rest = &rest[at + 2..];
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
                    let (c, after) = unicode(rest)?;
                    rest = after;
                    c
                }
                _ => return None,
            });
        }
        scratch.push_str(rest);
        Some(scratch)
    }
}

fn unicode(text: &str) -> Option<(char, &str)> {
    let unit = |text: &str| {
        let digits =
            text.get(..4).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(text)?;
    let rest = &text[4..];
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = rest.strip_prefix("\\u").and_then(unit)
        && (0xdc00..0xe000).contains(&second)
    {
        let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return Some((char::from_u32(c)?, &rest[6..]));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest))
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
                // JSON has no control characters in strings.
                return bytes.iter().all(|byte| *byte >= 0x20).then_some(Quoted { bytes, escaped });
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
        quoted.text(&mut String::new()).map(str::to_owned)
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
                let _ = quoted.text(&mut String::new());
            }
        }
    }
}
