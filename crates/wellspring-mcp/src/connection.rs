//! One connection to a server, and the requests over it.
#![expect(deprecated, reason = "servers in use ask for roots, whatever the newest draft says")]

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorData, InputRequest,
    InputRequiredResult, InputResponses, JsonObject, ListResourcesRequest, ListRootsResult,
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ReadResourceRequest,
    ReadResourceRequestParams, Root, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RequestHandle,
    RunningService, ServiceError, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::{DynamicTransportError, Transport};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use wellspring_core::{CancellationToken, Context, ToolError, ToolUpdate};

use crate::calls::{Call, Calls, cut};
use crate::config::{McpConfig, McpTransport, without_queries};
use crate::elicit;
use crate::error::{McpError, McpErrorKind};
use crate::http;
use crate::process::{LastWords, Process};
use crate::server_requests::{Handler, elicit_result};
use crate::transport::{Caller, Fate, MESSAGE_BYTES_MAX, Stdio, Tap};

/// Maximum number of tools per server; further ones are ignored. Models do not choose well
/// among more.
pub const TOOLS_MAX: usize = 512;

/// Maximum number of pages per list, against servers that page forever.
pub const PAGES_MAX: usize = 64;

/// How often one call may ask for more input.
pub const INPUT_ROUNDS_MAX: usize = 8;

/// How long a failed call waits for the exit status of the server.
const REAPED_TIME: Duration = Duration::from_secs(2);

/// Bytes of a peer's error message that are kept.
const REASON_BYTES_MAX: usize = 1024;

/// A connection, as held by its owner.
pub(crate) struct Connection {
    pub(crate) line: Arc<Line>,
    service: RunningService<RoleClient, Handler>,
    process: Option<Process>,
    fate: Fate,
}

/// A connection, as held by its users.
pub(crate) struct Line {
    server: Box<str>,
    peer: Peer<RoleClient>,
    pub(crate) calls: Arc<Calls>,
    /// Cancelled when the server has gone.
    pub(crate) gone: CancellationToken,
    /// How the server ended; `None` while unknown.
    ended: watch::Sender<Option<Ended>>,
    words: LastWords,
    roots: Option<ListRootsResult>,
    request_time: Duration,
}

/// How a connection ended.
#[derive(Clone, Debug)]
struct Ended {
    exit: Option<Box<str>>,
    fate: Option<McpErrorKind>,
}

impl Connection {
    /// Starts or connects to a server, and does the handshake.
    pub(crate) async fn open(
        config: &McpConfig,
        tools_changed: &Arc<Notify>,
    ) -> Result<Self, McpError> {
        let introduced = Self::introduce(config, tools_changed, initialize()).await;
        match introduced {
            // A server that no longer supports `initialize` returns an error here.
            Err(error) if matches!(error.kind(), McpErrorKind::Refused { .. }) => {
                let newer = Self::introduce(config, tools_changed, discover()).await;
                newer.map_err(|_| error)
            }
            other => other,
        }
    }

