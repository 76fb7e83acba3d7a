//! The server's limits, as counters and token buckets.
//!
//! Nothing here waits: a request beyond a limit is refused, with the time after which to try again.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;
use wellspring_engine::{LOCAL, Principal};

use crate::config::ServerLimits;
use crate::error::ApiError;
use crate::lock;

/// Maximum number of callers whose rate is remembered. Beyond it, callers whose bucket is full again
/// are forgotten, and then all.
const CALLERS_MAX: usize = 16 * 1024;

/// Seconds of its rate that a caller may use in one burst: a page that loads sends a few requests
/// together.
const BURST_SECONDS: f64 = 2.0;

/// All limits of a server, and their current use.
pub(crate) struct Gates {
    limits: ServerLimits,
    streams: Arc<Mutex<OpenStreams>>,
    held: Arc<Held>,
    tokens: Rates<Arc<str>>,
    addresses: Rates<IpAddr>,
}

/// Bytes of request bodies and large responses.
struct Held {
    max: usize,
    per_token_max: usize,
    now: Mutex<HeldNow>,
}

#[derive(Default)]
struct HeldNow {
    all: usize,
    /// By the principal's id. Unauthenticated requests share one entry.
    per_token: BTreeMap<Arc<str>, usize>,
}

#[derive(Default)]
struct OpenStreams {
    all: usize,
    per_token: BTreeMap<Arc<str>, usize>,
}

impl Gates {
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        Self {
            limits: limits.clone(),
            streams: Arc::default(),
            held: Arc::new(Held {
                max: limits.held_bytes,
                per_token_max: limits.held_bytes_per_token,
                now: Mutex::default(),
            }),
            tokens: Rates::new(limits.requests_per_token),
            addresses: Rates::new(limits.requests_per_address),
        }
    }

    /// Counts a request from an address.
    pub(crate) fn address(&self, address: IpAddr) -> Result<(), ApiError> {
        if address.to_canonical().is_loopback() {
            return Ok(());
        }
        self.addresses.take(address).map_err(|wait| too_often("address", wait))
    }

    /// Counts a request of a principal.
    pub(crate) fn token(&self, who: &Principal) -> Result<(), ApiError> {
        if who.is_local() {
            return Ok(());
        }
        self.tokens.take(Arc::clone(&who.id)).map_err(|wait| too_often("token", wait))
    }

    /// Begins to count the bytes of a request of this principal, from zero.
    pub(crate) fn bytes(&self, id: &str) -> BytesPass {
        BytesPass { held: Arc::clone(&self.held), id: id.into(), bytes: 0 }
    }

    /// Counts a stream as open until what is returned is dropped.
    pub(crate) fn stream(&self, who: &Principal) -> Result<StreamPass, ApiError> {
        let mut open = lock(&self.streams);
        if open.all >= self.limits.streams {
            let message = format!("{} streams are open already", open.all);
            let remedy = "try again shortly, or read pages with Accept: application/json";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(ApiError::new(status, "too_many_streams", message, remedy).retry_after(5));
        }
        let theirs = open.per_token.get(&who.id).copied().unwrap_or(0);
        if !who.is_local() && theirs >= self.limits.streams_per_token {
            let message = format!("this token has {theirs} streams open already");
            let remedy = "close some, or read pages with Accept: application/json";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(ApiError::new(status, "too_many_streams", message, remedy).retry_after(5));
        }
        open.all += 1;
        *open.per_token.entry(Arc::clone(&who.id)).or_default() += 1;
        drop(open);
        Ok(StreamPass { streams: Arc::clone(&self.streams), id: Arc::clone(&who.id) })
    }
}

fn too_often(whose: &str, wait: Duration) -> ApiError {
    let message = format!("too many requests from this {whose}");
    let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
    let status = StatusCode::TOO_MANY_REQUESTS;
    ApiError::new(status, "too_often", message, "slow down").retry_after(seconds)
}

/// The bytes that one request holds; released on drop.
pub(crate) struct BytesPass {
    held: Arc<Held>,
    id: Arc<str>,
    bytes: usize,
}

impl BytesPass {
    /// Adds bytes, within the limits.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let mut now = lock(&self.held.now);
        let theirs = now.per_token.get(&self.id).copied().unwrap_or(0).saturating_add(bytes);
        let all = now.all.saturating_add(bytes);
        let (status, message) = if all > self.held.max {
            (StatusCode::SERVICE_UNAVAILABLE, "the server is busy with large requests")
        } else if *self.id != *LOCAL && theirs > self.held.per_token_max {
            (StatusCode::TOO_MANY_REQUESTS, "this token has too many large requests at once")
        } else {
            now.all = all;
            now.per_token.insert(Arc::clone(&self.id), theirs);
            drop(now);
            self.bytes += bytes;
            return Ok(());
        };
        let remedy = "try again in a few seconds, with fewer at once";
        Err(ApiError::new(status, "too_much_at_once", message, remedy).retry_after(5))
    }

    /// Removes bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut now = lock(&self.held.now);
        now.all -= bytes;
        if let Some(theirs) = now.per_token.get_mut(&self.id) {
            *theirs -= bytes;
            if *theirs == 0 {
                now.per_token.remove(&self.id);
            }
        }
    }
}

