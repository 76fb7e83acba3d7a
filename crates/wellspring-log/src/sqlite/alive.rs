//! Which of the processes that share a file are alive.
//!
//! Each holds a lock on a small file of its own beside the database. The operating system
//! gives the lock back however the process ends, so a run whose owner was killed can be
//! adopted at once, without waiting for its lease to end.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::schema::{make_private, new_private_file};

/// Tells the stores of one process apart.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// This process's sign of life.
#[derive(Debug)]
pub(super) struct Alive {
    pub(super) name: Box<str>,
    path: PathBuf,
    /// Held as long as the store is open.
    _lock: File,
}

/// A process that is gone. While this is held, nobody else finds it.
#[derive(Debug)]
pub(super) struct Dead {
    pub(super) name: String,
    path: PathBuf,
    _lock: File,
}

impl Alive {
    /// Makes this process known beside a database.
    pub(super) fn announce(database: &Path) -> io::Result<Self> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{:x}-{opened}", std::process::id(), since_epoch.as_millis());
        let path = directory(database).join(&name);
        // Locked under another name first: whoever finds the final name finds it locked.
        let unborn = path.with_extension("new");
        make_private(&unborn)?;
        new_private_file(&unborn)?;
        let lock = File::options().read(true).write(true).open(&unborn)?;
        lock.lock()?;
        fs::rename(&unborn, &path)?;
        Ok(Self { name: name.into(), path, _lock: lock })
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // A file that stays behind is found dead by the next one.
        let _ = fs::remove_file(&self.path);
    }
}

impl Dead {
    /// The processes that were known beside a database and are gone.
    pub(super) fn find(database: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(directory(database)) else { return Vec::new() };
        entries.filter_map(|entry| Self::at(entry.ok()?.path())).collect()
    }

    fn at(path: PathBuf) -> Option<Self> {
        if path.extension().is_some() {
            return None; // Not yet born, or somebody else's file.
        }
        let lock = File::options().read(true).write(true).open(&path).ok()?;
        match lock.try_lock() {
            Ok(()) => {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(Self { name, path, _lock: lock })
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    }

    /// Forgets it, once its leases are free.
    pub(super) fn bury(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn directory(database: &Path) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push("-nodes");
    database.with_file_name(name)
}
