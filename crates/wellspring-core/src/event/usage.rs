//! Usage: the tokens and the money that a run has spent.

use serde::{Deserialize, Serialize};

/// Tokens and money.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Usage {
    /// What the figures cover.
    #[serde(default)]
    pub scope: UsageScope,
    /// The provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Box<str>>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub input: u64,
    /// Output tokens, reasoning included.
    #[serde(default)]
    pub output: u64,
    /// Output tokens that were reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Input tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<u64>,
    /// Input tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// The price, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// How full the context window is, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextWindow>,
}

impl Usage {
    /// Adds another turn's usage.
    pub fn add(&mut self, other: &Self) {
        fn sum(total: &mut Option<u64>, more: Option<u64>) {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        }
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        sum(&mut self.reasoning, other.reasoning);
        sum(&mut self.cached_input, other.cached_input);
        sum(&mut self.cache_write, other.cache_write);
        if let Some(more) = &other.cost {
            match &mut self.cost {
                Some(cost) if cost.currency == more.currency => cost.amount += more.amount,
                Some(_) => {} // Two currencies have no sum; the first one stays.
                None => self.cost = Some(more.clone()),
            }
        }
        if other.context.is_some() {
            self.context = other.context;
        }
    }

    /// The difference to earlier figures.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        let cost = match (&self.cost, &before.cost) {
            (Some(now), Some(before)) if now.currency == before.currency => {
                Some(Cost { amount: now.amount - before.amount, ..now.clone() })
            }
            (now, _) => now.clone(),
        };
        Self {
            input: self.input.saturating_sub(before.input),
            output: self.output.saturating_sub(before.output),
            reasoning: less(self.reasoning, before.reasoning),
            cached_input: less(self.cached_input, before.cached_input),
            cache_write: less(self.cache_write, before.cache_write),
            cost,
            ..self.clone()
        }
    }
}

/// What usage figures cover.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    /// One turn.
    #[default]
    Turn,
    /// The run so far.
    Run,
    /// A remote session, over all its runs.
    Session,
}

/// An amount of money.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cost {
    /// The amount. A value that is not a number is written as `null` and read as zero.
    #[serde(deserialize_with = "null_is_nothing")]
    pub amount: f64,
    /// The currency (ISO 4217).
    pub currency: Box<str>,
}

fn null_is_nothing<'de, D: serde::Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(value).map(Option::unwrap_or_default)
}

/// How full a context window is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContextWindow {
    /// Tokens used.
    pub used: u64,
    /// Tokens available.
    pub size: u64,
}
