//! The egress guard: everything that fetches a URL on behalf of a user or model goes through it.
//!
//! A host name is resolved once, its address is checked, and that address is connected to, even
//! if a second lookup would give another one. Redirects are
//! followed by hand and checked like the first URL. Proxies from the environment are not
//! used, since a proxy would resolve the name again.
//!
//! # What is deliberately absent
//!
//! Credentials, cookies, decompression. Nothing here knows what the bytes are for.

mod range;

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::{BoxFuture, FutureExt as _};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

pub use range::{ParseRangeError, Range};

/// Redirects followed for one request: a login page or a mirror needs two or three.
pub const REDIRECTS_MAX: usize = 5;

/// How long connecting may take.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Maximum time without data from a peer.
pub const READ_TIME: Duration = Duration::from_secs(30);

/// The egress guard. Cheap to clone.
///
/// ```
/// use wellspring_engine::tools::egress::Egress;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let egress = Egress::new();
/// let error = egress.get("http://127.0.0.1:7600/").await.unwrap_err();
/// assert_eq!(error.to_string(), "127.0.0.1 is at 127.0.0.1, which is refused: loopback");
/// # });
/// ```
#[derive(Clone)]
pub struct Egress {
    policy: Arc<Policy>,
    /// Created on first use: that reads the system's certificates.
    client: Arc<OnceLock<Client>>,
}

struct Policy {
    allowed: Vec<Range>,
    resolver: Arc<dyn Resolver>,
}

/// Resolves host names.
pub trait Resolver: Send + Sync {
    /// All addresses of a host.
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// Why a URL was not fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The URL is not valid for fetching.
    #[error("{url:?} cannot be fetched: {why}")]
    Url {
        /// The address.
        url: Box<str>,
        /// What makes it invalid.
        why: &'static str,
    },
    /// The address is not allowed.
    #[error("{host} is at {address}, which is refused: {what}")]
    Refused {
        /// The name.
        host: Box<str>,
        /// The resolved address.
        address: IpAddr,
        /// The kind of range it is in.
        what: &'static str,
    },
    /// Too many redirects.
    #[error("{url} was redirected more than {REDIRECTS_MAX} times")]
    Redirects {
        /// The first URL.
        url: Box<str>,
    },
    /// The peer redirected an upload.
    #[error("the server redirects this upload to {to:?}")]
    SendElsewhere {
        /// The redirect's target.
        to: Box<str>,
    },
    /// The peer answered with an error status.
    #[error("{url} answered {status}")]
    Status {
        /// The address.
        url: Box<str>,
        /// The HTTP status.
        status: u16,
    },
    /// The connection failed.
    #[error("cannot reach {host}")]
    Failed {
        /// The host.
        host: Box<str>,
        /// The underlying error.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}

impl Default for Egress {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("allowed", &self.policy.allowed).finish_non_exhaustive()
    }
}

impl Egress {
    /// A guard that allows only public addresses, with the system's resolver.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Policy { allowed: Vec::new(), resolver: Arc::new(System) })
    }

    /// Allows these addresses too.
    #[must_use]
    pub fn allow(self, range: Range) -> Self {
        let mut allowed = self.policy.allowed.clone();
        allowed.push(range);
        Self::of(Policy { allowed, resolver: Arc::clone(&self.policy.resolver) })
    }

    /// Replaces the system's resolver.
    #[must_use]
    pub fn resolver(self, resolver: impl Resolver + 'static) -> Self {
        let allowed = self.policy.allowed.clone();
        Self::of(Policy { allowed, resolver: Arc::new(resolver) })
    }

    fn of(policy: Policy) -> Self {
        Self { policy: Arc::new(policy), client: Arc::default() }
    }

