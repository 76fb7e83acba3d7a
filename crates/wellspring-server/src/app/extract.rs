//! Extractors: the caller and its permissions, the query, the mounted prefix, the trace.

use axum::extract::{FromRequestParts, OriginalUri, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;
use wellspring_core::{RunId, RunRequest};
use wellspring_engine::{DEFAULT_TENANT, Permission, Principal};

use super::App;
use crate::error::ApiError;

/// A run's id as a client writes it.
pub(crate) fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|_| ApiError::no_run(text))
}

pub(crate) fn allow(who: &Principal, permission: Permission) -> Result<(), ApiError> {
    if who.may(permission) { Ok(()) } else { Err(ApiError::not_permitted(permission)) }
}

/// Extractors of the caller, after a permission check.
macro_rules! may {
    ($($(#[$doc:meta])* $name:ident => $scope:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Principal);

        impl FromRequestParts<App> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
                let who = app.authenticate(parts).await?;
                allow(&who, Permission::$scope)?;
                Ok(Self(who))
            }
        }
    )*};
}

/// An administrator of the whole server: has `admin` in the default tenant.
pub(crate) struct Operator;

impl FromRequestParts<App> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let MayAdminister(who) = MayAdminister::from_request_parts(parts, app).await?;
        if *who.tenant == *DEFAULT_TENANT {
            return Ok(Self);
        }
        let message = "this is about all tenants, and this token is of one of them";
        let remedy = "use a token with `admin` of the tenant `default`";
        Err(ApiError::new(StatusCode::FORBIDDEN, "operators_only", message, remedy))
    }
}

may! {
    /// May look at runs.
    MayRead => Read;
    /// May start, steer and cancel runs.
    MayRun => Run;
    /// May answer questions.
    MayApprove => Approve;
    /// May see what operators see.
    MayAdminister => Admin;
}

/// The path under which an application has mounted the API: `/agents`, or empty. Every path that is
/// sent to a client begins with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Prefix(pub(crate) Box<str>);

impl Prefix {
    fn of(original: &Uri, inner: &Uri) -> Self {
        let (original, inner) = (original.path(), inner.path());
        let prefix = match original.strip_suffix(inner) {
            Some(prefix) => prefix,
            // The mounted root, requested without a trailing slash.
            None if inner == "/" => original,
            // A layer has rewritten the path, so the prefix cannot be known.
            None => "",
        };
        Self(prefix.into())
    }
}

impl FromRequestParts<App> for Prefix {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Self::Rejection> {
        let original = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |it| &it.0);
        Ok(Self::of(original, &parts.uri))
    }
}

/// The trace that a request belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trace {
    pub(crate) id: Box<str>,
    /// The caller's span, as its `traceparent` says it.
    pub(crate) parent: Option<Box<str>>,
}

impl Trace {
    /// A request to an agent, as a part of this trace.
    pub(crate) fn with(self, request: RunRequest) -> RunRequest {
        RunRequest { trace_id: Some(self.id), trace_parent: self.parent, ..request }
    }
}

/// A request without its body, for handlers that authenticate by themselves.
pub(crate) struct RequestHead(pub(crate) Parts);

impl FromRequestParts<App> for RequestHead {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.clone()))
    }
}

/// The query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::bad("bad_query", error.body_text()))?;
        Ok(Self(params))
    }
}
