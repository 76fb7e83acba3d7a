//! `wellspring init`: a configuration to begin with.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::args::InitArgs;
use crate::config::FILE;
use crate::config::provider::{BUILT_IN, ProviderConfig};
use crate::provider::Client;
use crate::{Exit, Usage};

/// The file, with every section that one may want, commented out. `#key` is a setting, `# …`
/// is prose.
const TEMPLATE: &str = include_str!("init/wellspring.toml");

/// An agent; the model's provider goes where the mark is.
const AGENT: &str = include_str!("init/assistant.md");

/// Where the template names the provider.
const MARK: &str = "@provider@";

/// Writes the files, all or none.
pub(crate) fn init(args: &InitArgs) -> Result<Exit> {
    let provider = provider();
    let files = [
        (args.directory.join(FILE), TEMPLATE.to_owned()),
        (args.directory.join("agents").join("assistant.md"), AGENT.replace(MARK, provider)),
    ];
    if let Some((file, _)) = files.iter().find(|(file, _)| !args.force && file.exists()) {
        bail!(Usage(format!(
            "{} is there already; `wellspring init --force` overwrites it",
            file.display()
        )));
    }
    let mut out = std::io::stdout();
    for (file, text) in &files {
        write(file, text)?;
        writeln!(out, "wrote {}", file.display())?;
    }
    writeln!(out, "next: `wellspring doctor` looks whether it works, `wellspring` serves it")?;
    Ok(Exit::Completed)
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(file, text)).with_context(|| {
        format!("could not write {}; write elsewhere with `wellspring init DIR`", file.display())
    })
}

/// The first provider that the environment has a key for; otherwise the first of all.
fn provider() -> &'static str {
    let keyed = BUILT_IN.iter().filter(|(name, _)| *name != "ollama");
    let found =
        keyed.clone().find(|(name, kind)| Client::of(&ProviderConfig::usual(name, *kind)).is_ok());
    let ollama = std::env::var_os("OLLAMA_HOST").map(|_| "ollama");
    found.map(|(name, _)| *name).or(ollama).unwrap_or(BUILT_IN[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The template is right as it is, and with everything in it switched on.
    #[test]
    fn the_template_can_be_used() {
        let switched_on: String = TEMPLATE
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        for text in [TEMPLATE.to_owned(), switched_on] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(FILE);
            std::fs::create_dir(folder.path().join("agents")).unwrap();
            std::fs::write(&file, &text).unwrap();
            std::fs::write(
                folder.path().join("agents/assistant.md"),
                AGENT.replace(MARK, "anthropic"),
            )
            .unwrap();
            let config = Config::read(&file, &|_| Some("value".into()));
            let config = config.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            assert!(config.agents.contains_key("assistant"), "{text}");
        }
    }
}
