//! The programs of others that some tests talk to: official suites, SDKs, agents.
//!
//! A peer's tests are ordinary tests (`tests/it/peer.rs`) that return early unless the
//! peer's variable is set; this table is what sets it. **In CI (`CI` is set) a missing peer
//! is a failure; elsewhere it is skipped, out loud.** So a laptop without Node can test the
//! rest, and no protocol is ever unproven on the main branch.

use std::process::{Command, Stdio};

use crate::step::Step;

/// A program that is not ours.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// What people call it.
    pub name: &'static str,
    /// A command that succeeds where the peer can run: `["node", "--version"]`.
    pub probe: &'static [&'static str],
    /// What someone without it should type.
    pub install: &'static str,
    /// Fetches what the peer consists of, from the workspace's root:
    /// `["npm", "ci", "--prefix", "crates/wellspring-wire/tests/peer"]`.
    pub setup: &'static [&'static str],
    /// Its tests run when this variable is set.
    pub variable: &'static str,
}

/// Every peer there is. A protocol that has an official client or suite adds its row here.
pub const PEERS: &[Peer] = &[
    MCP,
    ACP,
    AIMOCK,
    LLAMA,
    AG_UI,
    AG_UI_CLIENT,
    AG_UI_VALIDATE,
    CHROMIUM,
    TERMINAL,
    SCHEMATHESIS,
    ACP_CLIENTS,
    ACP_PYTHON,
];

const MCP: Peer = Peer {
    name: "MCP example server and TypeScript SDK",
    probe: &["npm", "--version"],
    install: "https://nodejs.org, version 20 or newer",
    setup: &[
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-mcp/tests/peer",
    ],
    variable: "WELLSPRING_PEER_MCP",
};

const ACP: Peer = Peer {
    name: "ACP's example agents and schema",
    setup: &[
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-acp/tests/peer",
    ],
    variable: "WELLSPRING_PEER_ACP",
    ..MCP
};

/// Answers as five providers do.
pub const AIMOCK: Peer = Peer {
    name: "aimock, which answers as five providers do",
    probe: &["npm", "--version"],
    install: "https://nodejs.org, version 20 or newer",
    setup: &[
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-models/tests/peer",
    ],
    variable: "WELLSPRING_PEER_AIMOCK",
};

/// A real server, with a tiny model.
pub const LLAMA: Peer = Peer {
    name: "llama.cpp's server",
    probe: &["python3", "-m", "pip", "--version"],
    install: "Python 3.10 or newer, with pip",
    setup: &[
        "python3",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--disable-pip-version-check",
        "--target",
        "target/peers/llama",
        "--requirement",
        "crates/wellspring-models/tests/peer/requirements.txt",
    ],
    variable: "WELLSPRING_PEER_LLAMA",
};

const AG_UI: Peer = Peer {
    name: "AG-UI's schemas and binary decoder",
    probe: &["npm", "--version"],
    install: "https://nodejs.org, version 20 or newer",
    setup: &[
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-wire/tests/peer",
    ],
    variable: "WELLSPRING_PEER_AG_UI",
};

const AG_UI_CLIENT: Peer = Peer {
    name: "AG-UI's client",
    setup: &[
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-server/tests/peer",
    ],
    ..AG_UI
};

const AG_UI_VALIDATE: Peer = Peer {
    name: "ag-ui-validate",
    probe: &["python3", "-m", "venv", "--help"],
    install: "apt install python3-venv",
    setup: &[
        "sh",
        "-c",
        "python3 -m venv target/peers/ag-ui-validate && \
         target/peers/ag-ui-validate/bin/pip install --quiet 'ag-ui-validate[transport]==0.4.0'",
    ],
    variable: "WELLSPRING_PEER_AG_UI_VALIDATE",
};

const CHROMIUM: Peer = Peer {
    name: "Chromium",
    probe: &["sh", "-c", "command -v chromium || { test $(id -u) = 0 && command -v apt-get; }"],
    install: "apt install chromium",
    setup: &[
        "sh",
        "-c",
        "command -v chromium >/dev/null || \
         { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }",
    ],
    variable: "WELLSPRING_PEER_CHROMIUM",
};

