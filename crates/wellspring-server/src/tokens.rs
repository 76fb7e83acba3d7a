//! Tokens: their names, tenants and permissions.
//!
//! Only a token's SHA-256 is kept: it has 256 random bits, so nothing slower is needed.
//! Secrets are compared in constant time, and never appear in a `Debug`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::RwLock;
use tokio::time::Instant;
use wellspring_core::Millis;
use wellspring_engine::{LOCAL, Permission, Principal};
use wellspring_log::document::all_documents;
use wellspring_log::{Document, Expected, Store, StoreError, Written};

/// How long the list of tokens is cached: changes made by another process take effect this much
/// later.
pub const TOKENS_REFRESH: Duration = Duration::from_secs(2);

/// Maximum number of tokens: all of them are kept in memory.
pub const TOKENS_MAX: usize = 10_000;

/// Bytes of the name of a token or a tenant: both are in every record of an audit.
const NAME_BYTES_MAX: usize = 64;

/// Each token is its own document, so that concurrent changes never undo each other.
const TOKEN_PREFIX: &str = "token/";
/// The document that exists once any token was created. From then on every request needs a token.
const REQUIRED_DOCUMENT: &str = "server.tokens-required";
pub(crate) const SECRET_BYTES: usize = 32;

/// A token without its secret.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenInfo {
    /// Its name, which runs and the audit log record as the principal's id.
    pub id: Box<str>,
    /// The tenant whose runs it can access.
    pub tenant: Box<str>,
    /// Its permissions.
    pub scopes: Vec<Permission>,
    /// When it was created.
    pub created_at: Millis,
    /// SHA-256 of the secret, in base64.
    hash: Box<str>,
}

impl fmt::Debug for TokenInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenInfo")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// A token could not be created or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name is taken.
    #[error("there is a token {0:?} already; revoke it first, or choose another name")]
    Exists(Box<str>),
    /// The name cannot be part of a token.
    #[error(
        "{0:?} cannot be the name of a token: use up to {NAME_BYTES_MAX} ASCII letters, digits \
         and dashes, and not {LOCAL:?}"
    )]
    BadName(Box<str>),
    /// The tenant's name cannot be used.
    #[error(
        "{0:?} cannot be the name of a tenant: use up to {NAME_BYTES_MAX} ASCII letters, digits, \
         dashes, dots and underscores"
    )]
    BadTenant(Box<str>),
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens already; revoke some")]
    Full,
    /// The operating system's random number generator failed.
    #[error("the system gave no random numbers: {0}")]
    Random(String),
    /// The store failed.
    #[error("the tokens could not be read or kept")]
    Store(#[source] StoreError),
}

impl From<StoreError> for TokenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The tokens of a store.
///
/// ```
/// # use wellspring_log::Log;
/// use wellspring_engine::Permission;
/// use wellspring_server::Tokens;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = Tokens::new(Log::in_memory().store().clone());
/// let secret = tokens.create("ci", "acme", &[Permission::Run]).await?;
/// assert!(secret.starts_with("ws_ci_"));
/// assert_eq!(tokens.list().await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tokens {
    store: Arc<dyn Store>,
    known: Arc<RwLock<Option<Known>>>,
}

