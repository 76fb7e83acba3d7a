//! JSON text by which values are compared.

use serde::Serialize;

/// A value as JSON with the keys of every object sorted, so that equal values have equal texts.
/// Everywhere else, keys keep the order of their author.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::canonical_json;
///
/// assert_eq!(canonical_json(&json!({"b": [{"d": 1, "c": 2}], "a": 3})), r#"{"a":3,"b":[{"c":2,"d":1}]}"#);
/// ```
#[must_use]
pub fn canonical_json(value: &impl Serialize) -> String {
    // Our own types always have a JSON form.
    let mut value = serde_json::to_value(value).unwrap_or_default();
    value.sort_all_objects();
    value.to_string()
}
