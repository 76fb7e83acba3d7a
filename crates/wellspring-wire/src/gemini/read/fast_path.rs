//! Reads the most frequent chunks without a parser: one piece of text, or one piece of a call's
//! arguments, and no other members.

use wellspring_core::Batch;

use super::super::arguments::Piece;
use super::Reader;
use crate::provider::ReadError;
use crate::provider::scan::{Quoted, Scan};

/// The only part of a chunk.
#[derive(Default)]
struct HotPart<'a> {
    text: Option<Quoted<'a>>,
    thought: bool,
    piece: Option<Piece<'a>>,
}

impl Reader {
    /// Reads a chunk; `None` leaves it to the parser.
    pub(super) fn hot(&mut self, data: &[u8], batch: &mut Batch) -> Option<Result<(), ReadError>> {
        if let Some((thought, text)) = self.last.find(data) {
            return self.words(text, thought, batch).map(Ok);
        }
        let mut part = None;
        let mut scan = Scan::new(data);
        scan.object(|key, scan| match key {
            b"candidates" => scan.array(|scan| {
                scan.object(|key, scan| match key {
                    b"content" => scan.object(|key, scan| match key {
                        b"parts" => scan.array(|scan| once(&mut part, || hot_part(scan))),
                        b"role" => scan.skip(),
                        _ => None,
                    }),
                    b"index" | b"safetyRatings" => scan.skip(),
                    // A finish reason or a source: not a frequent chunk.
                    _ => None,
                })
            }),
            // Only the totals in the last chunk are used. That one has a finish reason, and the
            // parser reads it.
            b"usageMetadata" | b"createTime" => scan.vary(),
            b"modelVersion" | b"responseId" => scan.skip(),
            _ => None,
        })?;
        scan.end()?;
        let part = part?;
        let (text, thought) = (part.text, part.thought);
        let taken = self.take(part, batch)?;
        if let Some(text) = text {
            self.last.learn(&scan, text, thought);
        }
        Some(taken)
    }

    /// Reads one part without a parser, which would reject text that ends in a high surrogate.
    pub(super) fn hot_part(
        &mut self,
        raw: &str,
        batch: &mut Batch,
    ) -> Option<Result<(), ReadError>> {
        let part = hot_part(&mut Scan::new(raw.as_bytes()))?;
        self.take(part, batch)
    }

    fn take(&mut self, part: HotPart<'_>, batch: &mut Batch) -> Option<Result<(), ReadError>> {
        match part {
            HotPart { text: Some(text), thought, piece: None } => {
                self.words(text, thought, batch).map(Ok)
            }
            HotPart { text: None, thought: false, piece: Some(piece) } => {
                self.call.as_ref()?;
                self.close_text(batch);
                Some(self.argue([piece], batch))
            }
            HotPart { .. } => None,
        }
    }
}

/// Sets a value once; `None` for a second value, which is left to the parser.
fn once<T>(place: &mut Option<T>, read: impl FnOnce() -> Option<T>) -> Option<()> {
    if place.is_some() {
        return None;
    }
    *place = Some(read()?);
    Some(())
}

fn hot_part<'a>(scan: &mut Scan<'a>) -> Option<HotPart<'a>> {
    let mut part = HotPart::default();
    scan.object(|key, scan| {
        match key {
            b"text" => part.text = Some(scan.string()?),
            b"thought" => part.thought = scan.boolean()?,
            b"functionCall" => part.piece = Some(hot_call(scan)?),
            _ => return None,
        }
        Some(())
    })?;
    Some(part)
}

/// One piece of the arguments of a call that continues.
fn hot_call<'a>(scan: &mut Scan<'a>) -> Option<Piece<'a>> {
    let (mut piece, mut continues) = (None, false);
    scan.object(|key, scan| match key {
        b"partialArgs" => scan.array(|scan| once(&mut piece, || hot_piece(scan))),
        b"willContinue" => {
            continues = scan.boolean()?;
            Some(())
        }
        // Its name: a new call.
        _ => None,
    })?;
    piece.filter(|_| continues)
}

fn hot_piece<'a>(scan: &mut Scan<'a>) -> Option<Piece<'a>> {
    let mut piece = Piece::default();
    scan.object(|key, scan| {
        match key {
            b"jsonPath" => piece.path = Some(scan.string()?),
            b"stringValue" => piece.words = Some(scan.string()?),
            b"numberValue" | b"boolValue" => {
                piece.whole = serde_json::from_slice(scan.scalar()?).ok()?;
            }
            b"willContinue" => piece.continues = scan.boolean()?,
            _ => return None,
        }
        Some(())
    })?;
    Some(piece)
}
