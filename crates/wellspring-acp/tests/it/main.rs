//! Driving agents: real processes that follow a script, over the engine and an in-memory log.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on should stop"
)]

mod client;

/// Not a test: forwards our tools to an agent that does not support HTTP, when the agent starts
/// this program.
#[tokio::test]
async fn mcp_bridge() {
    let (url, token) = (std::env::var("WELLSPRING_MCP_URL"), std::env::var("WELLSPRING_MCP_TOKEN"));
    if let (Ok(url), Ok(token)) = (url, token) {
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        wellspring_mcp::bridge(&url, &token, input, output).await.unwrap();
        std::process::exit(0);
    }
}

/// Not a test: the scripted agent, when a test starts this program again.
#[test]
fn scripted_agent() {
    if std::env::var_os(wellspring_testkit::acp_agent::SCRIPT).is_some() {
        wellspring_testkit::acp_agent::play();
        std::process::exit(0);
    }
}
