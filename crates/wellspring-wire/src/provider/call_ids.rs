//! Ids of calls in a request.

use std::collections::{BTreeMap, BTreeSet};

use wellspring_core::{CallResult, MessagePart, WirePartId};

/// The id of each call: the provider's own id if it is unique. Some servers count from 0 in every
/// answer, and others send no id.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    by_part: BTreeMap<WirePartId, Box<str>>,
    used: BTreeSet<Box<str>>,
}

impl CallIds {
    /// The id of a call, for a provider that accepts any id.
    pub(crate) fn name(&mut self, part: &MessagePart) -> &str {
        self.name_as(part, |id| !id.is_empty(), |part| part.to_string())
    }

    /// The id of a call, for a provider that accepts only some ids; `made_up` gives one if
    /// necessary.
    pub(crate) fn name_as(
        &mut self,
        part: &MessagePart,
        is_legal: impl Fn(&str) -> bool,
        made_up: impl FnOnce(WirePartId) -> String,
    ) -> &str {
        let own = part.provider_id().filter(|id| is_legal(id));
        let own = own.filter(|id| self.used.insert((*id).into()));
        let id = own.map_or_else(|| made_up(part.id).into(), Into::into);
        self.by_part.entry(part.id).insert_entry(id).into_mut()
    }

    /// The id of the call that a result belongs to; `None` if the call is not in the
    /// conversation.
    pub(crate) fn of(&self, result: &CallResult) -> Option<&str> {
        self.by_part.get(&result.call).map(|id| &**id)
    }
}
