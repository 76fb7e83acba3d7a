//! Errors in the configuration of a client, found before any request.

use std::fmt;
use std::path::PathBuf;

/// The configuration of a client is invalid.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No key is set.
    #[error("no key: set {variable}, or {variable}_FILE to a file with it")]
    NoKey {
        /// The environment variable that was looked up.
        variable: Box<str>,
    },
    /// The key file is missing or not readable.
    #[error("the key file {} cannot be read", path.display())]
    KeyFile {
        /// The file's path.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The key file is empty.
    #[error("the key file {} is empty", path.display())]
    EmptyKeyFile {
        /// The file's path.
        path: PathBuf,
    },
    /// The address is not an HTTP URL.
    #[error("{url:?} is not the URL of a server: expected something like https://api.example.com")]
    BadUrl {
        /// The address as it was given.
        url: Box<str>,
    },
    /// A header that HTTP does not allow. Its value may be secret and is not shown.
    #[error("the header {name:?} has a name or a value that HTTP does not allow")]
    BadHeader {
        /// The header's name.
        name: Box<str>,
    },
    /// The TLS library could not be set up.
    #[error("HTTPS cannot be set up")]
    NoHttp(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The message: a program whose `main` returns an error prints it in this form.
impl fmt::Debug for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match std::error::Error::source(self) {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_returns_the_error_prints_what_to_do() {
        let no_key = SetupError::NoKey { variable: "ANTHROPIC_API_KEY".into() };
        let want = "no key: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE to a file with it";
        assert_eq!(format!("{no_key:?}"), want);
        let source = std::io::Error::other("it is locked");
        let key_file = SetupError::KeyFile { path: "key".into(), source };
        assert_eq!(format!("{key_file:?}"), "the key file key cannot be read: it is locked");
    }
}
