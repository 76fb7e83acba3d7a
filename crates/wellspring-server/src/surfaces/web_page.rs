//! The page at `/`: files embedded in the binary.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::Route;
use crate::app::Prefix;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Each row: path, content type and content.
const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("../../page/index.html")),
    ("/page/style.css", CSS, include_str!("../../page/style.css")),
    ("/page/app.js", JAVASCRIPT, include_str!("../../page/app.js")),
    ("/page/client.js", JAVASCRIPT, include_str!("../../page/client.js")),
    ("/page/dom.js", JAVASCRIPT, include_str!("../../page/dom.js")),
    ("/page/form.js", JAVASCRIPT, include_str!("../../page/form.js")),
    ("/page/outbox.js", JAVASCRIPT, include_str!("../../page/outbox.js")),
    ("/page/records.js", JAVASCRIPT, include_str!("../../page/records.js")),
    ("/page/streams.js", JAVASCRIPT, include_str!("../../page/streams.js")),
    ("/page/worker.js", JAVASCRIPT, include_str!("../../page/worker.js")),
];

/// Only the server's own files are loaded and run, and no other page can frame this one.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) fn routes() -> Vec<Route> {
    FILES
        .into_iter()
        .map(|(path, media_type, text)| {
            let handler = get(async move |Prefix(prefix): Prefix| {
                // The page is the only file that refers to other files by absolute path.
                let text = match path {
                    "/" => text.replace("\"/page/", &format!("\"{prefix}/page/")).into(),
                    _ => Cow::Borrowed(text),
                };
                file(media_type, text)
            });
            Route { method: Method::GET, path, scope: None, handler }
        })
        .collect()
}

fn file(media_type: &'static str, text: Cow<'static, str>) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        // A new version of the server brings a new version of the page.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, text).into_response()
}
