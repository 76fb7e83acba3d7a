//! Backups: a consistent copy of the file, while it is in use.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::connect::{connect_reader, new_private_file};
use crate::store::StoreError;

/// Copies a consistent state of everything to a new file.
pub(super) fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        StoreError::failed("making a backup", error)
    };
    if to.exists() {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, to.display().to_string());
        return Err(failed(error.into()));
    }
    let name = to.to_str().ok_or_else(|| failed("the path is not UTF-8".into()))?;
    new_private_file(to).map_err(|error| failed(error.into()))?;
    let copied = connect_reader(from)
        .and_then(|connection| connection.execute("VACUUM INTO ?1", [name]))
        .map_err(|error| failed(error.into()))
        .and_then(|_| {
            let sync = OpenOptions::new().write(true).open(to).and_then(|file| file.sync_all());
            sync.map_err(|error| failed(error.into()))
        });
    if copied.is_err() {
        // An incomplete backup must not be left behind.
        let _ = fs::remove_file(to);
    }
    copied
}
