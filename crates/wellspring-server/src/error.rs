//! Errors as callers see them: what failed, and what to do about it.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use wellspring_engine::{ControlError, Permission, StartError};
use wellspring_log::{ReadError, StoreError};

/// An answer that is an error: `{"error":{"code","message","remedy"}}`.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// For programs: stable.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: &'static str,
    pub(crate) retry_after: Option<u32>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: &'a str,
    message: &'a str,
    remedy: &'a str,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self { status, code, message: message.into(), remedy, retry_after: None }
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The request is invalid.
    pub(crate) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, "see /openapi.json")
    }

    /// It does not exist, or it belongs to another tenant. The caller cannot tell which.
    pub(crate) fn no_run(id: impl std::fmt::Display) -> Self {
        let message = format!("there is no run {id}");
        Self::new(StatusCode::NOT_FOUND, "no_run", message, "GET /v1/runs lists yours")
    }

    /// A client used the id of an existing run for a different request.
    pub(crate) fn run_exists(id: &str) -> Self {
        let message = format!("run id {id:?} was used for another request");
        let remedy = "use a new run id for a new request";
        Self::new(StatusCode::CONFLICT, "run_exists", message, remedy)
    }

    pub(crate) fn no_thread(id: impl std::fmt::Display) -> Self {
        let message = format!("there is no thread {id}");
        let remedy = "leave `thread` out to begin one; GET /v1/threads lists yours";
        Self::new(StatusCode::NOT_FOUND, "no_thread", message, remedy)
    }

    pub(crate) fn no_agent(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_agent", message, "GET /v1/agents lists them")
    }

    pub(crate) fn not_permitted(permission: Permission) -> Self {
        let message = format!("this needs the permission `{permission}`");
        let remedy = "ask an operator for it; tokens: `wellspring token create --scope`";
        Self::new(StatusCode::FORBIDDEN, "scope", message, remedy)
    }

    /// An idempotency key came back with another request.
    pub(crate) fn key_reused(message: impl Into<String>) -> Self {
        let remedy = "use a new key for a new request";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "idempotency_key_reused", message, remedy)
    }

    pub(crate) fn draining() -> Self {
        let message = "the server is shutting down";
        let remedy = "try again shortly; runs continue";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message, remedy).retry_after(5)
    }

    /// The error for a readiness check while the store cannot be written. It is not logged, because
    /// clients may check every second; requests that fail for this reason log it.
    pub(crate) fn not_ready(error: &StoreError) -> Self {
        let remedy = "try again; the server's log says more";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", error.to_string(), remedy)
            .retry_after(5)
    }

    pub(crate) fn internal(while_doing: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "{while_doing}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("{while_doing}: {error}"),
            "try again; the server's log says more",
        )
    }

    /// A write failed: the store's error if that is the cause, otherwise an internal error.
    fn kept(while_doing: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        match causes.find_map(|cause| cause.downcast_ref::<StoreError>()) {
            Some(store) => store.clone().into(),
            None => Self::internal(while_doing, error),
        }
    }

    /// The JSON of the body.
    pub(crate) fn json(&self) -> String {
        let error = Inner { code: self.code, message: &self.message, remedy: self.remedy };
        // Three strings always have a JSON form.
        serde_json::to_string(&Envelope { error }).unwrap_or_default()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(Refused(self.code));
        response
    }
}

