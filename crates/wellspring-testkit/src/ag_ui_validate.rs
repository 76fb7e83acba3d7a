//! Checks AG-UI streams with an external validator.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The environment variable with the path of the validator.
pub const AG_UI_VALIDATE: &str = "WELLSPRING_PEER_AG_UI_VALIDATE";

/// The errors and warnings of `ag-ui-validate` for a recorded stream of server-sent events;
/// `Ok` if there are none. `None` if the validator is not installed, which is printed.
#[must_use]
#[expect(clippy::print_stdout, reason = "a test says what it skips")]
pub fn ag_ui_validate(stream: &str) -> Option<Result<(), String>> {
    if std::env::var_os(AG_UI_VALIDATE).is_none() {
        println!("skipped: {AG_UI_VALIDATE} is not set; `cargo xtask test` sets it");
        return None;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/peers/ag-ui-validate/bin/ag-ui-validate");
    Some(judged(&program, stream))
}

fn judged(program: &Path, stream: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let mut child = Command::new(program)
        .args(["-", "--no-color", "--fail-on", "warning"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(stream.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{}{}\n{stream}", said(&output.stdout), said(&output.stderr)))
}
