//! Reads a client's request.
//!
//! A client sends the whole conversation each time, and can forge it. The log is the history,
//! so only two things are read: new user input, and answers to what a run is waiting for.

use wellspring_core::{
    Amendment, Answer, Command, Content, MediaSource, Outline, PartId, QuestionId, RunId,
    RunRequest, RunsOn, ToolOutcome, ToolResult, ToolSpec, WireNames, WirePartId,
};

use super::types::{
    Approval, ChatRequest, QuestionAnswer, Role, ToolAnswer, Trigger, UiMessage, UserPart,
};

/// What a client's request asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A new run.
    Start {
        /// The run's request.
        request: Box<RunRequest>,
        /// Where the run branches off; `None` if it continues the thread's latest run.
        branch: Option<Branch>,
    },
    /// The client has answers: read them with [`Asked::answers`].
    Answer,
}

/// Where a run branches off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Branch {
    /// After the run of this message.
    After(RunId),
    /// At the beginning of the conversation.
    Start,
}

/// An invalid request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The last message is neither a user message nor an answer.
    #[error("`messages` must end with a user message or with an answer to a call")]
    NoInput,
    /// A part of the user's message is invalid.
    #[error("message {id:?}: a part is invalid: {problem}")]
    Part {
        /// The message's id.
        id: Box<str>,
        /// What is wrong with it.
        problem: String,
    },
    /// An answer to a question is invalid.
    #[error(
        "the answer to {id:?} is invalid: {problem}; expected \
         {{\"choose\": [id, …]}}, {{\"value\": …}}, {{\"approve\": {{}}}} or {{\"deny\": {{}}}}"
    )]
    Answer {
        /// The question's id.
        id: Box<str>,
        /// What is wrong with it.
        problem: String,
    },
    /// An answer names a question that is not open.
    #[error("no question {id:?} is open")]
    NotOpen {
        /// The id that it names.
        id: Box<str>,
    },
    /// A file's data is not base64.
    #[error("message {id:?}: a file's `data:` address is not base64")]
    File {
        /// The message's id.
        id: Box<str>,
    },
}

impl Asked {
    /// Reads a request.
    ///
    /// ```
    /// use wellspring_wire::ai_sdk::Asked;
    ///
    /// let request = serde_json::from_str(r#"{
    ///     "id": "chat", "trigger": "submit-message",
    ///     "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hello?"}]}]
    /// }"#)?;
    /// let Asked::Start { request, branch: None } = Asked::read(&request)? else {
    ///     return Err("a run of its own".into());
    /// };
    /// assert_eq!(request.input[0].as_text(), Some("Hello?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is nothing new in it, or a part of the user's message is invalid.
    pub fn read(request: &ChatRequest) -> Result<Self, InputError> {
        let Some((last, earlier)) = request.messages.split_last() else {
            return Err(InputError::NoInput);
        };
        let regenerates = request.trigger == Trigger::RegenerateMessage;
        match last.role {
            Role::User => {}
            Role::Assistant if !regenerates => return Ok(Self::Answer),
            Role::Assistant | Role::System => return Err(InputError::NoInput),
        }
        let edits = request.message_id.as_ref().is_some_and(|id| *id == last.id);
        let branch = (regenerates || edits).then(|| branch(earlier));
        let input = said(last)?;
        if input.is_empty() {
            return Err(InputError::NoInput);
        }
        let some = |name: &str| (!name.is_empty()).then(|| name.into());
        let run = RunRequest {
            input,
            model: request.model.clone(),
            client_tools: request.tools.iter().map(tool).collect(),
            wire: Some(Box::new(WireNames {
                thread: some(&request.id),
                input: some(&last.id),
                ..WireNames::default()
            })),
            ..RunRequest::default()
        };
        Ok(Self::Start { request: Box::new(run), branch })
    }

