//! `clock`: the current time.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wellspring_core::{Context, ToolError, ToolKind};

use super::function::{FunctionTool, function};

/// A tool that tells the time, in UTC or in the zone that the model names.
///
/// ```
/// use wellspring_core::Tool as _;
///
/// assert_eq!(&*wellspring_engine::tools::clock().spec().name, "clock");
/// ```
#[must_use]
pub fn clock() -> FunctionTool {
    clock_with(SystemTime::now)
}

/// [`clock`] with another source of time.
#[must_use]
pub fn clock_with(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> FunctionTool {
    let description = "Tells the current date and time, with the offset from UTC.";
    function("clock", description, move |arguments: Arguments, _: Context| {
        let reading = read(now(), arguments);
        async { reading }
    })
    .title("Clock")
    .kind(ToolKind::Read)
    .idempotent()
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// An IANA time zone such as `Europe/Berlin`; UTC when absent.
    tz: Option<Box<str>>,
}

#[derive(Debug, Eq, PartialEq, Serialize)]
struct Reading {
    /// ISO 8601, to the second.
    time: String,
    tz: Box<str>,
    weekday: String,
}

fn read(now: SystemTime, Arguments { tz }: Arguments) -> Result<Reading, ToolError> {
    let tz = tz.unwrap_or_else(|| "UTC".into());
    let zone = TimeZone::get(&tz).map_err(|_| {
        let named: String = tz.chars().take(64).collect();
        ToolError::new(format!(
            "there is no time zone {named:?}; use an IANA name such as Europe/Berlin"
        ))
    })?;
    let time = Timestamp::try_from(now)
        .map_err(|error| ToolError::because("the clock shows no time there is", error))?
        .to_zoned(zone);
    Ok(Reading {
        time: time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        tz,
        weekday: time.strftime("%A").to_string(),
    })
}

#[cfg(test)]
mod tests;
