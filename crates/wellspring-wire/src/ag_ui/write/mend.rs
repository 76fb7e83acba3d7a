//! Arguments that broke off, completed.
//!
//! A call whose model broke off is taken back, and this protocol takes back only by a snapshot
//! of what is left. Before that the call has to be closed like any other, and clients parse the
//! arguments of a call that is closed.

/// What makes the beginning of a JSON text a whole one: nothing, where it is one already. What
/// is no beginning of any stays none.
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

/// How far a text is.
#[derive(Default)]
struct Text {
    /// What closes what is open.
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

    /// The text after a comma.
    fn next(&self) -> Expects {
        if self.open.last() == Some(&'}') { Expects::Key } else { Expects::Value }
    }

    /// A string, a number or a word is complete.
    fn said(&mut self) {
        self.expects = match self.expects {
            Expects::Key | Expects::KeyOrEnd => Expects::Colon,
            Expects::Value | Expects::ValueOrEnd | Expects::Colon | Expects::CommaOrEnd => {
                Expects::CommaOrEnd
            }
        };
    }

    /// The end of a text that breaks off within a string, a number or a word.
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

/// Reads to the end of a string; if it has no end, returns what is missing.
fn string(bytes: &mut std::str::Bytes<'_>) -> Option<String> {
    // Half a character, of which the other half must follow.
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

/// The second half of any character that has two.
const LOW_HALF: &str = "\\udc00";

/// Reads on to the end of an escape and says whether it is the first half of a character; where
/// the escape has no end, what it lacks.
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

/// Reads on to the end of a number or a word; where the text ends in it, what it may lack.
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
