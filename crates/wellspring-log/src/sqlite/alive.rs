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

/// How the names of our processes begin: nothing is said about others.
const PREFIX: &str = "node-";

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

impl Alive {
    /// Makes this process known beside a database.
    pub(super) fn announce(database: &Path) -> io::Result<Self> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let moment = since_epoch.as_millis();
        let name = format!("{PREFIX}{}-{moment:x}-{opened}", std::process::id());
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
        // A file that stays behind is swept away by the next one.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a node was one of our processes and is gone: no file of its name is locked.
pub(super) fn is_gone(database: &Path, node: &str) -> bool {
    if !node.starts_with(PREFIX) || node.contains(['/', '\\', '.']) {
        return false;
    }
    let path = directory(database).join(node);
    let file = match File::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    match file.try_lock() {
        Ok(()) => {
            let _ = fs::remove_file(&path);
            true
        }
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

fn directory(database: &Path) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push("-nodes");
    database.with_file_name(name)
}
