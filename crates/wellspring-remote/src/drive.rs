//! A remote run that advances only while its stream is polled, so that dropping the stream leaves
//! nothing behind.

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use wellspring_core::{Batch, ModelError};

/// The return type of [`RemoteAgent::run`](wellspring_core::RemoteAgent::run).
pub(crate) type Running =
    BoxFuture<'static, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>>;

/// A run in progress.
pub(crate) trait Drive: Send + 'static {
    /// The next piece of the run; `None` once it is over.
    fn next(&mut self) -> impl Future<Output = Option<Result<Batch, ModelError>>> + Send;
}

/// The stream of a run, which advances only when it is polled.
pub(crate) fn run(drive: impl Drive) -> Running {
    let batches = stream::unfold(Box::new(drive), |mut drive| async move {
        let batch = drive.next().await?;
        Some((batch, drive))
    });
    std::future::ready(Ok(batches.boxed())).boxed()
}