    /// Why an address is refused; `None` if it is allowed.
    #[must_use]
    pub fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        self.policy.refusal(address)
    }

    /// Fetches a URL.
    ///
    /// # Errors
    ///
    /// If the address is refused or unreachable, or the answer is not a success.
    pub async fn get(&self, url: &str) -> Result<Fetched, EgressError> {
        let client = self.client(url)?;
        let mut next = parse(url)?;
        for _ in 0..=REDIRECTS_MAX {
            self.policy.check(&next)?;
            let sent = client.request(Method::GET, next.clone()).send().await;
            let response = sent.map_err(|error| failed(&next, error))?;
            match redirection(&response) {
                Some(to) => next = follow(&next, &to)?,
                None => return Fetched::of(response),
            }
        }
        Err(EgressError::Redirects { url: url.into() })
    }

    /// Uploads `length` bytes to a URL.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). A redirect is an error too, since the bytes are already sent.
    pub async fn put(
        &self,
        url: &str,
        length: u64,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Fetched, EgressError> {
        let client = self.client(url)?;
        let to = parse(url)?;
        self.policy.check(&to)?;
        let request = client
            .request(Method::PUT, to.clone())
            .header(CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(bytes));
        let response = request.send().await.map_err(|error| failed(&to, error))?;
        match redirection(&response) {
            Some(to) => Err(EgressError::SendElsewhere { to: to.into() }),
            None => Fetched::of(response),
        }
    }

    fn client(&self, url: &str) -> Result<&Client, EgressError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIME)
            .read_timeout(READ_TIME)
            // No connection is reused, because its address was checked for another request.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("wellspring/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Guarded(Arc::clone(&self.policy)))
            .build()
            .map_err(|error| EgressError::Failed { host: url.into(), cause: error.into() })?;
        Ok(self.client.get_or_init(|| client))
    }
}

impl Policy {
    /// Checks everything that can be checked before the name is resolved.
    fn check(&self, url: &Url) -> Result<(), EgressError> {
        let refused = |why| Err(EgressError::Url { url: shown(url), why });
        if !matches!(url.scheme(), "http" | "https") {
            return refused("only http and https are");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("it has a name or a password in it");
        }
        let Some(host) = url.host_str() else { return refused("it has no host") };
        // A literal address is never resolved, so it is checked here.
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.check_address(host, address),
            Err(_) => Ok(()),
        }
    }

    fn check_address(&self, host: &str, address: IpAddr) -> Result<(), EgressError> {
        match self.refusal(address) {
            Some(what) => Err(EgressError::Refused { host: host.into(), address, what }),
            None => Ok(()),
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        if self.allowed.iter().any(|range| range.contains(address)) {
            return None;
        }
        range::special(address)
    }
}

/// The resolver that the HTTP client uses: its answers have been checked.
struct Guarded(Arc<Policy>);

impl reqwest::dns::Resolve for Guarded {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let policy = Arc::clone(&self.0);
        async move {
            let addresses = policy.resolver.resolve(name.as_str()).await?;
            // One refused address among allowed ones suggests an attack: refuse them all.
            for &address in &addresses {
                policy.check_address(name.as_str(), address)?;
            }
            // The client sets the port.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        }
        .boxed()
    }
}

struct System;

impl Resolver for System {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// An HTTP response.
#[derive(Debug)]
pub struct Fetched {
    response: Response,
}

impl Fetched {
    fn of(response: Response) -> Result<Self, EgressError> {
        if response.status().is_success() {
            Ok(Self { response })
        } else {
            let status = response.status().as_u16();
            Err(EgressError::Status { url: shown(response.url()), status })
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The content length, if the peer sent one.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// The content type, if the peer sent one.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        self.response.headers().get(CONTENT_TYPE)?.to_str().ok()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    ///
    /// If the connection ends early, or the peer sends nothing for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EgressError> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| failed(self.response.url(), error))
    }
}

fn parse(url: &str) -> Result<Url, EgressError> {
    let shown = || url.chars().take(200).collect::<String>().into();
    Url::parse(url).map_err(|_| EgressError::Url { url: shown(), why: "it is no absolute URL" })
}

/// The target of a redirect, if the response is one.
fn redirection(response: &Response) -> Option<String> {
    let moved = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let to = response.headers().get(LOCATION).filter(|_| moved.contains(&response.status()))?;
    Some(String::from_utf8_lossy(to.as_bytes()).into_owned())
}

fn follow(from: &Url, to: &str) -> Result<Url, EgressError> {
    let unusable =
        |why| EgressError::Url { url: to.chars().take(200).collect::<String>().into(), why };
    let next = from.join(to).map_err(|_| unusable("it is a broken redirect"))?;
    if from.scheme() == "https" && next.scheme() == "http" {
        return Err(unusable("it would leave the encrypted connection"));
    }
    Ok(next)
}

/// A URL without its query and credentials, which may be secret.
fn shown(url: &Url) -> Box<str> {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Setting these fails only for URLs that cannot hold them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.as_str().into()
}

/// The client's error, or the error that our resolver gave it.
fn failed(url: &Url, error: reqwest::Error) -> EgressError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(EgressError::Refused { host, address, what }) = inner.downcast_ref() {
            return EgressError::Refused { host: host.clone(), address: *address, what };
        }
        cause = inner.source();
    }
    let host = url.host_str().unwrap_or_default().into();
    EgressError::Failed { host, cause: error.without_url().into() }
}

#[cfg(test)]
mod tests;
