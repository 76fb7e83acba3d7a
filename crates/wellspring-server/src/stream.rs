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

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use wellspring_core::{Event, Millis, Outline, Record, RunId, Seq};
use wellspring_engine::HISTORY_RUNS_MAX;
use wellspring_log::{Cursor, FrameSlice, Log, ReadError, RunInfo};
use wellspring_wire::{Conversation, DialectName, Encoder, Out, WirePosition, ag_ui};

use crate::error::ApiError;
use crate::kind::kind;
use crate::limits::StreamPass;
use crate::metrics::{Metrics, Open};

/// Pieces smaller than this are copied together when a reader gets several at once: cheaper
/// than a chunk, and a slot of the write, for each.
const JOIN_BELOW_BYTES: usize = 4 * 1024;

/// How long a client waits before it reconnects, in milliseconds: it is told so at the start.
const RETRY_MILLIS: u32 = 1000;

/// AG-UI's binary encoding.
pub(crate) const AG_UI_PROTO: &str = "application/vnd.ag-ui.event+proto";

/// The folds that readers of the same run and dialect share.
#[derive(Default)]
pub(crate) struct Folds {
    shared: Mutex<HashMap<(RunId, DialectName), Weak<Shared>>>,
}

/// One fold, as far as its foremost reader.
struct Shared {
    key: (RunId, DialectName),
    home: Arc<Folds>,
    encoder: Mutex<Encoder>,
}

impl Folds {
    fn of(self: &Arc<Self>, run: RunId, dialect: DialectName) -> Arc<Shared> {
        let key = (run, dialect);
        let mut all = lock(&self.shared);
        if let Some(shared) = all.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        let encoder = Mutex::new(Encoder::new(dialect));
        let shared = Arc::new(Shared { key, home: Arc::clone(self), encoder });
        all.insert(key, Arc::downgrade(&shared));
        shared
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut all = lock(&self.home.shared);
        // Someone may have come in between; then the entry is theirs.
        if all.get(&self.key).is_some_and(|shared| shared.strong_count() == 0) {
            all.remove(&self.key);
        }
    }
}

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
        let asks = |record: &Record| matches!(&record.event, Event::QuestionAsked(question) if question.in_place);
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

/// A reader's way through a run: the cursor, and how frames become bytes.
pub(crate) struct Reader {
    pub(crate) cursor: Cursor,
    wanted: Wanted,
    shared: Arc<Shared>,
    /// While it is behind, or has seen part of a record.
    own: Option<Box<Encoder>>,
}

impl Reader {
    /// A reader of a run that is there.
    pub(crate) async fn open(
        log: &Log,
        folds: &Arc<Folds>,
        mut wanted: Wanted,
    ) -> Result<Self, ReadError> {
        let (run, after) = (wanted.run, wanted.after);
        let cursor = match wanted.cursor.take() {
            Some(cursor) => cursor,
            None => log.cursor(run, after.whole()).await?,
        };
        let own = match after.k {
            None => None,
            Some(_) => Some(own(log, run, wanted.dialect, after).await?),
        };
        let shared = folds.of(run, wanted.dialect);
        Ok(Self { cursor, wanted, shared, own })
    }

    /// A frame's events, as the wire has them.
    async fn encode(&mut self, log: &Log, slice: &FrameSlice) -> Result<Bytes, ReadError> {
        if let Some(kinds) = &self.wanted.kinds {
            return Ok(some_records(kinds, slice));
        }
        let before = Seq(slice.first().map_or(0, |record| record.seq.0 - 1));
        let mut recalled = None;
        if self.may_share(slice, before) {
            loop {
                match self.encode_shared(slice, before, &mut recalled) {
                    Shares::Made(bytes) => return Ok(bytes),
                    Shares::Needs => {
                        recalled = Some(Box::pin(recall(log, self.wanted.run, before)).await?);
                    }
                    Shares::Not => break,
                }
            }
        }
        let mut encoder = match self.own.take() {
            Some(own) if own.outline().head == before => own,
            _ => {
                let after = WirePosition::after(before);
                // Boxed, as all that a reader seldom does: there may be many that wait.
                Box::pin(own(log, self.wanted.run, self.wanted.dialect, after)).await?
            }
        };
        if encoder.needs(slice) {
            let conversation = match recalled {
                Some(conversation) => conversation,
                None => Box::pin(recall(log, self.wanted.run, before)).await?,
            };
            encoder.recall(conversation);
        }
        if self.may_share(slice, before) {
            let mut shared = lock(&self.shared.encoder);
            if encoder.outline().head > shared.outline().head {
                // This reader is the foremost: its fold serves those who come after it.
                *shared = *encoder;
                return Ok(slice
                    .frame()
                    .encoded(slot(self.wanted.dialect), || encode(&mut shared, slice, Form::Sse)));
            }
        }
        let bytes = encode(&mut encoder, slice, self.wanted.form);
        self.own = Some(encoder);
        Ok(bytes)
    }

