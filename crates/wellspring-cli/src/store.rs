//! `wellspring store` and `wellspring backup`: checks, repairs, copies and moves the whole store.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;
use wellspring_core::RunId;
use wellspring_log::{Finding, LEASE, Migrated};

use crate::args::{MigrateTo, SetupArgs, StoreCommand};
use crate::config::settings::StoreKind;
use crate::setup::open_store;
use crate::setup::{Missing, Setup};
use crate::{Exit, Usage};

pub(crate) async fn store(args: &SetupArgs, command: StoreCommand) -> Result<Exit> {
    let setup = Setup::open(args, Missing::Refuse).await?;
    match command {
        StoreCommand::Check { json } => check(&setup, json).await,
        StoreCommand::Migrate { to, json } => migrate(args, &setup, to, json).await,
        StoreCommand::Delete { run } => delete(&setup, RunId::new(run)).await,
    }
}

/// Copies everything to a store of another kind.
async fn migrate(args: &SetupArgs, setup: &Setup, to: MigrateTo, as_json: bool) -> Result<Exit> {
    let config = &setup.config.store;
    let kind = match to {
        MigrateTo::Sqlite => StoreKind::Sqlite,
        MigrateTo::Nats => StoreKind::Nats,
    };
    let from = open_store::kind(args, config);
    if from == kind {
        let what = "the runs are in a store of this kind already; --to names another one";
        anyhow::bail!(Usage(what.into()));
    }
    let target = open_store::open(kind, args, config, Missing::Make).await?;
    let target = target.context("there is no store to copy to")?;
    // A node that owns runs writes a heartbeat three times per lease.
    let beats = config.lease.unwrap_or(LEASE) / 2;
    let copied = wellspring_log::migrate(&**setup.log().store(), &*target.store, beats).await?;
    let shown = target.shown;
    let Migrated { runs, records, commands, names, threads, documents, audit, sum } = copied;
    let mut out = std::io::stdout().lock();
    if as_json {
        let counts = json!({
            "to": shown, "runs": runs, "records": records, "commands": commands, "names": names,
            "threads": threads, "documents": documents, "audit": audit,
            "sum": format!("{sum:08x}"),
        });
        writeln!(out, "{counts:#}")?;
    } else {
        writeln!(
            out,
            "copied to {shown}, and compared: {runs} runs with {records} records, {commands} \
             commands and {names} names; {threads} threads; {documents} documents; {audit} audit \
             entries; checksum {sum:08x}"
        )?;
        let kind = if kind == StoreKind::Nats { "nats" } else { "sqlite" };
        writeln!(out, "to use the copy, set `kind = \"{kind}\"` in [store]")?;
    }
    Ok(Exit::Completed)
}

/// Reports all damage. Exits with 1 if there is any.
async fn check(setup: &Setup, as_json: bool) -> Result<Exit> {
    let found = setup.log().store().check().await?;
    let mut out = std::io::stdout().lock();
    if as_json {
        let damage = found.iter().map(
            |finding| json!({ "run": finding.run, "what": finding.what, "remedy": finding.remedy }),
        );
        let shown = json!({ "ok": found.is_empty(), "damage": damage.collect::<Vec<_>>() });
        writeln!(out, "{shown:#}")?;
    } else if found.is_empty() {
        writeln!(out, "everything is whole")?;
    } else {
        for finding in &found {
            writeln!(out, "{}\n  → {}", line(finding), finding.remedy)?;
        }
    }
    Ok(if found.is_empty() { Exit::Completed } else { Exit::Failed })
}

/// Deletes a run of any tenant, even if no part of it can be read.
async fn delete(setup: &Setup, run: RunId) -> Result<Exit> {
    if setup.log().store().delete(run).await? {
        return Ok(Exit::Completed);
    }
    anyhow::bail!(Usage(format!(
        "there is no run {run}; `wellspring store check` lists those that are damaged"
    )))
}

/// Copies all runs to a new file.
pub(crate) async fn backup(setup: &Setup, file: PathBuf) -> Result<Exit> {
    if file.exists() {
        anyhow::bail!(Usage(format!(
            "{} exists already, and a backup overwrites nothing; name another file, or remove \
             this one first",
            file.display()
        )));
    }
    let store = setup.log().store();
    store.backup(file.clone()).await.with_context(|| {
        format!("failed to write {}; check that its directory exists and has room", file.display())
    })?;
    // Damage was copied as it is, so an older backup may be better.
    let found = store.check().await?;
    if found.is_empty() {
        return Ok(Exit::Completed);
    }
    let mut err = std::io::stderr().lock();
    writeln!(
        err,
        "wellspring: {} has all undamaged runs, but the store is damaged; keep older backups:",
        file.display()
    )?;
    for finding in &found {
        writeln!(err, "  {}", line(finding))?;
    }
    Ok(Exit::Failed)
}

/// A finding as one line.
pub(crate) fn line(finding: &Finding) -> String {
    match finding.run {
        Some(run) => format!("run {run}: {}", finding.what),
        None => finding.what.clone(),
    }
}
