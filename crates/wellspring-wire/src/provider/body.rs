//! A request's body, built member by member.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{LeftOut, Written};

/// Writes the members of an object in order, then the new members of `extra`.
///
/// A member of `extra` replaces ours of the same name, `null` removes ours, and an object is
/// merged with ours member by member. Each replacement is recorded, so that it can be logged.
/// Members that the reader depends on (the conversation, the model, whether it streams) cannot
/// be replaced: the request is refused.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    json: Vec<u8>,
    extra: Option<&'a Map<String, Value>>,
    written: Vec<&'a str>,
    replaced: Vec<Box<str>>,
    refused: Vec<Box<str>>,
    output_limit: Option<u64>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(extra: Option<&'a Value>) -> Self {
        Self {
            json: vec![b'{'],
            extra: extra.and_then(Value::as_object),
            written: Vec::new(),
            replaced: Vec::new(),
            refused: Vec::new(),
            output_limit: None,
        }
    }

    /// Adds a member that `extra` cannot replace.
    pub(crate) fn fixed(&mut self, name: &'a str, value: &(impl Serialize + ?Sized)) {
        if self.extra.is_some_and(|extra| extra.contains_key(name)) {
            self.refused.push(name.into());
        }
        self.written.push(name);
        self.write(name, value);
    }

    /// Adds a member that `extra` may replace.
    pub(crate) fn member(&mut self, name: &'a str, value: &(impl Serialize + ?Sized)) {
        self.written.push(name);
        match self.extra.and_then(|extra| extra.get(name)) {
            None => self.write(name, value),
            Some(Value::Object(theirs)) => {
                let mut merged = match serde_json::to_value(value) {
                    Ok(Value::Object(ours)) => ours,
                    Ok(_) | Err(_) => {
                        self.replaced.push(name.into());
                        Map::new()
                    }
                };
                for (inner, value) in theirs {
                    if merged.insert(inner.clone(), value.clone()).is_some() {
                        self.replaced.push(format!("{name}.{inner}").into());
                    }
                }
                merged.retain(|_, value| !value.is_null());
                self.write(name, &merged);
            }
            Some(theirs) => {
                self.replaced.push(name.into());
                if !theirs.is_null() {
                    self.write(name, theirs);
                }
            }
        }
    }

    /// Adds a member that `extra` may replace, if there is a value.
    pub(crate) fn optional(&mut self, name: &'a str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.member(name, &value);
        }
    }

    /// Records the output limit of this request.
    pub(crate) fn limits_output(&mut self, tokens: u32) {
        self.output_limit = Some(tokens.into());
    }

    pub(crate) fn finish(mut self, left_out: LeftOut) -> Written {
        for (name, value) in self.extra.into_iter().flatten() {
            if !value.is_null() && !self.written.contains(&&**name) {
                self.write(name, value);
            }
        }
        self.json.push(b'}');
        // The replaced member may be the limit.
        let output_limit = self.output_limit.filter(|_| self.replaced.is_empty());
        Written {
            body: self.json,
            left_out: left_out.0,
            replaced: self.replaced,
            refused: self.refused,
            output_limit,
        }
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
        // Serialisation only fails for keys that are not strings, and no wire type has any.
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
    fn extra_members_are_merged_and_replacements_noted() {
        let extra = json!({"b": 7, "c": null, "d": [1], "o": {"x": 8, "y": 9}, "m": []});
        let mut body = Body::new(Some(&extra));
        body.member("a", &1);
        body.member("b", &2);
        body.member("c", &3);
        body.optional("e", Some("x"));
        body.optional("f", None::<u8>);
        body.member("o", &json!({"x": 1, "z": 2}));
        body.fixed("m", &["messages"]);
        body.limits_output(5);
        let written = body.finish(LeftOut::default());
        assert_eq!(
            String::from_utf8(written.body).unwrap(),
            r#"{"a":1,"b":7,"e":"x","o":{"x":8,"z":2,"y":9},"m":["messages"],"d":[1]}"#
        );
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Box<str>>>();
        assert_eq!(written.replaced, names(&["b", "c", "o.x"]));
        assert_eq!(written.refused, names(&["m"]));
        assert_eq!(written.output_limit, None);
        let mut body = Body::new(None);
        body.limits_output(5);
        let written = body.finish(LeftOut::default());
        assert_eq!((written.body, written.output_limit), (b"{}".to_vec(), Some(5)));
    }
}
