//! MCP servers.

use std::collections::BTreeMap;

use wellspring_core::{Approval, ToolTimeouts};
use wellspring_mcp::{McpConfig, McpTimeouts, McpTransport};
use wellspring_models::Secret;

use super::section::{Section, Source, text};
use super::value::{Member, Value};

pub(crate) const DECISIONS: [(&str, Approval); 3] =
    [("allow", Approval::Allow), ("ask", Approval::Ask), ("deny", Approval::Deny)];

/// Reads a `[mcp.NAME]`.
pub(crate) fn mcp(source: &Source<'_>, member: &Member, title: &str) -> Option<McpConfig> {
    let section = Section::open(source, &member.node, "[mcp.NAME]", title);
    section.not_both("command", "url");
    let exposed = |secrets: BTreeMap<Box<str>, Secret>| {
        secrets.into_iter().map(|(name, value)| (name, value.expose().into())).collect()
    };
    let (args, env, cwd) = (section.texts("args"), section.secrets("env"), section.path("cwd"));
    let headers = section.secrets("headers");
    let transport = match (section.text("command"), section.text("url")) {
        (Some(command), _) => Some(McpTransport::Stdio {
            command: command.into(),
            args: args.unwrap_or_default(),
            env: exposed(env),
            cwd,
        }),
        (None, Some(url)) => {
            Some(McpTransport::Http { url: url.into(), headers: exposed(headers) })
        }
        (None, None) => {
            if section.get("command").is_none() && section.get("url").is_none() {
                let what = format!("{title} has neither `command` nor `url`");
                source.complain(section.line, what, "set one of them");
            }
            None
        }
    };
    for (key, wanted) in
        [("args", "command"), ("env", "command"), ("cwd", "command"), ("headers", "url")]
    {
        if let Some(item) = section.get(key)
            && transport.is_some()
            && section.get(wanted).is_none()
        {
            let what = format!("`{key}` in {title} requires a `{wanted}`");
            source.complain(item.node.line, what, "remove it");
        }
    }
    let default = McpTimeouts::default();
    let mut config = McpConfig::new(member.name.as_str(), transport.unwrap_or_else(nowhere));
    config.prefix = section.text("prefix").map(Into::into);
    config.allow = section.texts("allow").map(|tools| tools.into_iter().collect());
    config.deny = section.texts("deny").unwrap_or_default().into_iter().collect();
    config.approval = approval(&section);
    config.approval_default = section.word("approval_default", &DECISIONS);
    config.resources = section.bool("resources").unwrap_or_default();
    config.timeouts = McpTimeouts {
        startup: section.duration("startup_timeout").unwrap_or(default.startup),
        request: section.duration("request_timeout").unwrap_or(default.request),
        call: ToolTimeouts {
            idle: section.duration("idle_timeout"),
            total: section.duration("call_timeout"),
        },
    };
    section.done();
    Some(config)
}

/// A placeholder for a server whose problem has been reported.
fn nowhere() -> McpTransport {
    McpTransport::Http { url: "".into(), headers: BTreeMap::new() }
}

fn approval(section: &Section<'_>) -> BTreeMap<Box<str>, Approval> {
    let Some(item) = section.get("approval") else { return BTreeMap::new() };
    let Value::Table(members) = &item.node.value else {
        section.wrong(item);
        return BTreeMap::new();
    };
    let mut approval = BTreeMap::new();
    for member in members {
        let decision =
            text(&member.node).and_then(|word| DECISIONS.iter().find(|(known, _)| *known == word));
        match decision {
            Some((_, decision)) => {
                approval.insert(member.name.as_str().into(), *decision);
            }
            None => {
                let what = format!(
                    "`approval.{}` in {} is {}",
                    member.name,
                    section.title,
                    member.node.kind()
                );
                let remedy = "it takes `\"allow\"`, `\"ask\"` or `\"deny\"`";
                section.source.complain(member.node.line, what, remedy);
            }
        }
    }
    approval
}
