//! Tests of the log's promises over every store.
#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is a failed test")]

mod basics;
mod damage;
mod fakes;
mod interleavings;
mod kill;
mod maxima;
mod nats;
mod nats_logins;
mod owners;
mod runs;
mod sqlite;
mod stores;
