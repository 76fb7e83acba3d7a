//! Optional fields of any JSON, where `null` is a value like others.

use serde::{Deserialize, Deserializer};

/// Reads a field that is there as `Some`, also when it is `null`. Serde takes `null` for an
/// absent field, so that a typed result of `null` would come back from a store as none.
///
/// Not for what clients send: they mean nothing by a `null`.
pub(crate) fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
