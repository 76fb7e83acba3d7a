//! Typed reading of a table: every key is declared, and every unknown key is a problem with a line.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wellspring_models::Secret;

use super::did_you_mean::{did_you_mean, there_are};
use super::keys::{self, Key, Table};
use super::problem::Problems;
use super::value::{Member, Node, Value};

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A file that is being read, and its problems so far.
pub(crate) struct Source<'a> {
    pub(crate) file: PathBuf,
    /// The directory that relative paths start from.
    pub(crate) directory: PathBuf,
    pub(crate) environment: Environment<'a>,
    pub(crate) problems: &'a RefCell<Problems>,
}

impl Source<'_> {
    pub(crate) fn complain(
        &self,
        line: impl Into<Option<usize>>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems.borrow_mut().push(&self.file, line, what.into(), remedy.into());
    }

    /// A path, relative to the file's directory.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        match path.strip_prefix("~/") {
            Some(rest) => match directories::BaseDirs::new() {
                Some(home) => home.home_dir().join(rest),
                None => self.directory.join(path),
            },
            None => self.directory.join(path),
        }
    }
}

/// A table with declared keys.
pub(crate) struct Section<'a> {
    pub(crate) source: &'a Source<'a>,
    table: &'static Table,
    /// Its title in messages, such as `[agents.reviewer]`.
    pub(crate) title: String,
    pub(crate) line: usize,
    members: &'a [Member],
    /// The keys that were read: every declared key must be read.
    #[cfg(debug_assertions)]
    asked: RefCell<std::collections::BTreeSet<&'static str>>,
}

/// A key that is set.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) node: &'a Node,
    key: &'static Key,
}

impl<'a> Section<'a> {
    /// Opens a table, declared with the header `declared`, and reports its unknown keys.
    pub(crate) fn open(
        source: &'a Source<'a>,
        node: &'a Node,
        declared: &str,
        title: impl Into<String>,
    ) -> Self {
        let title = title.into();
        let table = keys::table(declared);
        let members = match &node.value {
            Value::Table(members) => members.as_slice(),
            Value::Nothing => &[],
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => {
                let what = format!("{title} is {}, but should be a table", node.kind());
                let names: Vec<_> = table.keys.iter().map(|key| key.name).collect();
                source.complain(node.line, what, format!("its keys {}", there_are(&names)));
                &[]
            }
        };
        let section = Self {
            source,
            table,
            title,
            line: node.line,
            members,
            #[cfg(debug_assertions)]
            asked: RefCell::default(),
        };
        for member in members {
            if table.key(&member.name).is_none() {
                let what = format!("unknown key `{}` in {}", member.name, section.title);
                let names: Vec<_> = table.keys.iter().map(|key| key.name).collect();
                source.complain(member.line, what, did_you_mean(&member.name, &names));
            }
        }
        section
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &'static str) -> Option<Item<'a>> {
        let key = self.table.key(name);
        debug_assert!(key.is_some(), "`{name}` is not declared in {}", self.table.title);
        #[cfg(debug_assertions)]
        self.asked.borrow_mut().insert(name);
        let member = self.members.iter().find(|member| member.name == name)?;
        (!matches!(member.node.value, Value::Nothing))
            .then_some(Item { node: &member.node, key: key? })
    }

    /// Reports a problem with a key's value.
    pub(crate) fn wrong(&self, item: Item<'_>) {
        let what = format!("`{}` in {} is {}", item.key.name, self.title, item.node.kind());
        self.source.complain(item.node.line, what, format!("it takes {}", item.key.takes));
    }

    fn read<T>(&self, name: &'static str, read: impl FnOnce(&'a Node) -> Option<T>) -> Option<T> {
        let item = self.get(name)?;
        let value = read(item.node);
        if value.is_none() {
            self.wrong(item);
        }
        value
    }

    pub(crate) fn text(&self, name: &'static str) -> Option<&'a str> {
        self.read(name, text)
    }

    /// A string that must be set.
    pub(crate) fn required(&self, name: &'static str, remedy: &str) -> Option<&'a str> {
        if self.get(name).is_none() {
            let what = format!("{} has no `{name}`", self.title);
            self.source.complain(self.line, what, remedy);
        }
        self.text(name)
    }

    pub(crate) fn bool(&self, name: &'static str) -> Option<bool> {
        self.read(name, |node| if let Value::Bool(value) = node.value { Some(value) } else { None })
    }

    /// A whole number within the range of its type.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &'static str) -> Option<T> {
        self.read(name, |node| {
            if let Value::Integer(value) = node.value { T::try_from(value).ok() } else { None }
        })
    }

    pub(crate) fn float(&self, name: &'static str) -> Option<f64> {
        self.read(name, float)
    }

    /// A duration: a number of seconds, or a string with a unit.
    pub(crate) fn duration(&self, name: &'static str) -> Option<Duration> {
        self.read(name, |node| match text(node) {
            Some(text) => duration(text),
            None => Duration::try_from_secs_f64(float(node)?).ok(),
        })
    }

    pub(crate) fn path(&self, name: &'static str) -> Option<PathBuf> {
        self.text(name).map(|path| self.source.path(path))
    }

    pub(crate) fn texts(&self, name: &'static str) -> Option<Vec<Box<str>>> {
        self.read(name, |node| {
            let Value::List(items) = &node.value else { return None };
            items.iter().map(|item| text(item).map(Into::into)).collect()
        })
    }

    /// A string from a fixed list.
    pub(crate) fn word<T: Copy>(&self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let item = self.get(name)?;
        let found = text(item.node).and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let what = format!("`{name}` in {} is {}", self.title, item.node.kind());
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let given = text(item.node).unwrap_or_default();
            self.source.complain(item.node.line, what, did_you_mean(given, &known));
        }
        found.map(|(_, value)| *value)
    }

