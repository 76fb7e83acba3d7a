//! A remote run that advances only while its stream is polled, so that dropping the stream leaves
//! nothing behind.

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use wellspring_core::{Batch, ModelError};

/// What [`RemoteAgent::run`](wellspring_core::RemoteAgent::run) gives.
pub(crate) type Running =
    BoxFuture<'static, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>>;

/// A run on its way.
pub(crate) trait Drive: Send + 'static {
    /// The next piece of the run; `None` once it is over.
    fn next(&mut self) -> impl Future<Output = Option<Result<Batch, ModelError>>> + Send;
}

/// The pieces of a run, each made when it is asked for.
pub(crate) fn run(drive: impl Drive) -> Running {
    let batches = stream::unfold(Box::new(drive), |mut drive| async move {
        let batch = drive.next().await?;
        Some((batch, drive))
    });
    std::future::ready(Ok(batches.boxed())).boxed()
}
