//! A faulty server. It is this test binary, started again with a variable that selects the
//! faults; it writes JSON by hand and shares no code with what it tests.
//!
//! (The test harness prints to standard output before the server starts, so every test here
//! also shows that a banner does no harm.)

#![expect(clippy::print_stderr, reason = "it speaks to whoever started it")]

use std::io::{BufRead as _, Write as _};
use std::process::exit;

use serde_json::{Value, json};
use wellspring_mcp::McpConfig;

const VARIABLE: &str = "WELLSPRING_TEST_MCP_HABITS";

/// A server with these faults.
pub(crate) fn server(name: &str, habits: &str) -> McpConfig {
    let program = std::env::current_exe().unwrap();
    let args = ["scripted::speaks_when_started_as_a_server", "--exact", "--nocapture", "--quiet"];
    McpConfig::stdio(name, program.to_str().unwrap(), args).env(VARIABLE, habits)
}

#[test]
fn speaks_when_started_as_a_server() {
    // Started as a regular test, it does nothing.
    if let Ok(habits) = std::env::var(VARIABLE) {
        Server { habits, renamed: false, cancelled: Vec::new() }.run();
        exit(0);
    }
}

struct Server {
    habits: String,
    renamed: bool,
    cancelled: Vec<Value>,
}

impl Server {
    fn run(&mut self) {
        match self.habits.split_once(':') {
            None if self.habits == "exits" => {
                eprintln!("no licence found");
                exit(2);
            }
            // Exits at its start as long as the file has lines to remove.
            Some(("flaky", file)) => {
                let left: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
                if left > 0 {
                    std::fs::write(file, (left - 1).to_string()).unwrap();
                    eprintln!("{left} more to go");
                    exit(4);
                }
            }
            _ => {}
        }
        while let Some(message) = next() {
            self.answer(&message);
        }
    }

