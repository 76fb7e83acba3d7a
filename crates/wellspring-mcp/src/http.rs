//! The layer below the SDK's streamable HTTP: sends a message and reads its response, up to a
//! maximum size.
//!
//! The SDK's own client reads a JSON response of any size. This one stops at
//! [`MESSAGE_BYTES_MAX`] and completes the request with a protocol error: the caller learns the
//! reason, and the connection stays usable. Response streams are split by the framer of
//! `wellspring-wire`, with the same maximum.
//!
//! The stream without a request, and the end of a session, are left to the SDK: it limits the
//! former, and the latter has no body.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, JsonRpcMessage, NumberOrString,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse as Posted,
};
use sse_stream::Sse;
use wellspring_wire::Framer;

use crate::calls::cut;
use crate::config::{McpConfig, McpTransport};
use crate::connection::wrong;
use crate::error::McpError;
use crate::transport::MESSAGE_BYTES_MAX;

/// Redirects per HTTP request, which must stay on the same host, such as from `/mcp` to
/// `/mcp/`.
const REDIRECTS_MAX: usize = 3;

/// Bytes of an invalid response that are shown in errors.
const PREVIEW_BYTES_MAX: usize = 256;

type HttpError = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Headers that the protocol itself sets.
const RESERVED: [&str; 3] = ["accept", HEADER_SESSION_ID, HEADER_LAST_EVENT_ID];

fn is_reserved(name: &HeaderName) -> bool {
    RESERVED.iter().any(|reserved| name.as_str().eq_ignore_ascii_case(reserved))
}

/// Creates the transport to a server over HTTP.
pub(crate) fn transport(
    config: &McpConfig,
) -> Result<StreamableHttpClientTransport<BoundedHttp>, McpError> {
    let McpTransport::Http { url, headers } = &config.transport else {
        return Err(wrong(config, "it has neither a command nor a URL".to_owned()));
    };
    let url = reqwest::Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| wrong(config, format!("{url:?} is not an http or https URL")))?;
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let parsed = name.parse().ok().zip(value.parse().ok());
        let Some((name, value)) = parsed else {
            return Err(wrong(config, format!("header {name:?} is not a legal header")));
        };
        if is_reserved(&name) {
            return Err(wrong(config, format!("header {name:?} is set by the protocol itself")));
        }
        custom.insert(name, value);
    }
    // Headers carry credentials, so only the configured host may get them.
    let same_host = reqwest::redirect::Policy::custom(|attempt| {
        let from = attempt.previous().first().map(reqwest::Url::origin);
        if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error("too many redirects")
        } else if from == Some(attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.error("redirected to another host")
        }
    });
    let client = reqwest::Client::builder()
        .redirect(same_host)
        .connect_timeout(config.timeouts.startup)
        .build()
        .map_err(|error| wrong(config, error.to_string()))?;
    let mut http = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    http.custom_headers = custom;
    Ok(StreamableHttpClientTransport::with_client(BoundedHttp(client), http))
}

/// The error response for a request whose response is too large.
pub(crate) fn too_large() -> ErrorData {
    let mib = MESSAGE_BYTES_MAX / (1024 * 1024);
    ErrorData::internal_error(format!("the answer has more than {mib} MiB"), None)
}

/// Posts messages over HTTP, and reads responses up to a maximum.
#[derive(Clone, Debug)]
pub(crate) struct BoundedHttp(pub(crate) reqwest::Client);

impl StreamableHttpClient for BoundedHttp {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Posted, HttpError> {
        let mut request = self
            .0
            .post(&*uri)
            .headers(custom_headers.into_iter().collect())
            .header(ACCEPT, format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}"))
            .header(CONTENT_TYPE, JSON_MIME_TYPE)
            .body(serde_json::to_vec(&message)?);
        if let Some(token) = auth_header {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &session_id {
            request = request.header(HEADER_SESSION_ID, &**session);
        }
        let asked = SentMessage { message: &message, in_session: session_id.is_some() };
        asked.read(request.send().await?).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, HttpError> {
        // Only the SDK itself can report that an event was too large, and it then does not
        // request the same event again.
        // ask for the same event again.
        self.0
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                MESSAGE_BYTES_MAX,
            )
            .await
    }
}

/// A message that was sent.
struct SentMessage<'a> {
    message: &'a ClientJsonRpcMessage,
    in_session: bool,
}

