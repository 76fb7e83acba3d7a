//! A small MCP server. It is this test binary, started again with a variable set; it speaks
//! JSON by hand and shares no code with what it tests.

use std::io::Write as _;

use serde_json::{Value, json};

const VARIABLE: &str = "WELLSPRING_TEST_CLI_MCP";

/// Its table in a configuration.
pub(crate) fn table(name: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = toml_text(program.to_str().unwrap());
    format!(
        "[mcp.{name}]\ncommand = {program}\n\
         args = [\"mcp_server::speaks_when_started_as_a_server\", \"--exact\", \"--nocapture\", \"--quiet\"]\n\
         env = {{ {VARIABLE} = \"1\" }}\n"
    )
}

fn toml_text(text: &str) -> String {
    format!("'{text}'")
}

#[test]
fn speaks_when_started_as_a_server() {
    // In a normal run of the tests there is nothing to do.
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    for line in std::io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "small", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{
                "name": "echo",
                "description": "Says it again.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                "annotations": {"readOnlyHint": true},
            }]}),
            Some("tools/call") => {
                let text = format!("echo: {}", message["params"]["arguments"]["text"]);
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{answer}").unwrap();
        stdout.flush().unwrap();
    }
    std::process::exit(0);
}
