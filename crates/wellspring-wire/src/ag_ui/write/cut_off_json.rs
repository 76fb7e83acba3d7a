//! Completes JSON arguments that were cut off.
//!
//! If an attempt is cut off in the middle of a call, the call is voided, and this protocol can
//! only void by sending a snapshot of what is left. Before the snapshot, the call must be
//! closed like any other, and clients parse the arguments of a closed call.

/// Returns the text that completes a prefix of a JSON text; empty if it is complete already, or
/// if it is not a prefix of any JSON text.
pub(super) fn completion(beginning: &str) -> String {
    let mut text = Text::default();
    let mut bytes = beginning.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => match string(&mut bytes) {
                None => text.said(),
                Some(rest) => return text.closed(rest),
            },
            b'{' => text.open(Expects::KeyOrEnd),
            b'[' => text.open(Expects::ValueOrEnd),
            b'}' | b']' => text.close(),
            b':' => text.expects = Expects::Value,
            b',' => text.expects = text.next(),
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => match word(byte, &mut bytes) {
                None => text.said(),
                Some(rest) => return text.closed(rest),
            },
        }
    }
    text.ended()
}

/// The state of a parser after a prefix.
#[derive(Default)]
struct Text {
    /// The closing brackets of everything that is open.
    open: Vec<char>,
    expects: Expects,
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Expects {
    #[default]
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

impl Text {
    fn open(&mut self, expects: Expects) {
        self.open.push(if expects == Expects::KeyOrEnd { '}' } else { ']' });
        self.expects = expects;
    }

    fn close(&mut self) {
        self.open.pop();
        self.expects = Expects::CommaOrEnd;
    }

    /// What may follow a comma.
    fn next(&self) -> Expects {
        if self.open.last() == Some(&'}') { Expects::Key } else { Expects::Value }
    }

    /// Notes that a string, a number or a literal is complete.
    fn said(&mut self) {
        self.expects = match self.expects {
            Expects::Key | Expects::KeyOrEnd => Expects::Colon,
            Expects::Value | Expects::ValueOrEnd | Expects::Colon | Expects::CommaOrEnd => {
                Expects::CommaOrEnd
            }
        };
    }

    /// Completes a text that is cut off within a string, a number or a literal.
    fn closed(mut self, mut rest: String) -> String {
        self.said();
        rest.push_str(&self.ended());
        rest
    }

    fn ended(self) -> String {
        let mut rest = match self.expects {
            Expects::Value if self.open.is_empty() => "{}".to_owned(),
            Expects::Value => "null".to_owned(),
            Expects::Key => "\"\":null".to_owned(),
            Expects::Colon => ":null".to_owned(),
            Expects::ValueOrEnd | Expects::KeyOrEnd | Expects::CommaOrEnd => String::new(),
        };
        rest.extend(self.open.iter().rev());
        rest
    }
}

/// Reads to the end of a string; if it is cut off, returns what is missing.
fn string(bytes: &mut std::str::Bytes<'_>) -> Option<String> {
    // Whether the last escape was a high surrogate, which a low one must follow.
    let mut half = false;
    loop {
        match bytes.next() {
            Some(b'"') => return None,
            Some(b'\\') => match escape(bytes, half) {
                Ok(is_half) => half = is_half,
                Err(rest) => return Some(rest + "\""),
            },
            Some(_) => half = false,
            None if half => return Some(LOW_HALF.to_owned() + "\""),
            None => return Some("\"".to_owned()),
        }
    }
}

/// A low surrogate, which completes any high surrogate.
const LOW_HALF: &str = "\\udc00";

/// Reads to the end of an escape. Returns whether it is a high surrogate, or, if the escape is
/// cut off, what is missing.
fn escape(bytes: &mut std::str::Bytes<'_>, second: bool) -> Result<bool, String> {
    match bytes.next() {
        Some(b'u') => {}
        Some(_) => return Ok(false),
        None if second => return Err(LOW_HALF[1..].to_owned()),
        None => return Err("\\".to_owned()),
    }
    let digits: String = bytes.by_ref().take(4).map(char::from).collect();
    let missing =
        if second { &LOW_HALF[2 + digits.len().min(4)..] } else { &"0000"[digits.len()..] };
    let whole = digits.clone() + missing;
    let code = u32::from_str_radix(&whole, 16).unwrap_or_default();
    let is_half = (0xd800..0xdc00).contains(&code);
    if missing.is_empty() {
        return Ok(is_half);
    }
    Err(if is_half { missing.to_owned() + LOW_HALF } else { missing.to_owned() })
}

/// Reads to the end of a number or a literal; if it is cut off, returns what is missing.
fn word(first: u8, bytes: &mut std::str::Bytes<'_>) -> Option<String> {
    let mut word = String::from(char::from(first));
    loop {
        let mut ahead = bytes.clone();
        match ahead.next() {
            Some(byte) if byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) => {
                word.push(char::from(byte));
                *bytes = ahead;
            }
            Some(_) => return None,
            None => break,
        }
    }
    let begun = ["true", "false", "null"].into_iter().find_map(|whole| whole.strip_prefix(&*word));
    let in_number = !word.ends_with(|last: char| last.is_ascii_digit());
    Some(begun.unwrap_or(if in_number { "0" } else { "" }).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use wellspring_testkit::arbitrary::arb_json;

    use super::completion;

    #[test]
    fn what_broke_off_is_completed() {
        for (beginning, rest) in [
            ("", "{}"),
            (r#"{"zone":"Ro"#, r#""}"#),
            (r#"{"zo"#, r#"":null}"#),
            (r#"{"a""#, ":null}"),
            (r#"{"a":"#, "null}"),
            (r#"{"a":1,"#, r#""":null}"#),
            (r#"{"a":[1,{"b":tr"#, "ue}]}"),
            (r#"{"a":-"#, "0}"),
            (r#"{"a":1.5e"#, "0}"),
            (r#"["x\"#, "\\\"]"),
            (r#"["x\u00"#, r#"00"]"#),
            (r#"["\ud83d"#, r#"\udc00"]"#),
            (r#"["\ud83d\"#, r#"udc00"]"#),
            (r#"["\ud83d\ude"#, r#"00"]"#),
            (r#"{"a":[]}"#, ""),
        ] {
            assert_eq!(completion(beginning), rest, "{beginning}");
        }
    }

    fn as_escapes(text: &str) -> String {
        let units = |c: char| c.encode_utf16(&mut [0; 2]).to_vec();
        let escaped = |c: char| units(c).into_iter().map(|unit| format!("\\u{unit:04x}"));
        text.chars()
            .flat_map(|c| if c.is_ascii() { vec![c.to_string()] } else { escaped(c).collect() })
            .collect()
    }

    proptest! {
        #[test]
        fn cut_anywhere_it_is_json(value in arb_json(), at in any::<prop::sample::Index>(), escaped in any::<bool>()) {
            let text = serde_json::to_string(&value).unwrap();
            let text = if escaped { as_escapes(&text) } else { text };
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let beginning = &text[..cuts[at.index(cuts.len())]];
            let whole = beginning.to_owned() + &completion(beginning);
            prop_assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{}", whole);
            prop_assert_eq!(completion(&text), "");
        }
    }
}
