//! The duration of open-ended tests.

/// The variable that enables the long version of every test that has one.
pub const SOAK: &str = "WELLSPRING_SOAK";

/// The number of rounds to run: `ci` by default, `long` under `cargo xtask soak`.
#[must_use]
pub fn soak(ci: u32, long: u32) -> u32 {
    if std::env::var_os(SOAK).is_some() { long } else { ci }
}