impl SentMessage<'_> {
    async fn read(&self, response: Response) -> Result<Posted, HttpError> {
        let status = response.status();
        if let Some(refusal) = challenge(status, response.headers()) {
            return Err(refusal);
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(Posted::Accepted);
        }
        if status == StatusCode::NOT_FOUND && self.in_session {
            return Err(HttpError::SessionExpired);
        }
        let session = response.headers().get(HEADER_SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let media_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is = |wanted: &str| media_type.is_some_and(|it| it.starts_with(wanted.as_bytes()));
        let (is_json, is_stream) = (is(JSON_MIME_TYPE), is(EVENT_STREAM_MIME_TYPE));
        if !status.is_success() {
            return self.refused(response, is_json, session).await;
        }
        if is_stream {
            return Ok(Posted::Sse(events(response, self.request_id()), session));
        }
        let waits = self.request_id().is_some();
        if !waits && response.content_length() == Some(0) {
            return Ok(Posted::Accepted);
        }
        if !is_json {
            let media_type = media_type.map(|it| String::from_utf8_lossy(it).into_owned());
            return Err(HttpError::UnexpectedContentType(media_type));
        }
        let Some(body) = whole(response).await? else { return Ok(self.too_large(session)) };
        match serde_json::from_slice(&body) {
            Ok(JsonRpcMessage::Error(error)) => Ok(self.said(error, session)),
            Ok(answer) => Ok(Posted::Json(answer, session)),
            // The message was delivered, and no response is expected.
            Err(error) if !waits => {
                tracing::debug!(%error, "a response to a message that needs none");
                Ok(Posted::Accepted)
            }
            Err(error) => {
                let body = cut(String::from_utf8_lossy(&body).into_owned(), PREVIEW_BYTES_MAX);
                let what = format!("its answer is no message ({error}): {body:?}");
                Err(HttpError::UnexpectedServerResponse(what.into()))
            }
        }
    }

    /// Handles a response with an error status. Its body may be an error of the protocol.
    async fn refused(
        &self,
        response: Response,
        is_json: bool,
        session: Option<String>,
    ) -> Result<Posted, HttpError> {
        let status = response.status();
        let is_limit = status == StatusCode::TOO_MANY_REQUESTS;
        let later = (is_limit || status.is_server_error()).then(|| {
            let after = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok());
            HttpStatusError::new(status.as_u16(), after.map(str::to_owned))
        });
        let later = match later {
            Some(error) if is_limit || !is_json => return Err(error.into()),
            later => later,
        };
        let Some(body) = whole(response).await? else { return Ok(self.too_large(session)) };
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let said = match serde_json::from_slice(&body) {
            Ok(JsonRpcMessage::Error(error)) if !is_denied => Some(error),
            Ok::<ServerJsonRpcMessage, _>(_) | Err(_) => None,
        };
        let text = cut(String::from_utf8_lossy(&body).into_owned(), PREVIEW_BYTES_MAX);
        // A server that does not support `server/discover` may reject it without the request's
        // id; the SDK needs the id to match the response.
        if let Some(id) = self.discovery().filter(|_| status.is_client_error() && !is_denied) {
            let error = said.map_or_else(
                || ErrorData::invalid_request(format!("HTTP {status}: {text}"), None),
                |said| said.error,
            );
            return Ok(Posted::Json(JsonRpcMessage::error(error, Some(id)), None));
        }
        match (said.filter(|_| is_json), later) {
            (Some(error), _) => Ok(self.said(error, session)),
            (None, Some(later)) => Err(later.into()),
            (None, None) => {
                let what = format!("HTTP {status}: {text}");
                Err(HttpError::UnexpectedServerResponse(what.into()))
            }
        }
    }

    /// Handles an error response. Without an id, it counts as the response to this message.
    fn said(&self, mut error: JsonRpcError, session: Option<String>) -> Posted {
        error.id = error.id.or_else(|| self.request_id());
        Posted::Json(JsonRpcMessage::Error(error), session)
    }

    fn request_id(&self) -> Option<NumberOrString> {
        match self.message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            JsonRpcMessage::Response(_)
            | JsonRpcMessage::Notification(_)
            | JsonRpcMessage::Error(_) => None,
        }
    }

    /// The id of a `server/discover` outside any session.
    fn discovery(&self) -> Option<NumberOrString> {
        let JsonRpcMessage::Request(request) = self.message else { return None };
        let asks = matches!(request.request, ClientRequest::DiscoverRequest(_));
        (asks && !self.in_session).then(|| request.id.clone())
    }

    fn too_large(&self, session: Option<String>) -> Posted {
        match self.request_id() {
            Some(id) => Posted::Json(JsonRpcMessage::error(too_large(), Some(id)), session),
            None => Posted::Accepted,
        }
    }
}

