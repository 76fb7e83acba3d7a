//! Answers to the requests of a proxied agent: the decision, and the further members of the
//! client's answer.

use serde_json::{Value, json};

use super::super::unknown_members::{OURS, members_except, merge};

/// The answer to a `session/request_permission`: the selected option, if any, and further
/// members of the client's answer. A selection that is not among the agent's options goes to
/// `_meta`.
///
/// ```
/// use serde_json::json;
/// use wellspring_wire::acp::permission_response;
///
/// let said = json!({"outcome": {"outcome": "selected", "optionId": "yes"}, "_meta": {"by": "Ada"}});
/// assert_eq!(permission_response(Some("yes"), Some(&said)), said);
/// ```
#[must_use]
pub fn permission_response(option: Option<&str>, theirs: Option<&Value>) -> Value {
    let cancelled = json!({"outcome": {"outcome": "cancelled"}});
    let decided = option.map_or_else(
        || cancelled.clone(),
        |option| json!({"outcome": {"outcome": "selected", "optionId": option}}),
    );
    let Some(theirs) = theirs else { return decided };
    let said = &theirs["outcome"];
    // Dismissing a question means no. If the client sent `cancelled`, the agent gets
    // `cancelled`.
    let mut response = if said["outcome"] == "cancelled" { cancelled } else { decided };
    merge(&mut response, &members_except(theirs, &["outcome"]));
    let names = ["outcome", "optionId"];
    if names.iter().all(|name| said[name] == response["outcome"][name]) {
        merge(&mut response["outcome"], &members_except(said, &names));
    } else {
        merge(&mut response, &json!({"_meta": {OURS: {"outcome": said}}}));
    }
    response
}

/// The answer to an `elicitation/create`: the decision, and the further members of the client's
/// answer.
#[must_use]
pub fn elicitation_response(mut decided: Value, theirs: Option<&Value>) -> Value {
    let Some(theirs) = theirs else { return decided };
    if theirs["action"] == "cancel" && decided["action"] == "decline" {
        decided["action"] = theirs["action"].clone();
    }
    merge(&mut decided, &members_except(theirs, &["action", "content"]));
    decided
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_answered_in_the_words_of_whoever_was_asked() {
        let selected = |option: &str| json!({"outcome": "selected", "optionId": option});
        let carried = |outcome: &Value| json!({"wellspring": {"outcome": outcome}});
        let more = json!({"outcome": "selected", "optionId": "y", "note": "n", "_meta": {"m": 1}});
        let unknown = json!({"outcome": "later", "_meta": {"m": 1}});
        for (option, theirs, want) in [
            (Some("y"), json!({"outcome": more, "x": 1}), json!({"outcome": more, "x": 1})),
            (
                Some("y"),
                json!({"outcome": selected("y"), "_meta": 3}),
                json!({"outcome": selected("y")}),
            ),
            (
                Some("n"),
                json!({"outcome": {"outcome": "cancelled", "_meta": {"m": 1}}, "_meta": {"m": 2}}),
                json!({"outcome": {"outcome": "cancelled", "_meta": {"m": 1}}, "_meta": {"m": 2}}),
            ),
            (
                Some("n"),
                json!({"outcome": unknown, "_meta": {"wellspring": {"w": 1}, "m": 2}}),
                json!({"outcome": selected("n"),
                    "_meta": {"wellspring": {"outcome": unknown, "w": 1}, "m": 2}}),
            ),
            (
                None,
                json!({"outcome": selected("made up")}),
                json!({"outcome": {"outcome": "cancelled"}, "_meta": carried(&selected("made up"))}),
            ),
            (
                Some("n"),
                json!(7),
                json!({"outcome": selected("n"), "_meta": carried(&Value::Null)}),
            ),
        ] {
            assert_eq!(permission_response(option, Some(&theirs)), want, "{theirs}");
        }
        assert_eq!(permission_response(Some("y"), None), json!({"outcome": selected("y")}));
    }

    #[test]
    fn a_form_is_answered_in_the_words_of_whoever_was_asked() {
        let accept = json!({"action": "accept", "content": {"a": 1}});
        for (decided, theirs, want) in [
            (
                accept.clone(),
                json!({"action": "accept", "content": {"answer": 1}, "x": 1, "_meta": {"m": 1}}),
                json!({"action": "accept", "content": {"a": 1}, "x": 1, "_meta": {"m": 1}}),
            ),
            (
                json!({"action": "decline"}),
                json!({"action": "cancel"}),
                json!({"action": "cancel"}),
            ),
            (accept.clone(), json!({"action": "cancel"}), accept.clone()),
        ] {
            assert_eq!(elicitation_response(decided, Some(&theirs)), want, "{theirs}");
        }
    }
}
