//! The Tokio runtime of a server.

use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// A Tokio runtime for this machine: a worker per processor, or the current-thread scheduler if
/// there is only one processor. There the multi-threaded scheduler costs at least a quarter more per
/// token, as the bench `row` shows.
///
/// ```
/// let tokio = wellspring_server::threads()?;
/// assert_eq!(tokio.block_on(async { 6 * 7 }), 42);
/// # Ok::<_, std::io::Error>(())
/// ```
///
/// # Errors
///
/// If the system has no thread or file descriptor left.
pub fn threads() -> std::io::Result<Runtime> {
    let alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
    let mut builder =
        if alone { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}
