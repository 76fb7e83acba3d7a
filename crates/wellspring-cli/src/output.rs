//! Where a run is shown: a terminal, a pipe, a pipe of events, or nowhere.

use std::io::{self, IsTerminal as _, Stdout, Write as _, stdout};
use std::time::Instant;

use wellspring_core::{Event, Millis, Outcome, Record, VoidReason};
use wellspring_log::{Clock as _, SystemClock};
use wellspring_wire::{DialectName, Encoder, Framing, Out, Positions};

use crate::paint::{Painter, style_line};
use crate::prompt::Prompt;
use crate::screen::{Screen, Shows, outcome_phrase};
use crate::text::Line;

/// Columns of a line where there is no terminal: longer ones do not break.
const UNLIMITED: usize = usize::MAX / 4;

/// Maximum columns of text: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// The size if the terminal does not report one.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// Whether standard output is a terminal that may be painted on.
pub(crate) fn is_rich() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal()
        && !no_colour
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
        _ => SIZE_DEFAULT,
    }
}

/// Where a run is shown.
pub(crate) enum View {
    Live(Box<Live>),
    /// The whole run as lines on standard output.
    Plain(Box<Screen>),
    /// The answer alone on standard output.
    Answer(Box<AnswerOnly>),
    Events(Box<Events>),
    Silent,
}

pub(crate) struct Live {
    screen: Screen,
    painter: Painter<Stdout>,
    /// A replay shows the time of the run, at the replay's speed.
    clock: Option<(Instant, Millis)>,
}

/// What a pipe gets: the answer, line by line. The rest goes to standard error if that is a
/// terminal; otherwise only failures do.
pub(crate) struct AnswerOnly {
    answer: Screen,
    rest: Option<Screen>,
}

pub(crate) struct Events {
    encoder: Encoder,
    out: Out,
}

impl View {
    /// The whole run: live in a terminal, as lines in a pipe.
    pub(crate) fn screen(hint: &'static str) -> Self {
        if is_rich() {
            let painter = Painter::new(stdout());
            Self::Live(Box::new(Live { screen: Screen::new(hint), painter, clock: None }))
        } else {
            Self::Plain(Box::new(Screen::plain(Shows::Everything)))
        }
    }

    /// The whole run in a terminal, only its answer in a pipe.
    pub(crate) fn answer(hint: &'static str) -> Self {
        if stdout().is_terminal() {
            return Self::screen(hint);
        }
        let answer = Screen::plain(Shows::Answer);
        let rest = io::stderr().is_terminal().then(|| Screen::plain(Shows::Rest));
        Self::Answer(Box::new(AnswerOnly { answer, rest }))
    }