/// The server's authentication challenge, if the response is one.
fn challenge(status: StatusCode, headers: &HeaderMap) -> Option<HttpError> {
    let text = headers.get(WWW_AUTHENTICATE)?.to_str().unwrap_or_default().to_owned();
    match status {
        StatusCode::UNAUTHORIZED => Some(HttpError::AuthRequired(AuthRequiredError::new(text))),
        StatusCode::FORBIDDEN => {
            Some(HttpError::InsufficientScope(InsufficientScopeError::new(text, None)))
        }
        _ => None,
    }
}

/// Reads a body; `None` if it is too large.
async fn whole(mut response: Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MESSAGE_BYTES_MAX {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// The events of a response stream.
fn events(response: Response, request: Option<NumberOrString>) -> Events {
    let reading = Reading {
        response,
        framer: Framer::sse().event_bytes_max(MESSAGE_BYTES_MAX),
        request,
        told_id: Vec::new(),
        over: false,
    };
    stream::unfold(reading, |mut reading| async {
        let events = reading.next_chunk().await?;
        Some((stream::iter(events), reading))
    })
    .flatten()
    .boxed()
}

struct Reading {
    response: Response,
    framer: Framer,
    /// The request that the stream responds to.
    request: Option<NumberOrString>,
    /// The last event id that the SDK has received, to resume from.
    told_id: Vec<u8>,
    over: bool,
}

impl Reading {
    /// The events that a chunk completes; `None` at the end.
    async fn next_chunk(&mut self) -> Option<Vec<Result<Sse, SseError>>> {
        if self.over {
            return None;
        }
        let chunk = match self.response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                self.over = true;
                let last = self.framer.end().map(|last| event(last.event, last.data));
                let last = last.unwrap_or_default();
                return Some(vec![Ok(self.with_position(last))]);
            }
            Err(error) => {
                self.over = true;
                let position = self.with_position(Sse::default());
                return Some(vec![Ok(position), Err(SseError::Body(Box::new(error)))]);
            }
        };
        let mut events = Vec::new();
        let mut rest = &chunk[..];
        loop {
            match self.framer.next(&mut rest) {
                Ok(Some(frame)) => {
                    let event = event(frame.event, frame.data);
                    let event = self.with_position(event);
                    events.push(Ok(event));
                }
                Ok(None) => return Some(events),
                Err(error) => {
                    self.over = true;
                    events.push(self.refusal().ok_or_else(|| SseError::Body(Box::new(error))));
                    return Some(events);
                }
            }
        }
    }

    /// The error response for a request whose response is too large.
    fn refusal(&self) -> Option<Sse> {
        let error = ServerJsonRpcMessage::error(too_large(), self.request.clone());
        let text = serde_json::to_string(&error).ok()?;
        self.request.as_ref().map(|_| Sse::default().data(text))
    }

    /// Adds the last event id and retry delay to an event, so that the SDK can resume.
    fn with_position(&mut self, mut event: Sse) -> Sse {
        let id = self.framer.last_id();
        if id != self.told_id {
            event.id = Some(String::from_utf8_lossy(id).into_owned());
            self.told_id = id.to_vec();
        }
        event.retry = self.framer.retry_millis();
        event
    }
}

fn event(name: &[u8], data: &[u8]) -> Sse {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Sse { event: (!name.is_empty()).then(|| text(name)), data: Some(text(data)), ..Sse::default() }
}
