//! The engine: what turns models and tools into runs.

pub mod schema;
pub mod tools;
