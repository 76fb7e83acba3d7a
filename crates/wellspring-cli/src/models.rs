//! `wellspring models`: which models there are, by provider.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::join_all;
use serde_json::{Value, json};
use wellspring_core::FailureKind;
use wellspring_models::{ListedModel, SetupError};

use crate::agents::told;
use crate::args::SetupArgs;
use crate::config::Config;
use crate::config::did_you_mean::nearest;
use crate::config::provider::ProviderConfig;
use crate::provider::Client;
use crate::text::clean_line;
use crate::{Exit, Usage};

/// How long a provider may take to list its models.
pub(crate) const LIST_TIME: Duration = Duration::from_secs(15);

/// The result of asking a provider for its models.
pub(crate) enum Listed {
    /// The provider is not configured.
    NotSetUp(SetupError),
    Failed(String, Option<FailureKind>),
    Models(Vec<ListedModel>),
}

/// Lists the models of every provider that is set up, or of one.
pub(crate) async fn models(args: &SetupArgs, only: Option<&str>, json: bool) -> Result<Exit> {
    let config = Config::load(args.config.as_deref())?;
    if let Some(name) = only
        && !config.providers.contains_key(name)
    {
        let names: Vec<&str> = config.providers.keys().map(|name| &**name).collect();
        let meant = nearest(name, names.iter().copied());
        let meant = meant.map_or(String::new(), |it| format!("; did you mean {it}?"));
        let known = names.join(", ");
        bail!(Usage(format!("there is no provider {name:?}; there are: {known}{meant}")));
    }
    let providers = config.providers.values();
    let providers: Vec<_> =
        providers.filter(|it| only.is_none_or(|name| *it.name == *name)).collect();
    let listed = join_all(providers.iter().map(|provider| list(provider))).await;
    let mut failed = false;
    let mut shown = serde_json::Map::new();
    let mut out = std::io::stdout();
    for (provider, listed) in providers.iter().zip(&listed) {
        let named = only.is_some() || provider.configured;
        let error = match listed {
            Listed::Models(models) => {
                if json {
                    shown.insert(provider.name.to_string(), models.iter().map(as_json).collect());
                } else {
                    print(&mut out, provider, models)?;
                }
                continue;
            }
            Listed::NotSetUp(_) if !named => continue,
            Listed::NotSetUp(error) => told(error),
            // An Ollama that is not configured may be absent.
            Listed::Failed(..) if !named && is_a_guess(provider) => continue,
            Listed::Failed(error, _) => error.clone(),
        };
        failed = true;
        if json {
            shown.insert(provider.name.to_string(), json!({"error": error}));
        } else {
            writeln!(std::io::stderr(), "wellspring: {}: {error}", provider.name)?;
        }
    }
    if json {
        writeln!(out, "{:#}", Value::Object(shown))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Completed })
}

/// Asks a provider for its models.
pub(crate) async fn list(provider: &ProviderConfig) -> Listed {
    let client = match Client::of(provider) {
        Ok(client) => client,
        Err(error @ SetupError::NoKey { .. }) => return Listed::NotSetUp(error),
        Err(error) => return Listed::Failed(told(&error), None),
    };
    match tokio::time::timeout(LIST_TIME, client.models()).await {
        Ok(Ok(models)) => Listed::Models(models),
        Ok(Err(error)) => Listed::Failed(told(&error), Some(error.kind())),
        Err(_) => {
            let what = format!("no answer within {} s", LIST_TIME.as_secs());
            Listed::Failed(what, Some(FailureKind::TimedOut))
        }
    }
}

/// Whether a provider is only asked because it may exist.
pub(crate) fn is_a_guess(provider: &ProviderConfig) -> bool {
    use crate::config::provider::ProviderKind;
    !provider.configured
        && provider.kind == ProviderKind::Ollama
        && std::env::var_os("OLLAMA_HOST").is_none()
}

fn as_json(model: &ListedModel) -> Value {
    json!({
        "id": model.id,
        "title": model.title,
        "context_tokens": model.context_tokens,
        "output_tokens": model.output_tokens,
    })
}

fn print(
    out: &mut impl std::io::Write,
    provider: &ProviderConfig,
    models: &[ListedModel],
) -> std::io::Result<()> {
    for model in models {
        let mut line = format!("{}/{}", provider.name, clean_line(&model.id));
        if let Some(title) = &model.title {
            line.push_str(&format!("\t{}", clean_line(title)));
        }
        if let Some(tokens) = model.context_tokens {
            line.push_str(&format!("\t{tokens} tokens"));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}
