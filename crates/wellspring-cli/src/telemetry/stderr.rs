//! Log lines on their way to standard error, which may be a pipe that is never read. Logging never
//! waits: lines that do not fit are dropped and counted, and the count is logged.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of lines that wait to be written: about half a minute of a busy server's log.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Lines that a dedicated thread writes. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Dropped lines that have not been reported yet.
    dropped: u64,
    /// A line is being written.
    writing: bool,
}

/// The lines to be written.
enum Next {
    Line(Vec<u8>),
    /// The number of dropped lines.
    Missing(u64),
}

impl Lines {
    /// Writes to `out`. `dropped` formats the message about dropped lines.
    pub(super) fn to(
        mut out: impl Write + Send + 'static,
        dropped: fn(u64) -> String,
    ) -> io::Result<Self> {
        let state = Mutex::new(State::default());
        let lines = Self(Arc::new(Shared { state, changed: Condvar::new() }));
        let writer = lines.clone();
        let write = move || {
            loop {
                let line = match writer.next() {
                    Next::Line(line) => line,
                    Next::Missing(count) => dropped(count).into_bytes(),
                };
                // If this fails too, there is nowhere to report it.
                let _ = out.write_all(&line).and_then(|()| out.flush());
                writer.state().writing = false;
                writer.0.changed.notify_all();
            }
        };
        std::thread::Builder::new().name("log-lines".into()).spawn(write)?;
        Ok(lines)
    }

    /// Waits until everything is written, or until the time limit.
    pub(super) fn finish(&self, limit: Duration) {
        let is_busy =
            |state: &mut State| state.writing || !state.waiting.is_empty() || state.dropped > 0;
        // Lines that are not written by then are lost.
        let _ = self.0.changed.wait_timeout_while(self.state(), limit, is_busy);
    }

    fn next(&self) -> Next {
        let mut state = self.state();
        loop {
            if let Some(line) = state.waiting.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                return Next::Line(line);
            }
            // These lines were dropped after all waiting ones.
            if state.dropped > 0 {
                state.writing = true;
                return Next::Missing(std::mem::take(&mut state.dropped));
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for &Lines {
    /// Queues a whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if state.bytes + line.len() > WAITING_BYTES_MAX {
            state.dropped += 1;
        } else {
            state.bytes += line.len();
            state.waiting.push_back(line.to_vec());
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer that blocks until the test reads.
    struct Pipe(mpsc::SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_never_waits() {
        let (pipe, reader) = mpsc::sync_channel(0);
        let lines = Lines::to(Pipe(pipe), |count| format!("{count} missing\n")).unwrap();
        let log = |line: &[u8]| (&lines).write_all(line).unwrap();
        log(b"first\n");
        // The line is being written, and the pipe is not read.
        while !lines.state().writing {
            std::thread::yield_now();
        }
        lines.finish(Duration::from_millis(1));
        let line = vec![b'x'; 1024 * 1024];
        for _ in 0..4 {
            log(&line);
        }
        log(b"too much\n");
        log(&line);
        assert_eq!(lines.state().dropped, 2);
        let seen: Vec<Vec<u8>> = (0..6).map(|_| reader.recv().unwrap()).collect();
        let [first, four @ .., missing] = &seen[..] else { panic!("{}", seen.len()) };
        assert_eq!((&first[..], &missing[..]), (&b"first\n"[..], &b"2 missing\n"[..]));
        assert_eq!(four, vec![line; 4]);
        log(b"last\n");
        assert_eq!(reader.recv().unwrap(), b"last\n");
        lines.finish(Duration::from_secs(10));
        let state = lines.state();
        assert_eq!((state.bytes, state.dropped, state.writing), (0, 0, false));
    }
}