    /// Whether others see the same bytes of this frame.
    fn may_share(&self, slice: &FrameSlice, before: Seq) -> bool {
        let partial = self.wanted.after.k.is_some() && self.wanted.after.whole() >= before;
        slice.skip() == 0
            && !partial
            && self.wanted.form == Form::Sse
            && self.wanted.called.is_none()
    }

    /// What the frame looks like, if somebody has made that, or the shared fold can.
    fn encode_shared(
        &mut self,
        slice: &FrameSlice,
        before: Seq,
        recalled: &mut Option<Conversation>,
    ) -> Shares {
        let slot = slot(self.wanted.dialect);
        let mut made = slice.frame().encoded_already(slot);
        if made.is_none() {
            let mut shared = lock(&self.shared.encoder);
            // Somebody may have made it just before the lock.
            made = slice.frame().encoded_already(slot);
            if made.is_none() && shared.outline().head == before {
                if shared.needs(slice) {
                    match recalled.take() {
                        Some(conversation) => shared.recall(conversation),
                        None => return Shares::Needs,
                    }
                }
                let make = || encode(&mut shared, slice, Form::Sse);
                made = Some(slice.frame().encoded(slot, make));
            }
        }
        match made {
            Some(bytes) => {
                self.own = None;
                Shares::Made(bytes)
            }
            None => Shares::Not,
        }
    }
}

/// What the shared fold can do for a reader.
enum Shares {
    Made(Bytes),
    /// It could, if it were told the conversation so far.
    Needs,
    /// The reader is behind it, or ahead.
    Not,
}

/// AG-UI's events as the wire has them, without ids: they stand for no record.
pub(crate) fn ag_ui_bytes(events: &[ag_ui::types::Event], form: Form) -> Bytes {
    let mut bytes = Vec::new();
    for event in events {
        match form {
            Form::Bare => ag_ui::proto::frame(event, &mut bytes),
            Form::Sse => {
                bytes.extend_from_slice(b"data: ");
                if serde_json::to_writer(&mut bytes, event).is_ok() {
                    bytes.extend_from_slice(b"\n\n");
                }
            }
        }
    }
    bytes.into()
}

/// A thread up to a record of its run: for what can only be said with all of it at hand.
pub(crate) async fn recall(log: &Log, run: RunId, head: Seq) -> Result<Conversation, ReadError> {
    let current = log.transcript_before(run, head).await?;
    let mut earlier = Vec::new();
    let mut next = current.started.as_ref().and_then(|started| started.after);
    while let Some(run) = next.filter(|_| earlier.len() < HISTORY_RUNS_MAX) {
        // A run that was deleted ends what is known.
        let Ok(transcript) = log.transcript(run).await else { break };
        next = transcript.started.as_ref().and_then(|started| started.after);
        earlier.push(transcript);
    }
    earlier.reverse();
    Ok(Conversation { earlier, current })
}

/// A run as somebody calls it whose own protocol goes on under that name.
pub(crate) fn called(mut outline: Outline, name: &str) -> Outline {
    if let Some(head) = &mut outline.run {
        head.wire_run = Some(name.into());
    }
    outline
}

/// An encoder that goes on after a place.
async fn own(
    log: &Log,
    run: RunId,
    dialect: DialectName,
    after: WirePosition,
) -> Result<Box<Encoder>, ReadError> {
    let whole = after.whole();
    if whole == Seq(0) {
        return Ok(Box::new(Encoder::resume(dialect, Outline::default(), after)));
    }
    if !dialect.remembers() {
        let outline = log.outline_before(run, whole).await?;
        return Ok(Box::new(Encoder::resume(dialect, outline, after)));
    }
    let mut encoder = Box::new(Encoder::resume(dialect, Outline::default(), after));
    let mut cursor = log.cursor(run, Seq(0)).await?;
    while encoder.outline().head < whole {
        let Some(frames) = cursor.next().await? else { break };
        for slice in &frames {
            let seen = slice.partition_point(|record| record.seq <= whole);
            encoder.frame(&slice[..seen], &mut Out::default());
        }
    }
    Ok(encoder)
}

fn slot(dialect: DialectName) -> usize {
    // One that is not listed keeps nothing, which is only slower.
    DialectName::ALL.iter().position(|it| *it == dialect).unwrap_or(usize::MAX)
}

thread_local! {
    /// Where frames are encoded; what readers get is cut to size.
    static SCRATCH: RefCell<Out> = RefCell::default();
}

fn encode(encoder: &mut Encoder, slice: &FrameSlice, form: Form) -> Bytes {
    #[cfg(test)]
    tests::ENCODED.with(|count| count.set(count.get() + 1));
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        encoder.frame(slice, out);
        match form {
            Form::Sse => sse(out),
            Form::Bare => bare(out),
        }
    })
}

fn bare(out: &Out) -> Bytes {
    let mut bytes = BytesMut::with_capacity(out.bytes_len());
    for (_, event) in out.events() {
        bytes.put_slice(event);
    }
    bytes.freeze()
}

