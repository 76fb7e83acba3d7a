//! A run as an event stream, in any dialect, to any number of readers.
//!
//! A reader is a cursor over the log. A frame is encoded once per dialect, and the bytes are kept
//! with the frame. Encoding needs the fold of everything before the frame, so readers of one run and
//! dialect share a fold, which is as far as the foremost reader. A reader that is behind has a fold
//! of its own until it has caught up.
//!
//! # What is deliberately absent
//!
//! A task, a queue or a timer tick per reader: the connection's own task pulls.
//!
//! # What is promised
//!
//! 1. Every event once, in order, from wherever the reader starts.
//! 2. A reader that does not read costs nothing and delays no other reader.
//! 3. A stream that ends before its run reports that in its dialect, without an id: resuming
//!    after the last id misses nothing.

mod pages;
mod reader;

use std::collections::VecDeque;
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
use wellspring_core::{Event, Millis, Outline, Record, RunId, Seq};
use wellspring_log::{Cursor, FrameSlice, Log, RunInfo};
use wellspring_wire::{Closed, DialectChoice, Framing, Out, Positions, WirePosition};

use self::reader::Reader;
use crate::error::ApiError;
use crate::large_body::PIECE_BYTES;
use crate::limits::{BytesPass, StreamPass};
use crate::metrics::{Metrics, Open};

pub(crate) use self::pages::{EventPage, page};
pub(crate) use self::reader::Folds;

/// Pieces smaller than this are joined when a reader gets several at once: copying is cheaper than a
/// write for each.
const JOIN_BELOW_BYTES: usize = 4 * 1024;

/// How much earlier than the clock a new record may be dated: its owner and the clock both count
/// whole milliseconds, but from different moments.
const DATE_TOLERANCE_MILLIS: u64 = 2;

/// Reconnect delay that is sent to the client at the start of a stream, in milliseconds.
const RETRY_MILLIS: u32 = 1000;

/// A request for an event stream.
pub(crate) struct Wanted {
    pub(crate) run: Readable,
    pub(crate) dialect: DialectChoice,
    pub(crate) start: Begin,
    pub(crate) until: Until,
}

/// A run that the reader may read: a surface gets both of these only from `Control`, which has
/// checked that.
pub(crate) enum Readable {
    /// A cursor that is at the start of the stream.
    At(Cursor),
    Run(RunInfo),
}

impl Readable {
    pub(crate) fn id(&self) -> RunId {
        match self {
            Self::At(cursor) => cursor.run(),
            Self::Run(info) => info.run,
        }
    }
}

/// Where a stream starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Begin {
    /// After the last event that the reader has seen.
    After(WirePosition),
    /// The reader has seen nothing of the run: it joins as the dialect says.
    Join {
        /// The record at which it joins; the latest if `None`.
        at: Option<Seq>,
        /// What the reader's protocol calls the run, if it is not the run's usual name there.
        called: Option<Box<str>>,
    },
}

/// Where a stream ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Until {
    /// With the run.
    End,
    /// Also when the run waits for an answer: the answer is another request.
    Pause,
    /// The same, but the run's pauses up to this record are only repeated.
    PauseAfter(Seq),
}

impl Until {
    /// Whether a pause at this record ends the stream.
    fn ends_at(self, pause: Seq) -> bool {
        match self {
            Self::End => false,
            Self::Pause => true,
            Self::PauseAfter(seen) => pause > seen,
        }
    }
}

/// What carries a stream's events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carrier {
    /// The body of a response: it is cut into pieces, kept alive, and has a beginning and an end.
    Response,
    /// Messages of a connection that many streams share and that keeps itself alive. Each piece
    /// holds whole events.
    Messages,
}

/// What a stream needs from the server besides the log.
pub(crate) struct Surroundings {
    pub(crate) carrier: Carrier,
    pub(crate) log: Log,
    pub(crate) folds: Arc<Folds>,
    pub(crate) metrics: Metrics,
    pub(crate) keep_alive: Duration,
    /// The server closes its streams.
    pub(crate) closing: WaitForCancellationFutureOwned,
    /// Held, so that the stream is counted.
    pub(crate) _pass: StreamPass,
    /// Counts the bytes of a join until the client has taken them: a snapshot can be as large as
    /// the run. What follows it comes a page at a time.
    pub(crate) held: BytesPass,
    /// When the request came whose first delta is timed.
    pub(crate) asked_at: Option<Instant>,
}

/// One reader's stream of encoded events.
pub(crate) struct EventStream {
    reader: Reader,
    until: Until,
    framing: Framing,
    ready: VecDeque<Bytes>,
    ended: bool,
    around: Surroundings,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The keep-alive timer. It is not reset by events: when it fires, `spoke_at` decides. `None` if
    /// the carrier keeps itself alive.
    alive: Option<Pin<Box<Sleep>>>,
    spoke_at: Instant,
    /// Records older than this are history, and are left out of the lag metric.
    attached_at: Millis,
    _open: Open,
}

