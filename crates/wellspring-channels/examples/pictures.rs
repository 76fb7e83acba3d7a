//! Writes HTML pages that show a chat at each phase of an answer: the real bot's calls to Telegram,
//! rendered like the app. `cargo xtask pictures` turns them into the pictures in `docs/pictures`.
//!
//! The pages are written to the folder in the first argument, by default `target/pictures`.
#![expect(clippy::print_stdout, reason = "an example")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wellspring_channels::{
    Access, Action, Body, Call, CallError, CallResult, Capabilities, Channel, ChatKind, Done,
    Incoming, Instance, InstanceConfig, Telegram, User, What,
};
use wellspring_core::{Approval, Millis, ToolResult, ToolSpec};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, LogOptions, MemoryStore, TokioClock};
use wellspring_models::{Say, Scripted};

type Error = Box<dyn std::error::Error>;

/// A message in the chat.
#[derive(Clone, Debug)]
struct Message {
    id: usize,
    html: String,
    buttons: Vec<Vec<String>>,
}

/// The messages of the chat after each call.
#[derive(Debug)]
struct Chat {
    can: Capabilities,
    states: Mutex<Vec<Vec<Message>>>,
}

impl Chat {
    fn states(&self) -> Vec<Vec<Message>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, action: &Action) -> Option<usize> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut messages = states.last().cloned().unwrap_or_default();
        let looks = |id: usize, body: &Body| Message {
            id,
            html: body.text(0).to_owned(),
            buttons: body
                .buttons
                .iter()
                .map(|row| row.iter().map(|button| button.label.to_string()).collect())
                .collect(),
        };
        let id = states.len() + 1;
        match action {
            Action::Send { body, .. } => messages.push(looks(id, body)),
            Action::Edit { message, body, .. } => {
                let id: usize = message.parse().ok()?;
                let edited = messages.iter_mut().find(|it| it.id == id)?;
                *edited = looks(id, body);
            }
            Action::Delete { message } => messages.retain(|it| it.id.to_string() != **message),
            // Telegram has no native streams.
            Action::Begin { .. } | Action::Append { .. } | Action::End { .. } => return None,
            Action::Draft { .. } | Action::Typing => return None,
        }
        states.push(messages);
        Some(id)
    }
}

impl Channel for Chat {
    fn network(&self) -> &'static str {
        "telegram"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.can
    }

    fn call(&self, call: Call) -> BoxFuture<'_, CallResult> {
        Box::pin(
            async move { Ok(Done::new(self.change(&call.action).map(|id| id.to_string().into()))) },
        )
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async { Ok("pictures".into()) })
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Error> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/pictures".into());
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;

    let asked = "Why is the sky blue, and the sunset red?";
    let say = Say::new()
        .pace(Duration::from_millis(350))
        .thought(
            "The person asks about two things with one cause: scattering by molecules of the air. \
             It grows with the fourth power of the frequency, so blue light is scattered about \
             nine times as much as red light. At sunset the path is longer, and the blue is gone.",
        )
        .text(
            "Both have **one cause**: the molecules of the air scatter light, and short waves \
             much more than long ones (`I ~ 1/λ⁴`).\n\n- By day, blue light reaches you from \
             everywhere.\n- At sunset, the light has gone through *so much* air that only the \
             red is left.\n\n> Without air, the sky is black at noon.",
        );
    let states = talk(vec![say], asked, "", None).await?;
    let has = |messages: &[Message], what: &str| messages.iter().any(|it| it.html.contains(what));
    let last_with = |what: &str| states.iter().rfind(|it| has(it, what)).cloned();
    page(&folder, "thinking", asked, last_with("Thinking…"))?;
    let growing: Vec<_> = states.iter().filter(|it| has(it, "█")).cloned().collect();
    page(&folder, "growing", asked, growing.get(growing.len() * 2 / 3).cloned())?;
    page(&folder, "finished", asked, states.last().cloned())?;

    let asked = "Tell me the whole story.";
    let chapters = (1..=18).map(|n| {
        format!(
            "**{n}.** The river went on past the mill and the two old bridges, and whoever \
             walked beside it that morning heard the same water say something new at each bend, \
             about the rain of last week, the snow of the hills, and the sea that it had never \
             seen but did not doubt for a moment.\n\n"
        )
    });
    let story: String = chapters.collect();
    let say = Say::new().pace(Duration::from_millis(20)).text(story);
    let states = talk(vec![say], asked, "", None).await?;
    let long = states.iter().rfind(|it| has(it, "⏳")).cloned();
    page(&folder, "long", asked, long)?;
    page(&folder, "split", asked, states.last().cloned())?;

    let asked = "Clean up the old reports.";
    let turns = vec![
        Say::new()
            .pace(Duration::from_millis(300))
            .text("I found 14 reports from before 2024. I would delete them now:")
            .call("shell", json!({"command": "rm reports/2023-*.pdf"})),
        Say::new().text("Done."),
    ];
    let states = talk(turns, asked, "❓", Some("shell")).await?;
    page(&folder, "question", asked, states.last().cloned())?;
    println!("the pages are in {}", folder.display());
    Ok(())
}