    async fn introduce(
        config: &McpConfig,
        tools_changed: &Arc<Notify>,
        lifecycle: ClientLifecycleMode,
    ) -> Result<Self, McpError> {
        let calls = Arc::new(Calls::default());
        let gone = CancellationToken::new();
        let fate = Fate::default();
        let handler = Handler {
            server: config.name.clone(),
            calls: calls.clone(),
            roots: roots(config),
            tools_changed: tools_changed.clone(),
        };
        let line = |peer: Peer<RoleClient>, words: LastWords, roots| {
            let server = config.name.clone();
            let request_time = config.timeouts.request;
            let (calls, gone) = (calls.clone(), gone.clone());
            let ended = watch::Sender::new(None);
            Arc::new(Line { server, peer, calls, gone, ended, words, roots, request_time })
        };
        let roots = handler.roots.clone();
        let startup = config.timeouts.startup;
        if let Some(started) = Process::start(&config.transport) {
            let (mut process, pipes) = started.map_err(|error| not_started(config, &error))?;
            let words = process.last_words();
            let stdio = Stdio::new(pipes, words.clone(), fate.clone());
            let tap = Tap::new(stdio, calls.clone(), gone.clone());
            match serve(handler, tap, lifecycle, startup).await {
                Ok(service) => {
                    let line = line(service.peer().clone(), words, roots);
                    Ok(Self { line, service, process: Some(process), fate })
                }
                Err(kind) => {
                    let exit = process.end().await.map(|status| status.to_string().into());
                    let kind = match (fate.known(), kind) {
                        (Some(known), _) => known,
                        (None, McpErrorKind::EndedEarly { .. }) => {
                            McpErrorKind::EndedEarly { exit }
                        }
                        (None, kind) => kind,
                    };
                    Err(McpError::new(&config.name, kind).last_words(words.text()))
                }
            }
        } else {
            let http = http::transport(config)?;
            let tap = Tap::new(http, calls.clone(), gone.clone());
            let service = serve(handler, tap, lifecycle, startup)
                .await
                .map_err(|kind| McpError::new(&config.name, kind))?;
            let line = line(service.peer().clone(), LastWords::default(), roots);
            Ok(Self { line, service, process: None, fate })
        }
    }

    /// Ends a connection that was lost, and returns the reason.
    pub(crate) async fn end(mut self) -> McpError {
        let exit: Option<Box<str>> = match &mut self.process {
            Some(process) => process.end().await.map(|status| status.to_string().into()),
            None => None,
        };
        let fate = self.fate.known();
        self.line.ended.send_replace(Some(Ended { exit: exit.clone(), fate: fate.clone() }));
        let kind = fate.unwrap_or(McpErrorKind::Ended { exit });
        McpError::new(&self.line.server, kind).last_words(self.line.words.text())
    }

    /// Closes the connection in an orderly way: ends the session, waits a moment, then kills
    /// the rest.
    pub(crate) async fn close(mut self) {
        // On closing, the SDK ends an HTTP session, or closes the server's input.
        let _ = self.service.close_with_timeout(crate::process::STOP_GRACE).await;
        if let Some(process) = &mut self.process {
            process.stop().await;
        }
    }

    /// Whether the server has resources.
    pub(crate) fn has_resources(&self) -> bool {
        let info = self.service.peer().peer_info();
        info.is_some_and(|info| info.capabilities.resources.is_some())
    }

    /// The server's instructions for the model.
    pub(crate) fn instructions(&self) -> Option<Box<str>> {
        let info = self.service.peer().peer_info()?;
        Some(info.instructions.as_deref()?.into())
    }
}

