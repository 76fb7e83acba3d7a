//! A separate data directory for every test, and the command in it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wellspring_core::{Checker, Outline, Record};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_wellspring");

/// The variables that configure providers. Tests do not inherit them from the environment.
const PROVIDERS: [&str; 14] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_API_KEY_FILE",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GEMINI_API_KEY_FILE",
    "GOOGLE_API_KEY",
    "OLLAMA_HOST",
    "OPENAI_API_KEY",
    "OPENAI_API_KEY_FILE",
    "OPENAI_BASE_URL",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "WELLSPRING_LISTEN",
];

/// A data directory, and a small working directory for the demo agent. The configuration selects
/// the demo agent, whatever is installed on the machine.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Self { directory };
        std::fs::create_dir_all(home.work().join("notes")).unwrap();
        std::fs::write(home.work().join("notes/one.txt"), "one").unwrap();
        std::fs::write(home.config(), "default_agent = \"demo\"\n").unwrap();
        home
    }

    /// A home with its own configuration, in its working directory.
    pub(crate) fn with_files(files: &[(&str, &str)]) -> Self {
        let home = Self::new();
        std::fs::remove_file(home.config()).unwrap();
        for (name, text) in files {
            let file = home.work().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        home
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("demo.toml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The command, with a pause of this many milliseconds per word.
    pub(crate) fn paced(&self, pace_ms: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments);
        self.settle(&mut command, pace_ms);
        command
    }

    /// The same; exceeding a file size limit is an error for it instead of a signal that ends it.
    pub(crate) fn paced_and_limitable(&self, pace_ms: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", BINARY]).args(arguments);
        self.settle(&mut command, pace_ms);
        command
    }

    /// The same, with a disk on which these `fsync` calls of a thread fail.
    pub(crate) fn paced_and_unsynced(
        &self,
        pace_ms: u32,
        times: RangeInclusive<u32>,
        arguments: &[&str],
    ) -> Command {
        let fault =
            format!("inject=fsync,fdatasync:error=EIO:when={}..{}", times.start(), times.end());
        // `strace` detaches itself from the command, so that killing the child kills the command.
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"]);
        command.args([&fault, BINARY]).args(arguments);
        self.settle(&mut command, pace_ms);
        command
    }

    pub(crate) fn settle(&self, command: &mut Command, pace_ms: u32) {
        command
            .current_dir(self.work())
            .env("WELLSPRING_DATA_DIR", self.data())
            .env("WELLSPRING_DEMO_PACE_MS", pace_ms.to_string())
            // The user's own configuration must not affect the tests.
            .env("XDG_CONFIG_HOME", self.directory.path())
            .env_remove("NO_COLOR")
            // The test does not read this pipe while the command runs, and a pipe has a small
            // buffer.
            .env("WELLSPRING_LOG", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in PROVIDERS {
            command.env_remove(variable);
        }
        if self.config().exists() {
            command.env("WELLSPRING_CONFIG", self.config());
        }
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.paced(0, arguments).output().unwrap()
    }

    /// The output of the command, which must succeed.
    pub(crate) fn print(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The records of a run, checked against the grammar.
    pub(crate) fn records(&self, id: &str) -> (Vec<Record>, Outline) {
        let exported = self.print(&["runs", "export", id]);
        let records: Vec<Record> =
            exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outline = Checker::check(&records).unwrap();
        (records, outline)
    }
}

/// Writes a program, in another process. While this process has a program open for writing, a child
/// process that another test starts inherits the descriptor, and the program cannot be executed.
pub(crate) fn install(program: &Path, script: &str) {
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    let mut writer = Command::new("sh");
    let status = writer.args(["-c", write, "sh", script]).arg(program).status().unwrap();
    assert!(status.success(), "{}", program.display());
}

/// Whether a test is skipped because its peer is not enabled.
pub(crate) fn skipped(variable: &str) -> bool {
    let skipped = std::env::var_os(variable).is_none();
    if skipped {
        println!("skipped: {variable} is not set; `cargo xtask test` sets it");
    }
    skipped
}

pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A command that runs in the background.
pub(crate) struct Going {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) seen: Vec<String>,
}

impl Going {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, seen: Vec::new() }
    }

    /// Reads the next complete line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<&str> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let complete = line.strip_suffix('\n')?;
        self.seen.push(complete.to_owned());
        self.seen.last().map(String::as_str)
    }

    /// Reads until a line contains this text.
    pub(crate) fn wait_for(&mut self, what: &str) {
        while let Some(line) = self.line() {
            if line.contains(what) {
                return;
            }
        }
        panic!("{what:?} never came, only {:#?}", self.seen);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end. The lines until then are in `seen`.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>, String) {
        while self.line().is_some() {}
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap(), self.seen, stderr)
    }
}

impl Going {
    /// Closes the pipe and waits for the end.
    pub(crate) fn close(mut self) -> ExitStatus {
        drop(self.stdout);
        self.child.wait().unwrap()
    }
}
