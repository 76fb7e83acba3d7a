//! The streams that share one connection.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use wellspring_wire::Framing;

use crate::stream::EventStream;

/// The most streams that share one connection: a screen with many runs on it. Each costs a
/// cursor and a fold, about a kilobyte.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;

/// Streams that share one connection, by the client's names for them.
///
/// Each is a cursor that is pulled when the connection can take more, in the order in which they
/// become ready. So a busy run or a slow reader does not delay other runs, and nothing is buffered
/// for a client that does not read.
pub(crate) struct Subscriptions<K> {
    pulled: FuturesUnordered<Pull<K>>,
    known: BTreeMap<K, Known>,
}

type Pull<K> = Abortable<BoxFuture<'static, Pulled<K>>>;

struct Pulled<K> {
    key: K,
    stream: Box<EventStream>,
    piece: Option<Bytes>,
}

struct Known {
    abort: AbortHandle,
    /// How many more events the client accepts; unlimited if `None`.
    credit: Option<i64>,
    /// The stream while there is no credit for it.
    held: Option<Box<EventStream>>,
}

/// The output of a stream.
#[derive(Debug)]
pub(crate) struct Delivery<K> {
    pub(crate) key: K,
    pub(crate) framing: Framing,
    /// Whole events, as the stream's dialect frames them; `None` at the end of the stream.
    pub(crate) piece: Option<Bytes>,
}

/// A stream that cannot be added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotAdded {
    /// The client already uses the name.
    Exists,
    /// There are [`SUBSCRIPTIONS_MAX`] streams.
    Full,
}

impl NotAdded {
    /// The error code for [`Self::Exists`]. The open subscription continues.
    pub(crate) const EXISTS: &str = "subscription_exists";
}

impl<K> Default for Subscriptions<K> {
    fn default() -> Self {
        Self { pulled: FuturesUnordered::new(), known: BTreeMap::new() }
    }
}

impl<K: Clone + Ord + Send + 'static> Subscriptions<K> {
    /// Adds a stream. With `credit` it yields about that many events, and more after
    /// [`add_credit`](Self::add_credit).
    pub(crate) fn insert(
        &mut self,
        key: K,
        stream: EventStream,
        credit: Option<u32>,
    ) -> Result<(), NotAdded> {
        if self.known.contains_key(&key) {
            return Err(NotAdded::Exists);
        }
        if self.known.len() >= SUBSCRIPTIONS_MAX {
            return Err(NotAdded::Full);
        }
        let (abort, _) = AbortHandle::new_pair();
        let held = Some(Box::new(stream));
        self.known.insert(key.clone(), Known { abort, credit: credit.map(i64::from), held });
        self.pull(&key);
        Ok(())
    }

    /// Removes a stream; its run continues. `false` if no stream has this name.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        match self.known.remove(key) {
            Some(known) => {
                known.abort.abort();
                true
            }
            None => false,
        }
    }

    /// Lets a stream yield more events. `false` if no stream has this name.
    pub(crate) fn add_credit(&mut self, key: &K, more: u32) -> bool {
        let Some(known) = self.known.get_mut(key) else { return false };
        known.credit = known.credit.map(|credit| credit.saturating_add(i64::from(more)));
        self.pull(key);
        true
    }

    /// Lets all streams run to their end, regardless of credit.
    pub(crate) fn release(&mut self) {
        let keys: Vec<_> = self.known.keys().cloned().collect();
        for key in keys {
            if let Some(known) = self.known.get_mut(&key) {
                known.credit = None;
            }
            self.pull(&key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The output of the next stream that is ready. Pending while there are no streams.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Delivery<K> {
        loop {
            let Some(pulled) = self.pulled.next().await else {
                return std::future::pending().await;
            };
            // It was removed in the meantime.
            let Ok(Pulled { key, stream, piece }) = pulled else { continue };
            let framing = stream.framing();
            match &piece {
                None => {
                    self.known.remove(&key);
                }
                Some(bytes) => {
                    if let Some(known) = self.known.get_mut(&key) {
                        if let Some(credit) = &mut known.credit {
                            let events = framing.events(bytes).count();
                            *credit -= i64::try_from(events).unwrap_or(i64::MAX);
                        }
                        known.held = Some(stream);
                    }
                    self.pull(&key);
                }
            }
            return Delivery { key, framing, piece };
        }
    }

    /// Pulls a stream, if it has credit and is not being pulled.
    fn pull(&mut self, key: &K) {
        let Some(known) = self.known.get_mut(key) else { return };
        if known.credit.is_some_and(|credit| credit <= 0) {
            return;
        }
        let Some(mut stream) = known.held.take() else { return };
        let (abort, registration) = AbortHandle::new_pair();
        known.abort = abort;
        let key = key.clone();
        let pull = async move {
            let piece = stream.next().await;
            Pulled { key, stream, piece }
        };
        self.pulled.push(Abortable::new(pull.boxed(), registration));
    }
}
