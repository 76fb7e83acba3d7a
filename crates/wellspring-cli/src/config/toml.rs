//! TOML as [`Node`]s.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::{Member, Node, SyntaxError, Value};

/// Reads a file of TOML.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let lines = Lines { text };
    match DeTable::parse(text) {
        Ok(table) => Ok(Node { line: 1, value: Value::Table(lines.members(table.into_inner())?) }),
        Err(error) => {
            let line = error.span().map_or(1, |span| lines.of(span.start));
            // The parser's messages may have several lines; the first one names the problem.
            let what = error.message().lines().next().unwrap_or("it is not TOML").to_owned();
            Err(SyntaxError { line, what })
        }
    }
}

struct Lines<'a> {
    text: &'a str,
}

impl Lines<'_> {
    fn of(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().get(..byte).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn members(&self, table: DeTable<'_>) -> Result<Vec<Member>, SyntaxError> {
        let mut members = Vec::new();
        for (key, value) in table {
            let line = self.of(key.span().start);
            let mut node = self.node(value)?;
            // A table's line is that of its header; the parser reports the line of its body.
            if matches!(node.value, Value::Table(_)) {
                node.line = line;
            }
            members.push(Member { name: key.into_inner().into_owned(), line, node });
        }
        members.sort_by_key(|member| member.line);
        Ok(members)
    }

    fn node(&self, value: Spanned<DeValue<'_>>) -> Result<Node, SyntaxError> {
        let line = self.of(value.span().start);
        let broken = |what: String| SyntaxError { line, what };
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                Value::Integer(parsed.map_err(|_| broken("the number is too large".into()))?)
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse::<f64>();
                Value::Float(parsed.map_err(|_| broken("this is not a number".into()))?)
            }
            DeValue::Boolean(value) => Value::Bool(value),
            // No key has a date as its value. As a string it is refused, with its line.
            DeValue::Datetime(date) => Value::Text(date.to_string()),
            DeValue::Array(items) => {
                let items = items.into_iter().map(|item| self.node(item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Table(self.members(table)?),
        };
        Ok(Node { line, value })
    }
}
