//! One agent behind AG-UI, for an external load generator:
//! `cargo bench -p wellspring-server --bench row`.
//!
//! The agent `bench` uses a provider with Anthropic's API and has one tool with a string argument.
//! It is configured by environment variables:
//!
//! - `MOCK_URL`: the provider's URL. If it is not set, the server starts, checks that it is alive,
//!   and stops.
//! - `PORT`: the port to listen on, on the loopback address.
//! - `WELLSPRING_DATA_DIR`: the directory for runs [default: a temporary directory].
//!
//! A request names its model, as `row.json` does. `docs/server.md` describes how to use this in a
//! comparison.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wellspring_core::{Tool, ToolKind, ToolResult, ToolSpec};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, SqliteOptions};
use wellspring_models::Anthropic;
use wellspring_server::{Server, ServerConfig, ServerLimits};

fn main() {
    let tokio = wellspring_server::threads().unwrap();
    tokio.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let given = std::env::var_os("WELLSPRING_DATA_DIR").map(std::path::PathBuf::from);
        let data = given.unwrap_or_else(|| folder.path().to_owned());
        let log = Log::sqlite(data.join("runs.db"), SqliteOptions::default()).unwrap();
        let runtime = Runtime::new(log);
        let provider = std::env::var("MOCK_URL").ok();
        runtime.register(agent(provider.as_deref().unwrap_or("http://127.0.0.1:9")));
        let port = std::env::var("PORT").ok().map_or(0, |port| port.parse().unwrap());
        let config = ServerConfig {
            listen: ([127, 0, 0, 1], port).into(),
            drain: Duration::ZERO,
            limits: ServerLimits { requests_per_token: u32::MAX, ..ServerLimits::default() },
            ..ServerConfig::default()
        };
        let server = Server::builder(runtime).config(config).start().await.unwrap();
        println!("http://{}/ag-ui/bench", server.address());
        if provider.is_some() {
            // The load generator ends this process.
            std::future::pending::<()>().await;
        }
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.stop().await;
    });
}

fn agent(provider: &str) -> AgentDef {
    let spec = ToolSpec {
        kind: ToolKind::Read,
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string" } },
            "required": ["city"],
        })
        .into(),
        ..ToolSpec::new("get_weather", "The weather of a city")
    };
    let weather = from_function(spec, |arguments: Value, _| async move {
        Ok(ToolResult::new(json!({ "city": arguments["city"], "celsius": 21 })))
    });
    let model = Arc::new(Anthropic::keyless(provider).unwrap());
    AgentDef {
        tools: vec![Arc::new(weather) as Arc<dyn Tool>],
        allow_model: true,
        ..AgentDef::model("bench", model)
    }
}
