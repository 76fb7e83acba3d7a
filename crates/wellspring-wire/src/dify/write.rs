//! Our requests to Dify.

use serde_json::{Map, Value, json};

/// The kind of an app: each has paths of its own.
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
    /// What the user said.
    pub query: &'a str,
    /// The user, as Dify keeps conversations apart.
    pub user: &'a str,
    /// The conversation that goes on, for a chat.
    pub conversation_id: Option<&'a str>,
    /// The variable that the text is given in, for an app that has no query of its own.
    pub input: &'a str,
    /// The app's variables by name, if the user gave them so. An app without a query then gets
    /// these and not the text.
    pub inputs: Option<&'a Map<String, Value>>,
    /// Addresses of files, with their media types.
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
