//! Errors in the configuration of a client, found before any request.

use std::path::PathBuf;

/// The configuration of a client is invalid.
#[derive(Debug, thiserror::Error)]
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
