//! Logging, and the export of the engine's spans over OTLP.
//!
//! A dedicated thread sends spans in batches. If the collector is slow or unavailable, spans are
//! lost and nothing else is affected.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};
use wellspring_engine::telemetry::{CONTENT, SPANS};

use self::json::JsonLines;
use self::stderr::Lines;
use crate::config::settings::TelemetryConfig;

mod json;
mod stderr;

/// The variable with the log filter for standard error, such as `info` or `wellspring::access=info`.
const LOG_VARIABLE: &str = "WELLSPRING_LOG";

/// Default log level of the MCP SDK: more detailed levels log every message.
const LOG_MCP: &str = "rmcp=warn";

/// Default log level of a server.
const LOG_REQUESTS: &str = "warn,wellspring::access=info,wellspring::audit=info";

/// OpenTelemetry's variables for the collector's address.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// OpenTelemetry's variables for the encoding.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// OpenTelemetry's variable that enables content in spans.
const CONTENT_VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The path for traces, below the collector's address.
const PATH: &str = "/v1/traces";

/// The name of the header that identifies the caller's span.
const TRACE_PARENT: &str = "traceparent";

/// How long the last spans may take to be sent: a command should end.
const LAST_SPANS_TIME: Duration = Duration::from_secs(5);

/// How long the last lines of the log may take to be written.
const LAST_LINES_TIME: Duration = Duration::from_secs(1);

/// Attributes that are lists. A field of a span holds one value, so they come as JSON.
const LISTS: [&str; 2] = ["gen_ai.response.finish_reasons", "gen_ai.request.stop_sequences"];

/// Exports the remaining spans and log lines when the command ends.
pub(crate) struct Telemetry {
    spans: Option<SdkTracerProvider>,
    lines: Lines,
}

/// What a command logs if [`LOG_VARIABLE`] is not set.
#[derive(Clone, Copy)]
pub(crate) enum LogUnlessAsked {
    /// Nothing: the terminal shows the run.
    Nothing,
    /// Requests, decisions and errors.
    Requests,
}

/// Starts logging, and the export of spans if it is configured.
pub(crate) fn init(config: &TelemetryConfig, unless_asked: LogUnlessAsked) -> Result<Telemetry> {
    // Text for a terminal, JSON for everything else.
    let for_people = std::io::stderr().is_terminal();
    let missing = if for_people { missing } else { json::missing };
    let lines = Lines::to(std::io::stderr(), missing).context("the log has no thread")?;
    let logs = tracing_subscriber::fmt::layer().with_writer(lines.clone());
    let logs = if for_people { logs.boxed() } else { logs.event_format(JsonLines).boxed() };
    let filter = log_filter(unless_asked);
    if !is_wanted(config) {
        // One filter for all layers. With a filter per layer, an event that is enabled but never
        // emitted can disable the next event of its thread.
        tracing_subscriber::registry().with(logs).with(filter).init();
        return Ok(Telemetry { spans: None, lines });
    }
    let spans = provider(config)?;
    let exported = {
        let content = if wants_content(config) { LevelFilter::INFO } else { LevelFilter::OFF };
        let targets =
            Targets::new().with_target(SPANS, LevelFilter::INFO).with_target(CONTENT, content);
        tracing_opentelemetry::layer()
            .with_tracer(spans.tracer("wellspring"))
            // Spans have only the attributes of OpenTelemetry's conventions.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(targets)
    };
    tracing_subscriber::registry().with(logs.with_filter(filter)).with(exported).init();
    Ok(Telemetry { spans: Some(spans), lines })
}

impl Telemetry {
    /// Sends the last spans, and writes the last lines.
    pub(crate) fn finish(self) {
        if let Some(spans) = self.spans
            && let Err(error) = spans.shutdown_with_timeout(LAST_SPANS_TIME)
        {
            tracing::warn!(%error, "the last spans could not be sent");
        }
        self.lines.finish(LAST_LINES_TIME);
    }
}

/// The message for dropped log lines.
fn missing(count: u64) -> String {
    format!("WARN {count} log lines were dropped, because they were not read fast enough\n")
}