    /// A string that is parsed by its type.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &'static str) -> Option<T> {
        self.read(name, |node| text(node)?.parse().ok())
    }

    /// A table of strings that may hold secrets: `${NAME}` stands for a variable.
    pub(crate) fn secrets(&self, name: &'static str) -> BTreeMap<Box<str>, Secret> {
        let Some(item) = self.get(name) else { return BTreeMap::new() };
        let Value::Table(members) = &item.node.value else {
            self.wrong(item);
            return BTreeMap::new();
        };
        let mut secrets = BTreeMap::new();
        for member in members {
            let Some(text) = text(&member.node) else {
                self.wrong(Item { node: &member.node, key: item.key });
                continue;
            };
            match expand(text, self.source.environment) {
                Ok(text) => {
                    secrets.insert(member.name.as_str().into(), Secret::new(text));
                }
                Err(variable) => self.source.complain(
                    member.node.line,
                    format!(
                        "`{name}.{}` in {} needs the variable {variable}",
                        member.name, self.title
                    ),
                    format!("set {variable}, or write $${{…}} for a literal dollar sign"),
                ),
            }
        }
        secrets
    }

    /// A table of strings.
    pub(crate) fn texts_by_name(&self, name: &'static str) -> BTreeMap<Box<str>, Box<str>> {
        let Some(item) = self.get(name) else { return BTreeMap::new() };
        let Value::Table(members) = &item.node.value else {
            self.wrong(item);
            return BTreeMap::new();
        };
        let mut texts = BTreeMap::new();
        for member in members {
            match text(&member.node) {
                Some(text) => {
                    texts.insert(member.name.as_str().into(), text.into());
                }
                None => self.wrong(Item { node: &member.node, key: item.key }),
            }
        }
        texts
    }

    /// A table of tables, each with its title: `[providers.NAME]`.
    pub(crate) fn named(&self, name: &'static str) -> Vec<(&'a Member, String)> {
        let Some(item) = self.get(name) else { return Vec::new() };
        let Value::Table(members) = &item.node.value else {
            self.wrong(item);
            return Vec::new();
        };
        let title = |member: &Member| match self.table.title {
            "" => format!("[{name}.{}]", member.name),
            _ => format!("`{name}.{}` in {}", member.name, self.title),
        };
        members.iter().map(|member| (member, title(member))).collect()
    }

    /// A table within this one.
    pub(crate) fn sub(&self, name: &'static str) -> Option<Section<'a>> {
        let item = self.get(name)?;
        let declared = match self.table.title.strip_suffix(']') {
            Some(outer) => format!("{outer}.{name}]"),
            None => format!("[{name}]"),
        };
        let title = match self.title.strip_suffix(']') {
            Some(outer) => format!("{outer}.{name}]"),
            None if self.table.title.is_empty() => declared.clone(),
            None => format!("`{name}` in {}", self.title),
        };
        Some(Section::open(self.source, item.node, &declared, title))
    }

    /// Two keys that exclude each other.
    pub(crate) fn not_both(&self, one: &'static str, other: &'static str) {
        if let (Some(_), Some(second)) = (self.get(one), self.get(other)) {
            let what = format!("{} has both `{one}` and `{other}`", self.title);
            self.source.complain(second.node.line, what, "remove one of them");
        }
    }

    /// Checks that every declared key was read.
    pub(crate) fn done(&self) {
        #[cfg(debug_assertions)]
        for key in &self.table.keys {
            debug_assert!(
                self.asked.borrow().contains(key.name),
                "`{}` of {:?} is declared but never read",
                key.name,
                self.table.title
            );
        }
    }
}

pub(crate) fn text(node: &Node) -> Option<&str> {
    if let Value::Text(text) = &node.value { Some(text) } else { None }
}

fn float(node: &Node) -> Option<f64> {
    match node.value {
        Value::Float(value) => Some(value).filter(|value| value.is_finite()),
        // Every `i32` has an exact `f64`; configurations need no larger integers.
        Value::Integer(value) => i32::try_from(value).ok().map(f64::from),
        Value::Nothing | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Table(_) => None,
    }
}

/// `500ms`, `20s`, `5m`, `6h`, `30d`.
fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok()
}

/// Replaces variables. The error is the name of a variable that is not set.
fn expand(text: &str, environment: Environment<'_>) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            whole.push_str(before);
            whole.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}') else { break };
        let variable = &rest[at + 2..at + end];
        whole.push_str(&rest[..at]);
        whole.push_str(&environment(variable).ok_or_else(|| variable.to_owned())?);
        rest = &rest[at + end + 1..];
    }
    whole.push_str(rest);
    Ok(whole)
}

/// Reads a file that the configuration refers to, up to a maximum size.
pub(crate) fn read_file(path: &Path, bytes_max: u64) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > bytes_max {
        return Err(format!("it has {size} bytes; the maximum is {bytes_max}"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
