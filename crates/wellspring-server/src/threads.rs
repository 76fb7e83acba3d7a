//! The threads that serve.

use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// What runs a server, or anything else, on this machine: a worker per processor; and where
/// there is only one, no thread besides the one that asks: there the scheduler for many
/// threads costs a quarter more per token, or worse, as the bench `row` shows.
///
/// ```
/// let tokio = wellspring_server::threads()?;
/// assert_eq!(tokio.block_on(async { 6 * 7 }), 42);
/// # Ok::<_, std::io::Error>(())
/// ```
///
/// # Errors
///
/// When the system has no thread or file descriptor left.
pub fn threads() -> std::io::Result<Runtime> {
    let alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
    let mut builder =
        if alone { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}
