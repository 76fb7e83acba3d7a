//! Problems of a configuration, each with its line and a remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum number of problems in one report: more than a person fixes before trying again.
pub(crate) const PROBLEMS_SHOWN_MAX: usize = 20;

/// A problem.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    /// From 1; `None` for the whole file.
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
    /// The remedy.
    pub(crate) remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}\n  {}", self.what, self.remedy)
    }
}

/// All problems of a configuration, in the order of its files and lines.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn push(
        &mut self,
        file: &Path,
        line: impl Into<Option<usize>>,
        what: String,
        remedy: String,
    ) {
        self.0.push(Problem { file: file.to_owned(), line: line.into(), what, remedy });
    }

    /// The value, if there are no problems.
    pub(crate) fn or<T>(mut self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort();
        Err(self)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid")?;
        for problem in self.0.iter().take(PROBLEMS_SHOWN_MAX) {
            write!(f, "\n{problem}")?;
        }
        match self.0.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}
