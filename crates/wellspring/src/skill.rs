//! Skills: instructions that an agent reads when it needs them.
//!
//! An agent gets the name and the description of each of its skills, and reads a skill with the
//! tool `read_skill`. A skill is a folder with a `SKILL.md` that starts with front matter
//! (`name` and `description`), or is created in code. The same tool reads the folder's other
//! files.
//!
//! # What is deliberately absent
//!
//! Other members of the front matter: only the name and the description are read.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::Deserialize;
use serde_json::json;
use wellspring_core::{Tool, ToolError, ToolKind, ToolResult, ToolSpec};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;

use crate::front_matter::FrontMatter;

/// The tool by which an agent reads a skill.
pub const READ_SKILL: &str = "read_skill";

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Maximum size of a skill's file. A larger one would fill a model's context.
pub const SKILL_FILE_BYTES_MAX: usize = 256 * 1024;

/// Instructions that an agent reads when it needs them.
///
/// ```
/// use wellspring::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// let haiku = Skill::new("haiku", "How to write a haiku.", "Five syllables, seven, five.");
/// # let model = Scripted::new([
/// #     Say::new().call("read_skill", json!({"name": "haiku"})),
/// #     Say::new().text("An old silent pond…"),
/// # ]);
/// let agent = Agent::model(model).skill(haiku);
/// assert_eq!(agent.say("A haiku, please.").run().await?, "An old silent pond…");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Skill {
    name: Box<str>,
    description: Box<str>,
    body: Arc<str>,
    files: Option<Arc<Dir>>,
}

/// A folder is not a skill.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// A file could not be read.
    #[error("{} could not be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Its front matter lacks a key.
    #[error("{} must begin with front matter that has a `{missing}`", .path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing key.
        missing: &'static str,
    },
}

impl Skill {
    /// A skill made in code.
    #[must_use]
    pub fn new(
        name: impl Into<Box<str>>,
        description: impl Into<Box<str>>,
        body: impl Into<Arc<str>>,
    ) -> Self {
        Self { name: name.into(), description: description.into(), body: body.into(), files: None }
    }

    /// Reads a skill from its folder. The other files of the folder are read on request; files
    /// outside of it cannot be read.
    ///
    /// ```
    /// use wellspring::Skill;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// let text = "---\nname: haiku\ndescription: How to write a haiku.\n---\nFive, seven, five.";
    /// std::fs::write(folder.join("SKILL.md"), text)?;
    /// let skill = Skill::from_dir(folder)?;
    /// assert_eq!((skill.name(), skill.body()), ("haiku", "Five, seven, five."));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no readable `SKILL.md`, or it lacks its name or description.
    pub fn from_dir(path: impl AsRef<Path>) -> Result<Self, SkillError> {
        let path = path.as_ref();
        let file = path.join(SKILL_FILE);
        let unreadable = |path: &Path, cause| SkillError::Unreadable { path: path.into(), cause };
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .map_err(|cause| unreadable(path, cause))?;
        let text =
            read_file(&dir, Path::new(SKILL_FILE)).map_err(|cause| unreadable(&file, cause))?;
        let missing = |missing| SkillError::Incomplete { path: file.clone(), missing };
        let file = FrontMatter::split(&text).map_err(|_| missing("name"))?;
        let field = |key| file.text(key).ok_or_else(|| missing(key));
        Ok(Self {
            name: field("name")?.into(),
            description: field("description")?.into(),
            body: file.body.into(),
            files: Some(Arc::new(dir)),
        })
    }

    /// The skill's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When to use the skill.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The instructions.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }

    async fn read(&self, file: Option<PathBuf>) -> Result<String, ToolError> {
        let Some(path) = file.filter(|file| file != Path::new(SKILL_FILE)) else {
            return Ok(self.body.to_string());
        };
        let Some(dir) = self.files.clone() else {
            return Err(ToolError::new(format!("skill {:?} has no files", self.name)));
        };
        let what = format!("{} of skill {:?}", path.display(), self.name);
        let read = tokio::task::spawn_blocking(move || read_file(&dir, &path)).await;
        read.map_err(io::Error::other).flatten().map_err(|error| ToolError::because(what, error))
    }
}

impl fmt::Debug for Skill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skill")
            .field("name", &self.name)
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// Adds the list of skills to an agent's instructions, and the tool to read them.
pub(crate) fn give(def: &mut AgentDef, skills: &[Skill]) {
    let mut told = def.instructions.trim_end().to_owned();
    if !told.is_empty() {
        told.push_str("\n\n");
    }
    told.push_str(&format!(
        "You have these skills. Before you do what one is about, read it with {READ_SKILL}:"
    ));
    for skill in skills {
        told.push_str(&format!("\n- {}: {}", skill.name, skill.description));
    }
    def.instructions = told.into();
    def.tools.retain(|tool| &*tool.spec().name != READ_SKILL);
    def.tools.push(read_skill(skills.into()));
}

fn read_skill(skills: Arc<[Skill]>) -> Arc<dyn Tool> {
    let names: Vec<&str> = skills.iter().map(Skill::name).collect();
    let spec = ToolSpec {
        parameters: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": names, "description": "Which skill."},
                "file": {
                    "type": "string",
                    "description": "A file that the skill mentions; the skill itself if absent.",
                },
            },
            "required": ["name"],
        })
        .into(),
        kind: ToolKind::Read,
        idempotent: true,
        ..ToolSpec::new(READ_SKILL, "Reads one of your skills.")
    };
    let tool = from_function(spec, move |arguments, _| {
        let skills = Arc::clone(&skills);
        async move {
            let ReadSkill { name, file } = serde_json::from_value(arguments)
                .map_err(|error| ToolError::because("the arguments do not fit", error))?;
            let skill = skills.iter().find(|skill| *skill.name == *name);
            let skill =
                skill.ok_or_else(|| ToolError::new(format!("there is no skill {name:?}")))?;
            Ok(ToolResult::new(skill.read(file).await?))
        }
    });
    Arc::new(tool)
}

#[derive(Deserialize)]
struct ReadSkill {
    name: String,
    file: Option<PathBuf>,
}

fn read_file(dir: &Dir, path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = dir.open(path)?;
    file.take(SKILL_FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    if text.len() > SKILL_FILE_BYTES_MAX {
        let message = format!("it has more than {SKILL_FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}
