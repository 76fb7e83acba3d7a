//! `llm_call`: asks a model something outside of the conversation.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::TryStreamExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use wellspring_core::{
    Context, Event, Message, Model, ModelSettings, PartId, PartKind, Stop, ToolError, ToolKind,
    TurnRequest,
};

use super::function::{FunctionTool, function};

/// Bytes of an answer: far more than a model writes in one turn, so only a broken
/// one reaches it.
pub const LLM_CALL_BYTES_MAX: usize = 1024 * 1024;

/// A tool by which an agent asks `model` something. Each delta of the answer is progress, as
/// a bare string; the joined text is the result.
///
/// ```
/// use std::sync::Arc;
///
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context, Tool as _};
/// use wellspring_engine::tools::llm_call;
/// use wellspring_models::{Say, Scripted};
///
/// let tool = llm_call(Arc::new(Scripted::new([Say::new().text("A haiku.")])));
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let cx = Context::create("trace-1", CancellationToken::new());
/// assert_eq!(tool.call(json!({"prompt": "Write."}), cx).await?.output, "A haiku.");
/// # Ok::<(), wellspring_core::ToolError>(()) }).unwrap();
/// ```
pub fn llm_call(model: Arc<dyn Model>) -> FunctionTool {
    let description = "Asks a language model something and gives back its answer. The model \
        sees only the prompt, so put everything it needs there.";
    function("llm_call", description, move |arguments: Arguments, context: Context| {
        let model = Arc::clone(&model);
        async move {
            // Dropping the attempt cancels it.
            match context.signal().run_until_cancelled(answer(&*model, arguments, &context)).await {
                Some(answer) => answer,
                None => Err(ToolError::new("cancelled before the model had answered")),
            }
        }
    })
    .title("Model")
    .kind(ToolKind::Think)
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The prompt.
    prompt: Box<str>,
    /// The system prompt.
    system: Option<Box<str>>,
}

async fn answer(
    model: &dyn Model,
    arguments: Arguments,
    context: &Context,
) -> Result<String, ToolError> {
    let request = TurnRequest {
        model: None,
        instructions: arguments.system.unwrap_or_default().into(),
        messages: [Message::user(arguments.prompt)].into(),
        tools: [].into(),
        streaming: true,
        settings: ModelSettings::default(),
    };
    let failed = |error| ToolError::because("the model failed", error);
    let mut stream = model.attempt(request).await.map_err(failed)?;
    let (mut text, mut texts) = (String::new(), BTreeSet::new());
    while let Some(mut batch) = stream.try_next().await.map_err(failed)? {
        let stop = batch.take_stop();
        for (_, event) in batch.into_events() {
            let Some(words) = said(&event, &mut texts) else { continue };
            if text.len() + words.len() > LLM_CALL_BYTES_MAX {
                let message = format!("the model wrote more than {LLM_CALL_BYTES_MAX} bytes");
                return Err(ToolError::new(message));
            }
            text.push_str(words);
            context.progress(words).await;
        }
        if let Some((stop, _)) = stop {
            return ended(text, &stop);
        }
    }
    Err(ToolError::new("the model broke off in the middle of its answer"))
}

/// The text for the reader in an event; `texts` are the text parts.
#[expect(clippy::wildcard_enum_match_arm, reason = "only words are wanted here")]
fn said<'a>(event: &'a Event, texts: &mut BTreeSet<PartId>) -> Option<&'a str> {
    match event {
        Event::PartStarted { part, kind: PartKind::Text { .. } } => {
            texts.insert(*part);
            None
        }
        Event::PartDelta { part, chunk } if texts.contains(part) => Some(chunk),
        _ => None,
    }
}

fn ended(text: String, stop: &Stop) -> Result<String, ToolError> {
    match stop {
        Stop::EndTurn | Stop::StopSequence | Stop::Other(_) => Ok(text),
        Stop::MaxTokens | Stop::Paused | Stop::TurnLimit | Stop::Budget(_) => {
            Err(ToolError::new(format!("the model could not finish its answer: {text}")))
        }
        Stop::Refusal | Stop::ContentFilter => {
            Err(ToolError::new(format!("the model refused to answer: {text}")))
        }
        Stop::ToolCalls => Err(ToolError::new("the model called a tool, but has none")),
    }
}

#[cfg(test)]
mod tests;
