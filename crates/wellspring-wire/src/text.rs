//! Strings of a wire, borrowed where the wire allows it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A string that is borrowed from the input unless an escape in it forced a copy; absent and
/// `null` are empty.
///
/// `Option<Cow<str>>` would do, but serde always copies into it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl Text<'_> {
    /// The string, if it is there and not empty.
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

/// A member that is a string.
pub(crate) fn member<'v>(value: &'v serde_json::Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}

/// Content that is words, or has to become some, as words.
pub(crate) fn words(content: &wellspring_core::Content) -> Option<Cow<'_, str>> {
    use wellspring_core::Content;
    match content {
        Content::Text(text) => Some(Cow::Borrowed(text)),
        Content::Resource { uri, text, .. } => {
            Some(Cow::Owned(format!("<resource uri=\"{uri}\">\n{text}\n</resource>")))
        }
        Content::Link { uri, name: Some(name), .. } => Some(Cow::Owned(format!("[{name}]({uri})"))),
        Content::Link { uri, name: None, .. } => Some(Cow::Borrowed(uri)),
        Content::Media { .. } => None,
    }
}
