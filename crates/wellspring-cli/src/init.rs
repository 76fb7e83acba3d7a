//! `wellspring init`: writes a first configuration.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::args::InitArgs;
use crate::config::FILE;
use crate::config::provider::{BUILT_IN, ProviderConfig};
use crate::provider::Client;
use crate::{Exit, Usage};

/// The file, with every section commented out. `#key` is a setting, `# …` is a comment.
const TEMPLATE: &str = include_str!("init/wellspring.toml");

/// An agent.
const AGENT: &str = include_str!("init/assistant.md");

/// The placeholder for the provider in the agent's template.
const PROVIDER: &str = "@provider@";

/// The placeholder for the default agent in the template.
const DEFAULT: &str = "@default@";

/// Writes the files, or none if one exists. Without a provider key the built-in demo is the default
/// agent, because an agent without a key could not run.
pub(crate) fn init(args: &InitArgs) -> Result<Exit> {
    let provider = provider();
    let default = if provider.is_some() { "assistant" } else { wellspring::demo::NAME };
    let mut config = TEMPLATE.replace(DEFAULT, default);
    if provider.is_none() {
        // By default the demo no longer exists once there is a token.
        config = config.replace("#demo = true", "demo = true");
    }
    let mut files = vec![(args.directory.join(FILE), config)];
    if let Some(provider) = provider {
        let agent = args.directory.join("agents").join("assistant.md");
        files.push((agent, AGENT.replace(PROVIDER, provider)));
    }
    if let Some((file, _)) = files.iter().find(|(file, _)| !args.force && file.exists()) {
        bail!(Usage(format!(
            "{} exists already; `wellspring init --force` overwrites it",
            file.display()
        )));
    }
    let mut out = std::io::stdout();
    for (file, text) in &files {
        write(file, text)?;
        writeln!(out, "wrote {}", file.display())?;
    }
    if provider.is_none() {
        writeln!(
            out,
            "no provider key is set, so the built-in demo answers; for a real model set a key, such \
             as ANTHROPIC_API_KEY, and run `wellspring init --force`"
        )?;
    }
    writeln!(out, "next: `wellspring doctor` checks the configuration, `wellspring` serves it")?;
    Ok(Exit::Completed)
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(file, text)).with_context(|| {
        format!(
            "failed to write {}; choose another directory: `wellspring init DIR`",
            file.display()
        )
    })
}

/// The first provider with a key in the environment.
fn provider() -> Option<&'static str> {
    let keyed = BUILT_IN.iter().filter(|(name, _)| *name != "ollama");
    let found =
        keyed.clone().find(|(name, kind)| Client::of(&ProviderConfig::usual(name, *kind)).is_ok());
    let ollama = std::env::var_os("OLLAMA_HOST").map(|_| "ollama");
    found.map(|(name, _)| *name).or(ollama)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The template is valid, both unchanged and with every setting uncommented.
    #[test]
    fn the_template_can_be_used() {
        let template = TEMPLATE.replace(DEFAULT, "assistant");
        let switched_on: String = template
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        for text in [template, switched_on] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(FILE);
            std::fs::create_dir(folder.path().join("agents")).unwrap();
            std::fs::write(&file, &text).unwrap();
            std::fs::write(
                folder.path().join("agents/assistant.md"),
                AGENT.replace(PROVIDER, "anthropic"),
            )
            .unwrap();
            let config = Config::read(&file, &|_| Some("value".into()));
            let config = config.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            assert!(config.agents.contains_key("assistant"), "{text}");
        }
    }
}