/// The states of a chat, up to the first that contains `until`, or up to the end of the answer.
async fn talk(
    turns: Vec<Say>,
    asked: &str,
    until: &str,
    tool: Option<&str>,
) -> Result<Vec<Vec<Message>>, Error> {
    let clock = Arc::new(TokioClock::starting_at(Millis(0)));
    let options = LogOptions { clock, ..LogOptions::default() };
    let runtime = Runtime::new(Log::new(Arc::new(MemoryStore::default()), options));
    let mut agent = AgentDef::model("agent", Arc::new(Scripted::new(turns)));
    if let Some(tool) = tool {
        let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new(tool, "") };
        let run = |_: Value, _| async move { Ok(ToolResult::new("done")) };
        agent.tools.push(Arc::new(from_function(spec, run)));
    }
    runtime.register(agent);
    let can = Telegram::new("12:secret", None)?.capabilities().clone();
    let chat = Arc::new(Chat { can, states: Mutex::default() });
    let mut config = InstanceConfig::new("bot", "agent");
    config.stream = true;
    config.access = Access { everyone: true, ..Access::default() };
    let instance = Instance::start(config, Arc::clone(&chat) as _, runtime).await?;
    let incoming = Incoming {
        id: "1".into(),
        chat: "7".into(),
        kind: ChatKind::Direct,
        topic: None,
        user: User { id: "7".into(), name: "Ana".into(), language: None },
        what: What::Message { message: "1".into(), text: asked.into(), files: Vec::new() },
    };
    instance.incoming(incoming).await?;
    // The clock is virtual.
    for _ in 0..3_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let shows = |messages: &Vec<Message>| messages.iter().any(|it| it.html.contains(until));
        let is_there = !until.is_empty() && chat.states().last().is_some_and(shows);
        if is_there || instance.active_run("7").await?.is_none() && instance.pending() == 0 {
            break;
        }
    }
    // Wait for the remaining calls.
    tokio::time::sleep(Duration::from_secs(3)).await;
    instance.stop().await;
    Ok(chat.states())
}

/// How the page looks: the colours and sizes of a chat.
const STYLE: &str = "
body { margin: 0; padding: 14px; background: #cfe0c4; font: 14px/1.35 'DejaVu Sans', sans-serif; }
.message { width: fit-content; max-width: 330px; margin: 0 0 8px; padding: 7px 11px;
  border-radius: 12px; background: #fff; white-space: pre-wrap; overflow-wrap: anywhere; }
.mine { margin-left: auto; background: #e3fcd0; }
.row { display: flex; gap: 4px; max-width: 352px; margin: -4px 0 8px; }
.button { flex: 1; padding: 7px; border-radius: 8px; background: #7d9b6f; color: #fff;
  text-align: center; }
blockquote { margin: 2px 0; padding: 4px 8px; border-left: 3px solid #3d8fd1; border-radius: 4px;
  background: #e8f2fb; }
code { font-family: 'DejaVu Sans Mono', monospace; font-size: 12.5px; color: #b5366b; }
/* A quote that folds up shows its first lines. */
blockquote[expandable] { display: -webkit-box; -webkit-box-orient: vertical;
  -webkit-line-clamp: 4; overflow: hidden; padding-bottom: 0; }
pre { margin: 8px 0 0; white-space: pre-wrap; }
svg { width: 15px; height: 15px; vertical-align: -2px; }
.wide .message { max-width: 620px; }
";

/// Emoji are drawn by the page, because not every machine has a font for them.
const EMOJI: &[(&str, &str)] = &[
    (
        "🧠",
        "<ellipse cx='8' cy='8' rx='7' ry='6' fill='#f29bb2'/>\
         <path d='M8 2v12M4 5q3 3 0 6M12 5q-3 3 0 6' stroke='#b8506b' fill='none'/>",
    ),
    ("⏳", "<path d='M3 1h10v3l-4 4 4 4v3H3v-3l4-4-4-4z' fill='#d29a3a'/>"),
    (
        "❓",
        "<path d='M5 5q0-3 3-3t3 3q0 2-2 3-1 1-1 3' stroke='#d64545' stroke-width='2.4' \
         fill='none'/><circle cx='8' cy='14' r='1.6' fill='#d64545'/>",
    ),
    (
        "✅",
        "<rect x='1' y='1' width='14' height='14' rx='3' fill='#3fae5a'/>\
         <path d='M4 8l3 3 5-6' stroke='#fff' stroke-width='2' fill='none'/>",
    ),
    ("❌", "<path d='M3 3l10 10M13 3L3 13' stroke='#e25b5b' stroke-width='3'/>"),
];

fn with_emoji(html: &str) -> String {
    EMOJI.iter().fold(html.to_owned(), |html, (emoji, drawn)| {
        html.replace(emoji, &format!("<svg viewBox=\"0 0 16 16\">{drawn}</svg>"))
    })
}

fn page(
    folder: &std::path::Path,
    name: &str,
    asked: &str,
    messages: Option<Vec<Message>>,
) -> Result<(), Error> {
    let messages = messages.ok_or_else(|| format!("the chat never shows {name}"))?;
    let mut body = format!("<div class=\"message mine\">{asked}</div>");
    for Message { html, buttons, .. } in &messages {
        write!(body, "<div class=\"message\">{html}</div>")?;
        for row in buttons {
            let buttons: String =
                row.iter().map(|label| format!("<div class=\"button\">{label}</div>")).collect();
            write!(body, "<div class=\"row\">{buttons}</div>")?;
        }
    }
    // A message of Telegram's maximum length needs a larger screen.
    let is_long = messages.iter().any(|it| it.html.len() > 3_000);
    let class = if is_long { "wide" } else { "narrow" };
    let body = with_emoji(&body);
    let html = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style>\
         <body class=\"{class}\">{body}"
    );
    std::fs::write(folder.join(format!("{name}.html")), html)?;
    Ok(())
}
