//! Metrics per bot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use crate::channel::{CallError, CallResult};
use crate::instance::lock;

/// The counters of a bot. Cheap to clone; clones share the counters.
#[derive(Clone, Debug)]
pub struct ChannelMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    labels: String,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<(&'static str, &'static str), u64>,
    received: u64,
    refused: u64,
    delivered: u64,
    gave_up: u64,
    may_repeat: u64,
}

/// Reads one counter.
type Read = fn(&Counts) -> u64;

impl ChannelMetrics {
    pub(crate) fn new(name: &str, network: &str) -> Self {
        let name = name.replace(['\\', '"', '\n'], "_");
        let labels = format!("channel=\"{name}\",network=\"{network}\"");
        Self { inner: Arc::new(Inner { labels, counts: Mutex::default() }) }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.inner.counts));
    }

    pub(crate) fn called(&self, action: &'static str, result: &CallResult) {
        let outcome = match result {
            Ok(_) | Err(CallError::NotModified) => "ok",
            Err(CallError::RateLimited { .. } | CallError::BotLimited { .. }) => "rate_limited",
            Err(CallError::StreamEnded) => "stream_ended",
            Err(CallError::MessageGone) => "message_gone",
            Err(CallError::BadMarkup(_)) => "bad_markup",
            Err(CallError::ChatGone(_)) => "chat_gone",
            Err(CallError::Refused(_)) => "refused",
            Err(CallError::Unavailable(_)) => "unavailable",
            Err(CallError::AnswerLost(_)) => "answer_lost",
        };
        self.count(|counts| *counts.calls.entry((action, outcome)).or_default() += 1);
    }

    pub(crate) fn received(&self) {
        self.count(|counts| counts.received += 1);
    }

    pub(crate) fn refused(&self) {
        self.count(|counts| counts.refused += 1);
    }

    pub(crate) fn delivered(&self) {
        self.count(|counts| counts.delivered += 1);
    }

    pub(crate) fn gave_up(&self) {
        self.count(|counts| counts.gave_up += 1);
    }

    pub(crate) fn may_repeat(&self) {
        self.count(|counts| counts.may_repeat += 1);
    }

    /// All bots, in Prometheus' text format.
    #[must_use]
    pub fn render<'a>(all: impl IntoIterator<Item = (&'a Self, usize)>) -> String {
        let all: Vec<_> = all.into_iter().collect();
        let mut out = String::new();
        if all.is_empty() {
            return out;
        }
        let name = "wellspring_channel_calls_total";
        head(&mut out, name, "counter", "Calls to chat networks, by action and result.");
        for (metrics, _) in &all {
            let labels = &metrics.inner.labels;
            for ((action, outcome), count) in &lock(&metrics.inner.counts).calls {
                // Writing to memory does not fail.
                let _ = writeln!(
                    out,
                    "{name}{{{labels},action=\"{action}\",result=\"{outcome}\"}} {count}"
                );
            }
        }
        let read: [(&str, &str, Read); 5] = [
            ("received_total", "Messages and presses that came in.", |it| it.received),
            ("refused_total", "Of these, by people who may not use the bot.", |it| it.refused),
            ("delivered_total", "Answers, questions and notices delivered.", |it| it.delivered),
            ("gave_up_total", "Those that could not be delivered.", |it| it.gave_up),
            ("may_repeat_total", "Messages that may appear twice.", |it| it.may_repeat),
        ];
        for (name, help, read) in read {
            let name = format!("wellspring_channel_{name}");
            head(&mut out, &name, "counter", help);
            for (metrics, _) in &all {
                let value = read(&lock(&metrics.inner.counts));
                let _ = writeln!(out, "{name}{{{}}} {value}", metrics.inner.labels);
            }
        }
        let name = "wellspring_channel_pending";
        head(&mut out, name, "gauge", "Answers, questions and notices not delivered yet.");
        for (metrics, pending) in &all {
            let _ = writeln!(out, "{name}{{{}}} {pending}", metrics.inner.labels);
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
