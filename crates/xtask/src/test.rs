//! `cargo xtask test`: what CI runs.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::peers::{PEERS, Plan};
use crate::readme;
use crate::release::excluded;
use crate::rust::Oldest;
use crate::step::{Runner, Step};
use crate::workspace::{Package, Workspace};

/// Time limit of an example: a hundred times what any of them needs, so that an example which
/// waits for input is detected.
pub const EXAMPLE_LIMIT: Duration = Duration::from_secs(60);

/// Time limit of a block of the README. Its first command builds everything in release mode.
pub const README_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Arguments of `cargo xtask test`.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Options {
    /// Leave out the slow steps: documentation, packages, benches, examples, the README's commands.
    #[arg(long)]
    pub quick: bool,
}

/// Runs all steps, and stops at the first failure.
///
/// # Errors
///
/// If a command cannot be started, or the README cannot be read.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut runner = Runner::default();
    let passed = all(&mut runner, &workspace, *options)?;
    Ok(runner.finish(passed))
}

fn all(runner: &mut Runner, workspace: &Workspace, options: Options) -> anyhow::Result<bool> {
    let mut variables = Vec::new();
    for peer in PEERS {
        match peer.plan(std::env::var_os("CI").is_some()) {
            Plan::Use { setup, variable } => {
                if !runner.step(&setup.folder(&workspace.root))? {
                    return Ok(false);
                }
                variables.push((variable.to_owned(), "1".to_owned()));
            }
            Plan::Skip(why) => runner.skipped(&format!("peer {}", peer.name), &why),
            Plan::Missing(why) => {
                runner.failed(&format!("peer {}", peer.name), &why);
                return Ok(false);
            }
        }
    }
    if !options.quick {
        let what = format!("rust {}", workspace.rust_version());
        match Oldest::find(workspace) {
            Oldest::Running => runner.skipped(&what, "every other step runs on it"),
            Oldest::Check(step) => {
                if !runner.step(&step.folder(&workspace.root))? {
                    return Ok(false);
                }
            }
            Oldest::Missing(how) if std::env::var_os("CI").is_some() => {
                runner.failed(&what, &how);
                return Ok(false);
            }
            Oldest::Missing(how) => runner.skipped(&what, &how),
        }
    }
    let readme = workspace.root.join("README.md");
    let readme = if readme.exists() {
        std::fs::read_to_string(&readme).context("could not read README.md")?
    } else {
        runner.skipped("README", "the file does not exist");
        String::new()
    };
    for mut step in steps(workspace, options, &readme)? {
        match &mut step {
            Planned::Step(step) => {
                step.env.extend(variables.iter().cloned());
                step.folder = Some(workspace.root.clone());
                if !runner.step(step)? {
                    return Ok(false);
                }
            }
            Planned::Skip { what, why } => runner.skipped(what, why),
        }
    }
    Ok(true)
}

#[derive(Debug)]
enum Planned {
    Step(Step),
    Skip { what: String, why: String },
}

/// All steps, in order: cheap ones and likely failures first.
fn steps(workspace: &Workspace, options: Options, readme: &str) -> anyhow::Result<Vec<Planned>> {
    let mut steps = vec![
        Step::cargo("format", "fmt --all --check"),
        Step::cargo("lint", "clippy --workspace --all-targets --all-features -- -D warnings"),
        Step::cargo("test", "test --workspace --all-features"),
    ];
    if options.quick {
        return Ok(steps.into_iter().map(Planned::Step).collect());
    }
    steps.push(
        Step::cargo("documentation", "doc --workspace --no-deps --all-features")
            .env("RUSTDOCFLAGS", "-D warnings"),
    );
    // Features one by one. All other steps enable all features.
    for Package { name: package, features, .. } in &workspace.packages {
        if features.is_empty() {
            continue;
        }
        let features = features.keys().map(String::as_str).filter(|feature| *feature != "default");
        for feature in [""].into_iter().chain(features) {
            let what = if feature.is_empty() { "none" } else { feature };
            let check = format!("check -p {package} --no-default-features --features={feature}");
            steps.push(Step::cargo(format!("features of {package}: {what}"), &check));
        }
    }
    // Packaging finds what publishing would reject; `cargo xtask release` also builds the packages.
    let package = format!("package --workspace {} --no-verify --allow-dirty --quiet", excluded());
    steps.push(Step::cargo("packages", &package));
    if workspace.targets("bench").next().is_some() {
        // Under `cargo test` a bench gets no `--bench`, and runs everything once. It also
        // shares the tests' build, whereas `cargo bench` would make an optimised one.
        steps.push(Step::cargo("benches once", "test --workspace --all-features --bench *"));
    }
    if workspace.targets("example").next().is_some() {
        let build = "build --workspace --all-features --examples";
        steps.push(Step::cargo("examples", build));
    }
    let data = workspace.target_directory.join("xtask/data");
    for (_, example) in workspace.targets("example") {
        let file = format!("{}{}", example.name, std::env::consts::EXE_SUFFIX);
        let file = workspace.target_directory.join("debug/examples").join(file);
        let name = format!("example {}", example.name);
        let run = Step::new(name, file.display().to_string(), [""; 0]).limit(EXAMPLE_LIMIT);
        steps.push(keeps_data_in(run, &data));
    }
    let mut planned: Vec<_> = steps.into_iter().map(Planned::Step).collect();
    for block in readme::blocks(readme).context("README.md")? {
        let what = format!("README line {}", block.line);
        planned.push(match block.not_run {
            Some(why) => Planned::Skip { what, why },
            None => {
                let run = Step::new(what, "bash", ["-euo", "pipefail", "-c", &block.script]);
                let run = keeps_data_in(run.limit(README_LIMIT), &data);
                // On a free port, because the usual one may be in use.
                let listen = ("WELLSPRING_LISTEN", "127.0.0.1:0");
                Planned::Step(if block.serves { run.serves().env(listen.0, listen.1) } else { run })
            }
        });
    }
    Ok(planned)
}

