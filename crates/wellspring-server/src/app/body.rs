//! Bodies of requests: read within the limits of their size, their time and the total of all
//! bodies.

use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use wellspring_engine::Principal;

use super::App;
use crate::error::ApiError;
use crate::limits::BytesPass;
use crate::middleware::Caller;

/// Time limit for reading a request's body: enough for a large one on a slow connection. A client
/// that sends single bytes cannot keep a connection open indefinitely.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body, within the limit. An empty body counts as `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    fn from_request(
        request: Request,
        app: &App,
    ) -> impl Future<Output = Result<Self, ApiError>> + Send {
        let limit = app.config.limits.body_bytes;
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let mut pass = app.gates.bytes(caller.name());
        async move {
            let bytes = read_body(request.into_body(), limit, &mut pass).await?;
            let text = if bytes.is_empty() { b"{}" } else { &bytes[..] };
            // serde would accept an array as the fields of a struct, in order.
            if text.trim_ascii_start().first() == Some(&b'[') {
                return Err(ApiError::bad("bad_json", "the body: a list, where an object belongs"));
            }
            let value = serde_json::from_slice(text)
                .map_err(|error| ApiError::bad("bad_json", format!("the body: {error}")))?;
            Ok(Self(value))
        }
    }
}

/// Reads a text body of this principal, within the limit. What it holds counts for as long as the
/// pass is kept.
pub(crate) async fn text_body(
    app: &App,
    who: &Principal,
    body: Body,
) -> Result<(String, BytesPass), ApiError> {
    let mut pass = app.gates.bytes(&who.id);
    let bytes = read_body(body, app.config.limits.body_bytes, &mut pass).await?;
    let not_text = |_| ApiError::bad("bad_utf8", "the body is not valid UTF-8");
    Ok((String::from_utf8(bytes).map_err(not_text)?, pass))
}

/// Reads a body, within the limits of its size, its time and the total of all bodies.
async fn read_body(body: Body, limit: usize, pass: &mut BytesPass) -> Result<Vec<u8>, ApiError> {
    let mut body = Limited::new(body, limit);
    let mut bytes = Vec::new();
    let collect = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken_off(&*error, limit))?;
            let Ok(data) = frame.into_data() else { continue };
            pass.grow(data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIMEOUT, collect).await {
        Ok(collected) => collected.map(|()| bytes),
        Err(_) => {
            let message = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            let remedy = "send it faster, or name files by URL instead of sending them";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message, remedy))
        }
    }
}

fn broken_off(error: &(dyn std::error::Error + 'static), limit: usize) -> ApiError {
    if !error.is::<LengthLimitError>() {
        return ApiError::bad("bad_body", format!("the body broke off: {error}"));
    }
    let message = format!("the body is larger than {limit} bytes");
    let remedy = "name files by URL instead of sending them";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, remedy)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use tokio::time::Instant;

    use super::*;
    use crate::config::ServerLimits;
    use crate::limits::Gates;

    /// A client that sends one byte every ten seconds gets an error, and its request ends.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_in_is_given_up() {
        let trickle = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(axum::body::Bytes::from_static(b" "))
        });
        let since = Instant::now();
        let gates = Gates::new(&ServerLimits::default());
        let mut pass = gates.bytes("");
        let error = read_body(Body::from_stream(trickle), 1000, &mut pass).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (408, "too_slow"));
        assert_eq!(since.elapsed(), BODY_TIMEOUT);
    }
}
