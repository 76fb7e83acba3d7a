//! Every agent that is known by its name, started as the real command does: the program on `PATH`,
//! or `npx`. Scripts in their place record how they were started, and then become this test binary,
//! which acts as a scripted agent.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::json;
use wellspring_acp::client::known_agents;
use wellspring_testkit::acp_agent::SCRIPT;

use crate::kit::{Home, install};

/// Name, program and arguments, and the package for `npx`. The list is a copy on purpose, so that a
/// wrong entry in either place is found.
const NAMES: [(&str, &[&str], Option<&str>); 7] = [
    ("claude", &["claude-agent-acp"], Some("@agentclientprotocol/claude-agent-acp@0.99.1")),
    ("codex", &["codex-acp"], Some("@agentclientprotocol/codex-acp@2.6.0")),
    ("gemini", &["gemini", "--acp"], Some("@google/gemini-cli@0.61.0")),
    ("opencode", &["opencode", "acp"], Some("opencode-ai@1.18.33")),
    ("goose", &["goose", "acp"], None),
    ("kiro", &["kiro-cli", "acp"], None),
    ("auggie", &["auggie", "--acp"], Some("@augmentcode/auggie")),
];

/// A folder with scripts in place of programs.
struct Programs(tempfile::TempDir);

impl Programs {
    fn with(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        let this = std::env::current_exe().unwrap();
        let says = json!({"prompts": [[{"text": "I am here."}]]});
        // Only builtins of the shell: nothing else is on `PATH`. The agent's script is set here,
        // because an agent does not inherit our environment.
        let script = format!(
            "#!/bin/sh\n\
             export {SCRIPT}='{says}'\n\
             printf '%s\\n' \"${{0##*/}}\" \"$@\" > '{0}/argv'\n\
             printf '%s\\n' \"$MARK\" \"${{TAKEN-none}}\" \"$PWD\" > '{0}/env'\n\
             exec '{1}' --exact acp_agents::scripted_agent --nocapture --quiet\n",
            folder.path().display(),
            this.display(),
        );
        install(&program, &script);
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn noted(&self, what: &str) -> Vec<String> {
        let noted = std::fs::read_to_string(self.path().join(what)).unwrap();
        noted.lines().map(ToOwned::to_owned).collect()
    }
}

fn run(home: &Home, path: &Path, agent: &str) -> Output {
    let mut command = home.paced(0, &["run", "--agent", agent, "Hi"]);
    command.env("PATH", path).env("MARK", "inherited").env("TAKEN", "away").output().unwrap()
}

fn answered(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("I am here."), "{output:?}");
}

/// The working directory of the command, without links.
fn here(home: &Home) -> PathBuf {
    home.work().canonicalize().unwrap()
}

#[test]
fn all_known_names_are_here() {
    let known: Vec<&str> = known_agents().iter().map(|known| known.name).collect();
    assert_eq!(known, NAMES.map(|(name, ..)| name));
}

/// Installed, and used by its name without a configuration. It inherits only the variables that
/// every child process gets.
#[test]
fn every_known_agent_is_started_from_the_path() {
    for (name, command, _) in NAMES {
        let (home, programs) = (Home::new(), Programs::with(command[0]));
        answered(&run(&home, programs.path(), name));
        assert_eq!(programs.noted("argv"), command, "{name}");
        let here = here(&home).display().to_string();
        assert_eq!(programs.noted("env"), ["", "none", &here], "{name}");
    }
}

/// Configured by its name, and not installed: `npx` fetches the tested version. Its environment is
/// the configured one.
#[test]
fn every_known_agent_is_fetched_by_npx_where_it_can_be() {
    for (name, command, package) in NAMES {
        let programs = Programs::with("npx");
        let config = format!(
            "[agents.other]\nacp = {{ agent = \"{name}\", env = {{ MARK = \"configured\" }}, \
             env_remove = [\"TAKEN\"] }}\n"
        );
        let home = Home::with_files(&[("wellspring.toml", &config)]);
        let output = run(&home, programs.path(), "other");
        let Some(package) = package else {
            assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            let missing = format!("{} is not installed: see https://", command[0]);
            assert!(said.contains(&missing), "{name}: {said}");
            assert!(!programs.path().join("argv").exists(), "{name}");
            continue;
        };
        answered(&output);
        let mut want = vec!["npx", "--yes", package];
        want.extend(&command[1..]);
        assert_eq!(programs.noted("argv"), want, "{name}");
        let here = here(&home).display().to_string();
        assert_eq!(programs.noted("env"), ["configured", "none", &here], "{name}");
    }
}

/// An installed program is preferred to `npx`.
#[test]
fn an_installed_program_is_preferred() {
    for (name, command, _) in NAMES {
        let (home, programs, npx) =
            (Home::new(), Programs::with(command[0]), Programs::with("npx"));
        let path = std::env::join_paths([npx.path(), programs.path()]).unwrap();
        answered(&run(&home, Path::new(&path), name));
        assert_eq!(programs.noted("argv"), command, "{name}");
        assert!(!npx.path().join("argv").exists(), "{name}");
    }
}
