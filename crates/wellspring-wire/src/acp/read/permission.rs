//! What an agent asks before it does something.

use serde_json::Value;
use wellspring_core::LocalPart;

/// A `session/request_permission`.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// The agent's id of the call.
    pub call: Box<str>,
    /// The call, unless it is over or unknown.
    pub part: Option<LocalPart>,
    /// Whether the call is one of a tool of ours: whoever runs it asks by rules of our own.
    pub lent: bool,
    /// What a person reads.
    pub title: Box<str>,
    /// What can be answered.
    pub options: Vec<PermissionOption>,
}

/// One possible answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionOption {
    /// What the answer names.
    pub id: Box<str>,
    /// What a person reads.
    pub name: Box<str>,
    /// What it means. Only this counts, never the place in the list.
    pub kind: PermissionKind,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PermissionKind {
    /// Yes, this time.
    AllowOnce,
    /// Yes, from now on.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, from now on.
    RejectAlways,
    /// Something that there was no word for when this was written.
    Unknown,
}

impl PermissionKind {
    /// Whether it lets something happen. What is unknown might.
    #[must_use]
    pub fn allows(self) -> bool {
        match self {
            Self::AllowOnce | Self::AllowAlways | Self::Unknown => true,
            Self::RejectOnce | Self::RejectAlways => false,
        }
    }
}

impl Permission {
    pub(super) fn read(
        params: &Value,
        call: Box<str>,
        part: Option<LocalPart>,
        lent: bool,
    ) -> Self {
        let title = params["toolCall"]["title"].as_str().unwrap_or_default().into();
        let options = params["options"].as_array().into_iter().flatten();
        let options = options.filter_map(|option| {
            Some(PermissionOption {
                id: option["optionId"].as_str()?.into(),
                name: option["name"].as_str().unwrap_or_default().into(),
                kind: match option["kind"].as_str() {
                    Some("allow_once") => PermissionKind::AllowOnce,
                    Some("allow_always") => PermissionKind::AllowAlways,
                    Some("reject_once") => PermissionKind::RejectOnce,
                    Some("reject_always") => PermissionKind::RejectAlways,
                    Some(_) | None => PermissionKind::Unknown,
                },
            })
        });
        Self { call, part, lent, title, options: options.collect() }
    }

    /// The first option of this kind: there is no better reason to prefer one of two that mean
    /// the same.
    #[must_use]
    pub fn option(&self, kind: PermissionKind) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind == kind)
    }

    /// Whether yes and no say all that can be answered: each kind is there at most once, and
    /// all are known.
    #[must_use]
    pub fn is_yes_or_no(&self) -> bool {
        let mut seen = Vec::new();
        self.options.iter().all(|option| {
            let fresh = option.kind != PermissionKind::Unknown && !seen.contains(&option.kind);
            seen.push(option.kind);
            fresh
        }) && seen.contains(&PermissionKind::AllowOnce)
    }
}
