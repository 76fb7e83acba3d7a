//! Servers in separate processes, and their CPU time.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The variable with the provider's address. If it is set, this program runs as a server.
pub(crate) const PROVIDER: &str = "WELLSPRING_BENCH_PROVIDER";

/// The resolution of the kernel's coarse clock, on every system that has `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// The core of a thread.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    Server,
    Clients,
}

/// Pins this thread, and the processes that it starts, to a core. Does nothing if the core is not
/// available.
pub(crate) fn pin(core: Core) {
    let mut cores = CpuSet::new();
    cores.set(match core {
        Core::Server => 0,
        Core::Clients => 1,
    });
    let _ = sched_setaffinity(None, &cores);
}

/// A server process. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts a server, which prints its address in its first line.
    pub(crate) fn start(mut command: Command, provider: &str) -> Self {
        pin(Core::Server);
        let mut child = command.env(PROVIDER, provider).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().unwrap();
        Self { child, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cpu(&self) -> Cpu {
        let process = format!("/proc/{}", self.child.id());
        let stat = std::fs::read_to_string(format!("{process}/stat")).unwrap();
        // The second field is the program's name, which may contain any characters.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks: u32 = fields[11..13].iter().map(|it| it.parse::<u32>().unwrap()).sum();
        let threads = std::fs::read_dir(format!("{process}/task")).unwrap().flatten();
        let fine = threads.filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanos = stat.split(' ').next()?.parse().ok()?;
            Some((thread.file_name().into_string().ok()?, Duration::from_nanos(nanos)))
        });
        Cpu { coarse: TICK * ticks, fine: fine.collect() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time of a process so far.
pub(crate) struct Cpu {
    coarse: Duration,
    /// The time of each thread, by the fine clock.
    fine: BTreeMap<String, Duration>,
}

impl Cpu {
    /// The CPU time between two measurements: by the fine clock, unless threads ended in between.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let coarse = self.coarse.saturating_sub(before.coarse);
        let fine = self.fine.iter().map(|(thread, now)| {
            now.saturating_sub(before.fine.get(thread).copied().unwrap_or_default())
        });
        let fine: Duration = fine.sum();
        if fine + 5 * TICK + coarse / 50 > coarse && !fine.is_zero() { fine } else { coarse }
    }
}
