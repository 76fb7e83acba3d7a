//! Keys, which are never printed.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::SetupError;

/// Maximum size of a key file. Keys have a few hundred bytes; certificates that are used as
/// keys, a few thousand.
pub const KEY_BYTES_MAX: u64 = 64 * 1024;

/// A key. It is never printed: only [`expose`](Secret::expose) returns its value.
///
/// ```
/// use wellspring_models::Secret;
///
/// let key = Secret::new("sk-very-secret");
/// assert_eq!(format!("{key:?}"), "Secret(…)");
/// ```
#[derive(Clone)]
pub struct Secret {
    key: Box<str>,
    file: Option<Arc<KeyFile>>,
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Secret {}

/// The file that a key was read from, and its version at that time.
struct KeyFile {
    path: PathBuf,
    stamp: Option<Stamp>,
}

/// Distinguishes two versions of a file.
#[derive(Eq, PartialEq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len() })
    }
}

impl Secret {
    /// A key from a string.
    #[must_use]
    pub fn new(key: impl Into<Box<str>>) -> Self {
        Self { key: key.into(), file: None }
    }

    /// Reads a key from the environment variable `variable`, or from the file that the variable
    /// `{variable}_FILE` names.
    ///
    /// # Errors
    ///
    /// If neither is set, or the file cannot be read.
    pub fn from_env(variable: &str) -> Result<Self, SetupError> {
        Self::from_env_with(variable, |name| std::env::var(name).ok())
    }

    pub(crate) fn from_env_with(
        variable: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        let set = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        if let Some(key) = set(variable) {
            return Ok(Self::new(key.trim()));
        }
        match set(&format!("{variable}_FILE")) {
            Some(path) => Self::from_file(path),
            None => Err(SetupError::NoKey { variable: variable.into() }),
        }
    }

    /// Reads a key from a file that holds nothing else. Clients read the file again when it
    /// changes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is empty.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SetupError> {
        let path = path.as_ref();
        // Taken before the file is read, so that a change in between is noticed the next time.
        let stamp = Stamp::of(path);
        let key = read(path).map_err(|source| SetupError::KeyFile { path: path.into(), source })?;
        match key.trim() {
            "" => Err(SetupError::EmptyKeyFile { path: path.into() }),
            key => {
                let file = KeyFile { path: path.into(), stamp };
                Ok(Self { key: key.into(), file: Some(Arc::new(file)) })
            }
        }
    }

    /// Whether the key came from a file, which may change.
    pub(crate) fn is_from_file(&self) -> bool {
        self.file.is_some()
    }

    /// The new key, if its file has changed since it was read. `None` if the file cannot be
    /// read, for example because it is being replaced.
    pub(crate) fn changed(&self) -> Option<Self> {
        let file = self.file.as_ref()?;
        if Stamp::of(&file.path) == file.stamp {
            return None;
        }
        Self::from_file(&file.path).ok()
    }

    /// The key itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.key
    }
}

/// Reads at most [`KEY_BYTES_MAX`]: the path may be a device that never ends.
fn read(path: &Path) -> io::Result<String> {
    let mut key = String::new();
    let file = std::fs::File::open(path)?;
    // One byte more than the maximum shows whether the file is too large.
    file.take(KEY_BYTES_MAX + 1).read_to_string(&mut key)?;
    if key.len() as u64 > KEY_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {KEY_BYTES_MAX} bytes")));
    }
    Ok(key)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_a_variable_or_the_file_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let (file, empty) = (folder.path().join("key"), folder.path().join("empty"));
        std::fs::write(&file, "from-file\n").unwrap();
        std::fs::write(&empty, " \n").unwrap();
        let read = |variables: &[(&str, &str)]| {
            let environment = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let key = Secret::from_env_with("ACME_KEY", environment);
            key.map(|key| key.expose().to_owned()).map_err(|error| error.to_string())
        };
        let path = file.to_str().unwrap();
        assert_eq!(read(&[("ACME_KEY", " k ")]).as_deref(), Ok("k"));
        assert_eq!(read(&[("ACME_KEY", ""), ("ACME_KEY_FILE", path)]).as_deref(), Ok("from-file"));
        assert_eq!(
            read(&[]),
            Err("no key: set ACME_KEY, or ACME_KEY_FILE to a file with it".into())
        );
        let empty = empty.to_str().unwrap();
        assert_eq!(
            read(&[("ACME_KEY_FILE", empty)]),
            Err(format!("the key file {empty} is empty"))
        );
        let most = "k".repeat(usize::try_from(KEY_BYTES_MAX).unwrap());
        std::fs::write(&file, &most).unwrap();
        assert_eq!(read(&[("ACME_KEY_FILE", path)]), Ok(most));
        let endless = Err("the key file /dev/zero cannot be read".into());
        assert_eq!(read(&[("ACME_KEY_FILE", "/dev/zero")]), endless);
        let gone = format!("{path}.gone");
        assert_eq!(
            read(&[("ACME_KEY_FILE", &gone)]),
            Err(format!("the key file {gone} cannot be read"))
        );
    }
}
