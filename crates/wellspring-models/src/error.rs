//! What can be wrong with a model before it is asked anything.

use std::path::PathBuf;

/// A model cannot be set up like this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no key.
    #[error("no key: set {variable}, or {variable}_FILE to a file with it")]
    NoKey {
        /// Where it was looked for.
        variable: Box<str>,
    },
    /// The file with the key is not there, or not for us.
    #[error("the key file {} cannot be read", path.display())]
    KeyFile {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file with the key has none.
    #[error("the key file {} is empty", path.display())]
    EmptyKeyFile {
        /// Which file.
        path: PathBuf,
    },
    /// An address that is none.
    #[error("{url:?} is no address of a server: it should be like https://api.example.com")]
    BadUrl {
        /// What it is.
        url: Box<str>,
    },
    /// A header that HTTP does not allow; its value may be secret and is not shown.
    #[error("the header {name:?} is not one that HTTP allows")]
    BadHeader {
        /// Which.
        name: Box<str>,
    },
    /// There is no way to speak HTTPS here.
    #[error("HTTPS cannot be set up")]
    NoHttp(#[source] Box<dyn std::error::Error + Send + Sync>),
}
