//! The answer to `initialize` for a proxied agent.

use serde_json::{Value, json};

use super::super::read::has_sound_meta;
use super::super::unknown_members::{OURS, members_except, merge};

/// Combines our `initialize` result with that of a proxied agent (`theirs`).
///
/// The agent decides what a prompt may hold, since prompts go to it, and how to log in.
/// Sessions and MCP servers are ours: the log holds the sessions, and one of our own servers
/// offers the client's MCP servers to the agent. Unknown members come from the agent, and so
/// does `_meta`, which also holds its name.
///
/// ```
/// use serde_json::json;
/// use wellspring_wire::acp::initialize_response;
///
/// let ours = json!({"agentCapabilities": {"loadSession": true, "promptCapabilities": {"image": true}}});
/// let theirs = json!({"agentCapabilities": {"promptCapabilities": {"audio": true}}});
/// let said = initialize_response(ours, &theirs);
/// let prompts = json!({"image": false, "audio": true, "embeddedContext": false});
/// assert_eq!(said["agentCapabilities"], json!({"loadSession": true, "promptCapabilities": prompts}));
/// ```
#[must_use]
pub fn initialize_response(mut ours: Value, theirs: &Value) -> Value {
    let can = &theirs["agentCapabilities"];
    let mut said = members_except(
        theirs,
        &["protocolVersion", "agentCapabilities", "agentInfo", "authMethods"],
    );
    let mut about = members_except(
        can,
        &["loadSession", "promptCapabilities", "mcpCapabilities", "sessionCapabilities", "auth"],
    );
    let takes = &can["promptCapabilities"];
    let kinds = ["image", "audio", "embeddedContext"];
    let mut prompts = members_except(takes, &kinds);
    kinds.iter().for_each(|kind| prompts[kind] = (takes[kind] == true).into());
    about["promptCapabilities"] = prompts;
    if let Some(auth) = auth(&can["auth"]) {
        about["auth"] = auth;
    }
    said["agentCapabilities"] = about;
    if theirs["agentInfo"].is_object() {
        merge(&mut said, &json!({"_meta": {OURS: {"agentInfo": theirs["agentInfo"]}}}));
    }
    merge(&mut ours, &said);
    let logins = theirs["authMethods"].as_array().into_iter().flatten();
    ours["authMethods"] = logins.filter(|login| is_login(login)).cloned().collect();
    ours
}

/// The agent's login capabilities.
fn auth(said: &Value) -> Option<Value> {
    let logout = &said["logout"];
    let is_sound = (logout.is_null() || logout.is_object()) && has_sound_meta(logout);
    said.is_object().then(|| members_except(said, if is_sound { &[] } else { &["logout"] }))
}

/// Whether a login method works through us. Terminal logins do not: the client would have to start
/// the agent's own program, which it does not know.
fn is_login(login: &Value) -> bool {
    let is_text = |name: &str| login[name].is_string();
    let description = login["description"].is_null() || is_text("description");
    is_text("id")
        && is_text("name")
        && description
        && login["type"] != "terminal"
        && has_sound_meta(login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_behind_us_says_of_itself_is_said_where_it_counts() {
        let ours = json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": true, "sse": false},
                "sessionCapabilities": {"list": {}},
            },
            "agentInfo": {"name": "us", "version": "1"},
            "authMethods": [],
        });
        let theirs = json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": false,
                "promptCapabilities": {"audio": true, "image": "yes", "_meta": {"m": 1}, "smell": true},
                "mcpCapabilities": {"sse": true},
                "sessionCapabilities": {"fork": {}},
                "auth": {"logout": {}},
                "telepathy": {"range": 3},
                "_meta": {"m": 2},
            },
            "agentInfo": {"name": "them", "version": "2"},
            "authMethods": [
                {"id": "key", "name": "Key", "description": "A key", "_meta": {"m": 3}},
                {"id": "shell", "name": "Shell", "type": "terminal"}, {"id": 4}, "odd",
            ],
            "_meta": {"m": 4},
            "mood": "good",
        });
        let prompts = json!({"image": false, "audio": true, "embeddedContext": false, "smell": true,
            "_meta": {"m": 1}});
        let want = json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": prompts,
                "mcpCapabilities": {"http": true, "sse": false},
                "sessionCapabilities": {"list": {}},
                "auth": {"logout": {}},
                "telepathy": {"range": 3},
                "_meta": {"m": 2},
            },
            "agentInfo": {"name": "us", "version": "1"},
            "authMethods": [{"id": "key", "name": "Key", "description": "A key", "_meta": {"m": 3}}],
            "_meta": {"m": 4, "wellspring": {"agentInfo": {"name": "them", "version": "2"}}},
            "mood": "good",
        });
        assert_eq!(initialize_response(ours.clone(), &theirs), want);
        let odd = json!({"agentCapabilities": {"auth": {"logout": 3}, "_meta": 3}, "_meta": []});
        let said = initialize_response(ours, &odd);
        assert_eq!(said["agentCapabilities"]["auth"], json!({}));
        assert!(said.get("_meta").is_none() && said["agentCapabilities"].get("_meta").is_none());
    }
}
