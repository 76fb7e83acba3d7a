//! Runs and threads by the beginning or the end of their ids.

use anyhow::{Result, bail};
use uuid::Uuid;
use wellspring_core::ThreadId;
use wellspring_engine::Control;
use wellspring_log::{RunFilter, RunInfo};

use crate::screen::short_id;

/// Maximum number of candidates that the error for an ambiguous id names.
const CANDIDATES_SHOWN: usize = 5;

/// Finds a run by its id, the start or the end of its id, or `last`.
pub(crate) async fn run(control: &Control, id: &str) -> Result<RunInfo> {
    if let Ok(run) = id.parse()
        && let Ok(info) = control.info(run).await
    {
        return Ok(info);
    }
    find(control, id, "run", |info| info.run.uuid()).await
}

/// Finds a thread by its id.
pub(crate) async fn thread(control: &Control, id: &str) -> Result<ThreadId> {
    if let Ok(thread) = id.parse() {
        return Ok(thread);
    }
    Ok(find(control, id, "thread", |info| info.thread.uuid()).await?.thread)
}

async fn find(
    control: &Control,
    id: &str,
    what: &str,
    key: fn(&RunInfo) -> Uuid,
) -> Result<RunInfo> {
    let wanted = id.replace('-', "").to_lowercase();
    if wanted.is_empty() || wanted != "last" && !wanted.bytes().all(|b| b.is_ascii_hexdigit()) {
        bail!(crate::Usage(format!(
            "{id:?} is not the id of a {what}: use an id, the start or end of one, or `last`"
        )));
    }
    let mut found: Vec<RunInfo> = Vec::new();
    let mut filter = RunFilter::default();
    loop {
        let page = control.list(filter.clone()).await?;
        let Some(last) = page.last() else { break };
        filter.after_run = Some(last.run);
        for info in page {
            if wanted == "last" {
                return Ok(info);
            }
            let simple = key(&info).simple().to_string();
            let fits = simple.starts_with(&wanted) || simple.ends_with(&wanted);
            if fits && !found.iter().any(|other| key(other) == key(&info)) {
                found.push(info);
            }
        }
    }
    let Some(first) = found.first() else {
        if wanted == "last" {
            bail!(crate::Usage("there are no runs; start one with `wellspring run \"…\"`".into()));
        }
        bail!(crate::Usage(format!("there is no {what} {id}; `wellspring runs list` shows them")));
    };
    if found.len() > 1 {
        let some: Vec<_> =
            found.iter().take(CANDIDATES_SHOWN).map(|info| short_id(key(info))).collect();
        bail!(crate::Usage(format!(
            "{id} matches {} of them: {}{}; use more characters, for example from the end of the id",
            found.len(),
            some.join(", "),
            if found.len() > CANDIDATES_SHOWN { ", …" } else { "" }
        )));
    }
    Ok(first.clone())
}
