use std::time::Duration;

use serde_json::json;
use wellspring_core::ToolResult;

use super::*;
use crate::tools::test_host::RecordingHost;

fn noon() -> FunctionTool {
    // 2026-02-12 11:00:00.9 UTC, a Thursday: never rounded up into the future.
    clock_with(|| SystemTime::UNIX_EPOCH + Duration::from_millis(1_770_894_000_900))
}

#[tokio::test]
async fn the_time_with_its_offset() {
    for (arguments, time, tz) in [
        (json!({}), "2026-02-12T11:00:00+00:00", "UTC"),
        (json!({"tz": "Europe/Berlin"}), "2026-02-12T12:00:00+01:00", "Europe/Berlin"),
        (json!({"tz": "Asia/Kolkata"}), "2026-02-12T16:30:00+05:30", "Asia/Kolkata"),
        (json!({"tz": "America/St_Johns"}), "2026-02-12T07:30:00-03:30", "America/St_Johns"),
    ] {
        let (heard, result) = RecordingHost::new().call(&noon(), arguments).await;
        let want = json!({"time": time, "tz": tz, "weekday": "Thursday"});
        assert_eq!((heard, result), (vec![], Ok(ToolResult::new(want))));
    }
}

#[tokio::test]
async fn a_zone_that_does_not_exist() {
    let (_, result) = RecordingHost::new().call(&noon(), json!({"tz": "Mars/Olympus"})).await;
    let want = "there is no time zone \"Mars/Olympus\"; use an IANA name such as Europe/Berlin";
    assert_eq!(result, Err(want.to_owned()));
}

#[tokio::test]
async fn the_system_clock_is_read() {
    let (_, result) = RecordingHost::new().call(&clock(), json!({})).await;
    let told: Timestamp = result.unwrap().output["time"].as_str().unwrap().parse().unwrap();
    let now = Timestamp::now();
    assert!(now.duration_since(told).as_secs().abs() < 60, "{told} is not {now}");
}