/// Makes a span a child of the one that a `traceparent` names, if spans are exported.
pub(crate) fn set_parent(span: &Span, traceparent: &str) {
    let carrier = HashMap::from([(TRACE_PARENT.to_owned(), traceparent.to_owned())]);
    let caller = TraceContextPropagator::new().extract(&carrier);
    // Without an exporter there is no context to propagate.
    let _ = span.set_parent(caller);
}

fn log_filter(unless_asked: LogUnlessAsked) -> EnvFilter {
    match (set(LOG_VARIABLE), unless_asked) {
        (None, LogUnlessAsked::Nothing) => EnvFilter::new("off"),
        (None, LogUnlessAsked::Requests) => EnvFilter::new(LOG_REQUESTS),
        (Some(asked), _) if asked.contains("rmcp") => EnvFilter::new(asked),
        (Some(asked), _) => EnvFilter::new(format!("{LOG_MCP},{asked}")),
    }
}

fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.trim().is_empty())
}

fn is_wanted(config: &TelemetryConfig) -> bool {
    let disabled = set("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let asked = config.endpoint.is_some() || ENDPOINTS.iter().any(|name| set(name).is_some());
    asked && !disabled
}

fn wants_content(config: &TelemetryConfig) -> bool {
    match set(CONTENT_VARIABLE) {
        Some(said) => said.eq_ignore_ascii_case("true") || said == "1",
        None => config.content.unwrap_or_default(),
    }
}

/// Sends an empty batch to the collector, to check that it responds.
///
/// It blocks, as the exporter does.
pub(crate) fn probe(config: &TelemetryConfig) -> Option<Result<String>> {
    let endpoint = is_wanted(config).then(|| endpoint(config))?;
    let probed = exporter(config).and_then(|exporter| {
        futures::executor::block_on(exporter.export(Vec::new())).context(endpoint.clone())
    });
    Some(probed.map(|()| endpoint))
}

/// The collector's URL for messages, without the query, which may hold a key.
fn endpoint(config: &TelemetryConfig) -> String {
    let set = ENDPOINTS.iter().find_map(|name| set(name));
    let endpoint = set.or_else(|| config.endpoint.as_deref().map(str::to_owned));
    let endpoint = endpoint.unwrap_or_default();
    endpoint.split('?').next().unwrap_or_default().to_owned()
}

fn provider(config: &TelemetryConfig) -> Result<SdkTracerProvider> {
    let exporter = exporter(config)?;
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        let name = config.service_name.as_deref().unwrap_or("wellspring").to_owned();
        resource = resource.with_service_name(name);
    }
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(WithLists(exporter))
        .with_resource(resource.build())
        .build())
}

fn exporter(config: &TelemetryConfig) -> Result<opentelemetry_otlp::SpanExporter> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
    // Every collector takes protobuf; some take nothing else.
    if PROTOCOLS.iter().all(|name| set(name).is_none()) {
        exporter = exporter.with_protocol(Protocol::HttpBinary);
    }
    // The variables are the exporter's own; a variable overrules the file.
    if let Some(endpoint) = &config.endpoint
        && ENDPOINTS.iter().all(|name| set(name).is_none())
    {
        let endpoint = endpoint.trim_end_matches('/');
        let endpoint = endpoint.strip_suffix(PATH).unwrap_or(endpoint);
        exporter = exporter.with_endpoint(format!("{endpoint}{PATH}"));
    }
    if !config.headers.is_empty() {
        let headers = config.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.expose().to_owned()));
        exporter = exporter.with_headers(headers.collect());
    }
    exporter.build().context(
        "telemetry cannot be sent; check `endpoint` in [telemetry], or OpenTelemetry's variables",
    )
}

/// Gives attributes that are lists their type back.
#[derive(Debug)]
struct WithLists(opentelemetry_otlp::SpanExporter);

impl SpanExporter for WithLists {
    fn export(&self, mut batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if LISTS.contains(&attribute.key.as_str()) {
                as_list(attribute);
            }
        }
        self.0.export(batch)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn as_list(attribute: &mut KeyValue) {
    if let Value::String(json) = &attribute.value
        && let Ok(list) = serde_json::from_str::<Vec<String>>(json.as_str())
    {
        let list = list.into_iter().map(StringValue::from).collect();
        attribute.value = Value::Array(Array::String(list));
    }
}
