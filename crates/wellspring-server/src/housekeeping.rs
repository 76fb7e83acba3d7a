//! What is done without being asked: runs that lost their owner go on, old ones are deleted.

use std::time::Duration;

use wellspring_core::Millis;

use crate::app::App;

/// How often runs that lost their owner are looked for: a lease is longer.
const RECOVER_EVERY: Duration = Duration::from_secs(10);

/// How often runs are tried again that the store failed: soon after it is repaired.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How often old runs are looked for, where they are to be deleted.
const RETENTION_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many old runs are deleted at a time, before others have their turn.
const RETENTION_BATCH: usize = 100;

/// Continues runs whose owner died in another process, and deletes old ones; for ever.
pub(crate) async fn look_after(app: App) {
    let mut recovery = tokio::time::interval(RECOVER_EVERY);
    let mut retry = tokio::time::interval(RETRY_EVERY);
    let mut retention = tokio::time::interval(RETENTION_EVERY);
    loop {
        tokio::select! {
            _ = recovery.tick() => {
                if let Err(error) = app.runtime.recover().await {
                    tracing::warn!(%error, "runs to continue could not be looked for");
                }
            }
            _ = retry.tick() => {
                // That the store fails has been said already, by those that it failed.
                if app.runtime.has_lost_runs()
                    && let Err(error) = app.runtime.recover().await
                {
                    tracing::debug!(%error, "the store still fails");
                }
            }
            _ = retention.tick() => {
                if let Some(keep) = app.config.retention {
                    forget(&app, keep).await;
                }
            }
        }
    }
}

async fn forget(app: &App, keep: Duration) {
    let log = app.runtime.log();
    let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    let before = Millis(log.clock().now().0.saturating_sub(keep));
    loop {
        match log.purge(before, RETENTION_BATCH).await {
            Ok(runs) => {
                if runs > 0 {
                    tracing::info!(runs, "old runs were deleted");
                }
                if runs < RETENTION_BATCH {
                    return;
                }
            }
            Err(error) => return tracing::warn!(%error, "old runs could not be deleted"),
        }
        // Runs that are at work come first.
        tokio::task::yield_now().await;
    }
}
