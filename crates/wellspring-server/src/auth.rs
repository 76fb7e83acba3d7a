//! Authentication of requests.
//!
//! [`Authenticate`] turns a request into a [`Principal`]. By default that is a bearer token; an
//! application that mounts the API uses its own login. A browser's `EventSource` cannot send
//! headers, so the API can sign the URL of a stream for a limited time.

use std::error::Error;
use std::time::Duration;

use axum::http::header;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use wellspring_core::{Millis, RunId};
use wellspring_engine::{LOCAL, Principal};
use wellspring_log::{Document, Expected, Store, Written};

use crate::tokens::{SECRET_BYTES, TokenError, Tokens, random};

/// How long a signed URL of a stream is valid by default: long enough for a few reconnects, short
/// enough that a leak through a browser history or a log does little harm.
pub const SIGNED_FOR: Duration = Duration::from_secs(10 * 60);

/// Maximum time for which a signed URL of a stream is valid.
pub const SIGNED_FOR_MAX: Duration = Duration::from_secs(60 * 60);

const KEY_DOCUMENT: &str = "server.signing-key";

/// Turns a request into the principal who makes it.
///
/// ```
/// use axum::http::request::Parts;
/// use futures::future::BoxFuture;
/// use wellspring_engine::{Permission, Principal};
/// use wellspring_server::{AuthError, Authenticate};
///
/// /// Trusts a proxy that has checked who it is.
/// struct Proxy;
///
/// impl Authenticate for Proxy {
///     fn authenticate<'a>(
///         &'a self,
///         request: &'a Parts,
///     ) -> BoxFuture<'a, Result<Principal, AuthError>> {
///         Box::pin(async move {
///             let user = request.headers.get("x-user").ok_or(AuthError::Missing)?;
///             let user = user.to_str().map_err(|_| AuthError::Unknown)?;
///             Ok(Principal::new("acme", user, [Permission::Read, Permission::Run]))
///         })
///     }
/// }
/// ```
///
/// # Contract
///
/// 1. The request's headers and extensions decide; a middleware of the application may have put
///    its user among the extensions.
/// 2. A principal's id is unique among all tenants: it is what runs and the audit log record.
/// 3. Another site's page cannot make its visitors' browsers act here with their cookies: the
///    API refuses requests whose `Origin` is neither its own host nor listed in `cors`.
pub trait Authenticate: Send + Sync + 'static {
    /// The principal who makes this request.
    ///
    /// # Errors
    ///
    /// [`AuthError::Missing`] and [`AuthError::Unknown`] are answered with 401,
    /// [`AuthError::Failed`] with 503.
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
    ) -> BoxFuture<'a, Result<Principal, AuthError>>;

    /// The principal of that id, for a URL that was signed for it. `None` if it no longer exists,
    /// or if this implementation does not support signed URLs, which is the default: a browser
    /// sends cookies with an `EventSource` anyway.
    ///
    /// # Errors
    ///
    /// [`AuthError::Failed`] if the check itself failed.
    fn principal<'a>(
        &'a self,
        _id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Principal>, AuthError>> {
        futures::future::ready(Ok(None)).boxed()
    }

    /// What a client should do after a 401, as a part of the error.
    fn remedy(&self) -> &'static str {
        "log in, then try again"
    }
}

