//! The totals at the end of a run: its result, and the tokens of each model.

use std::collections::BTreeMap;

use serde_json::Value;
use wellspring_core::{AgentNo, Item, Transcript, Usage};

use super::types::TokenUsage;

/// The largest integer that JSON readers in JavaScript represent exactly.
const SAFE_MAX: u64 = (1 << 53) - 1;

/// The typed result, or else the answer's text unless it is empty.
pub(super) fn result(transcript: &Transcript) -> Option<Value> {
    match &transcript.result {
        // The protocol takes no `null` here.
        Some(Value::Null) => None,
        Some(value) => Some(value.clone()),
        None => {
            let answer = transcript.answer(AgentNo::ROOT);
            Some(answer).filter(|text| !text.is_empty()).map(Value::String)
        }
    }
}

/// The usage of each model of each provider.
pub(super) fn usage(transcript: &Transcript) -> Vec<TokenUsage> {
    let mut totals: BTreeMap<(Option<&str>, Option<&str>), TokenUsage> = BTreeMap::new();
    for item in transcript.agents.values().flat_map(|agent| &agent.items) {
        let Item::Turn(turn) = item else { continue };
        let Some(usage) = &turn.usage else { continue };
        let provider = usage.provider.as_deref();
        let model = Some(usage.model.as_deref().unwrap_or(&turn.model));
        let total = totals.entry((provider, model)).or_default();
        total.provider = provider.map(Into::into);
        total.model = model.map(Into::into);
        add(total, &token_usage(usage));
    }
    totals.into_values().collect()
}

fn add(total: &mut TokenUsage, more: &TokenUsage) {
    let add = |total: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *total = Some(total.unwrap_or(0).saturating_add(more).min(SAFE_MAX));
        }
    };
    add(&mut total.input_tokens, more.input_tokens);
    add(&mut total.output_tokens, more.output_tokens);
    add(&mut total.total_tokens, more.total_tokens);
    add(&mut total.reasoning_tokens, more.reasoning_tokens);
    add(&mut total.cached_input_tokens, more.cached_input_tokens);
    add(&mut total.cache_write_input_tokens, more.cache_write_input_tokens);
}

/// Maps a usage to the protocol's type.
pub(super) fn token_usage(usage: &Usage) -> TokenUsage {
    let safe = |tokens: u64| tokens.min(SAFE_MAX);
    TokenUsage {
        provider: usage.provider.clone(),
        model: usage.model.clone(),
        input_tokens: Some(safe(usage.input)),
        output_tokens: Some(safe(usage.output)),
        total_tokens: Some(safe(usage.input.saturating_add(usage.output))),
        reasoning_tokens: usage.reasoning.map(safe),
        cached_input_tokens: usage.cached_input.map(safe),
        cache_write_input_tokens: usage.cache_write.map(safe),
    }
}
