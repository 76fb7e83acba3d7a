//! A connection's socket, which fails if the client does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::UNREAD_TIMEOUT;
use super::capacity::Place;
use super::incomplete_messages::Inflow;
use crate::metrics::Open;

/// A TCP connection that is counted for as long as it is open, also after an upgrade to another
/// protocol, and that fails if its client reads nothing for too long.
pub(super) struct Socket {
    stream: TcpStream,
    /// Runs while the kernel accepts no more bytes. Created only then, so that other connections are
    /// small.
    unread: Option<Pin<Box<Sleep>>>,
    inflow: Inflow,
    /// Held for as long as the connection is open.
    _counted: (Place, Open, TaskTrackerToken),
}

impl Socket {
    pub(super) fn new(stream: TcpStream, counted: (Place, Open, TaskTrackerToken)) -> Self {
        Self { stream, unread: None, inflow: Inflow::default(), _counted: counted }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn inflow(&self) -> Inflow {
        self.inflow.clone()
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let unread =
            self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(UNREAD_TIMEOUT)));
        ready!(unread.as_mut().poll(context));
        // Otherwise the kernel would keep retrying for many minutes.
        if let Err(error) = self.stream.set_zero_linger() {
            tracing::debug!(%error, "the connection's unsent bytes stay until the system drops them");
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.inflow.arrived(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
