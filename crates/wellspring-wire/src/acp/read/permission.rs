//! Permission requests of an agent.

use serde_json::Value;
use wellspring_core::LocalPart;

/// A `session/request_permission`.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// The agent's id of the call.
    pub call: Box<str>,
    /// The call; `None` if it has finished or is unknown.
    pub part: Option<LocalPart>,
    /// Whether it is a call of one of our tools. The engine applies its own approval policy to
    /// those.
    pub our_tool: bool,
    /// The text that a person reads.
    pub title: Box<str>,
    /// The possible answers.
    pub options: Vec<PermissionOption>,
}

/// One possible answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionOption {
    /// The id that the answer names.
    pub id: Box<str>,
    /// The text that a person reads.
    pub name: Box<str>,
    /// What it means. Only this counts, never the position in the list.
    pub kind: PermissionKind,
}

/// The meaning of an answer.
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
    /// A kind that is newer than this code.
    Unknown,
}

impl PermissionKind {
    /// Whether the option may permit the call. An unknown kind counts as permitting.
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
        our_tool: bool,
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
        Self { call, part, our_tool, title, options: options.collect() }
    }

    /// The first option of this kind. Several options of one kind mean the same.
    #[must_use]
    pub fn option(&self, kind: PermissionKind) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind == kind)
    }

    /// Whether the options are a plain yes and no: each kind occurs at most once, and all kinds
    /// are known.
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
