//! A run in pages, for those who do not stream.

use tokio::time::Instant;
use wellspring_core::Event;
use wellspring_log::{Log, ReadError, RunInfo};
use wellspring_wire::{Out, WirePosition};

use super::Wanted;
use super::reader::{own, recall};
use crate::kind::kind;

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