impl Drop for BytesPass {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// An open stream; counted until it is dropped.
pub(crate) struct StreamPass {
    streams: Arc<Mutex<OpenStreams>>,
    id: Arc<str>,
}

impl Drop for StreamPass {
    fn drop(&mut self) {
        let mut open = lock(&self.streams);
        open.all = open.all.saturating_sub(1);
        if let Some(theirs) = open.per_token.get_mut(&self.id) {
            *theirs = theirs.saturating_sub(1);
            if *theirs == 0 {
                open.per_token.remove(&self.id);
            }
        }
    }
}

/// A bucket per caller that fills at a rate.
struct Rates<K> {
    per_second: f64,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl<K: Eq + Hash> Rates<K> {
    fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    /// Takes a token, or returns how long to wait for one.
    fn take(&self, caller: K) -> Result<(), Duration> {
        let full = (self.per_second * BURST_SECONDS).max(1.0);
        let now = Instant::now();
        let fill = |bucket: &Bucket| {
            full.min(bucket.left + now.duration_since(bucket.at).as_secs_f64() * self.per_second)
        };
        let mut buckets = lock(&self.buckets);
        if buckets.len() >= CALLERS_MAX && !buckets.contains_key(&caller) {
            // A full bucket need not be stored.
            buckets.retain(|_, bucket| fill(bucket) < full);
            if buckets.len() >= CALLERS_MAX {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(caller).or_insert(Bucket { left: full, at: now });
        let left = fill(bucket);
        *bucket = Bucket { left, at: now };
        if left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        // A rate of zero never refills; report an hour.
        let wait = ((1.0 - left) / self.per_second).min(3600.0);
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::from_secs(3600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_is_used_up_and_fills_again() {
        let rates = Rates::new(10);
        for _ in 0..20 {
            rates.take("a").unwrap();
        }
        assert_eq!(rates.take("a"), Err(Duration::from_millis(100)));
        rates.take("b").unwrap();
        tokio::time::advance(Duration::from_millis(100)).await;
        rates.take("a").unwrap();
        assert!(rates.take("a").is_err());
    }

    /// This machine's own requests are not counted; everybody else's are, each by itself.
    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_rate() {
        let limits = ServerLimits { requests_per_address: 1, ..ServerLimits::default() };
        let gates = Gates::new(&limits);
        let ask = |address: &str| {
            let refused = gates.address(address.parse().unwrap()).err();
            refused.map(|error| (error.status.as_u16(), error.code, error.retry_after))
        };
        for _ in 0..10 {
            assert_eq!((ask("127.0.0.1"), ask("::1"), ask("::ffff:127.0.0.1")), (None, None, None));
        }
        let burst = [ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.2")];
        assert_eq!(burst, [None, None, Some((429, "too_often", Some(2))), None]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ask("192.0.2.1"), None);
    }

    /// A token can use up only its own share, and finished requests do not count.
    #[tokio::test]
    async fn what_requests_hold_is_bounded() {
        let limits =
            ServerLimits { held_bytes: 100, held_bytes_per_token: 40, ..ServerLimits::default() };
        let gates = Gates::new(&limits);
        let hold = |id: &str, bytes: usize| {
            let mut pass = gates.bytes(id);
            pass.grow(bytes).map(|()| pass).map_err(|error| error.status.as_u16())
        };
        let mut one = hold("one", 40).unwrap();
        assert_eq!(hold("one", 1).err(), Some(429));
        let two = hold("two", 40).unwrap();
        assert_eq!(hold("three", 21).err(), Some(503));
        let three = hold("three", 20).unwrap();
        assert_eq!(hold("four", 1).err(), Some(503));
        one.shrink(30);
        drop(hold("one", 30).unwrap());
        let local = hold(LOCAL, 30).unwrap();
        assert_eq!(hold(LOCAL, 1).err(), Some(503));
        drop((one, two, three, local));
        let now = lock(&gates.held.now);
        assert_eq!((now.all, now.per_token.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_are_forgotten_at_the_maximum() {
        let rates = Rates::new(1);
        for caller in 0..CALLERS_MAX {
            rates.take(caller).unwrap();
        }
        assert_eq!(lock(&rates.buckets).len(), CALLERS_MAX);
        tokio::time::advance(Duration::from_secs(1)).await;
        rates.take(usize::MAX).unwrap();
        assert_eq!(lock(&rates.buckets).len(), 1);
    }
}
