//! The only module that writes escape sequences: it paints lines, and repaints the live region.

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveToColumn, MoveUp, Show};
use crossterm::style::{Attribute, Color, SetAttribute, SetForegroundColor};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{QueueableCommand as _, queue};

use crate::text::{Colour, Line, Style};

/// Paints a region at the bottom of what was printed, again and again. The cursor rests in
/// its last line, or at the start of a fresh line when the region is empty.
#[derive(Debug)]
pub(crate) struct Painter<W: Write> {
    out: W,
    painted: Vec<Line>,
    columns: usize,
    cursor: Option<usize>,
}

impl<W: Write> Painter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, painted: Vec::new(), columns: 0, cursor: None }
    }

    /// Prints `printed` permanently, and the region below it again. `cursor` is the column of the
    /// last line at which the user types.
    pub(crate) fn paint(
        &mut self,
        printed: Vec<Line>,
        live: Vec<Line>,
        columns: usize,
        cursor: Option<usize>,
    ) -> io::Result<()> {
        let resized = self.columns != columns && !self.painted.is_empty();
        if printed.is_empty() && live == self.painted && !resized && cursor == self.cursor {
            return Ok(());
        }
        let printed_count = printed.len();
        let mut new = printed;
        new.extend(live);
        let same = if resized {
            0
        } else {
            self.painted.iter().zip(&new).take_while(|(old, new)| old == new).count()
        };
        self.out.queue(BeginSynchronizedUpdate)?.queue(Hide)?;
        self.go_to(same, columns)?;
        for (number, line) in new[same..].iter().enumerate() {
            if number > 0 || same > 0 {
                self.out.write_all(b"\r\n")?;
            }
            style_line(&mut self.out, line)?;
        }
        let live = new.split_off(printed_count);
        if live.is_empty() && !(new.is_empty() && same == 0) {
            self.out.write_all(b"\r\n")?;
        }
        match cursor {
            Some(column) => {
                let column = u16::try_from(column).unwrap_or(u16::MAX);
                self.out.queue(MoveToColumn(column))?.queue(Show)?;
            }
            // Text that the terminal echoes (`^C`) must not split the last line.
            None => self.out.write_all(b"\r")?,
        }
        self.out.queue(EndSynchronizedUpdate)?;
        self.out.flush()?;
        (self.painted, self.columns, self.cursor) = (live, columns, cursor);
        Ok(())
    }

    /// Leaves the terminal in its original state, below the painted lines.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        if !self.painted.is_empty() {
            self.out.write_all(b"\r\n")?;
            self.painted.clear();
        }
        self.out.queue(Show)?.flush()
    }

    /// Goes to the last line that stays, or to the start of the region, and clears
    /// everything after it.
    fn go_to(&mut self, same: usize, columns: usize) -> io::Result<()> {
        // After a resize, the terminal has wrapped lines that are now too long.
        let rows = |line: &Line| line.width().div_ceil(columns.max(1)).max(1);
        let rows: usize = if self.columns == columns {
            self.painted.len()
        } else {
            self.painted.iter().map(rows).sum()
        };
        if rows == 0 {
            return Ok(());
        }
        let up = rows - same.max(1);
        if up > 0 {
            self.out.queue(MoveUp(u16::try_from(up).unwrap_or(u16::MAX)))?;
        }
        if same == 0 {
            self.out.write_all(b"\r")?;
            self.out.queue(Clear(ClearType::FromCursorDown))?;
        } else if up > 0 {
            // The line that stays is left alone: what follows it is cleared.
            self.out.write_all(b"\r\n")?;
            self.out.queue(Clear(ClearType::FromCursorDown))?;
            self.out.queue(MoveUp(1))?;
        }
        Ok(())
    }
}

/// Writes a line in its colours.
pub(crate) fn style_line(out: &mut impl Write, line: &Line) -> io::Result<()> {
    for span in &line.spans {
        if span.style == Style::PLAIN {
            out.write_all(span.text.as_bytes())?;
            continue;
        }
        if let Some(colour) = span.style.colour {
            queue!(
                out,
                SetForegroundColor(match colour {
                    Colour::Red => Color::DarkRed,
                    Colour::Green => Color::DarkGreen,
                    Colour::Yellow => Color::DarkYellow,
                    Colour::Cyan => Color::DarkCyan,
                })
            )?;
        }
        for (on, attribute) in [
            (span.style.bold, Attribute::Bold),
            (span.style.dim, Attribute::Dim),
            (span.style.italic, Attribute::Italic),
        ] {
            if on {
                queue!(out, SetAttribute(attribute))?;
            }
        }
        out.write_all(span.text.as_bytes())?;
        queue!(out, SetAttribute(Attribute::Reset))?;
    }
    Ok(())
}