impl EventStream {
    pub(crate) async fn open(wanted: Wanted, mut around: Surroundings) -> Result<Self, ApiError> {
        let until = wanted.until;
        let (reader, first) = Reader::open(&around.log, &around.folds, wanted).await?;
        let never = tokio_util::sync::CancellationToken::new().cancelled_owned();
        let closing = Box::pin(std::mem::replace(&mut around.closing, never));
        let now = Instant::now();
        let is_response = around.carrier == Carrier::Response;
        let keep_alive = is_response.then(|| tokio::time::sleep_until(now + around.keep_alive));
        let mut stream = Self {
            framing: reader.framing(),
            reader,
            until,
            ready: VecDeque::new(),
            ended: false,
            alive: keep_alive.map(Box::pin),
            spoke_at: now,
            attached_at: around.log.clock().now(),
            _open: around.metrics.stream_opened(),
            closing,
            around,
        };
        if is_response {
            stream.ready.extend(stream.framing.retry(RETRY_MILLIS).map(Bytes::from));
        }
        if let Some(first) = first {
            stream.begin(first)?;
        }
        Ok(stream)
    }

    /// Tells a reader that joins how the run stands.
    fn begin(&mut self, (mut out, outline): (Out, Outline)) -> Result<(), ApiError> {
        let mut ends = outline.finished;
        if self.until.ends_at(outline.head) {
            let told = out.len();
            self.reader.dialect().interrupt(&outline, &mut out);
            ends |= outline.paused.is_some() || out.len() > told;
        }
        let told = Bytes::from(self.framing.frame(&out, Positions::Absent));
        self.around.held.grow(told.len())?;
        self.ready.push_back(told);
        if ends {
            self.end();
        }
        Ok(())
    }

    /// The stream as a response.
    pub(crate) fn into_response(self) -> Response {
        let framing = self.framing;
        // Boxed, because it is moved with every piece.
        let events = stream::unfold(Box::new(self), |mut events| async move {
            let bytes = events.next().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), events))
        });
        // A body may be polled again after its end.
        event_stream(Body::from_stream(events.fuse()), framing)
    }

    /// How the events of [`next`](Self::next) are framed.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// The next bytes. Everything that is available is returned before it waits.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(mut bytes) = self.ready.pop_front() {
                if bytes.len() > PIECE_BYTES && self.around.carrier == Carrier::Response {
                    let rest = bytes.split_off(PIECE_BYTES);
                    self.ready.push_front(rest);
                }
                self.around.held.shrink(bytes.len());
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
                    Ok(None) => self.end(),
                    Err(error) => self.fail(&error.into()),
                },
                () = &mut self.closing => self.fail(&ApiError::draining()),
                () = ring(&mut self.alive) => {
                    let due = self.spoke_at + self.around.keep_alive;
                    let now = Instant::now();
                    if due <= now
                        && let Some(bytes) = self.framing.keep_alive()
                    {
                        self.ready.push_back(Bytes::from_static(bytes));
                        self.spoke_at = now;
                    }
                    let next = now.max(self.spoke_at) + self.around.keep_alive;
                    if let Some(alive) = &mut self.alive {
                        alive.as_mut().reset(next);
                    }
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
            if !self.until.ends_at(slice.last()) {
                continue;
            }
            // The owner has released the run, so nothing follows in the frame.
            let paused = matches!(
                slice.records().last().map(|record| &record.event),
                Some(Event::RunPaused { .. })
            );
            if paused || self.interrupt(slice).await {
                self.end();
                break;
            }
        }
        self.spoke_at = Instant::now();
    }

    /// Ends a stream whose run waits for an answer without pausing. `false` if the dialect does not
    /// end streams at such a question.
    async fn interrupt(&mut self, slice: &FrameSlice) -> bool {
        let asks = |record: &Record| matches!(&record.event, Event::QuestionAsked(question) if question.blocking);
        if !slice.iter().any(asks) {
            return false;
        }
        match Box::pin(self.reader.outline_at(&self.around.log, slice.last())).await {
            Ok(outline) => {
                let mut out = Out::default();
                self.reader.dialect().interrupt(&outline, &mut out);
                self.push(self.framing.frame(&out, Positions::Absent).into());
                !out.is_empty()
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
        if first.at.0 + DATE_TOLERANCE_MILLIS >= self.attached_at.0 {
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
        let mut out = Out::default();
        let ApiError { code, message, remedy, .. } = error;
        self.reader.dialect().close(&Closed { code, message, remedy }, &mut out);
        self.ready.push_back(self.framing.frame(&out, Positions::Absent).into());
        self.end();
    }

    /// Ends the stream, with the closing bytes of its framing.
    fn end(&mut self) {
        self.ended = true;
        let end = self.framing.end();
        if !end.is_empty() && self.around.carrier == Carrier::Response {
            self.ready.push_back(end.into());
        }
    }
}

/// Waits for the timer; pending without one.
async fn ring(alive: &mut Option<Pin<Box<Sleep>>>) {
    match alive {
        Some(alive) => alive.as_mut().await,
        None => std::future::pending().await,
    }
}

/// A response with headers that keep proxies from buffering or changing it.
fn event_stream(body: Body, framing: Framing) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(framing.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    for (name, value) in framing.headers {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
