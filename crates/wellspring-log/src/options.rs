//! Options of a log, and their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};

/// How long a node counts as alive without a heartbeat: long enough for a busy disk, short
/// enough that runs of a crashed node continue soon.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long to retry an append whose outcome is unknown: long enough for a busy disk. Including
/// the last attempt, callers get the error within about five seconds. A store whose servers
/// need 5 to 7 seconds to elect a leader needs more.
pub const SETTLE: Duration = Duration::from_secs(4);

/// Uncommitted bytes after which an owner's source has to wait: seconds of any model's output,
/// and little compared with the rest of a run.
pub const UNCOMMITTED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of frames kept in memory for the slower readers of one run: several seconds of output.
pub const TAIL_BYTES_MAX: usize = 256 * 1024;

/// Bytes of frames kept in memory for all readers: 256 runs with one stuck reader each.
pub const TAIL_BYTES_TOTAL_MAX: usize = 64 * 1024 * 1024;

/// Bytes per read of a reader that is far behind.
pub const PAGE_BYTES: usize = 64 * 1024;

/// Number of waiting records from which on neighbouring deltas are joined: the store is behind
/// then, and single deltas would keep it behind.
pub const JOIN_PAST: usize = 64;

/// An outline snapshot is stored after this many bytes, so that resuming folds little.
pub const OUTLINE_BYTES: usize = 64 * 1024;

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The end of the process: the data was handed to the operating system.
    #[default]
    ProcessCrash,
    /// Also a power loss: the data was synced to the disk.
    PowerLoss,
}

/// Options of a log. The defaults suit most programs.
#[derive(Clone)]
pub struct LogOptions {
    /// The name of this process as an owner. It must be unique among live processes.
    pub node: Box<str>,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// See [`LEASE`]. Heartbeats are written three times per lease.
    pub lease: Duration,
    /// See [`SETTLE`]. If an append's outcome stays unknown for longer, the owner loses the
    /// run.
    pub settle: Duration,
    /// See [`UNCOMMITTED_BYTES_MAX`]. Also the maximum size of a frame, unless a single event
    /// is larger.
    pub uncommitted_bytes_max: usize,
    /// See [`TAIL_BYTES_MAX`].
    pub tail_bytes_max: usize,
    /// See [`TAIL_BYTES_TOTAL_MAX`].
    pub tail_bytes_total_max: usize,
    /// See [`PAGE_BYTES`].
    pub page_bytes: usize,
    /// See [`JOIN_PAST`].
    pub join_past: usize,
    /// See [`OUTLINE_BYTES`].
    pub outline_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            node: format!("process-{}", std::process::id()).into(),
            clock: Arc::new(SystemClock),
            lease: LEASE,
            settle: SETTLE,
            uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
            tail_bytes_max: TAIL_BYTES_MAX,
            tail_bytes_total_max: TAIL_BYTES_TOTAL_MAX,
            page_bytes: PAGE_BYTES,
            join_past: JOIN_PAST,
            outline_bytes: OUTLINE_BYTES,
        }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("node", &self.node)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