/// The error code of a response, for the access log and the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused(pub(crate) &'static str);

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoRun(run) => Self::no_run(run),
            StoreError::Finished(_) => Self::new(
                StatusCode::CONFLICT,
                "finished",
                error.to_string(),
                "start the next run of its thread",
            ),
            StoreError::Unfinished(_) => Self::new(
                StatusCode::CONFLICT,
                "unfinished",
                error.to_string(),
                "POST /v1/runs/{run}/cancel first",
            ),
            StoreError::Full { .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "full",
                error.to_string(),
                "delete old runs, or wait",
            )
            .retry_after(30),
            StoreError::Damaged { .. } | StoreError::DamagedDocument(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "damage was found");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "damaged",
                    error.to_string(),
                    "`wellspring store check` on the server lists what is damaged",
                )
            }
            StoreError::DamagedStore { .. } => {
                tracing::error!(error = &error as &dyn std::error::Error, "damage was found");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "damaged",
                    "the store is damaged",
                    "`wellspring store check` on the server lists what is damaged",
                )
            }
            error @ (StoreError::Unsupported(_) | StoreError::Failed { .. } | _) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store failed");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "store",
                    "the store failed",
                    "try again; the server's log says more",
                )
                .retry_after(5)
            }
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoRun(run) => Self::no_run(run),
            ReadError::Future { .. } => Self::new(
                StatusCode::CONFLICT,
                "cursor_ahead",
                error.to_string(),
                "read on after the last id you were given, or after 0 for everything",
            ),
            ReadError::Store(error) | ReadError::OwnerLost(error) => error.into(),
            error => Self::internal("the run could not be read", &error),
        }
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::UnknownAgent { .. } => Self::no_agent(message),
            StartError::ModelNotAllowed { .. } => Self::bad("model_not_allowed", message),
            StartError::ReservedTool => Self::bad("reserved_tool", message),
            // The description allows any JSON here.
            StartError::ResultSchema(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_result_schema",
                message,
                "send a JSON Schema that can be used",
            ),
            StartError::ThreadBusy(_) => Self::new(
                StatusCode::CONFLICT,
                "thread_busy",
                message,
                "wait for that run, cancel it, or POST to its /input",
            ),
            StartError::NotFirst => Self::new(
                StatusCode::CONFLICT,
                "thread_exists",
                message,
                "leave the thread out, or continue it",
            ),
            StartError::NoThread(thread) => Self::no_thread(thread),
            StartError::NoRun(run) => Self::no_run(run),
            StartError::NotInThread { .. } => Self::bad("not_in_thread", message),
            StartError::TooManyRuns(_) => {
                let remedy = "ask again when some have finished";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "too_many_runs", message, remedy).retry_after(5)
            }
            StartError::TooManyOfYours(_) | StartError::TooManyOfTenant(_) => {
                let remedy = "wait for some to finish, or cancel them";
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "too_many_runs", message, remedy).retry_after(5)
            }
            StartError::NotPermitted(permission) => Self::not_permitted(permission),
            StartError::ShuttingDown => Self::draining(),
            error @ (StartError::Log(_) | _) => Self::kept("the run could not be started", &error),
        }
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        let conflict =
            |code, remedy| Self::new(StatusCode::CONFLICT, code, message.clone(), remedy);
        let waits = "GET /v1/runs/{run} lists what it waits for";
        match error {
            ControlError::NoRun(run) => Self::no_run(run),
            ControlError::NoThread(thread) => Self::no_thread(thread),
            ControlError::BadTitle(_) => Self::bad("bad_title", message),
            ControlError::NotPermitted(permission) => Self::not_permitted(permission),
            ControlError::Finished(_) => conflict("finished", "start another run"),
            ControlError::Unfinished(_) => {
                conflict("unfinished", "POST /v1/runs/{run}/cancel first")
            }
            ControlError::NoQuestion(_) => conflict("no_question", waits),
            ControlError::NoCall(_) => conflict("no_call", waits),
            ControlError::NoInput { .. } => {
                conflict("no_input_taken", "wait until the run has finished, or cancel it")
            }
            ControlError::AlreadyAnswered { .. } => {
                conflict("already_answered", "GET /v1/runs/{run} shows what became of it")
            }
            ControlError::BadAnswer(_) => Self::bad("bad_answer", message),
            ControlError::ReservedTool => Self::bad("reserved_tool", message),
            ControlError::NotAnApprover => Self::new(
                StatusCode::FORBIDDEN,
                "not_yours_to_answer",
                message,
                "answer as the principal that started the run, or add this one to the agent's `approvers`",
            ),
            ControlError::KeyReused { .. } => Self::key_reused(message),
            ControlError::Read(error) => error.into(),
            ControlError::Store(error) => error.into(),
            error => Self::kept("the run did not take it", &error),
        }
    }
}
