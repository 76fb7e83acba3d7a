//! How a log behaves, and its maxima.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};

/// How long a node is believed alive without a heartbeat: long enough for a busy disk, short
/// enough that a run of a crashed node continues soon.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long an append may take to settle: long enough for a busy disk. With its last attempt, those
/// who wait are told within about five seconds. A store whose servers change their leader in 5 to
/// 7 seconds needs more.
pub const SETTLE: Duration = Duration::from_secs(4);

/// Bytes an owner may have uncommitted before its source has to wait: seconds of any model's
/// output, and little beside what else a run holds.
pub const UNCOMMITTED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of frames kept for the slower readers of one run: several seconds of output.
pub const TAIL_BYTES_MAX: usize = 256 * 1024;

/// Bytes of frames kept for readers in all: 256 runs with a stuck reader each.
pub const TAIL_BYTES_TOTAL_MAX: usize = 64 * 1024 * 1024;

/// Bytes that a reader who is far behind gets at once.
pub const PAGE_BYTES: usize = 64 * 1024;

/// From how many waiting records on neighbouring deltas are joined: the store is behind then,
/// and piece by piece would keep it there.
pub const JOIN_PAST: usize = 64;

/// An outline is kept every so many bytes, so that a resume folds little.
pub const OUTLINE_BYTES: usize = 64 * 1024;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The death of the process: it was handed to the operating system.
    #[default]
    ProcessCrash,
    /// The loss of power too: it was synced to the disk.
    PowerLoss,
}

/// How a log behaves. The defaults are right for nearly everyone but tests.
#[derive(Clone)]
pub struct LogOptions {
    /// The name of this process as an owner of runs. No other live process may have the same.
    pub node: Box<str>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// See [`LEASE`]. Heartbeats are written three times as often.
    pub lease: Duration,
    /// See [`SETTLE`]. An append whose outcome is unknown for longer loses its owner the run.
    pub settle: Duration,
    /// See [`UNCOMMITTED_BYTES_MAX`]. A frame is cut no larger either, unless a single event is.
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
