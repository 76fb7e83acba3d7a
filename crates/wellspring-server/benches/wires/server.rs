//! Our server, with the same agent as the bench `row`.

use std::sync::Arc;
use std::time::Duration;

use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, SqliteOptions};
use wellspring_models::Anthropic;
use wellspring_server::{Server, ServerConfig, ServerLimits};

/// Serves until it is killed.
pub(crate) fn serve(provider: &str) {
    let tokio = wellspring_server::threads().unwrap();
    tokio.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::sqlite(folder.path().join("runs.db"), SqliteOptions::default()).unwrap();
        let runtime = Runtime::new(log);
        let model = Arc::new(Anthropic::keyless(provider).unwrap());
        runtime.register(AgentDef::model("bench", model));
        let config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            drain: Duration::ZERO,
            limits: ServerLimits { requests_per_token: u32::MAX, ..ServerLimits::default() },
            ..ServerConfig::default()
        };
        let server = Server::builder(runtime).config(config).start().await.unwrap();
        println!("{}", server.address());
        std::future::pending::<()>().await;
    });
}
