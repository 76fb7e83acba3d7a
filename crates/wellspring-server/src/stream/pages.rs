//! A run's events in pages, for clients that cannot stream.

use tokio::time::Instant;
use wellspring_core::Event;
use wellspring_log::{Log, ReadError, RunInfo};
use wellspring_wire::{DialectChoice, Out, WirePosition};

use super::reader::{encoder_at, history};

/// Events of a page: a position each, and its JSON.
pub(crate) struct EventPage {
    pub(crate) events: Vec<(WirePosition, Box<serde_json::value::RawValue>)>,
    /// The position after this page.
    pub(crate) next: WirePosition,
    /// Nothing more will come.
    pub(crate) done: bool,
}

/// Reads a page of events. If there are no events yet, it waits until the deadline; without a
/// deadline it returns an empty page.
pub(crate) async fn page(
    log: &Log,
    info: &RunInfo,
    dialect: &DialectChoice,
    after: WirePosition,
    until: Option<Instant>,
) -> Result<EventPage, ReadError> {
    let head = info.head;
    let mut encoder = encoder_at(log, info.run, dialect, after).await?;
    let mut cursor = log.cursor(info.run, after.whole()).await?;
    let done = info.state.is_final() && after.whole() >= head;
    let mut page = EventPage { events: Vec::new(), next: after, done };
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
            if let Some(continued) = encoder.needs_history(slice) {
                encoder.recall(history(log, info.run, continued).await);
            }
            encoder.frame(slice, &mut out);
            page.done |=
                slice.iter().any(|record| matches!(record.event, Event::RunFinished { .. }));
        }
        page.next = WirePosition::after(cursor.position());
        for (position, json) in out.events() {
            // The JSON is our own, so this does not fail.
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