    fn answer(&mut self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") if self.habits == "mute" => {}
            Some("initialize") => {
                let mut capabilities = json!({"tools": {"listChanged": true}});
                if self.habits == "greedy" {
                    capabilities["resources"] = json!({});
                }
                result(
                    id,
                    &json!({
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": capabilities,
                        "serverInfo": {"name": "scripted", "version": "1"},
                        "instructions": "Be careful.",
                    }),
                );
            }
            Some("tools/list") if self.habits == "pages" => {
                // Never ends.
                let page: u32 = message["params"]["cursor"]
                    .as_str()
                    .map_or(0, |cursor| cursor.parse().unwrap());
                let tool = json!({"name": format!("t{page}"), "inputSchema": {}});
                let next = (page + 1).to_string();
                result(id, &json!({"tools": [tool], "nextCursor": next}));
            }
            Some("tools/list") if self.habits == "many" => {
                let tool = |n: u32| json!({"name": format!("t{n}"), "inputSchema": {}});
                result(id, &json!({"tools": (0..600).map(tool).collect::<Vec<_>>()}));
            }
            Some("resources/list") => {
                let resource = |n: u32| json!({"uri": format!("r:{n}"), "name": n.to_string()});
                result(id, &json!({"resources": (0..600).map(resource).collect::<Vec<_>>()}));
            }
            Some("tools/list") => result(id, &json!({"tools": self.tools()})),
            Some("tools/call") => self.call(id, &message["params"]),
            Some("notifications/cancelled") => {
                self.cancelled.push(message["params"]["requestId"].clone());
            }
            _ => {}
        }
    }

    fn tools(&self) -> Value {
        let plain = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let echo = json!({
            "name": if self.renamed { "repeat" } else { "echo" },
            "title": "Echo", "description": "Says it again.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true},
        });
        let names = [
            "die",
            "garbage",
            "flood",
            "huge",
            "late",
            "never",
            "cancelled",
            "ask",
            "ask_oddly",
            "rename",
            "hologram",
            "unreadable",
            "linger",
            "fail",
            "a.b",
            "a/b",
            "a b",
            "ask_flood",
        ];
        let mut tools = vec![echo];
        if self.habits == "greedy" {
            tools.extend(["ask_at_length", "ask_for_ever"].map(plain));
        }
        tools.extend(names.map(plain));
        // A tool without a schema is possible.
        tools.push(json!({"name": "no_schema"}));
        tools.push(json!({"description": "nameless"}));
        tools.push(plain("die"));
        tools.into()
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let token = &params["_meta"]["progressToken"];
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap() {
            "echo" | "repeat" | "a.b" | "a/b" | "a b" => {
                text(id, &format!("{}: {arguments}", params["name"]));
            }
            "die" => {
                eprintln!("out of cheese");
                exit(3);
            }
            "garbage" => {
                line("DEBUG: {not json");
                line("");
                line("[1, 2");
                line(r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#);
                line(r#"{"jsonrpc":"2.0","method":"notifications/unheard_of","params":[1]}"#);
                line(r#"{"neither":"this"}"#);
                text(id, "survived");
            }
            "flood" => {
                for n in 1..=20_000 {
                    progress(token, n, None);
                }
                text(id, "flooded");
            }
            "huge" => line(&"x".repeat(17 * 1024 * 1024)),
            "never" => progress(token, 1, Some("for ever")),
            "late" => {
                progress(token, 1, Some("in time"));
                let cancel = next().unwrap();
                assert_eq!(cancel["method"], "notifications/cancelled");
                progress(token, 2, Some("late"));
                text(id, "late");
            }
            "cancelled" => text(id, &json!(self.cancelled).to_string()),
            "ask" | "ask_oddly" => {
                let odd = params["name"] == "ask_oddly";
                let kind = if odd {
                    json!({"type": ["string", "null"], "x": 1})
                } else {
                    json!({"type": "string"})
                };
                ask("the question", &json!({"name": kind, "age": {"type": "integer"}}));
                let answer = loop {
                    let answer = next().unwrap();
                    // Answers to earlier questions may arrive after their call has ended.
                    if answer["id"] == "the question" {
                        break answer;
                    }
                };
                text(id, &answer["result"].to_string());
            }
            "ask_at_length" => {
                let params = json!({"message": "x".repeat(5 * 1024), "requestedSchema": {}});
                send(&json!({"jsonrpc": "2.0", "id": "long", "method": "elicitation/create",
                    "params": params}));
                text(id, &next().unwrap()["result"].to_string());
            }
            "ask_for_ever" => {
                result(id, &json!({"resultType": "input_required", "requestState": "again"}));
            }
            "ask_flood" => {
                // The first 32 get no answer; the other eight are refused at once.
                for n in 0..40 {
                    ask(&format!("q{n}"), &json!({}));
                }
                let answers: Vec<Value> = (0..8).map(|_| next().unwrap()).collect();
                let refused = answers.iter().filter(|answer| answer.get("error").is_some());
                text(id, &format!("{} refused", refused.count()));
            }
            "rename" => {
                self.renamed = true;
                text(id, "renamed");
                send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            }
            "hologram" => {
                let content =
                    json!([{"type": "hologram", "rays": 7}, {"type": "text", "text": "there"}]);
                result(id, &json!({"content": content}));
            }
            "unreadable" => {
                send(&json!({"jsonrpc": "2.0", "id": id, "result": 5, "error": "both"}))
            }
            "fail" => {
                let content = json!([{"type": "text", "text": "no such city"}]);
                result(id, &json!({"content": content, "isError": true}));
            }
            "linger" => {
                // A child that holds the FIFO and ignores SIGTERM; so does its parent.
                let fifo = arguments["fifo"].as_str().unwrap();
                let child = format!("trap '' TERM; exec 3>{fifo}; echo on >&3; sleep 600");
                let child = std::process::Command::new("sh").args(["-c", &child]).spawn();
                // Closing this server must kill it.
                std::mem::forget(child.unwrap());
                text(id, "lingering");
            }
            other => unreachable!("{other}"),
        }
    }
}

fn next() -> Option<Value> {
    let mut line = String::new();
    let count = std::io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| serde_json::from_str(&line).unwrap())
}

fn ask(id: &str, properties: &Value) {
    let schema = json!({"type": "object", "properties": properties});
    let params = json!({"message": "Who?", "requestedSchema": schema});
    send(&json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}));
}

fn progress(token: &Value, progress: u32, message: Option<&str>) {
    let params = json!({"progressToken": token, "progress": progress, "message": message});
    send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
}

fn text(id: &Value, text: &str) {
    result(id, &json!({"content": [{"type": "text", "text": text}]}));
}

fn result(id: &Value, result: &Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn send(message: &Value) {
    line(&message.to_string());
}

fn line(text: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").unwrap();
    stdout.flush().unwrap();
}
