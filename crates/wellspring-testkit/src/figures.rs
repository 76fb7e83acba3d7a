//! Figures of benches, which `cargo xtask bench` collects in one table.
#![expect(clippy::print_stdout, reason = "the protocol is a line on standard output")]

use std::fmt;
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scale {
    /// Long enough for a figure to publish.
    Full,
    /// Long enough for a rough figure.
    Quick,
    /// Run every line once, to check that the bench still works. Used by the tests.
    Smoke,
}

impl Scale {
    /// The scale that the command line and the environment request.
    #[must_use]
    pub fn asked() -> Self {
        if !std::env::args().any(|argument| argument == "--bench") {
            Self::Smoke
        } else if std::env::var_os("WELLSPRING_QUICK").is_some() {
            Self::Quick
        } else {
            Self::Full
        }
    }

    /// `full` rounds at full scale, otherwise fewer; at least one.
    #[must_use]
    pub fn rounds(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / 20).max(1),
            Self::Smoke => (full / 1000).clamp(1, 100),
        }
    }
}

/// Measures `samples` times and returns the median, in nanoseconds per item.
#[expect(clippy::cast_precision_loss, reason = "a figure has few digits")]
pub fn median(samples: usize, items: usize, mut measure: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<Duration> = (0..samples.max(1)).map(|_| measure()).collect();
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / items as f64
}

/// Prints a figure. The table shows its ratio to the baseline of that name.
pub fn figure(name: impl fmt::Display, value: f64, unit: &str, baseline: Option<&str>) {
    let baseline = baseline.map(|name| format!(r#","baseline":"{name}""#)).unwrap_or_default();
    println!(r#"{{"figure":"{name}","value":{value:.3},"unit":"{unit}"{baseline}}}"#);
}
