//! Opens the configured store.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use wellspring_log::{
    Durability, LogOptions, MemoryStore, NATS_INDEX_BYTES_MAX, NATS_SETTLE, NatsAuth, NatsOptions,
    NatsStore, SqliteOptions, SqliteStore, Store,
};

use super::{Missing, data_dir};
use crate::args::{DurabilityArg, SetupArgs};
use crate::config::settings::{NatsLogin, StoreConfig, StoreKind};
use crate::provider::secret;

/// An open store.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    /// The options of a log over this store.
    pub(crate) options: LogOptions,
    /// Where the runs are stored, for messages.
    pub(crate) shown: String,
}

/// The kind of store that the flags and the configuration ask for.
pub(crate) fn kind(args: &SetupArgs, config: &StoreConfig) -> StoreKind {
    if args.ephemeral { StoreKind::Memory } else { config.kind }
}

/// Opens a store. `None` if it does not exist and `missing` is [`Missing::AsEmpty`].
pub(crate) async fn open(
    kind: StoreKind,
    args: &SetupArgs,
    config: &StoreConfig,
    missing: Missing,
) -> Result<Option<Backend>> {
    let opened = match kind {
        StoreKind::Memory => Some(memory()),
        StoreKind::Sqlite => sqlite(args, config, missing)?,
        StoreKind::Nats => Some(nats(args, config).await?),
    };
    Ok(opened.map(|it| {
        let lease = config.lease.unwrap_or(it.options.lease);
        Backend { options: LogOptions { lease, ..it.options }, ..it }
    }))
}

fn memory() -> Backend {
    Backend {
        store: Arc::new(MemoryStore::default()),
        options: LogOptions::default(),
        shown: "in memory: runs are lost when the process ends".to_owned(),
    }
}

fn sqlite(args: &SetupArgs, config: &StoreConfig, missing: Missing) -> Result<Option<Backend>> {
    let directory = data_dir(args, config)?;
    let shown = directory.display().to_string();
    let path = directory.join("runs.db");
    if !path.exists() {
        match missing {
            Missing::Make => {}
            Missing::Refuse => anyhow::bail!("there are no runs in {shown}: nothing is there"),
            Missing::AsEmpty => {
                writeln!(std::io::stderr(), "wellspring: there is nothing in {shown} yet")?;
                return Ok(None);
            }
        }
    }
    let durability = durability(args, config);
    let options = SqliteOptions { durability, bytes_max: config.bytes_max };
    let store = SqliteStore::open(path, options).with_context(|| {
        format!(
            "cannot use the data directory {shown}; choose another with --data-dir, or keep \
             nothing with --ephemeral"
        )
    })?;
    let options = LogOptions { node: store.node().into(), ..LogOptions::default() };
    Ok(Some(Backend { store: Arc::new(store), options, shown }))
}

async fn nats(args: &SetupArgs, config: &StoreConfig) -> Result<Backend> {
    let address = config.address.clone().context(
        "the NATS servers are not known; set `address` in [store], such as \
         \"nats://127.0.0.1:4222\"",
    )?;
    let nats = &config.nats;
    let usual = NatsOptions::at(address);
    let options = NatsOptions {
        auth: auth(&nats.login).context("cannot log in to NATS")?,
        tls: nats.tls.clone(),
        stream: nats.stream.clone().unwrap_or_else(|| usual.stream.clone()),
        replicas: nats.replicas.unwrap_or(usual.replicas),
        durability: durability(args, config),
        monitors: nats.monitors.clone(),
        bytes_max: config.bytes_max,
        index_bytes_max: nats.index_bytes_max.unwrap_or(NATS_INDEX_BYTES_MAX),
        settle: nats.settle.unwrap_or(NATS_SETTLE),
        ..usual
    };
    let shown = format!("the stream {} at {}", options.stream, options.address);
    let store = NatsStore::open(options).await.with_context(|| format!("cannot use {shown}"))?;
    let options = LogOptions { node: store.node().into(), ..LogOptions::default() };
    Ok(Backend { store: Arc::new(store), options, shown })
}

fn auth(login: &NatsLogin) -> Result<NatsAuth> {
    let read = |source| -> Result<Box<str>> {
        let secret = secret(source)?.context("there is no secret")?;
        Ok(secret.expose().into())
    };
    Ok(match login {
        NatsLogin::Anyone => NatsAuth::None,
        NatsLogin::User { name, password } => {
            NatsAuth::User { name: name.clone(), password: read(password)? }
        }
        NatsLogin::Token(token) => NatsAuth::Token(read(token)?),
        NatsLogin::Credentials(file) => NatsAuth::Credentials(file.clone()),
    })
}

/// The durability: the flag, or else the configuration.
fn durability(args: &SetupArgs, config: &StoreConfig) -> Durability {
    match args.durability {
        Some(DurabilityArg::ProcessCrash) => Durability::ProcessCrash,
        Some(DurabilityArg::PowerLoss) => Durability::PowerLoss,
        None => config.durability.unwrap_or_default(),
    }
}