/// Redirects a step's data directory from the user's own to ours.
fn keeps_data_in(step: Step, data: &Path) -> Step {
    step.env("XDG_DATA_HOME", data.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::workspace::Target;

    fn workspace(kinds: &[&str]) -> Workspace {
        let target = |kind: &&str| Target {
            name: format!("some_{kind}"),
            kind: vec![(*kind).to_owned()],
            src_path: PathBuf::new(),
        };
        let package = Package {
            name: "wellspring".to_owned(),
            rust_version: None,
            manifest_path: PathBuf::new(),
            features: ["default", "acp", "tools"].map(|name| (name.to_owned(), Vec::new())).into(),
            dependencies: Vec::new(),
            targets: kinds.iter().map(target).collect(),
        };
        Workspace {
            root: "/here".into(),
            target_directory: "/here/target".into(),
            packages: vec![package],
        }
    }

    fn shown(workspace: &Workspace, options: Options, readme: &str) -> String {
        let line = |planned: &Planned| match planned {
            Planned::Step(step) => format!("{}: {step}\n", step.name),
            Planned::Skip { what, why } => format!("{what}: skipped, {why}\n"),
        };
        steps(workspace, options, readme).unwrap().iter().map(line).collect()
    }

    #[test]
    fn all_steps_in_order() {
        let readme = "```console\n$ echo hi\n```\n<!-- not run: no key -->\n```sh\nx\n```\n\
                      <!-- serves a page -->\n```sh\ny\n```\n";
        let all = shown(&workspace(&["lib", "bench", "example"]), Options::default(), readme);
        insta::assert_snapshot!(all, @"
        format: cargo fmt --all --check
        lint: cargo clippy --workspace --all-targets --all-features -- -D warnings
        test: cargo test --workspace --all-features
        documentation: RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features
        features of wellspring: none: cargo check -p wellspring --no-default-features --features=
        features of wellspring: acp: cargo check -p wellspring --no-default-features --features=acp
        features of wellspring: tools: cargo check -p wellspring --no-default-features --features=tools
        packages: cargo package --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --no-verify --allow-dirty --quiet
        benches once: cargo test --workspace --all-features --bench '*'
        examples: cargo build --workspace --all-features --examples
        example some_example: XDG_DATA_HOME=/here/target/xtask/data /here/target/debug/examples/some_example
        README line 1: XDG_DATA_HOME=/here/target/xtask/data bash -euo pipefail -c 'echo hi
        '
        README line 5: skipped, no key
        README line 9: XDG_DATA_HOME=/here/target/xtask/data WELLSPRING_LISTEN=127.0.0.1:0 bash -euo pipefail -c 'y
        '
        ");
    }

    #[test]
    fn nothing_is_built_for_what_is_not_there() {
        let lean = shown(&workspace(&["lib"]), Options::default(), "");
        insta::assert_snapshot!(lean, @"
        format: cargo fmt --all --check
        lint: cargo clippy --workspace --all-targets --all-features -- -D warnings
        test: cargo test --workspace --all-features
        documentation: RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features
        features of wellspring: none: cargo check -p wellspring --no-default-features --features=
        features of wellspring: acp: cargo check -p wellspring --no-default-features --features=acp
        features of wellspring: tools: cargo check -p wellspring --no-default-features --features=tools
        packages: cargo package --workspace --exclude example-mounted --exclude wellspring-testkit --exclude xtask --no-verify --allow-dirty --quiet
        ");
    }

    #[test]
    fn quick_is_format_lint_and_test() {
        let quick = Options { quick: true };
        let all = workspace(&["lib", "bench", "example"]);
        insta::assert_snapshot!(shown(&all, quick, "```sh\nx\n```\n"), @"
        format: cargo fmt --all --check
        lint: cargo clippy --workspace --all-targets --all-features -- -D warnings
        test: cargo test --workspace --all-features
        ");
    }
}
