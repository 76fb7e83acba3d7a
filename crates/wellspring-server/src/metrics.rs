//! What operators watch, in Prometheus' text format.
//!
//! Counters are atomics that are read on request. Nothing is kept per request, run or reader, so
//! the cost does not grow with their number.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use wellspring_core::{Outcome, RunId};
use wellspring_engine::{Hooks, TurnReport};
use wellspring_log::{
    Append, AppendDone, Created, NewCommand, NewFrame, NewRun, PutAll, Store, StoreFuture,
};

use crate::lock;

/// Upper bounds of every histogram's buckets, in microseconds: from a fast disk to a slow model.
const BUCKETS_MICROS: [u64; 12] = [
    100, 250, 1_000, 2_500, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000,
    60_000_000,
];

/// The most codes of errors that are counted apart: there are about thirty, all of them ours.
const CODES_MAX: usize = 128;

/// What a server counts. Cheap to clone; clones count together.
///
/// ```
/// let metrics = wellspring_server::Metrics::default();
/// assert!(metrics.render(&[]).contains("wellspring_runs_started_total 0\n"));
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    runs_started: AtomicU64,
    runs_completed: AtomicU64,
    runs_cancelled: AtomicU64,
    runs_failed: AtomicU64,
    turns: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    requests: AtomicU64,
    streams: AtomicI64,
    streams_opened: AtomicU64,
    stream_bytes: AtomicU64,
    connections: AtomicI64,
    first_delta: Histogram,
    reader_lag: Histogram,
    log_append: Histogram,
    /// The store's other operations, by name.
    store: Mutex<BTreeMap<&'static str, Arc<Histogram>>>,
    errors: Mutex<BTreeMap<&'static str, u64>>,
    also: OnceLock<Box<RenderMore>>,
}

