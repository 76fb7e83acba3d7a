//! Checks that the crates build with the oldest supported Rust (`rust-version`).

use std::process::Command;

use crate::step::Step;
use crate::workspace::{Workspace, cargo};

/// How `rust-version` is checked.
#[derive(Debug, Eq, PartialEq)]
pub enum Oldest {
    /// It is the current toolchain, so every other step checks it.
    Running,
    /// By another installed toolchain, with this step.
    Check(Step),
    /// It is not installed, which is a failure in CI. Holds a message.
    Missing(String),
}

impl Oldest {
    /// Finds the toolchains on this machine.
    #[must_use]
    pub fn find(workspace: &Workspace) -> Self {
        let lines = |command: &mut Command| {
            let output = command.output().ok().filter(|output| output.status.success());
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let running = lines(Command::new(cargo()).arg("--version")).unwrap_or_default();
        let installed = lines(Command::new("rustup").args(["toolchain", "list"]));
        Self::of(&workspace.rust_version(), &running, &installed.unwrap_or_default())
    }

    /// `running` is the output of `cargo --version`, `installed` that of `rustup toolchain list`.
    fn of(promised: &str, running: &str, installed: &str) -> Self {
        let is_promised = |version: &str| {
            version.strip_prefix(promised).is_some_and(|rest| rest.starts_with(['.', '-']))
        };
        if running.split(' ').nth(1).is_some_and(is_promised) {
            return Self::Running;
        }
        let toolchain = installed.lines().filter_map(|line| line.split(' ').next());
        match toolchain.into_iter().find(|name| is_promised(name)) {
            Some(name) => {
                let check = ["run", name, "cargo", "check", "--workspace", "--all-features"];
                Self::Check(Step::new(format!("rust {promised}"), "rustup", check))
            }
            None => Self::Missing(format!("run `rustup toolchain install {promised}` first")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rust_is_found() {
        let of = |running, installed| Oldest::of("1.95", running, installed);
        assert_eq!(of("cargo 1.95.0 (f2d3ce0bd 2026-03-21)", ""), Oldest::Running);
        let newer = "cargo 1.96.1 (x 2026-06-01)";
        let missing = Oldest::Missing("run `rustup toolchain install 1.95` first".into());
        assert_eq!(of(newer, "stable-x86_64-unknown-linux-gnu (default)\n"), missing);
        let installed =
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.95.0-x86_64-unknown-linux-gnu\n";
        let Oldest::Check(step) = of(newer, installed) else { panic!("it is installed") };
        assert_eq!(
            step.to_string(),
            "rustup run 1.95.0-x86_64-unknown-linux-gnu cargo check --workspace --all-features"
        );
        assert!(matches!(of("cargo 1.950.0", "1.9-x\n1.950.1-x"), Oldest::Missing(_)));
    }
}
