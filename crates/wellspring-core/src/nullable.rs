//! Optional JSON fields in which `null` is a value.

use serde::{Deserialize, Deserializer};

/// Reads a present field as `Some`, even if it is `null`. By default serde treats `null` as an
/// absent field, which would lose a typed result of `null` in the store.
///
/// Do not use it for requests: clients send `null` for an absent field.
pub(crate) fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
