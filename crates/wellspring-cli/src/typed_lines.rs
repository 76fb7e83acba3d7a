//! Lines typed by the user, one at a time, without losing any.
//!
//! A read of standard input ends only with a line. If a caller stops waiting, the read continues,
//! and its line goes to the next caller. Between reads the terminal is not touched, so that keys
//! can be read there.

use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, mpsc};

/// Standard input, line by line. Cheap to clone; nothing is read before it is asked for.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reader: OnceLock<Mutex<Reader>>,
}

struct Reader {
    wanted: mpsc::Sender<()>,
    lines: mpsc::Receiver<Option<String>>,
    /// Whether a line is being read already.
    asked: bool,
}

impl Lines {
    /// The next line; nothing at the end of the input.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no line.
    pub(crate) async fn next(&self) -> Option<String> {
        let reader = self.shared.reader.get_or_init(|| Mutex::new(Reader::start()));
        let mut reader = reader.lock().await;
        if !reader.asked {
            reader.wanted.send(()).await.ok()?;
            reader.asked = true;
        }
        let line = reader.lines.recv().await;
        reader.asked = false;
        line?
    }
}

impl Reader {
    fn start() -> Self {
        // One line is requested at a time, so a capacity of one is enough in both directions.
        let (wanted, mut asked) = mpsc::channel(1);
        let (sender, lines) = mpsc::channel(1);
        // A dedicated thread, which the runtime does not wait for. If it cannot be started, there
        // are no lines.
        let _ = std::thread::Builder::new().name("keyboard".into()).spawn(move || {
            while let Some(()) = asked.blocking_recv() {
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line);
                let line = match read {
                    Ok(0) | Err(_) => None,
                    Ok(_) => Some(line.trim_end_matches(['\n', '\r']).to_owned()),
                };
                let ended = line.is_none();
                if sender.blocking_send(line).is_err() || ended {
                    return;
                }
            }
        });
        Self { wanted, lines, asked: false }
    }
}