/// Server-sent events; JSON has no line breaks of its own.
fn sse(out: &Out) -> Bytes {
    if out.is_empty() {
        return Bytes::new();
    }
    // "id: ", "data: ", three line breaks and a position of usual length.
    let mut bytes = BytesMut::with_capacity(out.bytes_len() + out.len() * 24);
    for (position, json) in out.events() {
        bytes.put_slice(b"id: ");
        put_position(&mut bytes, position);
        bytes.put_slice(b"\ndata: ");
        bytes.put_slice(json);
        bytes.put_slice(b"\n\n");
    }
    bytes.freeze()
}

fn put_position(bytes: &mut BytesMut, position: WirePosition) {
    put_number(bytes, position.seq.0);
    if let Some(k) = position.k {
        bytes.put_u8(b'.');
        put_number(bytes, u64::from(k));
    }
}

/// Decimal digits, without the machinery of formatting: this runs once per event.
fn put_number(bytes: &mut BytesMut, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    bytes.put_slice(&digits[at..]);
}

/// The records of some kinds, in their own JSON.
fn some_records(kinds: &BTreeSet<&'static str>, slice: &FrameSlice) -> Bytes {
    let mut out = Out::default();
    for record in slice.iter().filter(|record| kinds.contains(kind(&record.event))) {
        out.begin(record.seq);
        out.event(record);
    }
    sse(&out)
}

/// A wire that closes before its run has ended says so in its own words, and without an id.
fn closed(dialect: DialectName, form: Form, error: &ApiError) -> Bytes {
    let message = format!("{}; {}", error.message, error.remedy);
    if form == Form::Bare {
        let error = ag_ui::types::RunError {
            message: message.into(),
            code: Some(error.code.into()),
            ..ag_ui::types::RunError::default()
        };
        let mut bytes = Vec::new();
        ag_ui::proto::frame(&error.into(), &mut bytes);
        return bytes.into();
    }
    let json = match dialect {
        DialectName::AgentEvent => serde_json::json!({"type": "error", "error": message}),
        DialectName::TurnEvent => {
            serde_json::json!({"type": "error", "error": {"message": message}})
        }
        DialectName::AgUi => {
            serde_json::json!({"type": "RUN_ERROR", "message": message, "code": error.code})
        }
        DialectName::StreamDelta => serde_json::json!({"phase": "error", "error": message}),
        DialectName::Record
        | DialectName::ThoughtEvent
        | DialectName::StreamingEvent
        | DialectName::Acp => {
            return Bytes::from(format!("event: closed\ndata: {}\n\n", error.json()));
        }
    };
    Bytes::from(format!("data: {json}\n\n"))
}

/// Events of a page: a position each, and its JSON.
pub(crate) struct EventPage {
    pub(crate) events: Vec<(WirePosition, Box<serde_json::value::RawValue>)>,
    /// Where to read on.
    pub(crate) next: WirePosition,
    /// Nothing more will come.
    pub(crate) done: bool,
}

/// Reads a page of events, waiting for the first of them until a moment; not at all without
/// one.
pub(crate) async fn page(
    log: &Log,
    wanted: &Wanted,
    info: &RunInfo,
    until: Option<Instant>,
) -> Result<EventPage, ReadError> {
    let head = info.head;
    let mut encoder = own(log, wanted.run, wanted.dialect, wanted.after).await?;
    let mut cursor = log.cursor(wanted.run, wanted.after.whole()).await?;
    let done = info.state.is_final() && wanted.after.whole() >= head;
    let mut page = EventPage { events: Vec::new(), next: wanted.after, done };
    let mut out = Out::default();
    while page.events.is_empty() && !page.done {
        let frames = if cursor.position() < head {
            cursor.next().await?
        } else if let Some(until) = until {
            match tokio::time::timeout_at(until, cursor.next()).await {
                Ok(frames) => frames?,
                Err(_) => break,
            }
        } else {
            break;
        };
        let Some(frames) = frames else {
            page.done = true;
            break;
        };
        for slice in &frames {
            match &wanted.kinds {
                None => {
                    if encoder.needs(slice) {
                        let head = encoder.outline().head;
                        encoder.recall(recall(log, wanted.run, head).await?);
                    }
                    encoder.frame(slice, &mut out);
                }
                Some(kinds) => {
                    for record in slice.iter().filter(|it| kinds.contains(kind(&it.event))) {
                        out.begin(record.seq);
                        out.event(record);
                    }
                }
            }
            page.done |=
                slice.iter().any(|record| matches!(record.event, Event::RunFinished { .. }));
        }
        page.next = WirePosition::after(cursor.position());
        for (position, json) in out.events() {
            // It was just written, by us.
            let Ok(text) = std::str::from_utf8(json) else { continue };
            let Ok(raw) = serde_json::value::RawValue::from_string(text.to_owned()) else {
                continue;
            };
            page.events.push((position, raw));
        }
        out.clear();
    }
    Ok(page)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
