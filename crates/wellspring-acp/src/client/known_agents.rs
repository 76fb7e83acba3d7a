//! Agents known by name.

use std::path::{Path, PathBuf};

use super::error::AcpError;

/// An agent that can be opened by name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KnownAgent {
    /// Its name.
    pub name: &'static str,
    /// Its program, if it is installed.
    pub program: &'static str,
    /// The arguments that make the program speak ACP.
    pub args: &'static [&'static str],
    /// The npm package with the program, if there is one; run with `npx` if the program is
    /// not installed.
    pub package: Option<&'static str>,
    /// What to do if it is not installed.
    pub install: &'static str,
    /// The variables of ours that it gets besides those that every child process gets: its
    /// credentials, and where its configuration is.
    pub variables: &'static [&'static str],
}

const KNOWN: &[KnownAgent] = &[
    KnownAgent {
        name: "claude",
        program: "claude-agent-acp",
        args: &[],
        package: Some("@agentclientprotocol/claude-agent-acp@0.99.1"),
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        variables: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ],
    },
    KnownAgent {
        name: "codex",
        program: "codex-acp",
        args: &[],
        package: Some("@agentclientprotocol/codex-acp@2.6.0"),
        install: "npm install -g @agentclientprotocol/codex-acp",
        variables: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
    },
    KnownAgent {
        name: "gemini",
        program: "gemini",
        args: &["--acp"],
        package: Some("@google/gemini-cli@0.61.0"),
        install: "npm install -g @google/gemini-cli",
        variables: &[
            "GEMINI_API_KEY",
            "GEMINI_MODEL",
            "GOOGLE_API_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ],
    },
    KnownAgent {
        name: "opencode",
        program: "opencode",
        args: &["acp"],
        package: Some("opencode-ai@1.18.33"),
        install: "npm install -g opencode-ai",
        variables: &[
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
            "OPENAI_API_KEY",
            "OPENCODE_CONFIG",
            "OPENROUTER_API_KEY",
        ],
    },
    KnownAgent {
        name: "goose",
        program: "goose",
        args: &["acp"],
        package: None,
        install: "see https://block.github.io/goose",
        variables: &[
            "ANTHROPIC_API_KEY",
            "GOOGLE_API_KEY",
            "GOOSE_MODEL",
            "GOOSE_PROVIDER",
            "OPENAI_API_KEY",
            "OPENROUTER_API_KEY",
        ],
    },
    KnownAgent {
        name: "kiro",
        program: "kiro-cli",
        args: &["acp"],
        package: None,
        install: "see https://kiro.dev/cli",
        variables: &["KIRO_API_KEY"],
    },
    KnownAgent {
        name: "auggie",
        program: "auggie",
        args: &["--acp"],
        package: Some("@augmentcode/auggie"),
        install: "npm install -g @augmentcode/auggie",
        variables: &["AUGMENT_API_TOKEN", "AUGMENT_API_URL", "AUGMENT_SESSION_AUTH"],
    },
];

/// The agents that can be opened by name.
#[must_use]
pub fn known_agents() -> &'static [KnownAgent] {
    KNOWN
}

impl KnownAgent {
    /// Whether its program is on this process's `PATH`.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        find(self.program, &path)
    }

    /// The known agent of this name, if there is one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// The command that starts it; `path` is where programs are searched.
    pub(super) fn command(&self, path: &[PathBuf]) -> Result<Vec<Box<str>>, AcpError> {
        let args = self.args.iter().copied().map(Box::from);
        if find(self.program, path) {
            return Ok([self.program.into()].into_iter().chain(args).collect());
        }
        match self.package.filter(|_| find("npx", path)) {
            Some(package) => {
                let npx = ["npx", "--yes", package].map(Box::from);
                Ok(npx.into_iter().chain(args).collect())
            }
            None => Err(AcpError::NotInstalled {
                program: self.program.into(),
                hint: self.install.into(),
            }),
        }
    }
}

fn find(program: &str, path: &[PathBuf]) -> bool {
    path.iter().any(|folder| is_program(&folder.join(program)))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = file.metadata() else { return false };
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_installed_program_is_preferred_and_npx_fetches_what_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = [folder.path().to_owned()];
        let install = |name: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let gemini = KnownAgent::of_name("gemini").unwrap();
        let goose = KnownAgent::of_name("goose").unwrap();
        let missing = gemini.command(&path).unwrap_err().to_string();
        assert_eq!(missing, "gemini is not installed: npm install -g @google/gemini-cli");
        install("npx");
        let fetched: Vec<Box<str>> =
            ["npx", "--yes", "@google/gemini-cli@0.61.0", "--acp"].map(Box::from).to_vec();
        assert_eq!(gemini.command(&path).unwrap(), fetched);
        assert!(goose.command(&path).is_err());
        install("gemini");
        assert_eq!(gemini.command(&path).unwrap(), ["gemini", "--acp"].map(Box::from).to_vec());
    }
}