const TERMINAL: Peer = Peer {
    name: "tmux and script, which have a terminal",
    probe: &["sh", "-c", "command -v tmux script || { test $(id -u) = 0 && command -v apt-get; }"],
    install: "apt install tmux bsdutils",
    setup: &[
        "sh",
        "-c",
        "command -v tmux >/dev/null && command -v script >/dev/null || \
         { apt-get update -qq && apt-get install -y -qq --no-install-recommends tmux bsdutils; }",
    ],
    variable: "WELLSPRING_PEER_TERMINAL",
};

const SCHEMATHESIS: Peer = Peer {
    name: "schemathesis",
    probe: &["python3", "-m", "venv", "--help"],
    install: "apt install python3-venv",
    setup: &[
        "sh",
        "-c",
        "python3 -m venv target/peers/schemathesis && \
         target/peers/schemathesis/bin/pip install --quiet schemathesis==4.32.5",
    ],
    variable: "WELLSPRING_PEER_SCHEMATHESIS",
};

// With acpx comes its own Node, which is newer than many systems have.
const ACP_CLIENTS: Peer = Peer {
    name: "ACP's schema, and acpx",
    probe: &["npm", "--version"],
    install: "https://nodejs.org, version 20 or newer",
    setup: &[
        // Not `npm ci`: a package behind acpx names builds for other systems that nobody has
        // published, so that no lock file can list them.
        "npm",
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--prefix",
        "crates/wellspring-acp/tests/clients",
    ],
    variable: "WELLSPRING_PEER_ACP_CLIENTS",
};

const ACP_PYTHON: Peer = Peer {
    name: "ACP's Python SDK",
    probe: &["python3", "-m", "venv", "--help"],
    install: "apt install python3-venv",
    setup: &[
        "sh",
        "-c",
        "python3 -m venv target/peers/acp && \
         target/peers/acp/bin/pip install --quiet agent-client-protocol==0.12.1",
    ],
    variable: "WELLSPRING_PEER_ACP_PYTHON",
};

/// What is done about a peer.
#[derive(Debug, Eq, PartialEq)]
pub enum Plan {
    /// It can run: set it up, then let its tests run.
    Use {
        /// Fetches it, where there is something to fetch.
        setup: Option<Step>,
        /// The variable its tests look for.
        variable: &'static str,
    },
    /// It cannot, and that is no failure here.
    Skip(String),
    /// It cannot, and it should.
    Missing(String),
}

impl Peer {
    /// Whether it can run on this machine.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let Some((program, args)) = self.probe.split_first() else { return true };
        let mut probe = Command::new(program);
        probe.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }

    /// What to do about it.
    #[must_use]
    pub fn plan(&self, in_ci: bool) -> Plan {
        if self.is_there() {
            let setup = self.setup.split_first().map(|(program, args)| {
                Step::new(format!("peer {}", self.name), *program, args.iter().copied())
            });
            return Plan::Use { setup, variable: self.variable };
        }
        let why = format!("it is not installed; to install it: {}", self.install);
        if in_ci { Plan::Missing(why) } else { Plan::Skip(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Peer = Peer {
        name: "cargo",
        probe: &["cargo", "--version"],
        install: "rustup",
        setup: &["cargo", "fetch"],
        variable: "WELLSPRING_PEER_CARGO",
    };

    #[test]
    fn a_peer_that_is_there_is_set_up_and_used() {
        let setup = Some(Step::cargo("peer cargo", "fetch"));
        let want = Plan::Use { setup, variable: "WELLSPRING_PEER_CARGO" };
        assert_eq!(THERE.plan(true), want);
        assert_eq!(THERE.plan(false), want);
    }

    #[test]
    fn a_missing_peer_fails_in_ci_only() {
        let gone = Peer { probe: &["no-such-program-here"], install: "apt install x", ..THERE };
        let why = "it is not installed; to install it: apt install x".to_owned();
        assert_eq!(gone.plan(true), Plan::Missing(why.clone()));
        assert_eq!(gone.plan(false), Plan::Skip(why));
    }
}
