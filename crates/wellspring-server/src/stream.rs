//! A run as an event stream, in any dialect, to any number of readers.
//!
//! A reader is a cursor over the log. What a frame looks like in a dialect is made once and
//! kept with the frame. To make it one has to know what was open before it: for that there
//! is one fold per run and dialect, as far as the foremost reader; a reader that is behind
//! folds on its own until it has caught up.
//!
//! # What is deliberately absent
//!
//! A task, a queue or a timer tick per reader: the connection's own task pulls.
//!
//! # What is promised
//!
//! 1. Every event once, in order, from wherever the reader starts.
//! 2. A reader that does not read costs nothing and holds up nobody.
//! 3. A stream that ends without the run's end says so, in its own vocabulary and without an
//!    id: reading on after the last id misses nothing.

mod encoding;
mod page;
mod reader;

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use wellspring_core::{Event, Millis, Outline, Record, RunId};
use wellspring_log::{Cursor, FrameSlice, Log};
use wellspring_wire::{DialectName, Encoder, WirePosition, ag_ui};

use self::reader::{Reader, own};
use crate::error::ApiError;
use crate::limits::StreamPass;
use crate::metrics::{Metrics, Open};

pub(crate) use self::encoding::ag_ui_bytes;
use self::encoding::closed;
pub(crate) use self::page::page;
pub(crate) use self::reader::{Folds, recall};

/// Pieces smaller than this are copied together when a reader gets several at once: cheaper
/// than a chunk, and a slot of the write, for each.
const JOIN_BELOW_BYTES: usize = 4 * 1024;

/// How long a client waits before it reconnects, in milliseconds: it is told so at the start.
const RETRY_MILLIS: u32 = 1000;

/// AG-UI's binary encoding.
pub(crate) const AG_UI_PROTO: &str = "application/vnd.ag-ui.event+proto";

/// What a reader wants.
pub(crate) struct Wanted {
    pub(crate) run: RunId,
    pub(crate) dialect: DialectName,
    /// The last place it has seen.
    pub(crate) after: WirePosition,
    /// Of the records, only these; all when absent.
    pub(crate) kinds: Option<BTreeSet<&'static str>>,
    pub(crate) until: Until,
    pub(crate) form: Form,
    /// Its cursor, where it has one already.
    pub(crate) cursor: Option<Cursor>,
    /// What it calls the run, where that is not what all others do.
    pub(crate) called: Option<Box<str>>,
}

/// Where a stream ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Until {
    /// With the run.
    End,
    /// When the run, or something at work in it, waits for somebody, too: the answer is another
    /// request then.
    Pause,
}

/// How events are put on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// Server-sent events.
    Sse,
    /// As the dialect writes them, one after the other.
    Bare,
}

/// What a reader that joins in mid-run is told first, and how it goes on.
pub(crate) struct Joined {
    pub(crate) bytes: Bytes,
    pub(crate) encoder: Encoder,
    /// Nothing follows: the run waits, or is over.
    pub(crate) ends: bool,
}

/// What a stream needs from the server besides the log.
pub(crate) struct Surroundings {
    pub(crate) log: Log,
    pub(crate) folds: Arc<Folds>,
    pub(crate) metrics: Metrics,
    pub(crate) keep_alive: Duration,
    /// The server closes its streams.
    pub(crate) closing: WaitForCancellationFutureOwned,
    /// Held, so that the stream is counted.
    pub(crate) _pass: StreamPass,
    /// When the request came whose first delta is timed.
    pub(crate) asked_at: Option<Instant>,
}

/// One reader's stream of encoded events.
pub(crate) struct EventStream {
    reader: Reader,
    ready: VecDeque<Bytes>,
    ended: bool,
    around: Surroundings,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Rings once in a while; only then one looks whether anything was said since.
    alive: Pin<Box<Sleep>>,
    spoke_at: Instant,
    /// What was kept before that is no news, and says nothing of how far the reader is behind.
    attached_at: Millis,
    _open: Open,
}

impl EventStream {
    pub(crate) async fn open(
        wanted: Wanted,
        joined: Option<Joined>,
        mut around: Surroundings,
    ) -> Result<Self, ApiError> {
        let mut ready = VecDeque::new();
        if wanted.form == Form::Sse {
            ready.push_back(Bytes::from(format!("retry: {RETRY_MILLIS}\n\n")));
        }
        let mut reader = Reader::open(&around.log, &around.folds, wanted).await?;
        let mut ended = false;
        if let Some(joined) = joined {
            ready.push_back(joined.bytes);
            reader.own = Some(Box::new(joined.encoder));
            ended = joined.ends;
        }
        let never = tokio_util::sync::CancellationToken::new().cancelled_owned();
        let closing = Box::pin(std::mem::replace(&mut around.closing, never));
        let now = Instant::now();
        Ok(Self {
            reader,
            ready,
            ended,
            alive: Box::pin(tokio::time::sleep_until(now + around.keep_alive)),
            spoke_at: now,
            attached_at: around.log.clock().now(),
            _open: around.metrics.stream_opened(),
            closing,
            around,
        })
    }

