//! Reads one client, and answers many of its requests concurrently.

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinSet;
use wellspring_core::CancellationToken;
use wellspring_wire::{EVENT_BYTES_MAX, Framer};

use crate::rpc::{Peer, Reply, Request, RpcError, Wish};

/// Maximum number of concurrent requests of a client: one prompt per session, and a few more.
pub const REQUESTS_MAX: usize = 256;

/// Size of the read buffer.
const READ_BYTES: usize = 64 * 1024;

/// The handler of a client's requests and notifications.
pub(super) trait Handler: Send + Sync {
    /// Handles a request. Work before the future is returned is done before the next message is read;
    /// the future runs concurrently. It is dropped when the connection ends.
    fn request(
        &self,
        method: &str,
        params: Value,
        cancelled: CancellationToken,
    ) -> BoxFuture<'static, Result<Reply, RpcError>>;

    /// Handles a notification before the next message is read. It must not take long.
    fn notification(&self, method: &str, params: Value) -> BoxFuture<'static, ()>;
}

/// Reads and handles messages until the client disconnects.
///
/// # Errors
///
/// If reading fails, or the client sends a line that is too long.
pub(super) async fn serve(
    peer: &Peer,
    mut input: impl AsyncRead + Unpin,
    handler: &dyn Handler,
) -> std::io::Result<()> {
    let mut at_work = AtWork::default();
    let mut framer = Framer::ndjson();
    let mut bytes = vec![0; READ_BYTES];
    let served = loop {
        let count = tokio::select! {
            read = input.read(&mut bytes) => match read {
                Ok(0) => break Ok(()),
                Ok(count) => count,
                Err(error) => break Err(error),
            },
            Some(_) = at_work.work.join_next() => continue,
        };
        let mut chunk = &bytes[..count];
        let broken = loop {
            match framer.next(&mut chunk) {
                Ok(Some(frame)) => match peer.take(frame.data).await {
                    Ok(Some(wish)) => at_work.take(wish, handler).await,
                    Ok(None) => {}
                    Err(error) => peer.complain(&error).await,
                },
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = broken {
            // Without the message, its boundary is unknown, so the connection ends.
            let message = format!("a message has more than {EVENT_BYTES_MAX} bytes");
            peer.complain(&RpcError::new(RpcError::PARSE, message)).await;
            break Err(std::io::Error::other(error));
        }
    };
    peer.lose();
    at_work.work.shutdown().await;
    served
}

/// The requests that are being handled.
#[derive(Default)]
struct AtWork {
    work: JoinSet<()>,
}

impl AtWork {
    async fn take(&mut self, wish: Wish, handler: &dyn Handler) {
        match wish {
            Wish::Request(request) => self.begin(request, handler).await,
            Wish::Notification(method, params) => handler.notification(&method, params).await,
        }
    }

    async fn begin(&mut self, mut request: Request, handler: &dyn Handler) {
        if self.work.len() >= REQUESTS_MAX {
            let what = format!("{REQUESTS_MAX} requests are being worked on; wait for one to end");
            return request.give(Err(RpcError::failed(what))).await;
        }
        let (params, cancelled) = (request.params.take(), request.cancelled.clone());
        let work_on = handler.request(&request.method, params, cancelled);
        self.work.spawn(async move {
            let done = work_on.await;
            request.answer(done).await;
        });
    }
}
