//! What holds for every dialect.

mod docs;
mod resume;
mod total;
