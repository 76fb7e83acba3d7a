//! ACP over streamable HTTP: our messages are posted, and the agent's
//! arrive as server-sent events, in one stream for the connection and one per session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::StreamExt as _;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE,
};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use wellspring_wire::Framer;

use super::config::AcpConfig;
use super::connection::{Heard, LINES_WAITING_MAX, Wire};
use super::error::AcpError;
use super::stdio::LINE_BYTES_MAX;
use crate::lock;

/// Requests of an agent for which we remember the stream they came by; answers to further
/// ones go to the connection.
const ASKED_BY_MAX: usize = 1024;

/// Cookies that we send back: load balancers use them to find the right server.
const COOKIES_MAX: usize = 32;

/// Bytes of one cookie, as in browsers.
const COOKIE_BYTES_MAX: usize = 4 * 1024;

/// How long the closing request may take.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

const CONNECTION: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION: HeaderName = HeaderName::from_static("acp-session-id");

/// Opens a connection. Nothing is sent before the first message.
pub(super) fn open(url: &str, config: &AcpConfig) -> Result<Wire, AcpError> {
    let unreachable = |why: String| AcpError::Unreachable { url: url.into(), why: why.into() };
    let headers = headers(config).map_err(unreachable)?;
    let client = Client::builder()
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| unreachable(error.to_string()))?;
    let mut cookies = Cookies::default();
    if let Some((_, own)) = config.headers.iter().find(|it| it.0.eq_ignore_ascii_case("cookie")) {
        own.split(';').for_each(|cookie| cookies.set(cookie));
    }
    let (out, lines) = mpsc::channel(LINES_WAITING_MAX);
    let (heard, incoming) = mpsc::channel(LINES_WAITING_MAX);
    let shared = Arc::new(Shared {
        client,
        url: url.into(),
        connection: OnceLock::new(),
        heard,
        sessions: Mutex::default(),
        asked_by: Mutex::default(),
        cookies: Mutex::new(cookies),
        over: CancellationToken::new(),
    });
    // The writing task is not aborted, since it sends the closing request; it is asked to end.
    let over = shared.over.clone().drop_guard();
    tokio::spawn(shared.write(lines));
    let held = tokio::spawn(async move {
        let _over = over;
        std::future::pending::<()>().await;
    });
    Ok(Wire { out, incoming, tasks: vec![AbortOnDropHandle::new(held)] })
}