impl Line {
    /// All tools, as JSON of the protocol.
    pub(crate) async fn tools(&self) -> Result<Vec<Value>, McpError> {
        let request = |cursor: Option<String>| {
            let params =
                cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            ClientRequest::ListToolsRequest(ListToolsRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            })
        };
        self.pages("tools/list", "tools", TOOLS_MAX, request).await
    }

    /// All resources, as JSON of the protocol.
    pub(crate) async fn resources(&self, max: usize) -> Result<Vec<Value>, McpError> {
        let request = |cursor: Option<String>| {
            let params =
                cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            ClientRequest::ListResourcesRequest(ListResourcesRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            })
        };
        self.pages("resources/list", "resources", max, request).await
    }

    /// The contents of a resource, as JSON of the protocol.
    pub(crate) async fn read_resource(&self, uri: &str) -> Result<Value, McpError> {
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(
            ReadResourceRequestParams::new(uri),
        ));
        self.request("resources/read", request).await
    }

    /// Runs one call to its end; forwards its progress and its questions.
    pub(crate) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: JsonObject,
        context: Context,
    ) -> Result<Value, ToolError> {
        let ticket = self.calls.begin(context);
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        for _ in 0..INPUT_ROUNDS_MAX {
            let result = self.call_once(&ticket.call, params.clone()).await?;
            if let ServerResult::InputRequiredResult(wanted) = result {
                params.request_state.clone_from(&wanted.request_state);
                params.input_responses = self.inputs(wanted, ticket.call.context()).await?;
                continue;
            }
            if let ServerResult::CreateTaskResult(_) = result {
                let what = "it turned the call into a task, which is not supported";
                return Err(self.failed(McpErrorKind::Protocol(what.into())));
            }
            return serde_json::to_value(result).map_err(|error| self.unreadable(&error));
        }
        let what = format!("it asked for more input {INPUT_ROUNDS_MAX} times");
        Err(self.failed(McpErrorKind::Protocol(what.into())))
    }

    async fn call_once(
        &self,
        call: &Arc<Call>,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, ToolError> {
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(Caller(call.clone()));
        let sent = self
            .peer
            .send_request_with_option(request.into(), PeerRequestOptions::no_options())
            .await
            .map_err(|error| self.failed(self.kind(error)))?;
        let mut sent = Sent(Some(sent));
        let context = call.context();
        loop {
            tokio::select! {
                // The response first: if it arrived before the server's end, it is used.
                biased;
                answer = sent.answer() => {
                    while let Some(progress) = call.waiting() {
                        context.update(progress_update(progress)).await;
                    }
                    return match answer.map_err(|error| self.kind(error)) {
                        Ok(result) => Ok(result),
                        Err(McpErrorKind::DiedMidCall { .. }) => {
                            Err(self.failed(self.died().await))
                        }
                        Err(kind) => Err(self.failed(kind)),
                    };
                }
                () = context.signal().cancelled() => {
                    // Dropping the request notifies the server.
                    return Err(ToolError::new("cancelled; the server was notified"));
                }
                () = self.gone.cancelled() => {
                    sent.forget();
                    return Err(self.failed(self.died().await));
                }
                progress = call.next_progress() => {
                    tokio::select! {
                        () = context.update(progress_update(progress)) => {}
                        () = context.signal().cancelled() => {}
                    }
                }
            }
        }
    }

    /// The error of a call that was running when the server ended. The server is being reaped
    /// at this time, so its exit status is soon known.
    async fn died(&self) -> McpErrorKind {
        let mut ended = self.ended.subscribe();
        let known = tokio::time::timeout(REAPED_TIME, ended.wait_for(Option::is_some)).await;
        match known.ok().and_then(Result::ok).and_then(|ended| ended.clone()) {
            Some(Ended { fate: Some(fate), .. }) => fate,
            Some(Ended { exit, fate: None }) => McpErrorKind::DiedMidCall { exit },
            None => McpErrorKind::DiedMidCall { exit: None },
        }
    }

    /// Answers the requests for input of an unfinished call.
    async fn inputs(
        &self,
        wanted: InputRequiredResult,
        context: &Context,
    ) -> Result<Option<InputResponses>, ToolError> {
        let mut responses = InputResponses::new();
        for (key, request) in wanted.input_requests.unwrap_or_default() {
            let response = match request {
                InputRequest::Elicitation(request) => {
                    let params = serde_json::to_value(request.params);
                    let params = params.map_err(|error| self.unreadable(&error))?;
                    let reply = elicit::put(&self.server, &params, context).await;
                    serde_json::to_value(elicit_result(reply))
                }
                InputRequest::ListRoots(_) => {
                    let Some(roots) = &self.roots else {
                        let what = "it requested roots, which were not offered";
                        return Err(self.failed(McpErrorKind::Protocol(what.into())));
                    };
                    serde_json::to_value(roots)
                }
                InputRequest::CreateMessage(_) => {
                    let what = "it requested sampling, which was not offered";
                    return Err(self.failed(McpErrorKind::Protocol(what.into())));
                }
                _ => {
                    let what = "it made a request that was not offered";
                    return Err(self.failed(McpErrorKind::Protocol(what.into())));
                }
            };
            responses.insert(key, response.map_err(|error| self.unreadable(&error))?);
        }
        Ok((!responses.is_empty()).then_some(responses))
    }

    /// Reads a list in pages; entries beyond the maximum are ignored.
    async fn pages(
        &self,
        method: &str,
        field: &str,
        items_max: usize,
        request: impl Fn(Option<String>) -> ClientRequest,
    ) -> Result<Vec<Value>, McpError> {
        let mut items = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let mut page = self.request(method, request(cursor)).await?;
            if let Value::Array(more) = page[field].take() {
                items.extend(more);
            }
            if items.len() > items_max {
                tracing::warn!(
                    server = &*self.server,
                    method,
                    "left out the items beyond {items_max}"
                );
                items.truncate(items_max);
                return Ok(items);
            }
            let Value::String(next) = page["nextCursor"].take() else { return Ok(items) };
            cursor = Some(next);
        }
        tracing::warn!(server = &*self.server, method, "left out the pages beyond {PAGES_MAX}");
        Ok(items)
    }

    /// Sends a request other than a tool call.
    async fn request(&self, method: &str, request: ClientRequest) -> Result<Value, McpError> {
        let answer = async {
            let options = PeerRequestOptions::no_options();
            Sent(Some(self.peer.send_request_with_option(request, options).await?)).answer().await
        };
        let answer = tokio::select! {
            biased;
            answer = tokio::time::timeout(self.request_time, answer) => answer,
            () = self.gone.cancelled() => Ok(Err(ServiceError::TransportClosed)),
        };
        let kind = match answer {
            Ok(Ok(result)) => match serde_json::to_value(result) {
                Ok(value) => return Ok(value),
                Err(error) => McpErrorKind::Protocol(error.to_string().into()),
            },
            Ok(Err(error)) => self.kind(error),
            Err(_) => {
                McpErrorKind::RequestTimeout { what: method.into(), after: self.request_time }
            }
        };
        Err(self.error(kind))
    }

    fn kind(&self, error: ServiceError) -> McpErrorKind {
        let died = McpErrorKind::DiedMidCall { exit: None };
        match error {
            ServiceError::McpError(error) => said(&error),
            ServiceError::TransportClosed => died,
            ServiceError::TransportSend(_) if self.gone.is_cancelled() => died,
            ServiceError::TransportSend(error) => not_reached(&error),
            ServiceError::UnexpectedResponse
            | ServiceError::SubscriptionLagged { .. }
            | ServiceError::Cancelled { .. }
            | ServiceError::Timeout { .. }
            | ServiceError::InputRequiredRoundsExceeded { .. }
            | _ => McpErrorKind::Protocol(reason(&error)),
        }
    }

    fn error(&self, kind: McpErrorKind) -> McpError {
        let error = McpError::new(&self.server, kind);
        // The server's output explains a failure, but not a refusal.
        if matches!(error.kind(), McpErrorKind::Refused { .. }) {
            return error;
        }
        error.last_words(self.words.text())
    }

    fn failed(&self, kind: McpErrorKind) -> ToolError {
        tool_error(self.error(kind))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ToolError {
        self.failed(McpErrorKind::Protocol(error.to_string().into()))
    }
}

