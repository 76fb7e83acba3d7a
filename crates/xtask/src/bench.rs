//! `cargo xtask bench`: every bench, and one table of all [figures](crate::figures).

use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, ensure};

use crate::figures::{Figure, table};
use crate::step::Step;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask bench`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Only the benches of this crate.
    #[arg(long = "crate", value_name = "NAME")]
    pub package: Option<String>,
    /// Measure briefly: enough to see whether something broke, but too little to publish.
    #[arg(long)]
    pub quick: bool,
}

/// Runs the benches. Their output is forwarded, and the figures come last.
///
/// # Errors
///
/// If there is nothing to run, a bench fails, or it prints an invalid figure.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the product")]
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let step = step(&workspace, options)?.folder(&workspace.root);
    eprintln!("==> {step}");
    let mut child =
        step.command().stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut figures = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("could not read what a bench printed")?;
        match Figure::parse(&line)? {
            Some(figure) => figures.push(figure),
            None => println!("{line}"),
        }
    }
    let status = child.wait()?;
    if !figures.is_empty() {
        print!("\n{}", table(&figures)?);
    }
    ensure!(status.success(), "a bench failed: {status}; to repeat it: {step}");
    Ok(ExitCode::SUCCESS)
}

fn step(workspace: &Workspace, options: &Options) -> anyhow::Result<Step> {
    let wanted = |name: &str| options.package.as_deref().is_none_or(|package| package == name);
    let mut benches = workspace.targets("bench");
    ensure!(
        benches.any(|(package, _)| wanted(&package.name)),
        "there is no bench in {}",
        options.package.as_deref().unwrap_or("this workspace")
    );
    let selected = match &options.package {
        Some(package) => format!("--package {package}"),
        None => "--workspace".to_owned(),
    };
    // Only the bench targets: `--benches` would run every unit test again.
    let mut step = Step::cargo("bench", &format!("bench {selected} --all-features --bench *"));
    if options.quick {
        step = step.env("WELLSPRING_QUICK", "1");
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_benches_are_run_and_only_where_there_are_some() {
        let mut workspace = Workspace::load().unwrap();
        for package in &mut workspace.packages {
            package.targets.retain(|target| target.kind != ["bench"]);
        }
        let none = step(&workspace, &Options::default()).unwrap_err();
        assert_eq!(none.to_string(), "there is no bench in this workspace");

        let log = workspace.packages.iter_mut().find(|it| it.name == "wellspring-log").unwrap();
        let bench = crate::workspace::Target {
            name: "append".to_owned(),
            kind: vec!["bench".to_owned()],
            src_path: "benches/append.rs".into(),
        };
        log.targets.push(bench);
        for (package, quick, want) in [
            (None, false, "cargo bench --workspace --all-features --bench '*'"),
            (
                Some("wellspring-log"),
                true,
                "WELLSPRING_QUICK=1 \
                 cargo bench --package wellspring-log --all-features --bench '*'",
            ),
        ] {
            let options = Options { package: package.map(str::to_owned), quick };
            assert_eq!(step(&workspace, &options).unwrap().to_string(), want);
        }
        let options = Options { package: Some("xtask".to_owned()), quick: false };
        let none = step(&workspace, &options).unwrap_err();
        assert_eq!(none.to_string(), "there is no bench in xtask");
    }
}
