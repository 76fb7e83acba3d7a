//! Turns an agent's permission request into a question, and the answer into the agent's option.

use serde_json::Value;
use wellspring_core::{Answer, Ask, Choice, Form, Scope};
use wellspring_wire::acp::{Permission, PermissionKind, permission_response};

/// The question for a person: yes or no, unless the agent distinguishes more.
pub(super) fn question(permission: &Permission) -> Ask {
    let form = if permission.is_yes_or_no() {
        Form::Approve
    } else {
        let choices = permission.options.iter().map(|option| Choice {
            id: option.id.clone(),
            label: if option.name.is_empty() { option.id.clone() } else { option.name.clone() },
        });
        Form::Choose { choices: choices.collect(), multiple: false }
    };
    let prompt = if permission.title.is_empty() {
        "Allow the agent to do this?".to_owned()
    } else {
        format!("Allow {}?", permission.title)
    };
    Ask::new(prompt, form)
}

/// What is answered, and whether that allows the call.
pub(super) struct Decided {
    /// The option's id; none if the prompt is being cancelled.
    option: Option<Box<str>>,
    pub(super) allowed: bool,
}

impl Decided {
    /// The response to the agent. `theirs` holds the members of a client's own answer.
    pub(super) fn response(&self, theirs: Option<&Value>) -> Value {
        permission_response(self.option.as_deref(), theirs)
    }
}

/// The agent's option for an answer: chosen by what an option means, never by its position. If no
/// option means it, or there was no answer, the call is refused.
pub(super) fn decide(permission: &Permission, answer: &Answer) -> Decided {
    use PermissionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let first = |kinds: &[PermissionKind]| kinds.iter().find_map(|kind| permission.option(*kind));
    let chosen = match answer {
        // The protocol cannot carry other arguments, so what was approved would not be what runs.
        Answer::Approve { arguments: Some(_), .. } => None,
        Answer::Approve { scope: Scope::Once, .. } => first(&[AllowOnce]),
        // What the agent cannot remember, it is allowed this time.
        Answer::Approve { scope: Scope::Thread | Scope::Always, .. } => {
            first(&[AllowAlways, AllowOnce])
        }
        Answer::Choose(ids) => match &ids[..] {
            [id] => permission.options.iter().find(|option| option.id == *id),
            _ => None,
        },
        Answer::Deny { scope: Scope::Thread | Scope::Always, .. } => first(&[RejectAlways]),
        Answer::Deny { scope: Scope::Once, .. } | Answer::Value(_) | Answer::Expired => None,
        Answer::Withdrawn => return cancelled(),
    };
    // A permanent refusal was not asked for, so that option comes last.
    match chosen.or_else(|| first(&[RejectOnce, RejectAlways])) {
        Some(option) => Decided { option: Some(option.id.clone()), allowed: option.kind.allows() },
        None => cancelled(),
    }
}

/// The answer for a call of one of our own tools: the engine asks for approval when it runs it.
pub(super) fn wave_through(permission: &Permission) -> Decided {
    decide(permission, &Answer::yes())
}

/// The answer when the prompt is being cancelled.
pub(super) fn cancelled() -> Decided {
    Decided { option: None, allowed: false }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wellspring_wire::acp::PermissionOption;

    use super::*;

    fn permission(kinds: &[(&str, PermissionKind)]) -> Permission {
        let options = kinds.iter().map(|(id, kind)| PermissionOption {
            id: (*id).into(),
            name: (*id).into(),
            kind: *kind,
        });
        Permission {
            call: "c".into(),
            part: None,
            our_tool: false,
            title: "rm -rf".into(),
            options: options.collect(),
        }
    }

    fn told(permission: &Permission, answer: &Answer) -> String {
        let told = decide(permission, answer).response(None);
        told["outcome"]["optionId"].as_str().unwrap_or("cancelled").to_owned()
    }

    #[test]
    fn answers_go_by_what_options_mean() {
        use PermissionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce, Unknown};
        let all = permission(&[
            ("never", RejectAlways),
            ("always", AllowAlways),
            ("no", RejectOnce),
            ("yes", AllowOnce),
        ]);
        let only_always = permission(&[("always", AllowAlways), ("no", RejectOnce)]);
        let no_no = permission(&[("yes", AllowOnce)]);
        let odd = permission(&[("odd", Unknown), ("never", RejectAlways)]);
        let always = Answer::Approve { scope: Scope::Always, arguments: None };
        let choose = |id: &str| Answer::Choose(vec![id.into()]);
        for (permission, answer, want) in [
            (&all, Answer::yes(), "yes"),
            (&all, always.clone(), "always"),
            (&all, Answer::no("no"), "no"),
            (&all, Answer::Deny { reason: None, scope: Scope::Always }, "never"),
            (&only_always, Answer::Deny { reason: None, scope: Scope::Always }, "no"),
            (&all, Answer::Expired, "no"),
            (&all, Answer::Withdrawn, "cancelled"),
            (&all, choose("never"), "never"),
            (&all, choose("made up"), "no"),
            (&all, Answer::Choose(vec!["yes".into(), "no".into()]), "no"),
            // An approval for once is not a permanent one.
            (&only_always, Answer::yes(), "no"),
            (&only_always, always.clone(), "always"),
            (&no_no, always, "yes"),
            (&no_no, Answer::no("no"), "cancelled"),
            (&no_no, Answer::Value(json!(true)), "cancelled"),
            (&odd, Answer::yes(), "never"),
            (&odd, choose("odd"), "odd"),
            (&all, Answer::Approve { scope: Scope::Once, arguments: Some(json!({})) }, "no"),
        ] {
            assert_eq!(told(permission, &answer), want, "{answer:?}");
        }
    }

    #[test]
    fn what_is_more_than_yes_or_no_is_a_choice() {
        use PermissionKind::{AllowAlways, AllowOnce, RejectOnce};
        let plain = permission(&[("y", AllowOnce), ("a", AllowAlways), ("n", RejectOnce)]);
        assert_eq!(question(&plain).form, Form::Approve);
        assert_eq!(&*question(&plain).prompt, "Allow rm -rf?");
        let modes = permission(&[("a", AllowAlways), ("b", AllowAlways), ("n", RejectOnce)]);
        let Form::Choose { choices, multiple: false } = question(&modes).form else {
            panic!("not a choice")
        };
        let ids: Vec<_> = choices.iter().map(|choice| &*choice.id).collect();
        assert_eq!(ids, ["a", "b", "n"]);
    }
}
