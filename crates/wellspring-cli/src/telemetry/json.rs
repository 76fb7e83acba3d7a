//! Log events as JSON lines, for log collectors.

use std::error::Error;
use std::fmt::{self, Debug};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `{"time", "level", "target", ..}` and the fields of the event.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = Line(Map::new());
        event.record(&mut line);
        let about = event.metadata();
        // Last, so that no field can replace one of these.
        for (name, value) in [
            ("time", time),
            ("level", about.level().to_string()),
            ("target", about.target().to_owned()),
        ] {
            line.0.insert(name.to_owned(), value.into());
        }
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The message for dropped lines.
pub(super) fn missing(count: u64) -> String {
    let message = "log lines were dropped, because they were not read fast enough";
    let line = serde_json::json!({ "level": "WARN", "message": message, "dropped": count });
    format!("{line}\n")
}

struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut said = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            said.push_str(&format!(": {error}"));
            cause = error.source();
        }
        self.put(field, said);
    }
}
