//! Lists of the models that a provider offers.

use serde_json::Value;
use wellspring_core::{FailureKind, ModelError};

use crate::http::Endpoint;

/// Pages of a list that are read. The longest lists, those of gateways, have a few thousand
/// entries on one page. The limit stops at servers that never send the last page.
pub const PAGES_MAX: usize = 20;

/// A model that a provider offers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedModel {
    /// The id that requests use.
    pub id: Box<str>,
    /// The name for people; `None` if it is the same.
    pub title: Option<Box<str>>,
    /// Size of the context window in tokens; `None` if not listed.
    pub context_tokens: Option<u64>,
    /// Maximum output of a turn in tokens; `None` if not listed.
    pub output_tokens: Option<u64>,
}

/// How a provider lists its models.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// The path of the first page, relative to the base URL.
    pub path: &'static str,
    /// The member with the models.
    pub list: &'static str,
    /// Reads an entry of the list; `None` if it is not a chat model.
    pub model: fn(&Value) -> Option<ListedModel>,
    /// Returns the query to append to the path for the next page; `None` after the last one.
    pub next: fn(&Value) -> Option<String>,
}

impl Listing {
    /// OpenAI, and compatible servers.
    pub const OPENAI: Self = Self { path: "/models", list: "data", model: openai, next: |_| None };

    /// Anthropic's.
    pub const ANTHROPIC: Self =
        Self { path: "/v1/models?limit=1000", list: "data", model: openai, next: after_id };

    /// Google's.
    pub const GEMINI: Self = Self {
        path: "/v1beta/models?pageSize=1000",
        list: "models",
        model: gemini,
        next: |page| text(page, "nextPageToken").map(|token| query("pageToken", token)),
    };

    /// Ollama's.
    pub const OLLAMA: Self =
        Self { path: "/api/tags", list: "models", model: ollama, next: |_| None };

    /// Fetches all models, in the provider's order.
    pub(crate) async fn fetch(&self, endpoint: &Endpoint) -> Result<Vec<ListedModel>, ModelError> {
        let mut models = Vec::new();
        let mut more = String::new();
        for _ in 0..PAGES_MAX {
            let page = endpoint.get(&format!("{}{more}", self.path)).await?;
            let Some(list) = page.get(self.list).and_then(Value::as_array) else {
                let what = format!("its list of models has no {:?}", self.list);
                return Err(ModelError::new(endpoint.provider(), FailureKind::Protocol, what));
            };
            models.extend(list.iter().filter_map(self.model));
            match (self.next)(&page) {
                Some(next) => more = next,
                None => break,
            }
        }
        Ok(models)
    }
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Formats `&name=value`, with the value escaped.
fn query(name: &str, value: &str) -> String {
    let mut query = format!("&{name}=");
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            query.push(char::from(byte));
        } else {
            query.push_str(&format!("%{byte:02X}"));
        }
    }
    query
}

fn after_id(page: &Value) -> Option<String> {
    let more = page.get("has_more").and_then(Value::as_bool) == Some(true);
    text(page, "last_id").filter(|_| more).map(|id| query("after_id", id))
}

fn number(model: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| model.get(name)?.as_u64())
}

fn openai(model: &Value) -> Option<ListedModel> {
    Some(ListedModel {
        id: text(model, "id")?.into(),
        title: ["display_name", "name"].iter().find_map(|name| text(model, name)).map(Into::into),
        // OpenRouter, vLLM and Groq report it; OpenAI does not.
        context_tokens: number(
            model,
            &["max_input_tokens", "context_length", "max_model_len", "context_window"],
        ),
        output_tokens: number(model, &["max_tokens", "max_completion_tokens"]),
    })
}

/// Only models that generate text; others make embeddings or images.
fn gemini(model: &Value) -> Option<ListedModel> {
    let can = model.get("supportedGenerationMethods").and_then(Value::as_array);
    if can.is_some_and(|can| can.iter().all(|method| method != "generateContent")) {
        return None;
    }
    let name = text(model, "name")?;
    Some(ListedModel {
        id: name.strip_prefix("models/").unwrap_or(name).into(),
        title: text(model, "displayName").map(Into::into),
        context_tokens: number(model, &["inputTokenLimit"]),
        output_tokens: number(model, &["outputTokenLimit"]),
    })
}

fn ollama(model: &Value) -> Option<ListedModel> {
    let id = text(model, "model").or(text(model, "name"))?.into();
    Some(ListedModel { id, title: None, context_tokens: None, output_tokens: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages() {
        let listed = |listing: &Listing, page: Value| {
            let models = page[listing.list].as_array().unwrap().iter();
            let models: Vec<ListedModel> = models.filter_map(listing.model).collect();
            (models, (listing.next)(&page))
        };
        let model = |id: &str, title: Option<&str>, context_tokens, output_tokens| ListedModel {
            id: id.into(),
            title: title.map(Into::into),
            context_tokens,
            output_tokens,
        };
        assert_eq!(
            listed(
                &Listing::OPENAI,
                json!({"object": "list", "data": [
                    {"id": "gpt-5.1", "object": "model", "owned_by": "openai"},
                    {"id": "a/b", "name": "B", "context_length": 4096}, {"object": "model"}]})
            ),
            (
                vec![model("gpt-5.1", None, None, None), model("a/b", Some("B"), Some(4096), None)],
                None
            )
        );
        assert_eq!(
            listed(
                &Listing::ANTHROPIC,
                json!({"data": [{"id": "claude-x", "display_name": "Claude X", "max_input_tokens": 9}],
                    "has_more": true, "last_id": "claude x"})
            ),
            (
                vec![model("claude-x", Some("Claude X"), Some(9), None)],
                Some("&after_id=claude%20x".into())
            )
        );
        assert_eq!(
            listed(
                &Listing::GEMINI,
                json!({"models": [
                    {"name": "models/gemini-3-pro", "displayName": "Gemini 3 Pro", "inputTokenLimit": 7,
                     "outputTokenLimit": 5, "supportedGenerationMethods": ["generateContent"]},
                    {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]}],
                    "nextPageToken": "a=b"})
            ),
            (
                vec![model("gemini-3-pro", Some("Gemini 3 Pro"), Some(7), Some(5))],
                Some("&pageToken=a%3Db".into())
            )
        );
        assert_eq!(
            listed(&Listing::OLLAMA, json!({"models": [{"name": "q:8b", "model": "qwen3:8b"}]})),
            (vec![model("qwen3:8b", None, None, None)], None)
        );
    }
}