/// The headers that every request has.
pub(super) fn headers(config: &AcpConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        let name: HeaderName =
            name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
        let mut value: HeaderValue = value
            .parse()
            .map_err(|_| format!("the header {name} has a value that no header has"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

struct Shared {
    client: Client,
    url: Box<str>,
    connection: OnceLock<HeaderValue>,
    heard: mpsc::Sender<Heard>,
    /// The sessions whose stream is open.
    sessions: Mutex<BTreeSet<Box<str>>>,
    asked_by: Mutex<AskedBy>,
    cookies: Mutex<Cookies>,
    over: CancellationToken,
}

/// The session that a request of the agent came by: its answer goes the same way.
#[derive(Debug, Default)]
struct AskedBy(HashMap<String, Box<str>>);

impl AskedBy {
    fn note(&mut self, request: String, session: &str) {
        if self.0.len() < ASKED_BY_MAX {
            self.0.insert(request, session.into());
        }
    }
}

/// Cookies by name. There is only one host, so nothing else is needed.
#[derive(Debug, Default)]
struct Cookies(BTreeMap<String, String>);

impl Cookies {
    /// Takes a `name=value`; attributes are ignored.
    fn set(&mut self, cookie: &str) {
        let pair = cookie.split(';').next().unwrap_or_default();
        let Some((name, value)) = pair.split_once('=') else { return };
        let (name, value) = (name.trim(), value.trim());
        let is_known = self.0.contains_key(name);
        if pair.len() <= COOKIE_BYTES_MAX && (is_known || self.0.len() < COOKIES_MAX) {
            self.0.insert(name.into(), value.into());
        }
    }

    fn header(&self) -> Option<HeaderValue> {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        HeaderValue::from_str(&pairs.join("; ")).ok().filter(|_| !pairs.is_empty())
    }
}

impl Shared {
    async fn write(self: Arc<Self>, mut lines: mpsc::Receiver<Vec<u8>>) {
        let sending = async {
            while let Some(line) = lines.recv().await {
                if let Err(error) = self.send(line).await {
                    let _ = self.heard.send(Heard::End(error)).await;
                    break;
                }
            }
        };
        self.over.run_until_cancelled(sending).await;
        // This ends all reading tasks.
        self.over.cancel();
        if let Some(connection) = self.connection.get() {
            let goodbye = self.client.delete(&*self.url).header(CONNECTION, connection);
            let _ = tokio::time::timeout(GOODBYE_TIME, self.ask(goodbye)).await;
        }
    }

    async fn send(self: &Arc<Self>, line: Vec<u8>) -> Result<(), AcpError> {
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        let post = self.client.post(&*self.url).header(CONTENT_TYPE, "application/json").body(line);
        let Some(connection) = self.connection.get() else {
            let mut answer = self.ask(post).await?;
            let connection = answer.headers().get(CONNECTION).cloned();
            let connection = connection.ok_or_else(|| self.broken("it gave no connection id"))?;
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(|error| self.broken(error))? {
                if body.len() + chunk.len() > LINE_BYTES_MAX {
                    return Err(self.broken("its first answer is too large"));
                }
                body.extend_from_slice(&chunk);
            }
            let _ = self.connection.set(connection);
            self.listen(None).await?;
            let _ = self.heard.send(Heard::Line(body)).await;
            return Ok(());
        };
        let mut post = post.header(CONNECTION, connection);
        if let Some(session) = self.session_of(&message) {
            self.listen(Some(&session)).await?;
            let session = HeaderValue::from_str(&session).map_err(|error| self.broken(error))?;
            post = post.header(SESSION, session);
        }
        self.ask(post).await.map(drop)
    }

    fn session_of(&self, message: &Value) -> Option<Box<str>> {
        if message["method"].is_string() {
            return message["params"]["sessionId"].as_str().map(Into::into);
        }
        let id = message["id"].to_string();
        lock(&self.asked_by).0.remove(&id)
    }

    async fn ask(&self, mut request: RequestBuilder) -> Result<Response, AcpError> {
        if let Some(cookies) = self.cookies().header() {
            request = request.header(COOKIE, cookies);
        }
        let answer = request.send().await.map_err(|error| self.broken(error))?;
        let set = answer.headers().get_all(SET_COOKIE).iter();
        set.filter_map(|cookie| cookie.to_str().ok()).for_each(|it| self.cookies().set(it));
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(self.broken(format!("it answered with {}", answer.status())))
        }
    }

    /// Opens the stream of the connection or of a session, unless it is open.
    fn listen(self: &Arc<Self>, session: Option<&str>) -> BoxFuture<'_, Result<(), AcpError>> {
        let session: Option<Box<str>> = session.map(Into::into);
        // Boxed, because the task that reads a stream may open another one.
        async move {
            let Some(connection) = self.connection.get() else { return Ok(()) };
            let mut get = self.client.get(&*self.url).header(ACCEPT, "text/event-stream");
            get = get.header(CONNECTION, connection);
            if let Some(session) = &session {
                let mut sessions = lock(&self.sessions);
                if !sessions.insert(session.clone()) {
                    return Ok(());
                }
                get = get.header(SESSION, &**session);
            }
            let stream = self.ask(get).await?;
            let reading = Arc::clone(self).read(stream, session);
            let over = self.over.clone();
            tokio::spawn(async move { over.run_until_cancelled_owned(reading).await });
            Ok(())
        }
        .boxed()
    }

    async fn read(self: Arc<Self>, stream: Response, session: Option<Box<str>>) {
        let mut framer = Framer::sse().event_bytes_max(LINE_BYTES_MAX);
        let mut chunks = stream.bytes_stream();
        let mut why = None;
        'reading: while let Some(chunk) = chunks.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    why = Some(self.broken(error));
                    break;
                }
            };
            let mut rest = &chunk[..];
            loop {
                match framer.next(&mut rest) {
                    Ok(Some(frame)) => {
                        let line = frame.data.to_vec();
                        if let Err(error) = self.take(line, session.as_deref()).await {
                            why = Some(error);
                            break 'reading;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        why = Some(self.broken(error));
                        break 'reading;
                    }
                }
            }
        }
        if let Some(session) = &session {
            lock(&self.sessions).remove(session);
        }
        // A session's stream may end with the session; the connection's stream ends the connection.
        let why = why.or_else(|| session.is_none().then(|| self.broken("it closed the stream")));
        if let Some(error) = why {
            let _ = self.heard.send(Heard::End(error)).await;
        }
    }

    async fn take(self: &Arc<Self>, line: Vec<u8>, session: Option<&str>) -> Result<(), AcpError> {
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        if let Some(opened) = message["result"]["sessionId"].as_str() {
            // The stream must be open before anything is sent to the session.
            self.listen(Some(opened)).await?;
        }
        if let (Some(session), true, Some(id)) =
            (session, message["method"].is_string(), message.get("id"))
        {
            let mut asked = lock(&self.asked_by);
            asked.note(id.to_string(), session);
        }
        let _ = self.heard.send(Heard::Line(line)).await;
        Ok(())
    }

    fn cookies(&self) -> MutexGuard<'_, Cookies> {
        lock(&self.cookies)
    }

    fn broken(&self, why: impl ToString) -> AcpError {
        AcpError::Unreachable { url: self.url.clone(), why: why.to_string().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_requests_are_remembered_up_to_a_maximum() {
        let mut asked = AskedBy::default();
        for number in 0..=ASKED_BY_MAX {
            asked.note(number.to_string(), "s");
        }
        assert_eq!(asked.0.len(), ASKED_BY_MAX);
        // An answered request makes room.
        assert_eq!(asked.0.remove("0").as_deref(), Some("s"));
        asked.note("new".into(), "s");
        assert_eq!(asked.0.remove("new").as_deref(), Some("s"));
        assert_eq!(asked.0.remove(&ASKED_BY_MAX.to_string()), None);
    }

    #[test]
    fn cookies_go_back_up_to_a_maximum() {
        let mut cookies = Cookies::default();
        assert_eq!(cookies.header(), None);
        for cookie in ["node=a; Path=/; HttpOnly", "no cookie", "x=1", "node=b"] {
            cookies.set(cookie);
        }
        assert_eq!(cookies.header().unwrap(), "node=b; x=1");
        for number in 0..COOKIES_MAX {
            cookies.set(&format!("c{number}=1"));
        }
        cookies.set(&format!("x={}", "y".repeat(COOKIE_BYTES_MAX)));
        assert_eq!(cookies.0.len(), COOKIES_MAX);
        assert_eq!(cookies.0["x"], "1", "a larger one is not kept");
    }
}
