//! A run's events: as a stream, or as pages for clients that cannot stream.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use wellspring_core::Millis;
use wellspring_log::RunInfo;
use wellspring_wire::record::KINDS;
use wellspring_wire::{
    DialectChoice, DialectName, Encoding, Options, Reasoning, SubAgents, UsageReports, WirePosition,
};

use super::Whole;
use super::runs::{DIALECT_DEFAULT, wants};
use crate::app::{App, JsonBody, MayRead, Params, Prefix, RequestHead, allow, run_id};
use crate::auth::{SIGNED_FOR, SIGNED_FOR_MAX};
use crate::error::ApiError;
use crate::stream::{Begin, Readable, Until, Wanted};
use wellspring_engine::{Permission, Principal};

/// Maximum time that an empty page waits for an event: less than the time-outs of proxies.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Which events, from which position, and the caller's signature if it cannot send a header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    after: Option<String>,
    dialect: Option<String>,
    /// Restricts records to these kinds, separated by commas.
    kinds: Option<String>,
    /// Whether the model's reasoning is sent.
    reasoning: Option<ReasoningParam>,
    /// Whether spent tokens are sent.
    usage: Option<UsageParam>,
    /// What is sent of sub-agents.
    sub_agents: Option<SubAgentsParam>,
    /// Seconds that a page may wait.
    wait: Option<f64>,
    /// Of a signed URL: the principal, the expiry time and the signature.
    #[serde(rename = "as")]
    holder: Option<String>,
    expires: Option<u64>,
    signature: Option<String>,
}

/// A run's events after a place.
pub(super) async fn read(
    State(app): State<App>,
    Path(run): Path<String>,
    Params(query): Params<EventsQuery>,
    RequestHead(request): RequestHead,
) -> Result<Response, ApiError> {
    let who = reader(&app, &run, &query, &request).await?;
    let headers = request.headers;
    let info = app.control(&who).info(run_id(&run)?).await?;
    let dialect = chosen(&Chosen {
        dialect: query.dialect,
        kinds: query.kinds,
        reasoning: query.reasoning,
        usage: query.usage,
        sub_agents: query.sub_agents,
    })?;
    let after = position(&headers, query.after.as_deref(), &info)?;
    let wait = wait(query.wait)?;
    if wants(&headers, "application/json") && !wants(&headers, "text/event-stream") {
        // A page that waits is held open as a stream is.
        let _pass = wait.map(|_| app.gates.stream(&who)).transpose()?;
        return json_page(&app, &info, (&dialect, after), wait).await;
    }
    if nothing_follows(&app, &info, &dialect, after).await? {
        // This response tells an `EventSource` not to reconnect.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (start, until) = (Begin::After(after), Until::End);
    let wanted = Wanted { run: Readable::Run(info), dialect, start, until };
    Ok(app.stream(&who, wanted, None).await?.into_response())
}

/// Whether a reader has every event of a finished run. Its last event need not be the run's last
/// record: some dialects have no event for a run's end, and a run may have no records of the chosen
/// kinds.
async fn nothing_follows(
    app: &App,
    info: &RunInfo,
    dialect: &DialectChoice,
    after: WirePosition,
) -> Result<bool, ApiError> {
    let from_the_start = after == WirePosition::START && dialect.options().kinds.is_none();
    if !info.state.is_final() || from_the_start {
        return Ok(false);
    }
    let page = app.page(info, dialect, after, None).await?;
    Ok(page.done && page.events.is_empty())
}

/// The reader: the holder of a token, or of a URL that was signed with one.
async fn reader(
    app: &App,
    run: &str,
    query: &EventsQuery,
    request: &Parts,
) -> Result<Principal, ApiError> {
    let (Some(holder), Some(expires), Some(signature)) =
        (&query.holder, query.expires, &query.signature)
    else {
        let who = app.authenticate(request).await?;
        allow(&who, Permission::Read)?;
        return Ok(who);
    };
    let until = Millis(expires);
    let run = run.parse().map_err(|_| ApiError::no_run(run))?;
    if !app.signer.verify(run, holder, until, signature) {
        return Err(app.unauthorized("bad_signature", "this address was not signed here"));
    }
    if until < app.now() {
        return Err(app.unauthorized("expired", "this address has expired; have it signed again"));
    }
    let who = app.signer_of(request, holder).await?;
    allow(&who, Permission::Read)?;
    Ok(who)
}

/// The dialect of a name.
pub(super) fn dialect(name: Option<&str>) -> Result<DialectName, ApiError> {
    let Some(name) = name else { return Ok(DIALECT_DEFAULT) };
    name.parse().map_err(|error| ApiError::bad("unknown_dialect", format!("{error}")))
}

/// The options of a reader, except the position to start at.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    pub(super) dialect: Option<String>,
    /// Restricts records to these kinds, separated by commas.
    pub(super) kinds: Option<String>,
    /// Whether the model's reasoning is sent.
    pub(super) reasoning: Option<ReasoningParam>,
    /// Whether spent tokens are sent.
    pub(super) usage: Option<UsageParam>,
    /// What is sent of sub-agents.
    pub(super) sub_agents: Option<SubAgentsParam>,
}

