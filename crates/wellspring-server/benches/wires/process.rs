//! Servers in processes of their own, and what they use.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Tells a server where its provider is; and this program that it is a server.
pub(crate) const PROVIDER: &str = "WELLSPRING_BENCH_PROVIDER";

/// How long the kernel's coarse clock ticks, on every system that has `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// Where a thread runs.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    Server,
    Clients,
}

/// Keeps this thread, and what it starts, on a core. Where that core cannot be had the system
/// decides.
pub(crate) fn pin(core: Core) {
    let mut cores = CpuSet::new();
    cores.set(match core {
        Core::Server => 0,
        Core::Clients => 1,
    });
    let _ = sched_setaffinity(None, &cores);
}

/// A server. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts a server, which says its address in its first line.
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
        // The second field is a name, which may hold anything.
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
        // One that is gone already is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time that a process has used so far.
pub(crate) struct Cpu {
    coarse: Duration,
    /// Of each thread that there is.
    fine: BTreeMap<String, Duration>,
}

impl Cpu {
    /// What was used in between: by the fine clock, unless it lost threads that have ended.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let coarse = self.coarse.saturating_sub(before.coarse);
        let fine = self.fine.iter().map(|(thread, now)| {
            now.saturating_sub(before.fine.get(thread).copied().unwrap_or_default())
        });
        let fine: Duration = fine.sum();
        if fine + 5 * TICK + coarse / 50 > coarse && !fine.is_zero() { fine } else { coarse }
    }
}
