//! Checks the workspace's dependencies against `deny.toml`: licences, duplicates and sources.
//!
//! `cargo deny` reads the same file, makes the same checks, and also checks advisories. It takes
//! minutes to compile and fetches advisories over the network, so CI runs this instead: see
//! `docs/decisions/why-features-one-by-one.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::workspace::cargo;

/// The only allowed source of packages, as `cargo metadata` names it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The parts of `deny.toml` that this check uses.
#[derive(Debug, Deserialize)]
pub struct Deny {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Debug, Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    spec: String,
}

/// A package of the dependency tree.
#[derive(Clone, Debug, Deserialize)]
pub struct Locked {
    /// The package's name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The licence as an SPDX expression; `None` if the package declares none.
    pub license: Option<String>,
    /// The registry or repository; `None` for the crates of this workspace.
    pub source: Option<String>,
}

impl Deny {
    /// Reads `deny.toml` of a workspace.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn load(root: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
        toml::from_str(&text).context("deny.toml")
    }

    /// The packages that the workspace is built with, on the targets that `deny.toml` lists.
    ///
    /// # Errors
    ///
    /// If cargo fails.
    pub fn packages(&self, root: &Path) -> anyhow::Result<Vec<Locked>> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Locked>,
        }
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
        for target in &self.graph.targets {
            metadata.args(["--filter-platform", target]);
        }
        let output = metadata.current_dir(root).output().context("could not start cargo")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {stderr}");
        let read: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        Ok(read.packages)
    }

    /// The violations of `deny.toml` among these packages.
    #[must_use]
    pub fn check(&self, packages: &[Locked]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut versions = BTreeMap::<&str, Vec<&str>>::new();
        for Locked { name, version, license, source } in packages {
            versions.entry(name).or_default().push(version);
            if source.as_deref().is_some_and(|source| source != CRATES_IO) {
                wrong.push(format!("{name} {version} does not come from crates.io"));
            }
            let own = self.licenses.exceptions.iter().filter(|it| it.name == *name);
            let own: Vec<_> = own.flat_map(|it| &it.allow).collect();
            let allowed = |it: &str| {
                own.iter().any(|own| *own == it) || self.licenses.allow.iter().any(|own| own == it)
            };
            let expression = license.as_deref().unwrap_or("no licence");
            if !is_allowed(expression, &allowed) {
                wrong.push(format!("{name} {version} is licensed under {expression:?}"));
            }
        }
        for (name, all) in &versions {
            let left: Vec<_> = all.iter().filter(|it| !self.skips(name, it)).copied().collect();
            if left.len() > 1 {
                wrong.push(format!("{name} is there more than once: {}", left.join(", ")));
            }
        }
        for Skip { spec } in &self.bans.skip {
            let (name, wanted) = spec.split_once('@').unwrap_or((spec, ""));
            let all = versions.get(name).map_or(&[][..], Vec::as_slice);
            if all.len() < 2 || !all.iter().any(|version| is_of(version, wanted)) {
                wrong.push(format!("deny.toml skips {spec}, which is no duplicate"));
            }
        }
        for Exception { name, .. } in &self.licenses.exceptions {
            if !versions.contains_key(&**name) {
                wrong.push(format!("deny.toml makes an exception for {name}, which is not used"));
            }
        }
        wrong
    }

    fn skips(&self, name: &str, version: &str) -> bool {
        let of_name = |skip: &Skip| {
            skip.spec
                .split_once('@')
                .is_some_and(|(it, wanted)| it == name && is_of(version, wanted))
        };
        self.bans.skip.iter().any(of_name)
    }
}

/// Whether a version matches a shorter one: `0.8.5` matches `0.8`.
fn is_of(version: &str, wanted: &str) -> bool {
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether the allowed licences satisfy an SPDX expression. `/` is the older form of `OR`.
fn is_allowed(expression: &str, allowed: &impl Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let is_met = any_of(&mut rest, allowed);
    is_met && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> bool {
    let mut is_met = all_of(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_met |= all_of(words, allowed);
    }
    is_met
}

fn all_of(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> bool {
    let mut is_met = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let is_met = any_of(words, allowed);
            // A parenthesis that is not closed leaves words over, so the expression is refused.
            if let [")", rest @ ..] = *words {
                *words = rest;
            }
            is_met
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed(&format!("{name} WITH {exception}"))
        }
        [name, rest @ ..] => {
            *words = rest;
            allowed(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_licences() {
        let allowed = |name: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&name);
        for (expression, want) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT OR GPL-3.0 AND BSD-2-Clause", true),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(MIT OR GPL-3.0) AND Zlib", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("MIT ISC", false),
            ("(MIT OR ISC", true),
            ("no licence", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), want, "{expression}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let deny: Deny = toml::from_str(
            r#"
            graph.targets = []
            licenses.allow = ["MIT"]
            licenses.exceptions = [{ crate = "b", allow = ["ISC"] }, { crate = "gone", allow = [] }]
            bans.skip = [{ crate = "a@1" }, { crate = "b@9" }]
            "#,
        )
        .unwrap();
        let package = |name: &str, version: &str, license: Option<&str>| Locked {
            name: name.into(),
            version: version.into(),
            license: license.map(Into::into),
            source: Some(CRATES_IO.into()),
        };
        let mut fork = package("fork", "1.0.0", Some("MIT"));
        fork.source = Some("git+https://example.com/fork".into());
        let packages = [
            package("a", "1.2.0", Some("MIT")),
            package("a", "2.0.0", Some("MIT")),
            package("b", "1.0.0", Some("ISC")),
            package("c", "0.1.0", Some("ISC")),
            package("c", "0.2.0", None),
            fork,
        ];
        let want = [
            r#"c 0.1.0 is licensed under "ISC""#,
            r#"c 0.2.0 is licensed under "no licence""#,
            "fork 1.0.0 does not come from crates.io",
            "c is there more than once: 0.1.0, 0.2.0",
            "deny.toml skips b@9, which is no duplicate",
            "deny.toml makes an exception for gone, which is not used",
        ];
        assert_eq!(deny.check(&packages), want);
    }
}
