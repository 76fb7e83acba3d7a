//! Endpoints for operators: liveness, readiness, metrics, and the OpenAPI description.

use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::Route;
use crate::app::{App, Operator, Prefix};
use crate::error::ApiError;
use crate::openapi;
use wellspring_engine::Permission;

pub(super) fn routes() -> Vec<Route> {
    let open = |path, handler| Route { method: Method::GET, path, scope: None, handler };
    vec![
        open("/healthz", get(async || "ok\n")),
        open("/readyz", get(ready)),
        open("/openapi.json", get(describe)),
        Route {
            method: Method::GET,
            path: "/metrics",
            scope: Some(Permission::Admin),
            handler: get(metrics),
        },
    ]
}

/// Readiness: 503 during shutdown and while the store fails.
async fn ready(State(app): State<App>) -> Result<&'static str, ApiError> {
    if app.draining.is_cancelled() {
        return Err(ApiError::draining());
    }
    app.check_store().await?;
    Ok("ready\n")
}

async fn describe(Prefix(prefix): Prefix) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], openapi::text(&prefix)).into_response()
}

async fn metrics(State(app): State<App>, _: Operator) -> Response {
    let text = app.metrics_text();
    let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], text).into_response()
}
