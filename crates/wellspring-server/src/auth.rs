//! Who calls, and what they may.
//!
//! A token names a tenant and scopes. Only its SHA-256 is kept: it has 256 random bits, so
//! nothing slower is needed. A browser's `EventSource` cannot send headers; for it a token's
//! holder gets a stream's address signed, for a while.
//!
//! # Promised
//!
//! Secrets are compared in constant time, and never appear in a `Debug`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::RwLock;
use tokio::time::Instant;
use wellspring_core::{Millis, RunId};
use wellspring_engine::{LOCAL, Permission, Principal};
use wellspring_log::{Store, StoreError};

/// How old what is known of the tokens may be: a token that is made or revoked by another
/// process counts that much later.
pub const TOKENS_REFRESH: Duration = Duration::from_secs(2);

/// How long a signed address of a stream opens it, unless told: long enough to reconnect a
/// few times, short enough for a history or a log.
pub const SIGNED_FOR: Duration = Duration::from_secs(10 * 60);

/// The longest a signed address of a stream opens it.
pub const SIGNED_FOR_MAX: Duration = Duration::from_secs(60 * 60);

/// The most tokens there are: all are read together.
pub const TOKENS_MAX: usize = 10_000;

const TOKENS_SETTING: &str = "server.tokens";
const KEY_SETTING: &str = "server.signing-key";
const SECRET_BYTES: usize = 32;

/// What is known of a token; not the token.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenInfo {
    /// What it is called: who calls, as the runs know it.
    pub id: Box<str>,
    /// Whose runs it sees.
    pub tenant: Box<str>,
    /// What it allows.
    pub scopes: Vec<Permission>,
    /// When it was made.
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

/// A token could not be made or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name is taken.
    #[error("there is a token {0:?} already; revoke it first, or choose another name")]
    Exists(Box<str>),
    /// The name cannot be part of a token.
    #[error("{0:?} is no name for a token: letters, digits and dashes, at most 64")]
    BadName(Box<str>),
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens already; revoke some")]
    Full,
    /// The machine gives no random numbers.
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
    tokens: Arc<[TokenInfo]>,
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

    /// Makes a token and gives its secret, which nobody will see again.
    ///
    /// # Errors
    ///
    /// When the name is taken or unfit, or the store fails.
    pub async fn create(
        &self,
        id: &str,
        tenant: &str,
        scopes: &[Permission],
    ) -> Result<String, TokenError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.is_empty() || id.len() > 64 || !id.chars().all(fits) {
            return Err(TokenError::BadName(id.chars().take(64).collect::<String>().into()));
        }
        let mut tokens = self.read().await?;
        if tokens.iter().any(|token| &*token.id == id) {
            return Err(TokenError::Exists(id.into()));
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(TokenError::Full);
        }
        let secret = format!("ws_{id}_{}", URL_SAFE_NO_PAD.encode(random()?));
        tokens.push(TokenInfo {
            id: id.into(),
            tenant: tenant.into(),
            scopes: scopes.to_vec(),
            created_at: now(),
            hash: hash(&secret),
        });
        self.write(&tokens).await?;
        Ok(secret)
    }

    /// Revokes a token; `false` if there is none of that name.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn revoke(&self, id: &str) -> Result<bool, TokenError> {
        let mut tokens = self.read().await?;
        let before = tokens.len();
        tokens.retain(|token| &*token.id != id);
        self.write(&tokens).await?;
        Ok(tokens.len() < before)
    }

    /// Every token there is.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        self.read().await
    }

    /// Whose secret this is.
    pub(crate) async fn verify(&self, secret: &str) -> Result<Option<Principal>, TokenError> {
        let tokens = self.fresh().await?;
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

    /// The holder of a token, by its name.
    pub(crate) async fn holder(&self, id: &str) -> Result<Option<Principal>, TokenError> {
        if id == LOCAL {
            return Ok(self.is_empty().await?.then(Principal::local));
        }
        Ok(self.fresh().await?.iter().find(|token| &*token.id == id).map(principal))
    }

    pub(crate) async fn is_empty(&self) -> Result<bool, TokenError> {
        Ok(self.fresh().await?.is_empty())
    }

    async fn fresh(&self) -> Result<Arc<[TokenInfo]>, TokenError> {
        let fresh = |known: &Option<Known>| match known {
            Some(known) if known.at.elapsed() < TOKENS_REFRESH => Some(Arc::clone(&known.tokens)),
            _ => None,
        };
        if let Some(tokens) = fresh(&*self.known.read().await) {
            return Ok(tokens);
        }
        let mut known = self.known.write().await;
        if let Some(tokens) = fresh(&known) {
            return Ok(tokens);
        }
        let tokens: Arc<[TokenInfo]> = self.read().await?.into();
        *known = Some(Known { tokens: Arc::clone(&tokens), at: Instant::now() });
        Ok(tokens)
    }

    async fn read(&self) -> Result<Vec<TokenInfo>, TokenError> {
        let Some(json) = self.store.setting(TOKENS_SETTING.into()).await? else {
            return Ok(Vec::new());
        };
        serde_json::from_str(&json)
            .map_err(|error| StoreError::failed("reading the tokens", error).into())
    }

    async fn write(&self, tokens: &[TokenInfo]) -> Result<(), TokenError> {
        let json = serde_json::to_string(tokens)
            .map_err(|error| StoreError::failed("writing the tokens", error))?;
        self.store.put_setting(TOKENS_SETTING.into(), Some(json.into())).await?;
        *self.known.write().await = None;
        Ok(())
    }
}

fn principal(token: &TokenInfo) -> Principal {
    Principal::new(&*token.tenant, &*token.id, token.scopes.iter().copied())
}

/// Signs the addresses of streams.
pub(crate) struct Signer {
    key: [u8; SECRET_BYTES],
}

impl Signer {
    /// The store's key; the first server of a store makes it.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, TokenError> {
        if let Some(kept) = store.setting(KEY_SETTING.into()).await?
            && let Ok(bytes) = URL_SAFE_NO_PAD.decode(&*kept)
            && let Ok(key) = bytes.try_into()
        {
            return Ok(Self { key });
        }
        let key = random()?;
        let text = URL_SAFE_NO_PAD.encode(key);
        store.put_setting(KEY_SETTING.into(), Some(text.into())).await?;
        Ok(Self { key })
    }

    /// What proves that the holder of token `id` may read `run` until then.
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

fn hash(secret: &str) -> Box<str> {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes())).into()
}

fn random() -> Result<[u8; SECRET_BYTES], TokenError> {
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
    use uuid::Uuid;
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
        let kept = store.setting(TOKENS_SETTING.into()).await.unwrap().unwrap();
        assert!(!kept.contains(&secret), "only hashes are kept");
        assert!(tokens.revoke("ci").await.unwrap());
        assert!(tokens.verify(&secret).await.unwrap().is_none());
        let taken = tokens.create("ci-2", "acme", &[]).await.unwrap_err();
        assert!(matches!(taken, TokenError::Exists(_)));
        for bad in ["", "a_b", "ä", &"x".repeat(65)] {
            let error = tokens.create(bad, "acme", &[]).await.unwrap_err();
            assert!(matches!(error, TokenError::BadName(_)), "{bad}");
        }
    }

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