struct Known {
    /// `None` if no token was ever created.
    tokens: Option<Arc<[TokenInfo]>>,
    at: Instant,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// The tokens kept in a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, known: Arc::default() }
    }

    /// Creates a token and returns its secret, which is not stored and cannot be shown again.
    ///
    /// # Errors
    ///
    /// If the name is taken, a name is not allowed, or the store fails.
    pub async fn create(
        &self,
        id: &str,
        tenant: &str,
        scopes: &[Permission],
    ) -> Result<String, TokenError> {
        let shown = |name: &str| name.chars().take(NAME_BYTES_MAX).collect::<String>().into();
        // The local user's requests are recorded under that name, and have no limits.
        if !is_name(id, "-") || id == LOCAL {
            return Err(TokenError::BadName(shown(id)));
        }
        if !is_name(tenant, "-._") {
            return Err(TokenError::BadTenant(shown(tenant)));
        }
        // Checked before the write: tokens that are made at the same time may exceed the maximum
        // by their number.
        if self.read().await?.unwrap_or_default().len() >= TOKENS_MAX {
            return Err(TokenError::Full);
        }
        let secret = format!("ws_{id}_{}", URL_SAFE_NO_PAD.encode(random()?));
        let token = TokenInfo {
            id: id.into(),
            tenant: tenant.into(),
            scopes: scopes.to_vec(),
            created_at: now(),
            hash: hash(&secret),
        };
        let json = serde_json::to_string(&token)
            .map_err(|error| StoreError::failed("writing a token", error))?;
        let required = REQUIRED_DOCUMENT.into();
        self.store.put_document(required, Some("yes".into()), Expected::Absent).await?;
        let written =
            self.store.put_document(document(id), Some(json.into()), Expected::Absent).await?;
        *self.known.write().await = None;
        match written {
            Written::Done(_) => Ok(secret),
            Written::Conflict(_) => Err(TokenError::Exists(id.into())),
        }
    }

    /// Revokes a token; `false` if no token has that name. Once tokens are required they stay
    /// required, even after the last one is revoked.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn revoke(&self, id: &str) -> Result<bool, TokenError> {
        if !is_name(id, "-") {
            return Ok(false);
        }
        loop {
            let Some(found) = self.store.document(document(id)).await? else { return Ok(false) };
            let expected = Expected::Revision(found.revision);
            let written = self.store.put_document(document(id), None, expected).await?;
            *self.known.write().await = None;
            match written {
                Written::Done(_) => return Ok(true),
                // Another process revoked it, and may have created it again.
                Written::Conflict(_) => {}
            }
        }
    }

    /// All tokens.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        Ok(self.read().await?.unwrap_or_default())
    }

    /// The principal of a secret; `None` if the secret is not valid.
    pub(crate) async fn verify(&self, secret: &str) -> Result<Option<Principal>, TokenError> {
        let tokens = self.fresh().await?.unwrap_or_default();
        let given = hash(secret);
        // A name has no underscore, so the first one ends it.
        let id = secret.strip_prefix("ws_").and_then(|rest| rest.split_once('_'));
        let named = |token: &&TokenInfo| id.is_some_and(|(id, _)| id == &*token.id);
        let found = tokens
            .iter()
            .filter(named)
            .find(|token| bool::from(token.hash.as_bytes().ct_eq(given.as_bytes())));
        Ok(found.map(principal))
    }

    /// The principal of the token with this name.
    pub(crate) async fn holder(&self, id: &str) -> Result<Option<Principal>, TokenError> {
        let tokens = self.fresh().await?.unwrap_or_default();
        Ok(tokens.iter().find(|token| &*token.id == id).map(principal))
    }

    /// Whether there is no token.
    pub(crate) async fn is_empty(&self) -> Result<bool, TokenError> {
        Ok(self.fresh().await?.is_none_or(|tokens| tokens.is_empty()))
    }

    /// Whether no token was ever created.
    pub(crate) async fn none_was_ever_made(&self) -> Result<bool, TokenError> {
        Ok(self.fresh().await?.is_none())
    }

    async fn fresh(&self) -> Result<Option<Arc<[TokenInfo]>>, TokenError> {
        let fresh = |known: &Option<Known>| match known {
            Some(known) if known.at.elapsed() < TOKENS_REFRESH => Some(known.tokens.clone()),
            _ => None,
        };
        if let Some(tokens) = fresh(&*self.known.read().await) {
            return Ok(tokens);
        }
        let mut known = self.known.write().await;
        if let Some(tokens) = fresh(&known) {
            return Ok(tokens);
        }
        let tokens: Option<Arc<[TokenInfo]>> = self.read().await?.map(Into::into);
        *known = Some(Known { tokens: tokens.clone(), at: Instant::now() });
        Ok(tokens)
    }

    async fn read(&self) -> Result<Option<Vec<TokenInfo>>, TokenError> {
        // Twice the maximum: see `create`.
        let documents = all_documents(&*self.store, TOKEN_PREFIX, 2 * TOKENS_MAX).await?;
        let required = self.store.document(REQUIRED_DOCUMENT.into());
        if documents.is_empty() && required.await?.is_none() {
            return Ok(None);
        }
        let read = |document: Document| {
            serde_json::from_str(&document.text)
                .map_err(|error| StoreError::failed("reading a token", error).into())
        };
        documents.into_iter().map(read).collect::<Result<_, _>>().map(Some)
    }
}

fn document(id: &str) -> Box<str> {
    format!("{TOKEN_PREFIX}{id}").into()
}

