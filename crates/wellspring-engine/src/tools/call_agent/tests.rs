use super::*;
use crate::tools::test_host::{Heard, RecordingHost};
use wellspring_core::Tool as _;

fn arguments() -> Value {
    json!({"agentId": "librarian", "input": "Find a book."})
}

fn called() -> Vec<Heard> {
    let input = vec![Content::text("Find a book.")];
    vec![Heard::CalledAgent { agent: "librarian".into(), input }]
}

#[tokio::test]
async fn the_result_is_what_the_agent_said() {
    let host = RecordingHost::whose_agent_says(Ok("Here is one."));
    let answer = host.call(&call_agent([("librarian", "Finds books.")]), arguments()).await;
    assert_eq!(answer, (called(), Ok(ToolResult::new("Here is one."))));
}

#[tokio::test]
async fn an_agent_that_cannot_is_an_error() {
    let host = RecordingHost::whose_agent_says(Err("agents are nested too deeply"));
    let answer = host.call(&call_agent([("librarian", "Finds books.")]), arguments()).await;
    assert_eq!(answer, (called(), Err("agents are nested too deeply".to_owned())));
}

#[test]
fn the_spec_lists_the_agents() {
    let tool = call_agent([("librarian", "Finds books."), ("poet", "Writes.")]);
    let spec = tool.spec();
    assert_eq!(&*spec.name, "call-agent");
    assert!(spec.description.ends_with("Agents:\n- librarian: Finds books.\n- poet: Writes."));
    assert_eq!(spec.parameters["properties"]["agentId"]["enum"], json!(["librarian", "poet"]));
}
