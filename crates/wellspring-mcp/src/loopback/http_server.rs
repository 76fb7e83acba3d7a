//! The HTTP side of the server: checks each request, and responds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, NumberOrString, PaginatedRequestParams, Resource,
    ResourceContents, ServerCapabilities, ServerConfig, Tool as ListedTool, ToolAnnotations,
    ToolsCapability,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wellspring_core::{Content, MediaSource, Tool, ToolContent, ToolError, ToolKind, ToolResult};

use super::Shared;
use super::call::{Called, HEARTBEAT, LoopbackCall, Reporter};

/// Maximum size of a request: the arguments of one call, possibly with a file in base64.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Concurrent calls; further ones are refused. An agent makes a few.
pub const CALLS_MAX: usize = 64;

/// Concurrent connections; further ones wait. An agent has a few for each of its calls.
pub const CONNECTIONS_MAX: usize = 128;

/// How long a call may take to end once it is cancelled.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

type Answer = Response<BoxBody<Bytes, Infallible>>;

pub(super) struct HttpServer {
    shared: Arc<Shared>,
    path: Box<str>,
    mcp: StreamableHttpService<ToolServer, NeverSessionManager>,
}

impl HttpServer {
    pub(super) fn new(shared: Arc<Shared>, path: Box<str>) -> Self {
        // Some agents drop a server that has sessions, or that streams a response
        // unnecessarily. Requests from browsers are rejected.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(BODY_BYTES_MAX)
            .enforce_origin_validation();
        let tools = ToolServer(shared.clone());
        let sessions = Arc::new(NeverSessionManager::default());
        let mcp = StreamableHttpService::new(move || Ok(tools.clone()), sessions, config);
        Self { shared, path, mcp }
    }

    /// Accepts clients until it is dropped; then all connections are closed.
    pub(super) async fn open(self, listener: TcpListener) {
        let door = Arc::new(self);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut visits = JoinSet::new();
        loop {
            while visits.try_join_next().is_some() {}
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let connection = match listener.accept().await {
                Ok((connection, _)) => connection,
                Err(error) => {
                    tracing::warn!(%error, "could not let a client in");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let door = door.clone();
            visits.spawn(async move {
                let service = service_fn(|request| {
                    let door = door.clone();
                    async move { Ok::<_, Infallible>(door.answer(request).await) }
                });
                let served =
                    http1::Builder::new().serve_connection(TokioIo::new(connection), service);
                if let Err(error) = served.await {
                    tracing::debug!(%error, "a client went away");
                }
                drop(place);
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != &*self.path {
            return refusal(StatusCode::NOT_FOUND, "not found");
        }
        let token = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = token.and_then(|value| value.strip_prefix(b"Bearer "));
        if !token.is_some_and(|token| same(token, self.shared.token.as_bytes())) {
            return refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
        }
        self.shared.listed.send_if_modified(|listed| {
            let first = listed.is_none();
            *listed = listed.or(Some(0));
            first
        });
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large"),
        };
        // The SDK ignores notifications without a session.
        if let Ok(Cancelled { method: "notifications/cancelled", params }) =
            serde_json::from_slice(&body)
        {
            self.shared.running.cancel(&params.request_id);
        }
        self.mcp.handle(Request::from_parts(head, Full::new(body))).await
    }
}

#[derive(Deserialize)]
struct Cancelled<'a> {
    method: &'a str,
    params: CancelledParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelledParams {
    request_id: NumberOrString,
}

fn refusal(status: StatusCode, why: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}

/// Compares in constant time.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let difference = given.iter().zip(wanted).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == wanted.len() && difference == 0
}

/// Implements the protocol.
#[derive(Clone)]
struct ToolServer(Arc<Shared>);

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new(&*self.0.name, env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let offer = self.0.offer();
        let tools = offer.tools.iter().map(|tool| listed(&**tool)).collect();
        self.0.listed.send_modify(|listed| *listed = (*listed).max(Some(offer.number)));
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let offer = self.0.offer();
        let tool = offer.tools.iter().find(|tool| *tool.spec().name == *request.name);
        let Some(tool) = tool else {
            let why = format!("there is no tool {:?} in this turn", request.name);
            return Err(ErrorData::invalid_params(why, None));
        };
        let Ok(_place) = self.0.calls.try_acquire() else {
            return Ok(failed("too many concurrent calls; try again when one has ended").into());
        };
        let ticket = self.0.running.begin(context.id.clone());
        let token = context.meta.get_progress_token();
        let reporter = Reporter::new(context.peer.clone(), token);
        let call = LoopbackCall {
            tool: Called(tool.clone()),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            meta: serde_json::to_value(&context.meta).unwrap_or_default(),
            signal: ticket.signal.clone(),
            reporter: reporter.clone(),
        };
        let mut running = self.0.handler.call(call);
        let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut running => break done,
                () = ticket.signal.cancelled() => break ending(running).await,
                () = context.ct.cancelled() => {
                    ticket.signal.cancel();
                    break ending(running).await;
                }
                _ = heartbeat.tick() => reporter.heartbeat().await,
            }
        };
        Ok(match done {
            Ok(result) => done_well(result),
            Err(error) => failed(&error.to_string()),
        }
        .into())
    }
}