fn principal(token: &TokenInfo) -> Principal {
    Principal::new(&*token.tenant, &*token.id, token.scopes.iter().copied())
}

fn is_name(name: &str, marks: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(fits)
}

fn hash(secret: &str) -> Box<str> {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes())).into()
}

pub(crate) fn random() -> Result<[u8; SECRET_BYTES], TokenError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
    Ok(bytes)
}

fn now() -> Millis {
    use wellspring_log::Clock as _;
    wellspring_log::SystemClock.now()
}

#[cfg(test)]
mod tests {
    use wellspring_log::Log;

    use super::*;

    #[tokio::test]
    async fn a_token_is_known_until_it_is_revoked() {
        let store = Arc::clone(Log::in_memory().store());
        let tokens = Tokens::new(Arc::clone(&store));
        assert!(tokens.is_empty().await.unwrap());
        let secret = tokens.create("ci", "acme", &[Permission::Read]).await.unwrap();
        let other = tokens.create("ci-2", "acme", &[Permission::Admin]).await.unwrap();
        let who = tokens.verify(&secret).await.unwrap().unwrap();
        assert_eq!((&*who.id, &*who.tenant), ("ci", "acme"));
        assert!(who.may(Permission::Read) && !who.may(Permission::Run));
        assert!(tokens.verify(&other).await.unwrap().unwrap().may(Permission::Run));
        for wrong in ["", "ws_", "ws_ci_", "ws_ci_x", &other.replace("ci-2", "ci")] {
            assert!(tokens.verify(wrong).await.unwrap().is_none(), "{wrong}");
        }
        let kept = store.document("token/ci".into()).await.unwrap().unwrap();
        assert!(!kept.text.contains(&secret), "only hashes are kept");
        assert!(tokens.revoke("ci").await.unwrap());
        assert!(tokens.verify(&secret).await.unwrap().is_none());
        let taken = tokens.create("ci-2", "acme", &[]).await.unwrap_err();
        assert!(matches!(taken, TokenError::Exists(_)));
        let long = "x".repeat(65);
        for bad in ["", "a_b", "ä", LOCAL, &long] {
            let error = tokens.create(bad, "acme", &[]).await.unwrap_err();
            assert!(matches!(error, TokenError::BadName(_)), "{bad}");
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &long] {
            let error = tokens.create("ok", bad, &[]).await.unwrap_err();
            assert!(matches!(error, TokenError::BadTenant(_)), "{bad}");
        }
    }

    /// Concurrent creations and revocations all take effect.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tokens_are_created_and_revoked_at_once() {
        const TOKENS: usize = 50;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let open = || {
            let log = Log::sqlite(&path, wellspring_log::SqliteOptions::default()).unwrap();
            Tokens::new(Arc::clone(log.store()))
        };
        let (here, there) = (open(), open());
        for token in 0..TOKENS {
            here.create(&format!("old-{token}"), "acme", &[]).await.unwrap();
        }
        let mut changes = tokio::task::JoinSet::new();
        for token in 0..TOKENS {
            let (here, there) = (here.clone(), there.clone());
            changes.spawn(async move {
                let (new, old) = (format!("new-{token}"), format!("old-{token}"));
                let (created, taken, revoked) = tokio::join!(
                    here.create(&new, "acme", &[]),
                    there.create(&new, "other", &[]),
                    there.revoke(&old),
                );
                assert!(created.is_ok() != taken.is_ok(), "one of two gets a name");
                assert!(revoked.unwrap());
            });
        }
        while let Some(changed) = changes.join_next().await {
            changed.unwrap();
        }
        let left = here.list().await.unwrap();
        assert_eq!(left.len(), TOKENS);
        assert!(left.iter().all(|token| token.id.starts_with("new-")));
    }

    /// Revoking what is not there closes nothing; revoking the last token opens nothing.
    #[tokio::test]
    async fn the_last_token_leaves_the_door_closed() {
        let tokens = Tokens::new(Arc::clone(Log::in_memory().store()));
        assert!(!tokens.revoke("ci").await.unwrap());
        assert!(tokens.none_was_ever_made().await.unwrap());
        tokens.create("ci", "acme", &[]).await.unwrap();
        assert!(tokens.revoke("ci").await.unwrap());
        assert!(tokens.is_empty().await.unwrap());
        assert!(!tokens.none_was_ever_made().await.unwrap());
    }
}
