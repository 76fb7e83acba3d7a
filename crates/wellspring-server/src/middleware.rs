//! Middleware around every request: checks `Host`, `Origin` and the rate, and writes the access log.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use uuid::Uuid;

use crate::app::{App, Trace};
use crate::error::{ApiError, Refused};
use wellspring_engine::Principal;

/// The caller, for the access log. Set by the code that checks the token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Arc<OnceLock<Arc<str>>>);

impl Caller {
    pub(crate) fn is(&self, who: &Principal) {
        // A request has one token.
        let _ = self.0.set(Arc::clone(&who.id));
    }

    pub(crate) fn name(&self) -> &str {
        self.0.get().map_or("", |id| id)
    }
}

/// How long a browser may cache the answer to a CORS preflight, in seconds.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");

/// Maximum bytes of a `traceparent`: version 00 has 55, and later ones may be longer.
const TRACE_PARENT_BYTES_MAX: usize = 256;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, last-event-id, traceparent",
);

const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("retry-after, x-trace-id, idempotent-replayed, x-run-id");

/// Checks a request, and logs its outcome. Queries are not logged, because they may hold signatures.
pub(crate) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let since = Instant::now();
    let trace = trace(request.headers());
    let trace_id = trace.id.clone();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let caller = Caller::default();
    request.extensions_mut().insert(trace);
    request.extensions_mut().insert(caller.clone());
    app.metrics.request();
    let mut response = match admit(&app, &request) {
        Ok(()) if method == Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    if let Some(origin) = origin.filter(|origin| is_listed(&app, origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if method == Method::OPTIONS {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
        }
    }
    if let Ok(value) = HeaderValue::from_str(&trace_id) {
        headers.insert("x-trace-id", value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = response.status().as_u16();
    let code = response.extensions().get::<Refused>().map_or("", |refused| refused.0);
    if !code.is_empty() {
        app.metrics.error(code);
    }
    let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::info!(
        target: "wellspring::access",
        by = caller.name(), %method, path, status, code, micros, trace = &*trace_id,
    );
    response
}

fn admit(app: &App, request: &Request) -> Result<(), ApiError> {
    let host = host(request.uri(), request.headers());
    if !is_ours(app, host) {
        let message = format!("{host:?} is not a name of this server");
        let remedy = "name it among the server's `hosts`";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "bad_host", message, remedy));
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
        if !same && !is_listed(app, origin) {
            let message = format!("pages of {origin:?} may not ask this server");
            let remedy = "name the origin among the server's `cors`";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "cross_site", message, remedy));
        }
    }
    match request.extensions().get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) => app.gates.address(peer.ip()),
        None => Ok(()),
    }
}

/// Whether a `Host` names this server. This stops DNS rebinding: another site can point its own name
/// at this machine, but it cannot change the `Host` that the browser sends. If an application has
/// mounted the API, its names are checked only if any are listed.
fn is_ours(app: &App, host: &str) -> bool {
    let hosts = &app.config.hosts;
    let Some(address) = app.address.or((!hosts.is_empty()).then_some(app.config.listen)) else {
        return true;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let listed = |known: &str| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host);
    let here = ["localhost", "127.0.0.1", "[::1]"].contains(&name.to_ascii_lowercase().as_str());
    here || is_address(address.ip(), name) || hosts.iter().any(|known| listed(known))
}

/// Whether a `Host` is the IP address that the server listens on, or any address if it listens on
/// all. Unlike a name, an address cannot be rebound.
fn is_address(listen: IpAddr, name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse().is_ok_and(|address: IpAddr| address == listen || listen.is_unspecified())
}

/// HTTP/2 has the host in the URI.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    match uri.authority() {
        Some(authority) => authority.as_str(),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    }
}

fn is_listed(app: &App, origin: &HeaderValue) -> bool {
    app.config.cors.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
}

/// The trace of a [`traceparent`](https://www.w3.org/TR/trace-context/), or a new one.
fn trace(headers: &HeaderMap) -> Trace {
    let given = headers.get("traceparent").and_then(|value| value.to_str().ok());
    match given.and_then(|parent| Some((traced(parent)?, parent))) {
        Some((id, parent)) => Trace { id: id.into(), parent: Some(parent.into()) },
        None => Trace { id: Uuid::now_v7().simple().to_string().into(), parent: None },
    }
}

/// The trace id of a valid `traceparent`. Later versions may append fields.
fn traced(parent: &str) -> Option<&str> {
    let mut fields = parent.split('-');
    let mut hex = |digits: usize| {
        let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == digits && field.bytes().all(is_hex))
    };
    let is_given = |field: &&str| field.bytes().any(|byte| byte != b'0');
    let version = hex(2).filter(|version| *version != "ff")?;
    let id = hex(32).filter(is_given)?;
    hex(16).filter(is_given)?;
    hex(2)?;
    let is_over = fields.next().is_none();
    (parent.len() <= TRACE_PARENT_BYTES_MAX && (version != "00" || is_over)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_own() {
        for (listen, name, ours) in [
            ("10.0.0.5", "10.0.0.5", true),
            ("10.0.0.5", "10.0.0.6", false),
            ("::1", "[::1]", true),
            ("0.0.0.0", "10.0.0.6", true),
            ("::", "[2001:db8::1]", true),
            ("0.0.0.0", "10.0.0.6.evil.example", false),
            ("0.0.0.0", "", false),
        ] {
            assert_eq!(is_address(listen.parse().unwrap(), name), ours, "{listen} {name}");
        }
    }

    #[test]
    fn callers_say_which_trace_it_is() {
        let (id, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let long = format!("01-{id}-{span}-01-{}", "x".repeat(TRACE_PARENT_BYTES_MAX - 56));
        for (parent, known) in [
            (format!("00-{id}-{span}-01"), true),
            (format!("00-{id}-{span}-00"), true),
            (format!("01-{id}-{span}-01-more"), true),
            (long.clone(), true),
            (long + "x", false),
            (format!("00-{id}-{span}-01-more"), false),
            (format!("ff-{id}-{span}-01"), false),
            (format!("00-{id}-{span}"), false),
            (format!("00-{id}-{span}-1"), false),
            (format!("00-{}-{span}-01", id.to_uppercase()), false),
            (format!("00-{}-{span}-01", "0".repeat(32)), false),
            (format!("00-{id}-{}-01", "0".repeat(16)), false),
            (id.to_owned(), false),
            (String::new(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", parent.parse().unwrap());
            let Trace { id: got, parent: of } = trace(&headers);
            assert_eq!((&*got == id, of.as_deref() == Some(&*parent)), (known, known), "{parent}");
            assert_eq!(got.len(), 32);
        }
    }
}
