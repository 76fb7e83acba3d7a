//! The surfaces: one module per protocol, and the table of everything that is served.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::middleware;
use axum::routing::MethodRouter;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};

use crate::app::App;
use crate::error::ApiError;
use crate::large_body::counted;
use crate::middleware::guard;
use wellspring_engine::Permission;
use wellspring_wire::ag_ui::AgUiBinary;

mod ag_ui;
mod ai_sdk;
mod health;
mod native;
mod use_ai;
mod web_page;

pub(crate) use use_ai::PolledSessions;

/// A method and path that is served.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The required permission; `None` if the route needs no authentication.
    pub(crate) scope: Option<Permission>,
    pub(crate) handler: MethodRouter<App>,
}

/// All routes. The router, the OpenAPI description and the tests are made from this table.
pub(crate) fn routes() -> Vec<Route> {
    native::routes()
        .into_iter()
        .chain(ag_ui::routes())
        .chain(ai_sdk::routes())
        .chain(use_ai::routes())
        .chain(health::routes())
        .chain(web_page::routes())
        .collect()
}

pub(crate) fn router(app: App) -> Router {
    let mut router = Router::new();
    // Event streams are never compressed, because compression would delay events.
    let compressed =
        DefaultPredicate::new().and(NotForContentType::const_new(AgUiBinary::MEDIA_TYPE));
    for route in routes() {
        router = router.route(route.path, route.handler);
    }
    router
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), counted))
        .layer(CompressionLayer::new().compress_when(compressed))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn no_route() -> ApiError {
    let remedy = "/openapi.json lists what is";
    ApiError::new(StatusCode::NOT_FOUND, "no_route", "there is no such path", remedy)
}

async fn wrong_method() -> ApiError {
    let remedy = "/openapi.json lists what is";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "not with this method", remedy)
}
