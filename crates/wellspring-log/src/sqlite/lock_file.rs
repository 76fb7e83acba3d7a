//! Detects which of the processes that share a file have ended.
//!
//! Each process holds a lock on a small file of its own, in a directory next to the database.
//! The operating system releases the lock however the process ends, so the runs of a killed
//! process can be adopted at once, without waiting for its heartbeats to stop.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::connect::{make_private, new_private_file};

/// The prefix of our processes' file names. Other files are ignored.
const PREFIX: &str = "node-";

/// Distinguishes the stores of one process.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The locked file of this process.
#[derive(Debug)]
pub(super) struct Alive {
    pub(super) name: Box<str>,
    /// Held as long as the store is open. The file itself stays: a process that finds it
    /// unlocked releases the runs of this process.
    _lock: File,
}

impl Alive {
    /// Creates and locks the file of this process.
    pub(super) fn announce(database: &Path) -> io::Result<Self> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let moment = since_epoch.as_millis();
        let name = format!("{PREFIX}{}-{moment:x}-{opened}", std::process::id());
        let path = directory(database).join(&name);
        // Locked under another name first, so that the final name is always locked.
        let unborn = path.with_extension("new");
        make_private(&unborn)?;
        new_private_file(&unborn)?;
        let lock = File::options().read(true).write(true).open(&unborn)?;
        lock.lock()?;
        fs::rename(&unborn, &path)?;
        Ok(Self { name: name.into(), _lock: lock })
    }
}

/// A process that has ended: its file existed and was not locked.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) node: String,
    path: PathBuf,
    /// Held until the file is removed, so that only one process at a time releases the runs.
    _lock: File,
}

impl Ended {
    /// Removes the file. Call this after the process's runs are released: a file that stays
    /// behind is found again.
    pub(super) fn forget(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The processes that have ended and whose files still exist. A missing file means nothing:
/// heartbeats then decide whether the process is alive.
pub(super) fn ended(database: &Path) -> Vec<Ended> {
    let Ok(entries) = fs::read_dir(directory(database)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let nodes = names.filter(|name| name.starts_with(PREFIX) && !name.contains('.'));
    let ended = nodes.filter_map(|node| {
        let path = directory(database).join(&node);
        let lock = File::options().read(true).write(true).open(&path).ok()?;
        match lock.try_lock() {
            Ok(()) => Some(Ended { node, path, _lock: lock }),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    });
    ended.collect()
}

fn directory(database: &Path) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push("-nodes");
    database.with_file_name(name)
}