/// Converts a server's error to a call's error; its cause is the [`McpError`].
pub(crate) fn tool_error(error: McpError) -> ToolError {
    ToolError::because("the tool could not be used", error)
}

/// A pending request. If it is dropped before the response, the server is told to cancel.
struct Sent(Option<RequestHandle<RoleClient>>);

impl Sent {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.0 else { return Err(ServiceError::TransportClosed) };
        let answer = (&mut handle.rx).await;
        self.0 = None;
        answer.map_err(|_| ServiceError::TransportClosed)?
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            // The first poll puts the notification into the SDK's queue, which is enough. Only
            // a full queue would block, and then the server is not reading anyway.
            let _ = handle.cancel(Some("the caller no longer waits".to_owned())).now_or_never();
        }
    }
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    lifecycle: ClientLifecycleMode,
    startup: Duration,
) -> Result<RunningService<RoleClient, Handler>, McpErrorKind> {
    // The SDK requires its own token; it is not used to cancel.
    let ct = tokio_util::sync::CancellationToken::new();
    let serving = serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, ct);
    match tokio::time::timeout(startup, serving).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(error)) if error.is_authorization_required() => Err(McpErrorKind::Unauthorized),
        Ok(Err(ClientInitializeError::ConnectionClosed(_))) => {
            Err(McpErrorKind::EndedEarly { exit: None })
        }
        Ok(Err(ClientInitializeError::JsonRpcError(error))) => Err(said(&error)),
        Ok(Err(ClientInitializeError::TransportError { error, .. })) => {
            // If the process has ended, writing to it fails.
            Err(if error.error.is::<std::io::Error>() {
                McpErrorKind::EndedEarly { exit: None }
            } else {
                not_reached(&error)
            })
        }
        Ok(Err(other)) => Err(McpErrorKind::Protocol(reason(&other))),
        Err(_) => Err(McpErrorKind::StartupTimeout(startup)),
    }
}