    /// An event stream that nothing on the way may keep back or change.
    pub(crate) fn into_response(self) -> Response {
        let media_type = match self.reader.wanted.form {
            Form::Sse => "text/event-stream",
            Form::Bare => AG_UI_PROTO,
        };
        // It is moved with every piece.
        let events = stream::unfold(Box::new(self), |mut events| async move {
            let bytes = events.next().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), events))
        });
        // A body may be asked once more after its end.
        event_stream(Body::from_stream(events.fuse()), media_type)
    }

    /// The next bytes; all that is there is given before anything is waited for.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.around.metrics.stream_bytes(bytes.len());
                return Some(bytes);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                biased;
                more = self.reader.cursor.next() => match more {
                    Ok(Some(frames)) => self.take(frames).await,
                    Ok(None) => self.ended = true,
                    Err(error) => self.fail(&error.into()),
                },
                () = &mut self.closing => self.fail(&ApiError::draining()),
                () = &mut self.alive => {
                    let due = self.spoke_at + self.around.keep_alive;
                    let now = Instant::now();
                    if due <= now && self.reader.wanted.form == Form::Sse {
                        self.ready.push_back(Bytes::from_static(b": keep-alive\n\n"));
                        self.spoke_at = now;
                    }
                    let next = now.max(self.spoke_at) + self.around.keep_alive;
                    self.alive.as_mut().reset(next);
                }
            }
        }
    }

    async fn take(&mut self, frames: Vec<FrameSlice>) {
        self.measure(&frames);
        for slice in &frames {
            match self.reader.encode(&self.around.log, slice).await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => self.push(bytes),
                Err(error) => return self.fail(&error.into()),
            }
            if self.reader.wanted.until == Until::End {
                continue;
            }
            // Nothing follows it in its frame: its owner has let go of the run.
            let paused = matches!(
                slice.records().last().map(|record| &record.event),
                Some(Event::RunPaused { .. })
            );
            if paused || self.interrupt(slice).await {
                self.ended = true;
                break;
            }
        }
        self.spoke_at = Instant::now();
    }

    /// Ends the wire's run where something waits at work for an answer.
    async fn interrupt(&mut self, slice: &FrameSlice) -> bool {
        let asks = |record: &Record| matches!(&record.event, Event::QuestionAsked(question) if question.blocking);
        if !slice.iter().any(asks) {
            return false;
        }
        let Reader { wanted, .. } = &self.reader;
        let after = WirePosition::after(slice.last());
        match Box::pin(own(&self.around.log, wanted.run, wanted.dialect, after)).await {
            Ok(encoder) => {
                let outline = encoder.outline();
                let events = match wanted.called.as_deref() {
                    Some(name) => ag_ui::interrupted(&called(outline.clone(), name)),
                    None => ag_ui::interrupted(outline),
                };
                let bytes = ag_ui_bytes(&events, wanted.form);
                self.push(bytes);
                !events.is_empty()
            }
            Err(error) => {
                self.fail(&error.into());
                true
            }
        }
    }

    fn push(&mut self, bytes: Bytes) {
        match self.ready.back_mut() {
            Some(last) if last.len() + bytes.len() < JOIN_BELOW_BYTES => {
                let mut joined = BytesMut::with_capacity(JOIN_BELOW_BYTES);
                joined.extend_from_slice(last);
                joined.extend_from_slice(&bytes);
                *last = joined.freeze();
            }
            _ => self.ready.push_back(bytes),
        }
    }

    fn measure(&mut self, frames: &[FrameSlice]) {
        let Some(first) = frames.first().and_then(|frame| frame.first()) else { return };
        if first.at >= self.attached_at {
            self.around.metrics.reader_lag(self.around.log.clock().now().since(first.at));
        }
        if let Some(asked_at) = self.around.asked_at {
            let delta = |frame: &FrameSlice| {
                frame.iter().any(|record| matches!(record.event, Event::PartDelta { .. }))
            };
            if frames.iter().any(delta) {
                self.around.metrics.first_delta(asked_at.elapsed());
                self.around.asked_at = None;
            }
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.around.metrics.error(error.code);
        self.ready.push_back(closed(self.reader.wanted.dialect, self.reader.wanted.form, error));
        self.ended = true;
    }
}

/// A run as somebody calls it whose own protocol goes on under that name.
pub(crate) fn called(mut outline: Outline, name: &str) -> Outline {
    if let Some(head) = &mut outline.run {
        head.wire_run = Some(name.into());
    }
    outline
}

/// An event stream that nothing on the way may keep back or change.
fn event_stream(body: Body, media_type: &'static str) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests;
