//! YAML as [`Node`]s: the front matter of `agents/*.md`.
//!
//! All of YAML 1.2 except anchors, aliases, tags and multiple documents, which are errors, so that a
//! small file cannot expand to a large value. Plain scalars follow YAML's core schema: `no` and `on`
//! are strings.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::value::{DEPTH_MAX, Member, Node, SyntaxError, Value};

/// Parses YAML that starts after `lines_before` lines of its file.
pub(crate) fn parse(text: &str, lines_before: usize) -> Result<Node, SyntaxError> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text).keep_tags(true), lines_before, depth: 0 };
    let mut found = None;
    loop {
        let (event, line) = reader.next()?;
        if event == Event::StreamEnd {
            break;
        }
        let is_frame = matches!(
            event,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing
        );
        if is_frame {
            continue;
        }
        if found.is_some() {
            return Err(SyntaxError { line, what: "there is more than one document".into() });
        }
        found = Some(reader.node(event, line)?);
    }
    let nothing = Node { line: lines_before, value: Value::Table(Vec::new()) };
    Ok(match found {
        None | Some(Node { value: Value::Nothing, .. }) => nothing,
        Some(node) => node,
    })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    lines_before: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), SyntaxError> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, self.lines_before)),
            Some(Ok((event, span))) => {
                let line = self.line(span);
                Ok((event, line))
            }
            Some(Err(error)) => Err(SyntaxError {
                line: error.marker().line() + self.lines_before,
                what: error.info().to_owned(),
            }),
        }
    }

    fn line(&self, span: Span) -> usize {
        span.start.line() + self.lines_before
    }

    fn node(&mut self, event: Event<'a>, line: usize) -> Result<Node, SyntaxError> {
        let refused = |what: &str| Err(SyntaxError { line, what: what.to_owned() });
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.is_some())
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::SequenceEnd
            | Event::MappingEnd => (0, false),
        };
        if anchor != 0 || matches!(event, Event::Alias(_)) {
            return refused("anchors and aliases are not supported; repeat the value");
        }
        if tag {
            return refused("tags are not supported");
        }
        if self.depth >= DEPTH_MAX {
            return refused("it is nested too deeply");
        }
        self.depth += 1;
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    let (event, line) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    items.push(self.node(event, line)?);
                }
                Value::List(items)
            }
            Event::MappingStart(..) => Value::Table(self.members()?),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::SequenceEnd
            | Event::MappingEnd => return refused("this is not YAML"),
        };
        self.depth -= 1;
        Ok(Node { line, value })
    }

    fn members(&mut self) -> Result<Vec<Member>, SyntaxError> {
        let mut members: Vec<Member> = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(members);
            }
            let Event::Scalar(name, _, 0, None) = event else {
                return Err(SyntaxError { line, what: "a key must be a string".into() });
            };
            if members.iter().any(|member| member.name == name) {
                return Err(SyntaxError { line, what: format!("`{name}` occurs twice") });
            }
            let (event, value_line) = self.next()?;
            let mut node = self.node(event, value_line)?;
            if matches!(node.value, Value::Nothing) {
                node.line = line;
            }
            members.push(Member { name: name.into_owned(), line, node });
        }
    }
}

/// A word without quotes, by YAML's core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Nothing,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let radix = [("0x", 16), ("0o", 8)];
    let of_radix = radix
        .iter()
        .find_map(|(prefix, radix)| i64::from_str_radix(text.strip_prefix(prefix)?, *radix).ok());
    if let Some(number) = of_radix.or_else(|| text.parse().ok()) {
        return Value::Integer(number);
    }
    // Rust reads "inf" and "nan" as numbers; YAML writes them with a dot.
    let looks_like_one = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.contains(|c: char| c.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if looks_like_one => Value::Float(number),
        _ => Value::Text(text.to_owned()),
    }
}