/// The dialect and the options that a reader chose.
pub(super) fn chosen(query: &Chosen) -> Result<DialectChoice, ApiError> {
    let options = Options {
        reasoning: match query.reasoning {
            Some(ReasoningParam::Hidden) => Reasoning::Hidden,
            Some(ReasoningParam::Shown) | None => Reasoning::Shown,
        },
        reasoning_events: Default::default(),
        usage: match query.usage {
            Some(UsageParam::Omitted) => UsageReports::Omitted,
            Some(UsageParam::Included) | None => UsageReports::Included,
        },
        encoding: Encoding::Json,
        kinds: query.kinds.as_deref().map(kinds).transpose()?,
        sub_agents: match query.sub_agents {
            Some(SubAgentsParam::Thoughts) => SubAgents::Thoughts,
            Some(SubAgentsParam::Words) | None => SubAgents::Words,
        },
    };
    let dialect = dialect(query.dialect.as_deref())?;
    dialect.with(options).map_err(|error| ApiError::bad("no_option", error.to_string()))
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubAgentsParam {
    Words,
    Thoughts,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReasoningParam {
    Shown,
    Hidden,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UsageParam {
    Included,
    Omitted,
}

fn kinds(text: &str) -> Result<BTreeSet<&'static str>, ApiError> {
    let known = |name: &str| {
        let known = KINDS.into_iter().find(|known| *known == name);
        known.ok_or_else(|| {
            let message =
                format!("{name:?} is not a kind of record; the kinds are {}", KINDS.join(", "));
            ApiError::bad("unknown_kind", message)
        })
    };
    text.split(',').map(known).collect()
}

const CURSOR_REMEDY: &str = "use an id from this stream, or 0 for everything";

/// The position to resume after. A browser that reconnects repeats its original URL and sends its
/// position in the header, so the header has precedence.
pub(super) fn position(
    headers: &HeaderMap,
    after: Option<&str>,
    info: &RunInfo,
) -> Result<WirePosition, ApiError> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let parse = |text: &str| {
        text.parse::<WirePosition>().map_err(|error| {
            let status = StatusCode::BAD_REQUEST;
            ApiError::new(status, "bad_cursor", format!("{error}"), CURSOR_REMEDY)
        })
    };
    // An invalid parameter is an error even if the header takes precedence.
    let after = after.map(parse).transpose()?;
    let header = header.filter(|text| !text.is_empty()).map(parse).transpose()?;
    let position = header.or(after).unwrap_or(WirePosition::START);
    if position.seq > info.head {
        let message =
            format!("the run has no record {} yet: its head is {}", position.seq, info.head);
        return Err(ApiError::new(StatusCode::CONFLICT, "cursor_ahead", message, CURSOR_REMEDY));
    }
    Ok(position)
}

/// How long a page may wait.
fn wait(seconds: Option<f64>) -> Result<Option<Duration>, ApiError> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(wait) if wait <= WAIT_MAX => Ok(Some(wait)),
        _ => {
            let message = format!("`wait` is 0 to {} seconds", WAIT_MAX.as_secs());
            Err(ApiError::bad("bad_wait", message))
        }
    }
}

#[derive(Serialize)]
struct PageJson {
    events: Vec<EventJson>,
    next: String,
    done: bool,
}

#[derive(Serialize)]
struct EventJson {
    id: String,
    data: Box<RawValue>,
}

async fn json_page(
    app: &App,
    info: &RunInfo,
    (dialect, after): (&DialectChoice, WirePosition),
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let until = wait.map(|wait| Instant::now() + wait);
    let page = tokio::select! {
        page = app.page(info, dialect, after, until) => page?,
        () = app.closing.cancelled() => return Err(ApiError::draining()),
    };
    let events = page.events.into_iter().map(|(id, data)| EventJson { id: id.to_string(), data });
    let body = PageJson { events: events.collect(), next: page.next.to_string(), done: page.done };
    Ok(Json(body).into_response())
}

/// For how long an address is signed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sign {
    seconds: Option<Whole>,
}

/// Signs a URL that opens a run's stream without a header, for a limited time.
pub(super) async fn sign(
    State(app): State<App>,
    MayRead(who): MayRead,
    Prefix(prefix): Prefix,
    Path(run): Path<String>,
    JsonBody(sign): JsonBody<Sign>,
) -> Result<Json<Value>, ApiError> {
    let info = app.control(&who).info(run_id(&run)?).await?;
    let lasts =
        sign.seconds.map_or(SIGNED_FOR, |Whole(seconds)| Duration::from_secs(seconds.into()));
    if lasts.is_zero() || lasts > SIGNED_FOR_MAX {
        let message = format!("`seconds` is 1 to {}", SIGNED_FOR_MAX.as_secs());
        return Err(ApiError::bad("bad_seconds", message));
    }
    let until = app.now().plus(lasts);
    let signature = app.signer.sign(info.run, &who.id, until);
    let url = format!(
        "{prefix}/v1/runs/{}/events?as={}&expires={}&signature={signature}",
        info.run, who.id, until.0
    );
    Ok(Json(json!({ "url": url, "expires_at": until.0 })))
}
