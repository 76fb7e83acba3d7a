//! Requests to Dify.

use serde_json::{Map, Value, json};

/// The kind of an app. Each kind has its own paths.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum App {
    /// A chat, an agent or a chatflow.
    #[default]
    Chat,
    /// A text generator.
    Completion,
    /// A workflow.
    Workflow,
}

impl App {
    /// The path that a request is posted to.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat-messages",
            Self::Completion => "completion-messages",
            Self::Workflow => "workflows/run",
        }
    }

    /// The path that stops a task.
    #[must_use]
    pub fn stop_path(self, task_id: &str) -> String {
        match self {
            Self::Chat => format!("chat-messages/{task_id}/stop"),
            Self::Completion => format!("completion-messages/{task_id}/stop"),
            Self::Workflow => format!("workflows/tasks/{task_id}/stop"),
        }
    }
}

/// A request to an app.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The user's input.
    pub query: &'a str,
    /// The user's id. Dify keeps conversations per user.
    pub user: &'a str,
    /// The conversation to continue, for a chat.
    pub conversation_id: Option<&'a str>,
    /// The variable that takes the text, for an app without a query of its own.
    pub input: &'a str,
    /// The app's variables by name, if the request names its inputs. An app without a query then
    /// gets these instead of the text.
    pub inputs: Option<&'a Map<String, Value>>,
    /// URLs of files, with their media types.
    pub files: &'a [(&'a str, &'a str)],
}

impl Ask<'_> {
    /// The body of the request.
    #[must_use]
    pub fn body(&self, app: App) -> Value {
        let mut inputs = self.inputs.cloned().unwrap_or_default();
        let mut body = json!({"response_mode": "streaming", "user": self.user});
        match app {
            App::Chat => {
                body["query"] = json!(self.query);
                body["conversation_id"] = json!(self.conversation_id.unwrap_or_default());
            }
            App::Completion | App::Workflow if self.inputs.is_some() => {}
            App::Completion | App::Workflow => {
                inputs.insert(self.input.to_owned(), json!(self.query));
            }
        }
        body["inputs"] = Value::Object(inputs);
        if !self.files.is_empty() {
            let files = self.files.iter().map(|(media_type, url)| {
                let kind = match media_type.split('/').next() {
                    Some(kind @ ("image" | "audio" | "video")) => kind,
                    Some(_) | None => "document",
                };
                json!({"type": kind, "transfer_method": "remote_url", "url": url})
            });
            body["files"] = files.collect();
        }
        body
    }
}
