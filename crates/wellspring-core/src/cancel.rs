//! A cancellation token that needs no runtime.
//!
//! Tools, models and remote agents watch one to learn that they should stop. It behaves like
//! the token of `tokio-util`, but lets this crate and `wellspring-wire` compile without Tokio.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::future::{Either, select};

/// Tells any number of tasks that they should stop. Clones share one state; a
/// [child](CancellationToken::child_token) is cancelled with its parent, but not the reverse.
///
/// ```
/// use wellspring_core::CancellationToken;
///
/// let parent = CancellationToken::new();
/// let child = parent.child_token();
/// parent.cancel();
/// assert!(child.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancellationToken {
    node: Arc<Node>,
}

#[derive(Default)]
struct Node {
    cancelled: AtomicBool,
    watchers: Mutex<Watchers>,
}

/// The wakers and children of a token. Empty once it is cancelled. It holds one waker per
/// waiting future, and one entry per child that is still used.
#[derive(Default)]
struct Watchers {
    next: u64,
    wakers: Vec<(u64, Waker)>,
    children: Vec<Weak<Node>>,
}

impl CancellationToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled when this one is, and can be cancelled on its own.
    #[must_use]
    pub fn child_token(&self) -> Self {
        let child = Self::new();
        let mut watchers = self.node.lock();
        if self.is_cancelled() {
            child.node.cancelled.store(true, Ordering::Release);
        } else {
            // Remove children that were dropped.
            watchers.children.retain(|child| child.strong_count() > 0);
            watchers.children.push(Arc::downgrade(&child.node));
        }
        drop(watchers);
        child
    }

    /// Cancels this token and its children, and wakes everything that waits for them.
    pub fn cancel(&self) {
        let mut nodes = vec![Arc::clone(&self.node)];
        while let Some(node) = nodes.pop() {
            let watchers = {
                let mut watchers = node.lock();
                node.cancelled.store(true, Ordering::Release);
                std::mem::take(&mut *watchers)
            };
            // Outside the lock: a waker may poll at once.
            watchers.wakers.into_iter().for_each(|(_, waker)| waker.wake());
            nodes.extend(watchers.children.iter().filter_map(Weak::upgrade));
        }
    }

    /// Whether the token was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.node.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the token is cancelled.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and created again at any time.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { node: Arc::clone(&self.node), id: None }
    }

    /// The output of `work`, or `None` if the token is cancelled first.
    pub async fn run_until_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match select(self.cancelled(), pin!(work)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// A guard that cancels the token when it is dropped.
    pub fn drop_guard(self) -> DropGuard {
        DropGuard(self)
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Watchers> {
        // No code panics while it holds the lock, so the lists are always consistent.
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when a token is cancelled: see [`CancellationToken::cancelled`].
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled {
    node: Arc<Node>,
    /// The id of this future's waker; `None` before it was polled.
    id: Option<u64>,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.node.cancelled.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut watchers = this.node.lock();
        // The token may have been cancelled just before the lock.
        if this.node.cancelled.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let id = *this.id.get_or_insert_with(|| {
            watchers.next += 1;
            watchers.next
        });
        match watchers.wakers.iter_mut().find(|(known, _)| *known == id) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => watchers.wakers.push((id, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.node.lock().wakers.retain(|(known, _)| *known != id);
        }
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").finish_non_exhaustive()
    }
}

/// Cancels its token when it is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard cancels the token"]
pub struct DropGuard(CancellationToken);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::{FutureExt as _, join};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waiting_ends_with_the_cancel() {
        let token = CancellationToken::new();
        let child = token.child_token();
        let thread = std::thread::spawn(move || {
            block_on(join(child.cancelled(), async {
                child.child_token().cancelled().await;
            }))
        });
        token.cancel();
        thread.join().unwrap();
        assert!(token.cancelled().now_or_never().is_some());
        assert!(token.child_token().is_cancelled());
    }

    #[test]
    fn a_future_that_is_dropped_leaves_nothing() {
        let token = CancellationToken::new();
        for _ in 0..3 {
            let mut waits = token.cancelled();
            for _ in 0..3 {
                assert!((&mut waits).now_or_never().is_none());
            }
            assert_eq!(token.node.lock().wakers.len(), 1);
        }
        assert_eq!(token.node.lock().wakers.len(), 0);
        drop((token.child_token(), token.child_token()));
        let _kept = token.child_token();
        assert_eq!(token.node.lock().children.len(), 1);
    }

    #[test]
    fn work_is_cut_short() {
        let token = CancellationToken::new();
        assert_eq!(block_on(token.run_until_cancelled(async { 1 })), Some(1));
        drop(token.clone().drop_guard());
        assert_eq!(block_on(token.run_until_cancelled(std::future::pending::<()>())), None);
    }

    proptest! {
        /// In any tree, exactly the descendants of a cancelled token are cancelled.
        #[test]
        fn a_cancel_reaches_all_below(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
            cancelled: prop::sample::Index,
        ) {
            let mut tokens = vec![(CancellationToken::new(), None)];
            for parent in parents {
                let parent = parent.index(tokens.len());
                let child = tokens[parent].0.child_token();
                tokens.push((child, Some(parent)));
            }
            let cancelled = cancelled.index(tokens.len());
            tokens[cancelled].0.cancel();
            let mut below = vec![false; tokens.len()];
            for (index, (token, parent)) in tokens.iter().enumerate() {
                below[index] = index == cancelled || parent.is_some_and(|parent: usize| below[parent]);
                prop_assert_eq!(token.is_cancelled(), below[index]);
            }
        }
    }
}
