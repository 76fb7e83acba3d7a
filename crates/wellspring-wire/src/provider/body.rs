//! A request's body, member by member.

use serde::Serialize;
use serde_json::{Map, Value};

/// Writes the members of an object in order, the caller's own ones last.
///
/// A member that the caller gave replaces ours of the same name; `null` leaves it out.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    json: Vec<u8>,
    extra: Option<&'a Map<String, Value>>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(extra: Option<&'a Value>) -> Self {
        Self { json: vec![b'{'], extra: extra.and_then(Value::as_object) }
    }

    pub(crate) fn member(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        if self.extra.is_none_or(|extra| !extra.contains_key(name)) {
            self.write(name, value);
        }
    }

    /// The same, where there is a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.member(name, &value);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        for (name, value) in self.extra.into_iter().flatten() {
            if !value.is_null() {
                self.write(name, value);
            }
        }
        self.json.push(b'}');
        self.json
    }

    fn write(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let start = self.json.len();
        if start > 1 {
            self.json.push(b',');
        }
        let written = serde_json::to_writer(&mut self.json, name).and_then(|()| {
            self.json.push(b':');
            serde_json::to_writer(&mut self.json, value)
        });
        // Only a map with keys that are no strings fails, and no wire type has one. Half a
        // member would be worse than none.
        if written.is_err() {
            self.json.truncate(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_callers_members_win() {
        let extra = json!({"b": 7, "c": null, "d": [1]});
        let mut body = Body::new(Some(&extra));
        body.member("a", &1);
        body.member("b", &2);
        body.member("c", &3);
        body.optional("e", Some("x"));
        body.optional("f", None::<u8>);
        assert_eq!(String::from_utf8(body.finish()).unwrap(), r#"{"a":1,"e":"x","b":7,"d":[1]}"#);
        assert_eq!(Body::new(None).finish(), b"{}");
    }
}