    /// Reads the answers in a request to what a run waits for, as commands for the run. Other
    /// answers in the messages are history, or forged, and are ignored.
    ///
    /// # Errors
    ///
    /// If one of the request's own [`answers`](ChatRequest::answers) is invalid, or its question
    /// is not open.
    pub fn answers(request: &ChatRequest, waiting: &Outline) -> Result<Vec<Command>, InputError> {
        let Some(head) = &waiting.run else { return Ok(Vec::new()) };
        let Some(last) = request.messages.last().filter(|it| it.role == Role::Assistant) else {
            return Ok(Vec::new());
        };
        let mut commands: Vec<Command> = Vec::new();
        for given in &request.answers {
            let command = answered(waiting, head.run, given)?;
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        for part in &last.parts {
            // A part that is not an answer fails to parse.
            let Ok(answer) = serde_json::from_value(part.clone()) else { continue };
            let command = match answer {
                ToolAnswer::OutputAvailable { tool_call_id, output, preliminary: false } => {
                    pending(waiting, head.run, &tool_call_id).map(|call| Command::FinishCall {
                        call,
                        outcome: ToolOutcome::Ok,
                        result: ToolResult::new(output),
                        wire_run: None,
                    })
                }
                ToolAnswer::OutputAvailable { preliminary: true, .. } => None,
                ToolAnswer::OutputError { tool_call_id, error_text } => {
                    pending(waiting, head.run, &tool_call_id).map(|call| Command::FinishCall {
                        call,
                        outcome: ToolOutcome::Error,
                        result: ToolResult::new(&*error_text),
                        wire_run: None,
                    })
                }
                ToolAnswer::ApprovalResponded { approval } => decided(waiting, head.run, &approval),
            };
            commands.extend(command.filter(|command| !commands.contains(command)));
        }
        let tools: Vec<_> = request.tools.iter().map(tool).collect();
        if !commands.is_empty() && !tools.is_empty() {
            let amended = Amendment { client_tools: Some(tools), ..Amendment::default() };
            let resume =
                Command::Resume { amended: Box::new(amended), state: None, wire_run: None };
            commands.insert(0, resume);
        }
        Ok(commands)
    }
}

/// A call of this run that waits for the client.
fn pending(outline: &Outline, of: RunId, id: &str) -> Option<PartId> {
    let WirePartId { run, part } = id.parse().ok()?;
    let call = outline.call(part).filter(|_| run == of)?;
    (call.tool.runs_on == RunsOn::Client).then_some(part)
}

fn decided(outline: &Outline, of: RunId, approval: &Approval) -> Option<Command> {
    let question = open_question(outline, of, &approval.id)?;
    let answer = match (approval.approved, &approval.reason) {
        (true, _) => Answer::yes(),
        (false, Some(reason)) => Answer::no(reason.clone()),
        (false, None) => Answer::NO,
    };
    Some(Command::Answer { question, answer, by: None, wire_run: None })
}

/// A question of this run that is open.
fn open_question(outline: &Outline, of: RunId, id: &str) -> Option<QuestionId> {
    let (run, question) = id.split_once("-question-")?;
    let question = QuestionId(question.parse().ok()?);
    outline.questions.get(&question).filter(|_| run.parse() == Ok(of))?;
    Some(question)
}

fn answered(outline: &Outline, of: RunId, given: &QuestionAnswer) -> Result<Command, InputError> {
    let not_open = || InputError::NotOpen { id: given.id.clone() };
    let question = open_question(outline, of, &given.id).ok_or_else(not_open)?;
    let answer = serde_json::from_value(given.answer.clone())
        .map_err(|error| InputError::Answer { id: given.id.clone(), problem: error.to_string() })?;
    Ok(Command::Answer { question, answer, by: None, wire_run: None })
}

/// Branches after the last of our answers that the client still has.
fn branch(earlier: &[UiMessage]) -> Branch {
    let answers = earlier.iter().rev().filter(|message| message.role == Role::Assistant);
    let mut runs = answers.filter_map(|message| message.id.parse().ok());
    runs.next().map_or(Branch::Start, Branch::After)
}

fn said(message: &UiMessage) -> Result<Vec<Content>, InputError> {
    let mut content = Vec::new();
    for part in &message.parts {
        let kind = part.get("type").and_then(serde_json::Value::as_str).unwrap_or_default();
        // The application's own parts are not input.
        if !["text", "file"].contains(&kind) {
            continue;
        }
        let part = serde_json::from_value(part.clone()).map_err(|error| InputError::Part {
            id: message.id.clone(),
            problem: error.to_string(),
        })?;
        content.push(match part {
            UserPart::Text { text } => Content::Text(text),
            UserPart::File { media_type, url, filename: name } => {
                let source = match url.strip_prefix("data:") {
                    None => MediaSource::Url(url),
                    Some(data) => {
                        let base64 = data.split_once(";base64,").map(|(_, data)| data.into());
                        let file = || InputError::File { id: message.id.clone() };
                        MediaSource::Data(base64.ok_or_else(file)?)
                    }
                };
                Content::Media { media_type, source, name }
            }
        });
    }
    Ok(content)
}

fn tool(tool: &super::types::PageTool) -> ToolSpec {
    let mut spec = ToolSpec::new(tool.name.clone(), tool.description.clone());
    if let Some(schema) = &tool.input_schema {
        spec.parameters = schema.clone().into();
    }
    spec.runs_on = RunsOn::Client;
    spec
}
