//! Background work: continues runs that are due, and deletes old ones.

use std::time::Duration;

use wellspring_core::Millis;

use crate::app::App;

/// Interval of the search for runs that are due: a run that was answered through another process
/// continues within two seconds. Each search costs two indexed queries.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

/// Interval of the search for runs older than `keep`.
const RETENTION_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many old runs are deleted in one batch, before other work continues.
const RETENTION_BATCH: usize = 100;

/// Recovers runs whose owner died in another process, and deletes old runs, until it is dropped.
pub(crate) async fn look_after(app: App) {
    let mut recovery = tokio::time::interval(RECOVER_EVERY);
    recovery.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut retention = tokio::time::interval(RETENTION_EVERY);
    let mut failing = false;
    loop {
        tokio::select! {
            _ = recovery.tick() => {
                match app.runtime.recover().await {
                    Ok(_) => failing = false,
                    Err(error) if !failing => {
                        failing = true;
                        tracing::warn!(%error, "failed to look for runs that are due");
                    }
                    Err(error) => tracing::debug!(%error, "the store still fails"),
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
        // Active runs come first.
        tokio::task::yield_now().await;
    }
}