/// Waits for the end of a cancelled call, up to [`CANCEL_GRACE`].
async fn ending(
    running: impl Future<Output = Result<ToolResult, ToolError>>,
) -> Result<ToolResult, ToolError> {
    let ended = tokio::time::timeout(CANCEL_GRACE, running).await;
    ended.unwrap_or_else(|_| {
        Err(ToolError::new("cancelled; it did not end in time and was dropped"))
    })
}

fn failed(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

/// A tool as the protocol lists it.
fn listed(tool: &dyn Tool) -> ListedTool {
    let spec = tool.spec();
    let schema = spec.parameters.as_object().cloned().unwrap_or_default();
    let mut listed =
        ListedTool::new(spec.name.to_string(), spec.description.to_string(), Arc::new(schema));
    listed.title = spec.title.as_deref().map(str::to_owned);
    let reads = matches!(spec.kind, ToolKind::Read | ToolKind::Search | ToolKind::Think);
    let destroys = matches!(spec.kind, ToolKind::Delete | ToolKind::Execute);
    let mut hints = ToolAnnotations::new().read_only(reads).idempotent(spec.idempotent);
    if !reads {
        hints = hints.destructive(destroys);
    }
    listed.annotations = Some(hints);
    listed
}

/// A result as the protocol defines it: the model's output, and content that is not text.
fn done_well(result: ToolResult) -> CallToolResult {
    let mut blocks = vec![ContentBlock::text(result.output_text())];
    for content in result.content {
        let ToolContent::Content(content) = content else { continue };
        blocks.extend(block(content));
    }
    let mut done = CallToolResult::success(blocks);
    done.structured_content = Some(result.output).filter(Value::is_object);
    done
}

fn block(content: Content) -> Option<ContentBlock> {
    match content {
        // The output already contains the text for the model.
        Content::Text(_) | Content::Resource { .. } => None,
        Content::Media { media_type, source: MediaSource::Data(data), name } => {
            Some(match media_type.split('/').next() {
                Some("image") => ContentBlock::image(data, media_type),
                Some("audio") => ContentBlock::audio(data, media_type),
                Some(_) | None => {
                    let uri = name.unwrap_or_else(|| "about:blank".into());
                    let contents = ResourceContents::blob(data, uri);
                    ContentBlock::resource(contents.with_mime_type(media_type))
                }
            })
        }
        Content::Media { media_type, source: MediaSource::Url(uri), name } => {
            Some(link(&uri, name, Some(media_type)))
        }
        Content::Link { uri, name, media_type } => Some(link(&uri, name, media_type)),
    }
}

fn link(uri: &str, name: Option<Box<str>>, media_type: Option<Box<str>>) -> ContentBlock {
    let mut resource = Resource::new(uri, name.as_deref().unwrap_or(uri));
    resource.mime_type = media_type.map(Into::into);
    ContentBlock::resource_link(resource)
}
