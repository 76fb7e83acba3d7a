//! What a network answers, up to a maximum.

use crate::channel::CallError;

/// Reads the whole of an answer; `too_large` if there is more of it than `bytes_max`.
pub(crate) async fn bytes_of(
    mut response: reqwest::Response,
    bytes_max: usize,
    too_large: impl Fn() -> CallError,
    lost: impl Fn(reqwest::Error) -> CallError,
) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(&lost)? {
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
