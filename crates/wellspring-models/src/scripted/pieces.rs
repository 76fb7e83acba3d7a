//! How a script's content is emitted: in pieces, or whole.

use wellspring_core::{Annotation, Batch, Event, LocalPart, PartKind, Stop, Usage};

/// How a script's content is streamed.
pub(super) enum Voice {
    /// In pieces.
    Streaming { batch: Box<Batch>, open: Vec<bool> },
    /// All at the end, as in a provider's non-streaming answer.
    Whole { parts: Vec<WholePart>, order: Vec<Said> },
}

pub(super) struct WholePart {
    kind: PartKind,
    text: String,
    annotations: Vec<Annotation>,
    open: bool,
}

pub(super) enum Said {
    Part(usize),
    Fact(Event),
}

/// The script names a part that is not open.
pub(super) struct NotOpen {
    pub(super) part: usize,
}

impl Voice {
    pub(super) fn streaming() -> Self {
        Self::Streaming { batch: Box::default(), open: Vec::new() }
    }

    pub(super) fn whole() -> Self {
        Self::Whole { parts: Vec::new(), order: Vec::new() }
    }

    pub(super) fn start(&mut self, kind: PartKind) {
        match self {
            Self::Streaming { batch, open } => {
                batch.start(kind);
                open.push(true);
            }
            Self::Whole { parts, order } => {
                order.push(Said::Part(parts.len()));
                let (text, annotations) = (String::new(), Vec::new());
                parts.push(WholePart { kind, text, annotations, open: true });
            }
        }
    }

    pub(super) fn delta(&mut self, part: usize, text: &str) -> Result<(), NotOpen> {
        self.check_open(part)?;
        match self {
            Self::Streaming { batch, .. } => batch.delta(local(part), text),
            Self::Whole { parts, .. } => parts[part].text.push_str(text),
        }
        Ok(())
    }

    /// Allowed for finished parts too, until the turn ends.
    pub(super) fn annotate(&mut self, part: usize, annotation: Annotation) -> Result<(), NotOpen> {
        match self {
            Self::Streaming { batch, open } if part < open.len() => {
                batch.annotate(local(part), annotation);
            }
            Self::Whole { parts, .. } if part < parts.len() => {
                parts[part].annotations.push(annotation);
            }
            Self::Streaming { .. } | Self::Whole { .. } => return Err(NotOpen { part }),
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, part: usize) -> Result<(), NotOpen> {
        self.check_open(part)?;
        match self {
            Self::Streaming { batch, open } => {
                open[part] = false;
                batch.finish(local(part));
            }
            Self::Whole { parts, .. } => parts[part].open = false,
        }
        Ok(())
    }

    pub(super) fn finish_all(&mut self) {
        match self {
            Self::Streaming { batch, open } => {
                for (part, open) in open.iter_mut().enumerate() {
                    if std::mem::take(open) {
                        batch.finish(local(part));
                    }
                }
            }
            Self::Whole { parts, .. } => parts.iter_mut().for_each(|part| part.open = false),
        }
    }

    pub(super) fn fact(&mut self, event: Event) {
        match self {
            Self::Streaming { batch, .. } => batch.event(event),
            Self::Whole { order, .. } => order.push(Said::Fact(event)),
        }
    }

    /// The events that can be emitted now, if there are any.
    pub(super) fn flush(&mut self) -> Option<Batch> {
        match self {
            Self::Streaming { batch, .. } => (!batch.is_empty()).then(|| batch.take()),
            Self::Whole { .. } => None,
        }
    }

    /// Everything that was not emitted yet, and the stop.
    pub(super) fn last_words(&mut self, stop: Stop, usage: Option<Usage>) -> Batch {
        let mut batch = match self {
            Self::Streaming { batch, .. } => batch.take(),
            Self::Whole { parts, order } => whole_batch(parts, std::mem::take(order)),
        };
        batch.stop(stop, usage);
        batch
    }

    pub(super) fn is_silent(&self) -> bool {
        match self {
            Self::Streaming { batch, open } => batch.is_empty() && open.is_empty(),
            Self::Whole { order, .. } => order.is_empty(),
        }
    }

    pub(super) fn fall_silent(&mut self) {
        match self {
            Self::Streaming { batch, .. } => drop(batch.take()),
            Self::Whole { order, .. } => order.clear(),
        }
    }

    fn check_open(&self, part: usize) -> Result<(), NotOpen> {
        let open = match self {
            Self::Streaming { open, .. } => open.get(part).copied(),
            Self::Whole { parts, .. } => parts.get(part).map(|part| part.open),
        };
        if open == Some(true) { Ok(()) } else { Err(NotOpen { part }) }
    }
}

/// A batch numbers parts as a script does: from 0, in the order of their start.
fn local(part: usize) -> LocalPart {
    LocalPart::new(u32::try_from(part).unwrap_or(u32::MAX))
}

fn whole_batch(parts: &mut [WholePart], order: Vec<Said>) -> Batch {
    let mut batch = Batch::default();
    for said in order {
        match said {
            Said::Part(part) => {
                let WholePart { kind, text, annotations, .. } = &mut parts[part];
                let part = batch.start(kind.clone());
                batch.delta(part, text);
                for annotation in annotations.drain(..) {
                    batch.annotate(part, annotation);
                }
                batch.finish(part);
            }
            Said::Fact(event) => batch.event(event),
        }
    }
    batch
}
