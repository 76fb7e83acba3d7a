//! How long open-ended tests run.

/// The variable that asks for the long version of every test that has one.
pub const SOAK: &str = "WELLSPRING_SOAK";

/// How many rounds to play: `ci` every day, `long` under `cargo xtask soak`.
#[must_use]
pub fn soak(ci: u32, long: u32) -> u32 {
    if std::env::var_os(SOAK).is_some() { long } else { ci }
}
