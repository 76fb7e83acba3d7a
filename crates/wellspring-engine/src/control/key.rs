//! Idempotency keys: they decide which commands are the same command.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use wellspring_core::{CancelWhen, PartId, QuestionId, RunRequest, ThreadId, canonical_json};
use wellspring_log::ExternalId;

use crate::principal::Principal;

/// What identifies a repeated request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum RequestKey {
    /// Every request is a new one, even with equal contents.
    #[default]
    Fresh,
    /// The client's own key. Keys of different principals never collide.
    Named(Box<str>),
    /// The key of a start that became input of its thread's run.
    Start(StartKey),
}

/// The key of one command in a run's inbox. Its encoded form is a JSON array that begins with
/// the kind, so two keys are equal only if they are of one kind and have the same fields.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Key<'a> {
    Cancel {
        when: CancelWhen,
        by: &'a str,
    },
    /// The first answer counts. The principal is part of the key only if it could not be checked
    /// whether it may answer.
    Answer {
        question: QuestionId,
        by: Option<&'a str>,
    },
    Result {
        call: PartId,
    },
    /// The further commands of a response. The run numbers its questions and calls uniquely, so
    /// this key needs no id of the client's.
    With {
        answered: Answered,
        index: usize,
        by: &'a str,
    },
    /// A message with the client's own id. Clients repeat messages if they did not see that they
    /// were accepted.
    Message {
        message: &'a str,
        by: &'a str,
    },
    Request {
        key: &'a str,
        index: usize,
        by: &'a str,
    },
    Start {
        kind: Box<str>,
        id: Box<str>,
        index: usize,
    },
    Fresh {
        id: Uuid,
        index: usize,
    },
    /// A refused attempt to answer.
    Refusal {
        question: QuestionId,
        by: &'a str,
    },
    Reminder {
        turn: u32,
    },
    Delete,
}

/// The first question or call that a response answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answered {
    Question(QuestionId),
    Call(PartId),
}

impl Key<'_> {
    pub(crate) fn encode(&self) -> Box<str> {
        // Numbers and strings always have a JSON form.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

/// A client's own id of a run or a thread. Ids of different tenants and of different kinds
/// never collide.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientId {
    /// The kind of the id: the protocol, and what the id stands for there.
    pub kind: &'static str,
    /// The id.
    pub id: Box<str>,
}

impl ClientId {
    /// A client's id of some kind.
    #[must_use]
    pub fn new(kind: &'static str, id: impl Into<Box<str>>) -> Self {
        Self { kind, id: id.into() }
    }

    pub(crate) fn external(&self, who: &Principal) -> ExternalId {
        ExternalId { tenant: (*who.tenant).into(), surface: self.kind.into(), id: self.id.clone() }
    }

    /// The thread that this id means to a tenant. It is derived from the id, so that it stays
    /// the same when all runs of the thread are deleted, and nothing has to be stored.
    pub(crate) fn thread(&self, who: &Principal) -> ThreadId {
        let digest = digest([&*who.tenant, self.kind, &*self.id]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        ThreadId::new(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// The ids under which a new run can be found from its first record on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StartKey {
    /// The client's id of the run.
    Client(ClientId),
    /// An idempotency key of the principal.
    Idempotency(Box<str>),
}

/// The kind under which idempotency keys of starts are stored.
const IDEMPOTENCY: &str = "idempotency";

/// The kind under which a start that became input of another run stores its request.
const STEERED: &str = "steered";

impl StartKey {
    pub(crate) fn external(&self, who: &Principal) -> ExternalId {
        match self {
            Self::Client(id) => id.external(who),
            Self::Idempotency(key) => {
                let id = serde_json::to_string(&(&*who.id, key)).unwrap_or_default();
                ClientId::new(IDEMPOTENCY, id).external(who)
            }
        }
    }

    /// The name that marks that exactly this request became input of another run.
    pub(crate) fn steered(&self, who: &Principal, request: &RunRequest) -> ExternalId {
        let name = self.external(who);
        let request = canonical_json(&without_trace(request));
        let digest = digest([&*name.surface, &*name.id, &*request]);
        let id: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        ClientId::new(STEERED, id).external(who)
    }
}

/// Whether two requests are the same, apart from their traces: each attempt has its own.
pub(crate) fn same_request(one: &RunRequest, other: &RunRequest) -> bool {
    without_trace(one) == without_trace(other)
}

fn without_trace(request: &RunRequest) -> RunRequest {
    RunRequest { trace_id: None, trace_parent: None, ..request.clone() }
}

/// A digest of texts that also depends on their boundaries.
fn digest<const N: usize>(texts: [&str; N]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Ids that imitate parts of other keys.
    #[test]
    fn keys_of_different_commands_differ() {
        let ids = ["", "a", "a\"", "\",\"a", "cancel", "0", "1-0", "ä"];
        let mut keys = Vec::new();
        for by in ids {
            for when in [CancelWhen::Now, CancelWhen::AfterTurn] {
                keys.push(Key::Cancel { when, by }.encode());
            }
            for number in 0..3 {
                let (question, call) = (QuestionId(number), PartId(number));
                keys.push(Key::Answer { question, by: Some(by) }.encode());
                for index in 0..2 {
                    for answered in [Answered::Question(question), Answered::Call(call)] {
                        keys.push(Key::With { answered, index, by }.encode());
                    }
                }
            }
            for key in ids {
                keys.push(Key::Message { message: key, by }.encode());
                for index in 0..2 {
                    keys.push(Key::Request { key, index, by }.encode());
                }
            }
        }
        keys.extend((0..3).map(|call| Key::Result { call: PartId(call) }.encode()));
        keys.extend((0..3).map(|turn| Key::Reminder { turn }.encode()));
        keys.push(Key::Delete.encode());
        let all = keys.len();
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), all);
    }

    /// A repeated request may have its object keys in another order.
    #[test]
    fn a_request_in_another_order_is_the_same_request() {
        let who = Principal::local();
        let steered = |state: serde_json::Value| {
            let request = RunRequest { state: Some(state), ..RunRequest::text("Go.") };
            StartKey::Idempotency("k".into()).steered(&who, &request)
        };
        let (one, other) =
            (json!({"a": {"b": 1, "c": 2}, "d": 3}), json!({"d": 3, "a": {"c": 2, "b": 1}}));
        assert_eq!(one, other);
        assert_eq!(steered(one.clone()), steered(other));
        assert_ne!(steered(one), steered(json!({"a": {"b": 1, "c": 2}, "d": 4})));
    }

    #[test]
    fn idempotency_keys_belong_to_a_principal_and_client_ids_to_a_tenant() {
        let who = |tenant: &str, id: &str| Principal::new(tenant, id, []);
        let key = |who: &Principal| StartKey::Idempotency("k".into()).external(who);
        assert_ne!(key(&who("one", "a")), key(&who("one", "b")));
        assert_ne!(key(&who("one", "a")), key(&who("two", "a")));
        let run = |who: &Principal| StartKey::Client(ClientId::new("ag-ui", "k")).external(who);
        assert_eq!(run(&who("one", "a")), run(&who("one", "b")));
        assert_ne!(run(&who("one", "a")), run(&who("two", "a")));
        let thread = |who: &Principal| ClientId::new("ag-ui.thread", "k").thread(who);
        assert_eq!(thread(&who("one", "a")), thread(&who("one", "b")));
        assert_ne!(thread(&who("one", "a")), thread(&who("two", "a")));
    }
}
