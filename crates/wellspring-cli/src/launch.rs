//! `wellspring launch`: starts a command of the shell tool, and ends it when the server dies.
//!
//! The server holds the other end of our standard input. When that closes, however the server
//! died, the whole process group is killed, which is the command and everything it started.
//! With a sandbox, this process gives up its own access to files, to the network and to other
//! processes before it starts the command, which inherits that (Landlock).
//!
//! # What is not promised
//!
//! UDP is not restricted: Landlock has no rule for it. A process that leaves the group
//! (`setsid`) outlives the server, inside its sandbox.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Signal, getpgrp, kill_process_group};
use wellspring_engine::tools::Launcher;

use crate::args::LaunchArgs;
use crate::config::agent::SandboxConfig;

/// The exit code of a command that could not be started, as in a shell.
const NOT_STARTED: u8 = 126;

/// What commands in a sandbox can read without being told so: programs, libraries and what they
/// look up. Of `/etc` only single files, because keys are kept there too.
const READABLE: [&str; 19] = [
    "/bin",
    "/etc/alternatives",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/usr",
];

/// Devices without data.
const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// This program as a launcher of commands, in a sandbox if there is one.
pub(crate) fn launcher(directory: &Path, sandbox: Option<&SandboxConfig>) -> Result<Launcher> {
    // On Linux this is the program that runs now, also when its file was replaced by an update.
    let program = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().context("cannot find this program's own file")?
    };
    let mut arguments: Vec<OsString> = vec!["launch".into()];
    if let Some(SandboxConfig { read, write, network }) = sandbox {
        check_sandbox()?;
        let directory = directory.canonicalize();
        let directory = directory.context("cannot find the directory of the sandbox")?;
        arguments.push("--sandbox".into());
        let mut path = |option: &str, path: &Path| {
            arguments.extend([option.into(), path.as_os_str().to_owned()]);
        };
        path("--write", &directory);
        write.iter().for_each(|it| path("--write", it));
        read.iter().for_each(|it| path("--read", it));
        if *network {
            arguments.push("--network".into());
        }
    }
    arguments.push("--".into());
    Ok(Launcher { program, arguments })
}

/// Runs a command to its end, and exits with its exit code.
#[expect(clippy::print_stderr, reason = "a command talks to people there")]
pub(crate) fn launch(args: &LaunchArgs) -> u8 {
    run(args).map_or_else(
        |error| {
            eprintln!("wellspring: the command was not started: {error:#}");
            NOT_STARTED
        },
        code,
    )
}

fn run(args: &LaunchArgs) -> Result<ExitStatus> {
    let (program, arguments) = args.command.split_first().context("there is no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let temporary = if args.sandbox { Some(Temporary::create()?) } else { None };
    if let Some(temporary) = &temporary {
        command.env("TMPDIR", &temporary.0);
        confine(args, &temporary.0)?;
    }
    let mut child = command.spawn().with_context(|| format!("{}", program.display()))?;
    std::thread::spawn(end_with_the_server);
    let status = child.wait().context("failed to wait for the command")?;
    drop(temporary);
    Ok(status)
}

/// Waits until the server is gone, then kills the group, which includes this process.
fn end_with_the_server() {
    let mut byte = [0];
    // No data is ever sent.
    while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
    let _ = kill_process_group(getpgrp(), Signal::KILL);
}

/// The exit code of a command, as in a shell: its code, or 128 plus the number of its signal.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A directory for temporary files that only this user can enter. It is removed with its
/// contents; if the command is killed, it stays until the system cleans up.
struct Temporary(PathBuf);

impl Temporary {
    fn create() -> Result<Self> {
        let name = format!("wellspring-{}", uuid::Uuid::now_v7());
        let path = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("failed to create the directory {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "failed to remove temporary files");
        }
    }
}

/// Whether this system has what a sandbox needs.
fn check_sandbox() -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        linux::rules(false).map(drop)
    }
    #[cfg(not(target_os = "linux"))]
    anyhow::bail!("`sandbox` needs Linux 6.12 or newer with Landlock")
}

fn confine(args: &LaunchArgs, temporary: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        linux::confine(args, temporary)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (args, temporary);
        check_sandbox()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    use anyhow::{Context as _, Result};
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
        path_beneath_rules,
    };

    use super::{DEVICES, READABLE};
    use crate::args::LaunchArgs;

    /// The first version that also restricts signals and abstract sockets.
    const VERSION: ABI = ABI::V6;

    /// Rules that allow nothing yet. It is an error if the system cannot enforce all of them.
    pub(super) fn rules(network: bool) -> Result<RulesetCreated> {
        let made = || {
            let rules = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(VERSION))?
                .scope(Scope::from_all(VERSION))?;
            let rules =
                if network { rules } else { rules.handle_access(AccessNet::from_all(VERSION))? };
            rules.create()
        };
        made().context(
            "`sandbox` needs Linux 6.12 or newer with Landlock; remove it to run commands without",
        )
    }

    pub(super) fn confine(args: &LaunchArgs, temporary: &Path) -> Result<()> {
        let read = AccessFs::from_read(VERSION);
        let all = AccessFs::from_all(VERSION);
        // Paths that do not exist are left out: they need no rule.
        let status = rules(args.network)?
            .add_rules(path_beneath_rules(READABLE, read))?
            .add_rules(path_beneath_rules(&args.read, read))?
            .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
            .add_rules(path_beneath_rules(&args.write, all))?
            .add_rules(path_beneath_rules([temporary], all))?
            .restrict_self()
            .context("cannot enter the sandbox")?;
        if status.ruleset == RulesetStatus::FullyEnforced {
            Ok(())
        } else {
            anyhow::bail!("the system enforces only a part of the sandbox")
        }
    }
}
