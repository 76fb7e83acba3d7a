//! Validates answers: a question defines which answers are valid.

use wellspring_core::{Answer, Form, Outline, QuestionOutline};

use crate::agent::{AgentDef, Editors};
use crate::schema::Schema;

/// Checks an answer against the form of its question. The error says what would be valid.
pub(crate) async fn check(form: &Form, answer: &Answer) -> Result<(), String> {
    match (form, answer) {
        (_, Answer::Expired | Answer::Withdrawn) => {
            Err("only the run itself can withdraw a question, or let it expire".into())
        }
        (_, Answer::Deny { .. }) | (Form::Approve, Answer::Approve { .. }) => Ok(()),
        (Form::Choose { choices, multiple }, Answer::Choose(chosen)) => {
            let ids = || choices.iter().map(|it| &*it.id).collect::<Vec<_>>().join(", ");
            if let Some(unknown) = chosen.iter().find(|id| choices.iter().all(|it| it.id != **id)) {
                return Err(format!("{unknown:?} is not among the choices {}", ids()));
            }
            match chosen.len() {
                0 => Err(format!("nothing was chosen of {}", ids())),
                1 => Ok(()),
                _ if *multiple => Ok(()),
                _ => Err(format!("only one can be chosen of {}", ids())),
            }
        }
        (Form::Schema(schema), Answer::Value(value)) => match Schema::compile_async(schema).await {
            Ok(schema) => {
                schema.validate_async(value).await.map_err(|complaints| complaints.join("; "))
            }
            // A schema that cannot be compiled is left to the code that asked.
            Err(_) => Ok(()),
        },
        (Form::Approve, _) => Err("it takes an approval or a denial".into()),
        (Form::Choose { .. }, _) => Err("it takes a choice or a denial".into()),
        (Form::Schema(_), _) => Err("it takes a value or a denial".into()),
    }
}

/// Whether `by` may answer a question of a run that `asker` started: the asker and the agent's
/// approvers may; anyone may if the run has no asker.
pub(crate) fn may_answer(def: &AgentDef, asker: Option<&str>, by: Option<&str>) -> bool {
    match (asker, by) {
        (None, _) => true,
        (Some(asker), Some(by)) => {
            asker == by || def.approvers.iter().any(|approver| &**approver == by)
        }
        (Some(_), None) => false,
    }
}

/// Checks that an answer with edited arguments is allowed: the question accepts them, and `by` may
/// edit. Returns the reason if not.
pub(crate) fn check_editing(
    def: &AgentDef,
    outline: &Outline,
    question: &QuestionOutline,
    answer: &Answer,
    by: Option<&str>,
) -> Result<(), String> {
    let Answer::Approve { arguments: Some(_), .. } = answer else { return Ok(()) };
    if !outline.takes_edited_arguments(question) {
        return Err(
            "the arguments of this call cannot be edited, because it does not run here or \
                    has started; approve it as it is, or deny it"
                .into(),
        );
    }
    let may_edit = match &def.editors {
        Editors::Approvers => true,
        Editors::Nobody => false,
        Editors::Named(names) => by.is_some_and(|by| names.iter().any(|name| &**name == by)),
    };
    if may_edit {
        return Ok(());
    }
    let who = by.unwrap_or("an unnamed caller");
    let agent = &def.name;
    Err(format!(
        "{who} may not edit arguments for agent {agent}; approve the call as it is, or deny it"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wellspring_core::Choice;

    use super::*;

    #[tokio::test]
    async fn an_answer_fits_its_question() {
        let choice = |id: &str| Choice { id: id.into(), label: id.into() };
        let choose = |multiple| Form::Choose { choices: vec![choice("a"), choice("b")], multiple };
        let number = Form::Schema(json!({"type": "integer"}));
        let chosen = |ids: &[&str]| Answer::Choose(ids.iter().map(|id| (*id).into()).collect());
        for (form, answer) in [
            (&Form::Approve, Answer::yes()),
            (&Form::Approve, Answer::no("never")),
            (&choose(false), chosen(&["a"])),
            (&choose(true), chosen(&["a", "b"])),
            (&choose(false), Answer::no("neither")),
            (&number, Answer::Value(json!(3))),
            (&Form::Schema(json!({"type": 7})), Answer::Value(json!("whatever"))),
        ] {
            assert_eq!(check(form, &answer).await, Ok(()), "{answer:?}");
        }
        let mut refused = Vec::new();
        for (form, answer) in [
            (&Form::Approve, chosen(&["a"])),
            (&Form::Approve, Answer::Expired),
            (&choose(false), Answer::Withdrawn),
            (&choose(false), chosen(&["a", "b"])),
            (&choose(true), chosen(&["a", "c"])),
            (&choose(true), chosen(&[])),
            (&choose(true), Answer::yes()),
            (&number, Answer::Value(json!("three"))),
            (&number, Answer::yes()),
        ] {
            refused.push(check(form, &answer).await.unwrap_err());
        }
        insta::assert_snapshot!(refused.join("\n"), @r#"
        it takes an approval or a denial
        only the run itself can withdraw a question, or let it expire
        only the run itself can withdraw a question, or let it expire
        only one can be chosen of a, b
        "c" is not among the choices a, b
        nothing was chosen of a, b
        it takes a choice or a denial
        top level: value is not of type "integer"
        it takes a value or a denial
        "#);
    }
}
