//! Every configuration key, as declared in `keys.md`: its type, its default and its meaning.
//!
//! The parser and its error messages read `keys.md`, and `docs/configuration.md` contains it, so
//! that they cannot disagree.

use std::sync::LazyLock;

/// A table of a configuration.
#[derive(Debug)]
pub(crate) struct Table {
    /// The TOML header; empty for the top level.
    pub(crate) title: &'static str,
    pub(crate) keys: Vec<Key>,
}

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What its value must be, for error messages.
    pub(crate) takes: &'static str,
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

pub(crate) const DECLARED: &str = include_str!("keys.md");

/// All tables, in the order of the documentation.
pub(crate) static ALL: LazyLock<Vec<Table>> =
    LazyLock::new(|| DECLARED.split("### ").skip(1).map(read).collect());

/// The declaration of a table by its TOML header, with `NAME` in place of a name.
pub(crate) fn table(title: &str) -> &'static Table {
    static UNDECLARED: Table = Table { title: "", keys: Vec::new() };
    let found = ALL.iter().find(|table| table.title == title);
    debug_assert!(found.is_some(), "`keys.md` does not declare {title:?}");
    found.unwrap_or(&UNDECLARED)
}

/// Reads a section of `keys.md`: its heading, and the rows that begin with a key.
fn read(section: &'static str) -> Table {
    let heading = section.lines().next().unwrap_or_default();
    let title = if heading.starts_with('[') { heading } else { "" };
    let keys = section.lines().filter_map(|line| {
        let (name, cells) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (takes, _) = cells.split_once(" | ")?;
        Some(Key { name, takes })
    });
    Table { title, keys: keys.collect() }
}
