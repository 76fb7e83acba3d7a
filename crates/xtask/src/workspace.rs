//! The workspace as cargo sees it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The crates that only this repository uses.
pub const UNPUBLISHED: [&str; 3] = ["example-mounted", "wellspring-testkit", "xtask"];

/// The parts of `cargo metadata` that xtask uses.
#[derive(Clone, Debug, Deserialize)]
pub struct Workspace {
    /// The folder of the root manifest.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// The target directory.
    pub target_directory: PathBuf,
    /// The crates, by name.
    pub packages: Vec<Package>,
}

/// A crate of the workspace.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The oldest Rust that it promises to build with.
    pub rust_version: Option<String>,
    /// Its manifest.
    pub manifest_path: PathBuf,
    /// Its features, each with those that it enables.
    pub features: BTreeMap<String, Vec<String>>,
    /// Its dependencies, inside and outside the workspace.
    pub dependencies: Vec<Dependency>,
    /// Its targets.
    pub targets: Vec<Target>,
}

/// A dependency of a crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The name of the other crate.
    pub name: String,
    /// `dev` or `build`; `None` for a normal dependency.
    pub kind: Option<String>,
}

/// A target of a crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `example`, `test`, `bench`.
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: PathBuf,
}

impl Workspace {
    /// Runs `cargo metadata`.
    ///
    /// # Errors
    ///
    /// If cargo fails, or its output cannot be parsed.
    ///
    /// ```
    /// let workspace = xtask::workspace::Workspace::load()?;
    /// assert!(workspace.packages.iter().any(|package| package.name == "wellspring-core"));
    /// # anyhow::Ok(())
    /// ```
    pub fn load() -> anyhow::Result<Self> {
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--format-version", "1", "--no-deps"]);
        // Always this workspace, wherever the command is called from.
        metadata.current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = metadata.output().context("could not start cargo metadata")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {stderr}");
        let mut workspace: Self =
            serde_json::from_slice(&output.stdout).context("could not read cargo metadata")?;
        workspace.packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workspace)
    }

    /// The oldest Rust that the crates promise to build with. They inherit it, so the first one
    /// has it.
    #[must_use]
    pub fn rust_version(&self) -> String {
        self.packages.iter().find_map(|package| package.rust_version.clone()).unwrap_or_default()
    }

    /// All targets of a kind, each with its crate.
    pub fn targets<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Package, &'a Target)> {
        self.packages.iter().flat_map(move |package| {
            let of_kind = move |target: &&Target| target.kind.iter().any(|it| it == kind);
            package.targets.iter().filter(of_kind).map(move |target| (package, target))
        })
    }
}

/// The cargo that runs xtask, so that a chosen toolchain is kept.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