/// The handshake that all current servers support.
fn initialize() -> ClientLifecycleMode {
    ClientLifecycleMode::Initialize
}

/// The newer handshake.
fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
}

/// The directory that is configured for a server, if any. There is no default, because a server
/// may use a root in place of the directories in its arguments.
fn roots(config: &McpConfig) -> Option<ListRootsResult> {
    let directory = match &config.transport {
        McpTransport::Stdio { cwd, .. } => cwd.clone(),
        McpTransport::Http { .. } => None,
    };
    let url = directory
        .and_then(|directory| directory.canonicalize().ok())
        .and_then(|directory| reqwest::Url::from_directory_path(directory).ok());
    url.map(|url| ListRootsResult::new(vec![Root::new(url.as_str())]))
}

fn progress_update(data: Value) -> ToolUpdate {
    ToolUpdate { data: Some(data), ..ToolUpdate::default() }
}

pub(crate) fn wrong(config: &McpConfig, what: String) -> McpError {
    McpError::new(&config.name, McpErrorKind::Configuration(what.into()))
}

fn not_started(config: &McpConfig, error: &std::io::Error) -> McpError {
    let command = match &config.transport {
        McpTransport::Stdio { command, .. } => command.clone(),
        McpTransport::Http { .. } => Box::default(),
    };
    McpError::new(&config.name, McpErrorKind::NotStarted { command, why: error.to_string().into() })
}

/// Maps an error response of the protocol, which may be one of our own.
fn said(error: &ErrorData) -> McpErrorKind {
    if *error == http::too_large() {
        return McpErrorKind::TooLarge { bytes_max: MESSAGE_BYTES_MAX };
    }
    McpErrorKind::Refused { code: error.code.0, message: reason(&error.message) }
}

fn reason(error: &(impl std::fmt::Display + ?Sized)) -> Box<str> {
    cut(error.to_string(), REASON_BYTES_MAX).into()
}

/// Maps a transport error. The outermost error only names the SDK's types.
fn not_reached(error: &DynamicTransportError) -> McpErrorKind {
    let mut text = error.error.to_string();
    let mut source = error.error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    // The SDK treats a refusal without a challenge like any other response.
    if ["HTTP 401", "HTTP 403"].iter().any(|status| text.contains(status)) {
        return McpErrorKind::Unauthorized;
    }
    McpErrorKind::Unreachable(cut(without_queries(&text), REASON_BYTES_MAX).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is confined to the directory in its arguments must not get another one.
    #[test]
    fn roots_are_offered_only_where_a_directory_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let config = McpConfig::stdio("files", "server", ["./only-this"]);
        assert!(roots(&config).is_none());
        let offered = roots(&config.cwd(folder.path())).unwrap();
        assert!(offered.roots[0].uri.starts_with("file:///"), "{offered:?}");
        assert!(roots(&McpConfig::http("far", "https://example.com/mcp")).is_none());
    }
}
