//! A step: one command, which is announced, timed, and easy to repeat by hand.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::serves::serves;
use crate::workspace::cargo;

/// Poll interval of a command with a time limit.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Default time limit until a server has printed its address: it may have to be built first.
const SERVE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// One command and how it is announced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// A name of a word or two.
    pub name: String,
    /// The program; `cargo` means the cargo that runs xtask.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// The working directory; `None` for the current one.
    pub folder: Option<PathBuf>,
    /// Time limit; `None` for no limit.
    pub limit: Option<Duration>,
    /// Whether it runs until it is stopped. It must then serve a page.
    pub serves: bool,
}

impl Step {
    /// A cargo command; the arguments are separated by single spaces.
    #[must_use]
    pub fn cargo(name: impl Into<String>, args: &str) -> Self {
        Self::new(name, "cargo", args.split(' '))
    }

    /// Any command.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            folder: None,
            limit: None,
            serves: false,
        }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Marks it as a command that runs until it is stopped, and serves a page.
    #[must_use]
    pub fn serves(mut self) -> Self {
        self.serves = true;
        self
    }

    /// The command, ready to start. It has no input, so it cannot wait for a person.
    #[must_use]
    pub fn command(&self) -> Command {
        let program = if self.program == "cargo" { cargo() } else { self.program.clone().into() };
        let mut command = Command::new(program);
        command.args(&self.args).envs(self.env.iter().cloned()).stdin(Stdio::null());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Runs it until it exits, or until its time limit.
    fn run(&self) -> anyhow::Result<Ended> {
        if self.serves {
            let deadline = Instant::now() + self.limit.unwrap_or(SERVE_LIMIT);
            return Ok(match serves(self.command(), deadline) {
                Ok(()) => Ended::Well,
                Err(error) => Ended::Wrong(error),
            });
        }
        let mut child =
            self.command().spawn().with_context(|| format!("could not start {}", self.program))?;
        let status = match self.limit {
            Some(limit) => wait_at_most(&mut child, limit)?,
            None => Some(child.wait()?),
        };
        Ok(match status {
            Some(status) if status.success() => Ended::Well,
            Some(status) => Ended::Badly(status),
            None => Ended::TooLate,
        })
    }
}

/// The command as it would be typed in a shell.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

enum Ended {
    Well,
    Badly(ExitStatus),
    Wrong(anyhow::Error),
    TooLate,
}

/// Waits for a child; kills it at the time limit.
fn wait_at_most(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A word, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs steps one after another and counts them. Messages go to standard error, except for the
/// last line.
#[derive(Debug)]
pub struct Runner {
    passed: usize,
    bold: bool,
    began: Instant,
}

impl Default for Runner {
    fn default() -> Self {
        let wish = std::env::var_os("CARGO_TERM_COLOR");
        let bold = match wish.as_deref().and_then(OsStr::to_str) {
            Some("always") => true,
            Some("never") => false,
            Some(_) | None => std::io::stderr().is_terminal(),
        };
        Self { passed: 0, bold, began: Instant::now() }
    }
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints to the terminal")]
impl Runner {
    /// Announces and runs a step. If it fails, prints how to repeat it.
    ///
    /// # Errors
    ///
    /// If the command cannot be started.
    pub fn step(&mut self, step: &Step) -> anyhow::Result<bool> {
        self.headline(&format!("{}: {step}", step.name));
        let began = Instant::now();
        let ended = step.run()?;
        let took = seconds(began.elapsed());
        let why = match ended {
            Ended::Well => {
                self.passed += 1;
                eprintln!("    {} passed in {took}", step.name);
                return Ok(true);
            }
            Ended::Badly(status) => status.to_string(),
            Ended::Wrong(error) => format!("{error:#}"),
            Ended::TooLate => "it took too long and was killed".to_owned(),
        };
        eprintln!("    {} failed after {took}: {why}", step.name);
        let mut again = String::new();
        if let Some(folder) = &step.folder {
            let _ = write!(again, "cd {} && ", quoted(&folder.display().to_string()));
        }
        eprintln!("    to repeat it: {again}{step}");
        Ok(false)
    }

    /// Prints that something is skipped.
    pub fn skipped(&self, what: &str, why: &str) {
        self.headline(&format!("{what}: skipped, {why}"));
    }

    /// Prints that something failed before a command could run.
    pub fn failed(&self, what: &str, why: &str) {
        self.headline(&format!("{what}: failed, {why}"));
    }

    /// Prints the summary on standard output.
    #[must_use]
    pub fn finish(self, all_passed: bool) -> ExitCode {
        eprintln!("    total {}", seconds(self.began.elapsed()));
        println!("{} passed, {} failed", self.passed, usize::from(!all_passed));
        if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn headline(&self, text: &str) {
        if self.bold {
            eprintln!("\x1b[1m==> {text}\x1b[0m");
        } else {
            eprintln!("==> {text}");
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_as_one_would_type_it() {
        let step = Step::new("odd", "cargo", ["bench", "--bench", "*", "it's", ""])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            step.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo bench --bench '*' 'it'\''s' ''"
        );
    }

    #[test]
    fn a_failing_step_is_not_counted() {
        let mut runner = Runner::default();
        assert!(runner.step(&Step::cargo("good", "--version")).unwrap());
        assert!(!runner.step(&Step::cargo("bad", "no-such-command")).unwrap());
        assert_eq!(runner.passed, 1);
    }

    #[test]
    fn a_step_that_hangs_is_killed() {
        let hangs = Step::new("hangs", "sleep", ["600"]).limit(Duration::from_millis(50));
        let began = Instant::now();
        assert!(!Runner::default().step(&hangs).unwrap());
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = Runner::default().step(&Step::new("x", "no-such-program-here", [""; 0]));
        assert_eq!(error.unwrap_err().to_string(), "could not start no-such-program-here");
    }
}
