//! Checks a command that serves: it must print its address, respond there, and stop on a
//! signal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// How long a server may take to respond, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum size of a page.
const PAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Starts a command, fetches the page at the address that it prints, and stops it. The address
/// must be printed before the deadline.
///
/// # Errors
///
/// If it does not serve, or exits with an error. The process is always stopped.
pub fn serves(mut command: Command, deadline: Instant) -> anyhow::Result<()> {
    // In its own process group, so that its children get the signal too.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.stdout(Stdio::piped()).spawn().context("it could not be started")?;
    let mut server = Started(child);
    let address = server.address(deadline)?;
    let page = fetch(&address).with_context(|| format!("http://{address} did not answer"))?;
    ensure!(page.starts_with("HTTP/1.1 200 "), "the page is {:?}", page.lines().next());
    // Not an interrupt: background processes may have to ignore those.
    server.signal("TERM")?;
    let stopping = Instant::now();
    while stopping.elapsed() < PATIENCE {
        if let Some(status) = server.0.try_wait()? {
            ensure!(status.success(), "told to stop, it ended with {status}");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("it did not stop after the signal")
}

struct Started(Child);

impl Started {
    /// The address that it prints.
    fn address(&mut self, deadline: Instant) -> anyhow::Result<String> {
        let stdout = self.0.stdout.take().context("its output is ours")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left).context("it never said where it is")?;
            if let Some((_, address)) = line.split_once("http://") {
                return Ok(address.trim().to_owned());
            }
        }
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let group = format!("-{}", self.0.id());
        let sent = Command::new("kill").args([&format!("-{name}"), "--", &group]).status()?;
        ensure!(sent.success(), "failed to send the signal: {sent}");
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.signal("KILL");
            let _ = self.0.wait();
        }
    }
}

fn fetch(address: &str) -> anyhow::Result<String> {
    let mut server = TcpStream::connect(address)?;
    server.set_read_timeout(Some(PATIENCE))?;
    write!(server, "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    server.take(PAGE_BYTES_MAX).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::null());
        command
    }

    fn soon() -> Instant {
        Instant::now() + PATIENCE
    }

    #[test]
    fn a_server_that_answers_and_stops() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            // Read the whole request: unread data would reset the connection.
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                asked.extend(byte);
            }
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
        });
        // The shell prints the address; this test responds there.
        let script =
            format!("trap 'exit 0' TERM; echo at http://{address}; while :; do sleep 1; done");
        serves(shell(&script), soon()).unwrap();
        answering.join().unwrap();
    }

    #[test]
    fn what_does_not_serve_is_an_error() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (script, want) in [
            ("exit 3".to_owned(), "it never said where it is"),
            (format!("echo http://{free}; sleep 600"), "did not answer"),
        ] {
            let error = serves(shell(&script), soon()).unwrap_err();
            assert!(format!("{error:#}").contains(want), "{error:#}");
        }
    }
}
