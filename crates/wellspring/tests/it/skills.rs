//! Skills: listed by name, and read on request.

use std::error::Error as _;
use std::fs;
use std::path::Path;

use serde_json::json;
use wellspring::prelude::*;
use wellspring::skill::SKILL_FILE_BYTES_MAX;
use wellspring::{Event, SkillError};

use crate::kit::{records, soon};

/// A folder with a skill and a further file, and a secret outside of it.
fn folder() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let skill = directory.path().join("haiku");
    fs::create_dir(&skill).unwrap();
    let text = "---\nname: haiku\ndescription: How to write a haiku.\nlicense: MIT\n---\n\n\
                # Haiku\n\nCount as in counting.md.\n";
    fs::write(skill.join("SKILL.md"), text).unwrap();
    fs::write(skill.join("counting.md"), "Five, seven, five.").unwrap();
    fs::write(skill.join("huge.md"), "x".repeat(SKILL_FILE_BYTES_MAX + 1)).unwrap();
    fs::write(directory.path().join("secret"), "hush").unwrap();
    directory
}

/// The result of `read_skill` for these arguments.
async fn read(agent: &Agent, arguments: serde_json::Value) -> String {
    let model = Scripted::new([Say::new().call("read_skill", arguments), Say::new().text(".")]);
    let stream = agent.say("?").model(model).stream();
    let outputs: Vec<_> = records(&stream)
        .await
        .into_iter()
        .filter_map(|record| match record.event {
            Event::ToolFinished { outcome, result, .. } => {
                Some(format!("{outcome:?}: {}", result.output_text()))
            }
            _ => None,
        })
        .collect();
    outputs.join("\n")
}

#[tokio::test(start_paused = true)]
async fn skills_are_told_by_name_and_description() {
    let model = Scripted::with(|request| {
        let tools: Vec<_> = request.tools.iter().map(|tool| &*tool.name).collect();
        Say::new().text(format!("{}\n{}", request.instructions, tools.join(", ")))
    });
    let directory = folder();
    let agent = Agent::model(model)
        .instructions("Be kind.")
        .skill(Skill::new("limerick", "An old version.", ""))
        .skill(Skill::new("limerick", "How to write a limerick.", "AABBA."));
    let haiku = Skill::from_dir(directory.path().join("haiku")).unwrap();
    insta::assert_snapshot!(soon(agent.say("?").skill(haiku).run()).await.unwrap(), @"
    Be kind.

    You have these skills. Before you do what one is about, read it with read_skill:
    - limerick: How to write a limerick.
    - haiku: How to write a haiku.
    read_skill
    ");
    // Without skills, the instructions do not mention them, and there is no tool.
    let none = Agent::model(Scripted::with(|request| {
        Say::new().text(format!("[{}] {}", request.instructions, request.tools.len()))
    }));
    assert_eq!(soon(none.say("?").run()).await.unwrap(), "[] 0");
}

#[tokio::test]
async fn a_skill_and_its_files_can_be_read_and_nothing_else() {
    let directory = folder();
    let haiku = Skill::from_dir(directory.path().join("haiku")).unwrap();
    assert_eq!((haiku.name(), haiku.description()), ("haiku", "How to write a haiku."));
    assert_eq!(haiku.body(), "# Haiku\n\nCount as in counting.md.");
    let agent = Agent::model(Scripted::new([])).skill(haiku).skill(Skill::new(
        "limerick",
        "How to write a limerick.",
        "AABBA.",
    ));
    let read = async |arguments| read(&agent, arguments).await;

    assert_eq!(read(json!({"name": "limerick"})).await, "Ok: AABBA.");
    let body = "Ok: # Haiku\n\nCount as in counting.md.";
    assert_eq!(read(json!({"name": "haiku"})).await, body);
    assert_eq!(read(json!({"name": "haiku", "file": "SKILL.md"})).await, body);
    let file = json!({"name": "haiku", "file": "counting.md"});
    assert_eq!(read(file).await, "Ok: Five, seven, five.");

    for refused in [
        json!({"name": "haiku", "file": "../secret"}),
        json!({"name": "haiku", "file": directory.path().join("secret")}),
        json!({"name": "haiku", "file": "huge.md"}),
        json!({"name": "haiku", "file": "missing.md"}),
        json!({"name": "limerick", "file": "counting.md"}),
        json!({"name": "sonnet"}),
        json!({}),
    ] {
        let said = read(refused.clone()).await;
        assert!(said.starts_with("Error: ") && !said.contains("hush"), "{refused}: {said}");
    }
}

#[test]
fn a_folder_that_is_not_a_skill_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let error = || Skill::from_dir(path).unwrap_err();
    let unreadable = error();
    assert!(
        matches!(&unreadable, SkillError::Unreadable { path, .. } if path.ends_with("SKILL.md"))
    );
    assert!(unreadable.source().is_some());
    for (text, missing) in [
        ("# No front matter", "name"),
        ("---\nname: x\n---\n", "description"),
        ("---\ndescription: x\n---\n", "name"),
    ] {
        fs::write(path.join("SKILL.md"), text).unwrap();
        let want = format!(
            "{} must begin with front matter that has a `{missing}`",
            path.join("SKILL.md").display()
        );
        assert_eq!(error().to_string(), want);
    }
    let error = Skill::from_dir(Path::new("/does/not/exist")).unwrap_err();
    assert_eq!(error.to_string(), "/does/not/exist could not be read");
}