    pub(crate) fn events(dialect: DialectName) -> Self {
        Self::Events(Box::new(Events { encoder: Encoder::new(dialect), out: Out::default() }))
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Adds the records of a frame. A live view shows them at the next repaint.
    pub(crate) fn frame(&mut self, records: &[Record]) -> io::Result<()> {
        match self {
            Self::Live(live) => {
                for record in records {
                    live.screen.apply(record);
                }
                Ok(())
            }
            Self::Plain(screen) => {
                let mut lines = Vec::new();
                for record in records {
                    screen.apply(record);
                    lines.extend(screen.take_settled(UNLIMITED));
                    lines.extend(screen.take_overflow(UNLIMITED, 0, record.at));
                }
                print_lines(&mut stdout().lock(), &lines, Ink::Plain)
            }
            Self::Answer(view) => {
                for record in records {
                    view.apply(record)?;
                }
                Ok(())
            }
            Self::Events(events) => {
                events.out.clear();
                events.encoder.frame(records, &mut events.out);
                let mut stdout = stdout().lock();
                stdout.write_all(&Framing::LINES.frame(&events.out, Positions::Absent))?;
                stdout.flush()
            }
            Self::Silent => Ok(()),
        }
    }

    /// Sets the hint of what the user can do.
    pub(crate) fn set_hint(&mut self, hint: &'static str) {
        if let Self::Live(live) = self {
            live.screen.set_hint(hint);
        }
    }

    /// Shows times as if it were `at` now.
    pub(crate) fn set_clock(&mut self, at: Millis) {
        if let Self::Live(live) = self {
            live.clock = Some((Instant::now(), at));
        }
    }

    /// Paints a live view.
    pub(crate) fn paint(&mut self, prompt: Option<&Prompt>) -> io::Result<()> {
        let Self::Live(live) = self else { return Ok(()) };
        let (columns, rows) = size();
        // The last column is left free: some terminals break the line there.
        let width = columns.saturating_sub(1).clamp(1, COLUMNS_MAX);
        let now = match live.clock {
            Some((since, at)) => at.plus(since.elapsed()),
            None => SystemClock.now(),
        };
        let (prompt_lines, cursor) = prompt.map(|prompt| prompt.lines(width)).unzip();
        let prompt_lines: Vec<Line> = prompt_lines.unwrap_or_default();
        let height = rows.saturating_sub(1 + prompt_lines.len()).max(1);
        let mut printed = live.screen.take_settled(width);
        printed.extend(live.screen.take_overflow(width, height, now));
        let mut region = match prompt {
            // The prompt is printed right below its question.
            Some(_) => live.screen.open(width, now),
            None => live.screen.live(width, now),
        };
        region.drain(..region.len().saturating_sub(height));
        region.extend(prompt_lines);
        live.painter.paint(printed, region, columns, cursor)
    }

    /// Restores the terminal.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        match self {
            Self::Live(live) => live.painter.leave(),
            Self::Plain(_) | Self::Answer(_) | Self::Events(_) | Self::Silent => Ok(()),
        }
    }
}

impl AnswerOnly {
    fn apply(&mut self, record: &Record) -> io::Result<()> {
        self.answer.apply(record);
        let mut lines = self.answer.take_settled(UNLIMITED);
        lines.extend(self.answer.take_overflow(UNLIMITED, 0, record.at));
        print_lines(&mut stdout().lock(), &lines, Ink::Plain)?;
        let mut stderr = io::stderr().lock();
        if let Some(rest) = &mut self.rest {
            rest.apply(record);
            let mut lines = rest.take_settled(UNLIMITED);
            lines.extend(rest.take_overflow(UNLIMITED, 0, record.at));
            return print_lines(&mut stderr, &lines, Ink::Plain);
        }
        if let Event::PartsVoided { why: VoidReason::Restarted, .. } = &record.event
            && self.answer.has_printed()
        {
            writeln!(stderr, "wellspring: the model was interrupted; its answer starts again")?;
        }
        if let Event::RunFinished { outcome } = &record.event
            && !matches!(**outcome, Outcome::Completed { .. })
        {
            writeln!(stderr, "wellspring: {}", outcome_phrase(outcome))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ink {
    Plain,
    Coloured,
}

/// Prints lines permanently.
pub(crate) fn print_lines(out: &mut impl io::Write, lines: &[Line], ink: Ink) -> io::Result<()> {
    for line in lines {
        match ink {
            Ink::Plain => out.write_all(line.text().trim_end().as_bytes())?,
            Ink::Coloured => style_line(out, line)?,
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Shows the current state of a run, once.
pub(crate) fn print_screen(mut screen: Screen, records: &[Record], now: Millis) -> io::Result<()> {
    for record in records {
        screen.apply(record);
    }
    if is_rich() {
        let width = size().0.saturating_sub(1).clamp(1, COLUMNS_MAX);
        print_lines(&mut stdout().lock(), &screen.all(width, now), Ink::Coloured)
    } else {
        print_lines(&mut stdout().lock(), &screen.all(UNLIMITED, now), Ink::Plain)
    }
}
