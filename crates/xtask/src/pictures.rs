//! `cargo xtask pictures`: makes the pictures in `docs/pictures` from the output of the real bot.

use std::process::ExitCode;

use crate::step::{Runner, Step};
use crate::workspace::Workspace;

/// The pages: name, width and height of the screen, and scale.
const PAGES: &[(&str, u32, u32, &str)] = &[
    ("thinking", 400, 170, "1"),
    ("growing", 400, 315, "1"),
    ("finished", 400, 385, "1"),
    ("long", 680, 1345, "0.6"),
    ("split", 680, 1790, "0.6"),
    ("question", 400, 245, "1"),
];

/// The directory of the generated pages.
const FOLDER: &str = "target/pictures";

/// Arguments of `cargo xtask pictures`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {}

/// Runs the bot, and makes a picture of each phase of an answer with Chromium.
///
/// # Errors
///
/// If cargo or Chromium cannot be started.
pub fn run(_: &Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    std::fs::create_dir_all(workspace.root.join("docs/pictures"))?;
    let mut runner = Runner::default();
    let mut passed = true;
    for step in steps(&workspace.root.display().to_string()) {
        passed = passed && runner.step(&step.folder(&workspace.root))?;
    }
    Ok(runner.finish(passed))
}

fn steps(root: &str) -> Vec<Step> {
    let pages =
        format!("run --package wellspring-channels --all-features --example pictures -- {FOLDER}");
    let mut steps = vec![Step::cargo("pages", &pages)];
    steps.extend(PAGES.iter().map(|(name, width, height, scale)| {
        let words = [
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--force-device-scale-factor={scale}"),
            format!("--window-size={width},{height}"),
            format!("--screenshot={root}/docs/pictures/{name}.png"),
            format!("file://{root}/{FOLDER}/{name}.html"),
        ];
        Step::new(format!("picture {name}"), "chromium", words)
    }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bot_is_run_and_then_photographed() {
        let steps: Vec<String> = steps("/here").iter().map(ToString::to_string).collect();
        assert_eq!(
            steps[0],
            "cargo run --package wellspring-channels --all-features --example pictures -- \
             target/pictures"
        );
        assert_eq!(
            steps[1],
            "chromium --headless --no-sandbox --hide-scrollbars --force-device-scale-factor=1 \
             --window-size=400,170 --screenshot=/here/docs/pictures/thinking.png \
             file:///here/target/pictures/thinking.html"
        );
        assert_eq!(steps.len(), 1 + PAGES.len());
    }
}
