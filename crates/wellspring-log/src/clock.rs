//! Sources of time.

use std::sync::LazyLock;
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::time::Instant;
use wellspring_core::Millis;

/// When this process first read a monotonic time.
static FIRST: LazyLock<StdInstant> = LazyLock::new(StdInstant::now);

/// A source of time.
pub trait Clock: Send + Sync {
    /// The wall-clock time. It may step in either direction.
    fn now(&self) -> Millis;

    /// The time since a fixed moment. It never steps.
    fn monotonic(&self) -> Duration {
        FIRST.elapsed()
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::default().plus(since)
    }
}

/// A clock that follows Tokio's time, which tests can pause and advance.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: Instant,
    start_at: Millis,
    /// The runtime to read the time from. Frames are also cut on the store's threads, which
    /// have no runtime of their own and would not see the test's paused time.
    runtime: Option<Handle>,
}

impl TokioClock {
    /// A clock that shows `at` now. Call it inside the runtime whose time it follows.
    #[must_use]
    pub fn starting_at(at: Millis) -> Self {
        Self { start: Instant::now(), start_at: at, runtime: Handle::try_current().ok() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Millis {
        let _inside = self.runtime.as_ref().map(Handle::enter);
        self.start_at.plus(self.start.elapsed())
    }

    fn monotonic(&self) -> Duration {
        let _inside = self.runtime.as_ref().map(Handle::enter);
        self.start.elapsed()
    }
}
