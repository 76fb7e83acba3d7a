//! Text on a provider's wire: borrowed if possible, and converted to the form that the wire
//! supports.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use wellspring_core::{CallResult, Content, MediaSource, ToolContent};

/// A string that is borrowed from the input unless it contains an escape. Absent and `null` are
/// empty.
///
/// `Option<Cow<str>>` would do, but serde always copies into it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl Text<'_> {
    /// The string, if it is present and not empty.
    pub(crate) fn given(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;

        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(Borrow)
    }
}

/// Escapes text for use inside a JSON string.
pub(crate) fn escape(mut text: &str, out: &mut String) {
    let special = |c: char| c < ' ' || c == '"' || c == '\\';
    while let Some(at) = text.find(special) {
        let (before, rest) = text.split_at(at);
        out.push_str(before);
        let mut rest = rest.chars();
        match rest.next().unwrap_or_default() {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.extend(['\\', other]),
        }
        text = rest.as_str();
    }
    out.push_str(text);
}

/// The string in a member; `None` if it is absent or not a string.
pub(crate) fn member<'v>(value: &'v serde_json::Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}

/// Content as text; `None` if it cannot be expressed as text.
pub(crate) fn words(content: &Content) -> Option<Cow<'_, str>> {
    match content {
        Content::Text(text) => Some(Cow::Borrowed(text)),
        Content::Resource { uri, text, .. } => {
            Some(Cow::Owned(format!("<resource uri=\"{uri}\">\n{text}\n</resource>")))
        }
        Content::Link { uri, name: Some(name), .. } => Some(Cow::Owned(format!("{name}: {uri}"))),
        Content::Link { uri, name: None, .. } => Some(Cow::Borrowed(uri)),
        Content::Media { .. } => None,
    }
}

/// The images in a call's result.
pub(crate) fn pictures(result: &CallResult) -> impl Iterator<Item = (&str, &MediaSource)> {
    result.result.content.iter().filter_map(|content| match content {
        ToolContent::Content(Content::Media { media_type, source, .. })
            if media_type.starts_with("image/") =>
        {
            Some((&**media_type, source))
        }
        ToolContent::Content(_) | ToolContent::Diff { .. } | ToolContent::Terminal { .. } => None,
    })
}

/// A call's arguments unchanged, if they are an object.
pub(crate) fn object(text: &str) -> Option<Box<RawValue>> {
    let text = text.trim();
    let object = text.starts_with('{').then(|| RawValue::from_string(text.to_owned()));
    object.and_then(Result::ok)
}
