//! The workspace as cargo sees it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The crates that only this repository uses.
pub const UNPUBLISHED: [&str; 3] = ["example-mounted", "wellspring-testkit", "xtask"];

/// The parts of `cargo metadata` that are used here.
#[derive(Clone, Debug, Deserialize)]
pub struct Workspace {
    /// The folder of the root manifest.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo builds.
    pub target_directory: PathBuf,
    /// The crates, by name.
    pub packages: Vec<Package>,
}

/// A crate of this workspace.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The oldest Rust that it promises to build with.
    pub rust_version: Option<String>,
    /// Its manifest.
    pub manifest_path: PathBuf,
    /// What it depends on, of this workspace or not.
    pub dependencies: Vec<Dependency>,
    /// What it builds.
    pub targets: Vec<Target>,
}

/// A line of a crate's dependencies.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The crate it names.
    pub name: String,
    /// `dev` or `build`; absent for what the crate itself uses.
    pub kind: Option<String>,
}

/// Something that a crate builds.
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
    /// Asks cargo.
    ///
    /// # Errors
    ///
    /// When cargo fails, or says something that is not metadata.
    ///
    /// ```
    /// let workspace = xtask::workspace::Workspace::load()?;
    /// assert!(workspace.packages.iter().any(|package| package.name == "wellspring-core"));
    /// # anyhow::Ok(())
    /// ```
    pub fn load() -> anyhow::Result<Self> {
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--format-version", "1", "--no-deps"]);
        // Wherever it is called from, it is this workspace that is meant.
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

    /// The targets of a kind, each with its crate.
    pub fn targets<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Package, &'a Target)> {
        self.packages.iter().flat_map(move |package| {
            let of_kind = move |target: &&Target| target.kind.iter().any(|it| it == kind);
            package.targets.iter().filter(of_kind).map(move |target| (package, target))
        })
    }
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