/// A request could not be authenticated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The request has no credentials.
    #[error("the request has no credentials")]
    Missing,
    /// The request's credentials are not known, or were revoked.
    #[error("the request's credentials are not known")]
    Unknown,
    /// The credentials could not be checked now.
    #[error("the request's credentials could not be checked")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl From<TokenError> for AuthError {
    fn from(error: TokenError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Bearer tokens.
pub(crate) struct TokenAuth {
    pub(crate) tokens: Tokens,
    /// Whether requests without a token are the local user's until the first token is created. Only
    /// for servers that listen on loopback.
    pub(crate) open_without_tokens: bool,
}

impl TokenAuth {
    async fn is_open(&self) -> Result<bool, TokenError> {
        Ok(self.open_without_tokens && self.tokens.none_was_ever_made().await?)
    }
}

impl Authenticate for TokenAuth {
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
    ) -> BoxFuture<'a, Result<Principal, AuthError>> {
        async move {
            let Some(value) = request.headers.get(header::AUTHORIZATION) else {
                let is_open = self.is_open().await?;
                return is_open.then(Principal::local).ok_or(AuthError::Missing);
            };
            let secret = value
                .to_str()
                .ok()
                .and_then(|text| text.split_once(' '))
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, secret)| secret.trim())
                .ok_or(AuthError::Unknown)?;
            self.tokens.verify(secret).await?.ok_or(AuthError::Unknown)
        }
        .boxed()
    }

    fn principal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Principal>, AuthError>> {
        async move {
            if id == LOCAL {
                return Ok(self.is_open().await?.then(Principal::local));
            }
            Ok(self.tokens.holder(id).await?)
        }
        .boxed()
    }

    fn remedy(&self) -> &'static str {
        "send `Authorization: Bearer ..`; `wellspring token create` makes a token"
    }
}

/// Signs the URLs of streams.
pub(crate) struct Signer {
    key: [u8; SECRET_BYTES],
}

impl Signer {
    /// The signing key of a store, which its first server creates.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, TokenError> {
        let key_of = |document: &Document| {
            let bytes = URL_SAFE_NO_PAD.decode(&*document.text).ok()?;
            Some(Self { key: bytes.try_into().ok()? })
        };
        let mut found = store.document(KEY_DOCUMENT.into()).await?;
        loop {
            if let Some(signer) = found.as_ref().and_then(key_of) {
                return Ok(signer);
            }
            let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
            let key = random()?;
            let text = URL_SAFE_NO_PAD.encode(key).into();
            match store.put_document(KEY_DOCUMENT.into(), Some(text), expected).await {
                Ok(Written::Done(_)) => return Ok(Self { key }),
                // Another server of this store created a key at the same time: use that one.
                Ok(Written::Conflict(theirs)) => found = theirs,
                // The store is read-only. Signed URLs are then valid until this server ends.
                Err(error) => {
                    tracing::warn!(%error, "could not keep the key that signs addresses");
                    return Ok(Self { key });
                }
            }
        }
    }

    /// The signature which proves that token `id` may read `run` until `until`.
    pub(crate) fn sign(&self, run: RunId, id: &str, until: Millis) -> String {
        URL_SAFE_NO_PAD.encode(self.mac(run, id, until).finalize().into_bytes())
    }

    pub(crate) fn verify(&self, run: RunId, id: &str, until: Millis, signature: &str) -> bool {
        URL_SAFE_NO_PAD
            .decode(signature)
            .is_ok_and(|given| self.mac(run, id, until).verify_slice(&given).is_ok())
    }

    fn mac(&self, run: RunId, id: &str, until: Millis) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(format!("events\n{run}\n{id}\n{}", until.0).as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;
    use wellspring_log::Log;

    use super::*;

    #[tokio::test]
    async fn a_signature_is_for_one_run_holder_and_time() {
        let store = Arc::clone(Log::in_memory().store());
        let signer = Signer::of(&*store).await.unwrap();
        let (run, other) = (RunId::new(Uuid::from_u128(1)), RunId::new(Uuid::from_u128(2)));
        let signature = signer.sign(run, "ci", Millis(5));
        assert!(Signer::of(&*store).await.unwrap().verify(run, "ci", Millis(5), &signature));
        assert!(!signer.verify(other, "ci", Millis(5), &signature));
        assert!(!signer.verify(run, "cj", Millis(5), &signature));
        assert!(!signer.verify(run, "ci", Millis(6), &signature));
        assert!(!signer.verify(run, "ci", Millis(5), "x"));
    }
}
