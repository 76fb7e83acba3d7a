//! The grammar and the folds, over random runs.

#![expect(clippy::unwrap_used, reason = "the functions that tests share fail by panicking too")]

mod check;
mod fold;
