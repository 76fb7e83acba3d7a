//! How do I keep runs in my own store?
//!
//! This one limits the size of another store. A store for your own database implements every
//! method of `Store`, whose documentation is a numbered contract; `wellspring-log` has a test
//! suite for it that runs on any store.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wellspring::prelude::*;
use wellspring::store::{
    Append, AppendDone, AppendError, Created, NewCommand, NewFrame, NewRun, PutAll, Store,
    StoreFuture, forward_store,
};
use wellspring::{Log, LogOptions, MemoryStore, RunId};

/// Refuses frames beyond a number of bytes.
struct Quota {
    kept: MemoryStore,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Store for Quota {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.bytes.fetch_add(first.body.len(), Ordering::Relaxed);
        self.kept.create(new, first)
    }

    fn append(&self, append: Append, done: AppendDone) {
        let bytes = append.frame.body.len();
        let before = self.bytes.load(Ordering::Relaxed);
        // The frame that ends a run always has room, so that its readers learn how it ended.
        if append.frame.state.is_none() && before + bytes > self.bytes_max {
            return done(Err(AppendError::TooLarge {
                bytes,
                max: self.bytes_max - before.min(self.bytes_max),
            }));
        }
        let counted = Arc::clone(&self.bytes);
        let count = move |kept: Result<(), AppendError>| {
            if kept.is_ok() {
                counted.fetch_add(bytes, Ordering::Relaxed);
            }
            done(kept);
        };
        self.kept.append(append, Box::new(count));
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.kept.put_inbox(run, commands)
    }

    forward_store!(kept);
}

#[tokio::main]
async fn main() -> Result<(), ThinkError> {
    let bytes = Arc::new(AtomicUsize::new(0));
    let store =
        Quota { kept: MemoryStore::default(), bytes: Arc::clone(&bytes), bytes_max: 1 << 20 };
    let log = Log::new(Arc::new(store), LogOptions::default());
    let agent = Agent::model(Scripted::new([Say::new().text("All of this is kept.")])).log(log);
    println!("{}", agent.say("Is this kept?").run().await?);
    println!("{} bytes", bytes.load(Ordering::Relaxed));
    Ok(())
}