/// Metrics that another part of the process renders.
type RenderMore = dyn Fn() -> String + Send + Sync;

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS_MICROS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn render(&self, name: &str, help: &str, out: &mut String) {
        head(out, name, "histogram", help);
        self.render_labelled(name, "", out);
    }

    /// Omits the head. `label` is empty or ends with a comma.
    fn render_labelled(&self, name: &str, label: &str, out: &mut String) {
        let mut below = 0;
        for (bound, bucket) in BUCKETS_MICROS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let bound = Duration::from_micros(*bound).as_secs_f64();
            let _ = writeln!(out, "{name}_bucket{{{label}le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Ordering::Relaxed);
        let sum = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{{label}le=\"+Inf\"}} {count}");
        let alone = label.strip_suffix(',').map(|label| format!("{{{label}}}")).unwrap_or_default();
        let _ = writeln!(out, "{name}_sum{alone} {sum}\n{name}_count{alone} {count}");
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to memory does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

impl Metrics {
    /// A store that behaves like `store` and whose operations are timed.
    #[must_use]
    pub fn metered(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(MeteredStore { store, metrics: self.clone() })
    }

    /// All metrics in Prometheus' text format. `gauges` are further metrics: name, help, value. A
    /// name that ends with `_total` makes it a counter.
    #[must_use]
    pub fn render(&self, gauges: &[(&str, &str, u64)]) -> String {
        let it = &*self.inner;
        let mut out = String::with_capacity(4096);
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("runs_started_total", "Runs that this server was asked for.", load(&it.runs_started)),
            ("turns_total", "Model calls that came to their end.", load(&it.turns)),
            ("requests_total", "HTTP requests.", load(&it.requests)),
            ("streams_opened_total", "Event streams ever opened.", load(&it.streams_opened)),
            ("stream_bytes_total", "Bytes of events handed to streams.", load(&it.stream_bytes)),
        ] {
            let name = format!("wellspring_{name}");
            head(&mut out, &name, "counter", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let name = "wellspring_runs_finished_total";
        head(&mut out, name, "counter", "Runs that ended here, by outcome.");
        for (outcome, value) in [
            ("completed", &it.runs_completed),
            ("cancelled", &it.runs_cancelled),
            ("failed", &it.runs_failed),
        ] {
            let _ = writeln!(out, "{name}{{outcome=\"{outcome}\"}} {}", load(value));
        }
        let name = "wellspring_tokens_total";
        head(&mut out, name, "counter", "Tokens of finished turns, by direction.");
        for (direction, value) in [("input", &it.input_tokens), ("output", &it.output_tokens)] {
            let _ = writeln!(out, "{name}{{direction=\"{direction}\"}} {}", load(value));
        }
        let name = "wellspring_errors_total";
        head(&mut out, name, "counter", "Requests and streams that ended with an error, by code.");
        let errors = lock(&it.errors).clone();
        for (code, count) in errors {
            let _ = writeln!(out, "{name}{{code=\"{code}\"}} {count}");
        }
        let open = |value: &AtomicI64| u64::try_from(value.load(Ordering::Relaxed)).unwrap_or(0);
        let own = [
            ("wellspring_streams", "Event streams open now.", open(&it.streams)),
            ("wellspring_connections", "Connections open now.", open(&it.connections)),
        ];
        for (name, help, value) in own.iter().chain(gauges) {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            head(&mut out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        }
        for (name, help, histogram) in [
            (
                "wellspring_first_delta_seconds",
                "From a request to its first delta on the wire.",
                &it.first_delta,
            ),
            (
                "wellspring_reader_lag_seconds",
                "From a record's append to its place on a wire.",
                &it.reader_lag,
            ),
            ("wellspring_log_append_seconds", "How long an append took.", &it.log_append),
        ] {
            histogram.render(name, help, &mut out);
        }
        let name = "wellspring_store_seconds";
        head(&mut out, name, "histogram", "How long the store took, by operation.");
        for (operation, histogram) in &*lock(&it.store) {
            histogram.render_labelled(name, &format!("operation=\"{operation}\","), &mut out);
        }
        if let Some(also) = it.also.get() {
            out.push_str(&also());
        }
        out
    }

    /// Adds what another part of the process counts, in the same format. `false` if something
    /// was added before.
    pub fn also(&self, render: impl Fn() -> String + Send + Sync + 'static) -> bool {
        self.inner.also.set(Box::new(render)).is_ok()
    }

    pub(crate) fn run_started(&self) {
        self.inner.runs_started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request(&self) {
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn error(&self, code: &'static str) {
        let mut errors = lock(&self.inner.errors);
        if errors.len() < CODES_MAX || errors.contains_key(code) {
            *errors.entry(code).or_default() += 1;
        }
    }

    pub(crate) fn stream_opened(&self) -> Open {
        self.inner.streams_opened.fetch_add(1, Ordering::Relaxed);
        Open::new(self.clone(), |inner| &inner.streams)
    }

    pub(crate) fn connection_opened(&self) -> Open {
        Open::new(self.clone(), |inner| &inner.connections)
    }

    pub(crate) fn stream_bytes(&self, bytes: usize) {
        self.inner.stream_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn first_delta(&self, after: Duration) {
        self.inner.first_delta.observe(after);
    }

    pub(crate) fn reader_lag(&self, lag: Duration) {
        self.inner.reader_lag.observe(lag);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Counts something as open until it is dropped.
pub(crate) struct Open {
    metrics: Metrics,
    gauge: fn(&Inner) -> &AtomicI64,
}

impl Open {
    fn new(metrics: Metrics, gauge: fn(&Inner) -> &AtomicI64) -> Self {
        gauge(&metrics.inner).fetch_add(1, Ordering::Relaxed);
        Self { metrics, gauge }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics.inner).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hooks for Metrics {
    fn on_turn(&self, _run: RunId, report: &TurnReport) {
        self.inner.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(usage) = &report.usage {
            self.inner.input_tokens.fetch_add(usage.input, Ordering::Relaxed);
            self.inner.output_tokens.fetch_add(usage.output, Ordering::Relaxed);
        }
    }

    fn on_finish(&self, _run: RunId, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Completed { .. } => &self.inner.runs_completed,
            Outcome::Cancelled { .. } => &self.inner.runs_cancelled,
            Outcome::Failed { .. } => &self.inner.runs_failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn on_abort(&self, run: RunId, outcome: &Outcome) {
        self.on_finish(run, outcome);
    }
}

/// A store whose operations are timed.
struct MeteredStore {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl MeteredStore {
    fn timed<'a, T: Send + 'a>(
        &self,
        operation: &'static str,
        future: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let histogram = Arc::clone(lock(&self.metrics.inner.store).entry(operation).or_default());
        Box::pin(async move {
            let since = Instant::now();
            let done = future.await;
            histogram.observe(since.elapsed());
            done
        })
    }
}

impl Store for MeteredStore {
    fn append(&self, append: Append, done: AppendDone) {
        let (metrics, since) = (self.metrics.clone(), Instant::now());
        self.store.append(
            append,
            Box::new(move |decided| {
                metrics.inner.log_append.observe(since.elapsed());
                done(decided);
            }),
        );
    }

    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.timed("create", self.store.create(new, first))
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.timed("put_inbox", self.store.put_inbox(run, commands))
    }

    wellspring_log::forward_store!(store, timed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_below_their_bounds() {
        let metrics = Metrics::default();
        for millis in [1, 1, 20, 70_000] {
            metrics.first_delta(Duration::from_millis(millis));
        }
        let text = metrics.render(&[("wellspring_x", "Some.", 3)]);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("wellspring_first_delta") || line.contains("_x"))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        # HELP wellspring_x Some.
        # TYPE wellspring_x gauge
        wellspring_x 3
        wellspring_first_delta_seconds_bucket{le="0.0001"} 0
        wellspring_first_delta_seconds_bucket{le="0.00025"} 0
        wellspring_first_delta_seconds_bucket{le="0.001"} 2
        wellspring_first_delta_seconds_bucket{le="0.0025"} 2
        wellspring_first_delta_seconds_bucket{le="0.01"} 2
        wellspring_first_delta_seconds_bucket{le="0.025"} 3
        wellspring_first_delta_seconds_bucket{le="0.1"} 3
        wellspring_first_delta_seconds_bucket{le="0.25"} 3
        wellspring_first_delta_seconds_bucket{le="1"} 3
        wellspring_first_delta_seconds_bucket{le="2.5"} 3
        wellspring_first_delta_seconds_bucket{le="10"} 3
        wellspring_first_delta_seconds_bucket{le="60"} 3
        wellspring_first_delta_seconds_bucket{le="+Inf"} 4
        wellspring_first_delta_seconds_sum 70.022
        wellspring_first_delta_seconds_count 4
        "#);
    }
}
