//! A TCP proxy that simulates a network partition.
#![expect(clippy::expect_used, reason = "a test that cannot listen fails")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Maximum number of bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Forwards TCP connections to a server. While it is cut, neither side receives data or an error.
/// Data that was sent in the meantime arrives after [`heal`](Proxy::heal), as in a real network.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    line: Arc<Line>,
}

#[derive(Debug, Default)]
struct Line {
    is_cut: Mutex<bool>,
    healed: Condvar,
}

impl Line {
    fn wait_until_whole(&self) {
        let mut is_cut = self.is_cut.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_cut {
            is_cut = self.healed.wait(is_cut).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Proxy {
    /// Listens on its own address.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    #[must_use]
    pub fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let line = Arc::new(Line::default());
        let shared = Arc::clone(&line);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let line = Arc::clone(&shared);
                thread::spawn(move || {
                    line.wait_until_whole();
                    if let Ok(far) = TcpStream::connect(to) {
                        both_ways(&near, &far, &line);
                    }
                });
            }
        });
        Self { address, line }
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Interrupts the network: no data arrives from now on.
    pub fn cut(&self) {
        self.set(true);
    }

    /// Restores the network: all held data arrives.
    pub fn heal(&self) {
        self.set(false);
        self.line.healed.notify_all();
    }

    fn set(&self, is_cut: bool) {
        *self.line.is_cut.lock().unwrap_or_else(PoisonError::into_inner) = is_cut;
    }
}

fn both_ways(near: &TcpStream, far: &TcpStream, line: &Arc<Line>) {
    let copies = [(near, far), (far, near)].map(|(from, to)| {
        let (from, to) = (from.try_clone(), to.try_clone());
        let line = Arc::clone(line);
        thread::spawn(move || {
            if let (Ok(from), Ok(to)) = (from, to) {
                pass_on(from, to, &line);
            }
        })
    });
    for copy in copies {
        let _ = copy.join();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, line: &Line) {
    let mut bytes = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        line.wait_until_whole();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
