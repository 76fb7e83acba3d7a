//! Renders a text in the markup of a network.

use std::fmt::Write as _;

use super::{Block, Markup, Style, Text};

pub(super) fn render(text: &Text, markup: Markup) -> String {
    let mut out = String::new();
    let mut open: Option<&Block> = None;
    for span in &text.spans {
        let block = &span.style.block;
        if open.is_some_and(|open| open != block) {
            close(open.take(), markup, &mut out);
        }
        if open.is_none() && *block != Block::Flow {
            start(block, markup, &mut out);
            open = Some(block);
        }
        piece(&span.text, &span.style, markup, &mut out);
    }
    close(open, markup, &mut out);
    out
}

fn start(block: &Block, markup: Markup, out: &mut String) {
    match (markup, block) {
        (_, Block::Flow) | (Markup::Plain, _) => {}
        (Markup::TelegramHtml, Block::Quote { expandable: true, .. }) => {
            out.push_str("<blockquote expandable>");
        }
        (Markup::TelegramHtml, Block::Quote { .. }) => out.push_str("<blockquote>"),
        (Markup::TelegramHtmlItalic, Block::Quote { .. }) => out.push_str("<i>"),
        (Markup::TelegramHtml | Markup::TelegramHtmlItalic, Block::Code { language, .. }) => {
            // Writing to memory does not fail.
            let _ = match &**language {
                "" => write!(out, "<pre>"),
                language => {
                    let language = escape(language).replace('"', "&quot;");
                    write!(out, "<pre><code class=\"language-{language}\">")
                }
            };
        }
        (Markup::Discord, Block::Code { language, .. }) => {
            let _ = writeln!(out, "```{language}");
        }
        (Markup::Slack | Markup::WhatsApp, Block::Code { .. }) => out.push_str("```\n"),
        (Markup::Discord | Markup::Slack | Markup::WhatsApp, Block::Quote { .. }) => {
            out.push_str("> ");
        }
    }
}

fn close(block: Option<&Block>, markup: Markup, out: &mut String) {
    match (markup, block) {
        (_, None | Some(Block::Flow)) | (Markup::Plain, _) => {}
        (Markup::TelegramHtml, Some(Block::Quote { .. })) => out.push_str("</blockquote>"),
        (Markup::TelegramHtmlItalic, Some(Block::Quote { .. })) => out.push_str("</i>"),
        (Markup::TelegramHtml | Markup::TelegramHtmlItalic, Some(Block::Code { language, .. })) => {
            out.push_str(if language.is_empty() { "</pre>" } else { "</code></pre>" });
        }
        (Markup::Discord | Markup::Slack | Markup::WhatsApp, Some(Block::Code { .. })) => {
            out.push_str("\n```");
        }
        (Markup::Discord | Markup::Slack | Markup::WhatsApp, Some(Block::Quote { .. })) => {}
    }
}

fn piece(text: &str, style: &Style, markup: Markup, out: &mut String) {
    let in_code_block = matches!(style.block, Block::Code { .. });
    match markup {
        Markup::Plain => out.push_str(text),
        Markup::TelegramHtml | Markup::TelegramHtmlItalic => {
            let text = escape(text);
            if in_code_block {
                out.push_str(&text);
            } else if style.code {
                let _ = write!(out, "<code>{text}</code>");
            } else {
                // The quote is italic as a whole.
                let in_italic = markup == Markup::TelegramHtmlItalic
                    && matches!(style.block, Block::Quote { .. });
                html(&text, &Style { italic: style.italic && !in_italic, ..style.clone() }, out);
            }
        }
        Markup::Discord | Markup::Slack | Markup::WhatsApp => {
            let text = match markup {
                Markup::Slack => escape(text),
                Markup::Discord
                | Markup::WhatsApp
                | Markup::Plain
                | Markup::TelegramHtml
                | Markup::TelegramHtmlItalic => text.to_owned(),
            };
            let quoted = matches!(style.block, Block::Quote { .. });
            let text = if quoted { text.replace('\n', "\n> ") } else { text };
            if in_code_block {
                // A fence inside the code would end it.
                out.push_str(&text.replace("```", "'''"));
            } else {
                marked(&text, style, markup, out);
            }
        }
    }
}

fn html(text: &str, style: &Style, out: &mut String) {
    let link = style.link.as_deref().map(|link| escape(link).replace('"', "&quot;"));
    let tags = [("b", style.bold), ("i", style.italic), ("s", style.strike)];
    if let Some(link) = &link {
        let _ = write!(out, "<a href=\"{link}\">");
    }
    for (tag, _) in tags.iter().filter(|(_, used)| *used) {
        let _ = write!(out, "<{tag}>");
    }
    out.push_str(text);
    for (tag, _) in tags.iter().rev().filter(|(_, used)| *used) {
        let _ = write!(out, "</{tag}>");
    }
    if link.is_some() {
        out.push_str("</a>");
    }
}

/// Puts markers around the text, but not around white space at its ends, where networks do not
/// recognise them.
fn marked(text: &str, style: &Style, markup: Markup, out: &mut String) {
    let words = text.trim();
    if words.is_empty() || words.contains('\n') && markup != Markup::Discord {
        out.push_str(text);
        return;
    }
    let start = text.len() - text.trim_start().len();
    out.push_str(&text[..start]);
    let double = markup == Markup::Discord;
    let marks = [
        (if double { "**" } else { "*" }, style.bold && !style.code),
        ("_", style.italic && !style.code),
        (if double { "~~" } else { "~" }, style.strike && !style.code),
        ("`", style.code),
    ];
    for (mark, _) in marks.iter().filter(|(_, used)| *used) {
        out.push_str(mark);
    }
    match (markup, &style.link) {
        (Markup::Discord, Some(link)) => {
            let _ = write!(out, "[{words}]({link})");
        }
        (Markup::Slack, Some(link)) => {
            let _ = write!(out, "<{link}|{words}>");
        }
        (_, Some(link)) if **link != *words => {
            let _ = write!(out, "{words} ({link})");
        }
        (_, _) => out.push_str(words),
    }
    for (mark, _) in marks.iter().rev().filter(|(_, used)| *used) {
        out.push_str(mark);
    }
    out.push_str(&text[start + words.len()..]);
}

/// Escapes `&`, `<` and `>`, which is all that Telegram and Slack require.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
