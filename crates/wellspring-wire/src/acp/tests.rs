//! Tests of both directions.

mod proxied;
mod recorded;
