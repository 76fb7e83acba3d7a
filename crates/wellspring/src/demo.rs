//! The demonstration agent: a script with real tools.
//!
//! It needs no key and no network, and shows what a run can contain: thoughts, a plan that
//! grows, tools with progress, a question, numbers and an answer. It states openly that it is a
//! script. Each turn depends only on the conversation so far, so another process can continue a
//! run that lost its own.
//!
//! Its question is about a command if it was given a shell, and otherwise about a countdown.
//! By default it has no shell: anyone who may approve its question could edit the command.

mod countdown;
mod survey;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, FailureKind, Message, PartKind, Tool, ToolOutcome, TurnRequest, Usage,
};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::{ask_user, clock, update_plan};
use wellspring_models::{Failure, Say, Scripted};

/// The agent's name.
pub const NAME: &str = "demo";

/// The default time per word: a quick reader's pace.
pub const PACE: Duration = Duration::from_millis(28);

/// The command that the agent asks to run: it changes nothing, and takes long enough to be
/// visible.
const COMMAND: &str = "uname -sr; for n in 3 2 1; do echo \"$n…\"; sleep 0.4; done; echo done";

/// Paragraphs of a long answer: several screens.
const LONG_PARAGRAPHS: usize = 40;

/// The demonstration agent, at a human pace and without a shell.
///
/// ```
/// use wellspring::{Agent, ThinkError, demo};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
/// let answer = Agent::from(demo::agent()).say("help").run().await?;
/// assert!(answer.contains("I am a script"));
/// # Ok::<(), ThinkError>(())
/// # }).unwrap();
/// ```
#[must_use]
pub fn agent() -> AgentDef {
    agent_with(DemoOptions::default())
}

/// Options of the demonstration agent.
#[derive(Clone)]
pub struct DemoOptions {
    /// The time per word [default: [`PACE`]].
    pub pace: Duration,
    /// A shell such as `tools::Shell`, named `run_shell_command` [default: `None`].
    ///
    /// Set this only if everyone who may approve its questions may run any command as the user
    /// of this process.
    pub shell: Option<Arc<dyn Tool>>,
}

impl std::fmt::Debug for DemoOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DemoOptions")
            .field("pace", &self.pace)
            .field("shell", &self.shell.is_some())
            .finish()
    }
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { pace: PACE, shell: None }
    }
}

/// The demonstration agent with options.
#[must_use]
pub fn agent_with(options: DemoOptions) -> AgentDef {
    let DemoOptions { pace, shell } = options;
    let attempts = AtomicU32::new(0);
    let model = Scripted::with(move |request| script(request, pace, &attempts)).named("script");
    let mut tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(update_plan()), Arc::new(ask_user()), Arc::new(clock())];
    tools.push(shell.unwrap_or_else(|| Arc::new(countdown::countdown(pace))));
    if let Ok(here) = std::env::current_dir() {
        tools.push(Arc::new(survey::survey(here, pace)));
    }
    let description = "A script with real tools: shows what a run can hold, without any model.";
    AgentDef { tools, description: description.into(), ..AgentDef::model(NAME, Arc::new(model)) }
}

/// The script's next turn for a conversation.
fn script(request: &TurnRequest, pace: Duration, attempts: &AtomicU32) -> Say {
    let scene = Scene::of(&request.messages);
    let says = |word: &str| scene.asked.to_lowercase().split_whitespace().any(|said| said == word);
    let say = if says("help") {
        scene.help(Say::new().pace(pace))
    } else if says("fail") && says("good") {
        let refusal = Failure::new(FailureKind::Refused, "you asked the script to fail for good");
        Say::new().pace(pace).thought("As you wish.").text("This will not end ").fail(refusal)
    } else if says("fail") {
        scene.fail_once(Say::new().pace(pace), attempts)
    } else if says("long") {
        scene.long(Say::new().pace(pace / 4))
    } else if says("ask") {
        scene.ask(Say::new().pace(pace))
    } else {
        scene.tour(Say::new().pace(pace), request)
    };
    let usage = usage(&request.messages, &say);
    say.usage(usage)
}

/// The state of the conversation.
struct Scene<'a> {
    /// The user's last message.
    asked: &'a str,
    /// The script's own turns since then.
    turns: usize,
    /// The results of its calls since then.
    results: Vec<&'a CallResult>,
}

impl<'a> Scene<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let mut scene = Self { asked: "", turns: 0, results: Vec::new() };
        for message in messages {
            match message {
                Message::User { content } => {
                    let asked = content.iter().find_map(Content::as_text).unwrap_or_default();
                    scene = Self { asked: asked.trim(), turns: 0, results: Vec::new() };
                }
                Message::Assistant { .. } => scene.turns += 1,
                Message::Results { results } => scene.results.extend(results),
            }
        }
        scene
    }

    fn result(&self, tool: &str) -> Option<&CallResult> {
        self.results.iter().rev().find(|result| &*result.name == tool).copied()
    }

    fn output(&self, tool: &str, member: &str) -> Option<&Value> {
        self.result(tool)?.result.output.get(member)
    }

    /// Thoughts, a plan, tools, a question, an answer.
    fn tour(&self, say: Say, request: &TurnRequest) -> Say {
        let asking = Asking::of(request);
        match self.turns {
            0 => say
                .thought(format!(
                    "The user says “{}”. I am a script, so I cannot understand it, but I can \
                     show how it looks when an agent works. First a plan. Then two tools side \
                     by side: the clock, and a look around this directory.",
                    quote(self.asked)
                ))
                .call("update_plan", plan(1, asking))
                .call("clock", json!({}))
                .call("survey_files", json!({})),
            1 => {
                let say = say
                    .thought(format!(
                        "It is {}, and there are {} here. {}",
                        self.weekday(),
                        self.files(),
                        asking.reason()
                    ))
                    .call("update_plan", plan(2, asking));
                say.call(asking.tool(), asking.arguments())
            }
            2 => {
                let thing = asking.thing();
                let thought = match self.result(asking.tool()).map(|result| result.outcome) {
                    Some(ToolOutcome::Ok) => format!("That was a yes, and the {thing} ran."),
                    Some(ToolOutcome::Denied) => {
                        format!("No yes, so the {thing} did not run. Fine.")
                    }
                    Some(ToolOutcome::Error | ToolOutcome::Interrupted | ToolOutcome::TimedOut)
                    | None => format!("The {thing} came to nothing. I will say so."),
                };
                say.thought(format!("{thought} Time to answer."))
                    .call("update_plan", plan(3, asking))
            }
            _ => say.text(self.answer(asking)),
        }
    }

    fn answer(&self, asking: Asking) -> String {
        let time = self.output("clock", "time").and_then(Value::as_str).unwrap_or("unknown");
        let thing = asking.thing();
        let came_of_it = match self.result(asking.tool()) {
            Some(result) => match (result.outcome, asking) {
                (ToolOutcome::Ok, Asking::Command) => {
                    let wrote = self.output("run_shell_command", "stdout");
                    let wrote = wrote.and_then(Value::as_str).unwrap_or_default();
                    let first = wrote.lines().next().unwrap_or("nothing");
                    format!("The command **ran**, because you allowed it. It began with `{first}`.")
                }
                (ToolOutcome::Ok, Asking::Countdown) => {
                    let from = self.output("count_down", "counted_from").and_then(Value::as_u64);
                    let from = from.unwrap_or_default();
                    format!("The countdown **ran**, because you allowed it. It began at {from}.")
                }
                (ToolOutcome::Denied, _) => format!(
                    "The {thing} did **not run**: {}. Nothing else was tried instead.",
                    result.result.output_text()
                ),
                (ToolOutcome::Error | ToolOutcome::Interrupted | ToolOutcome::TimedOut, _) => {
                    format!("The {thing} **came to nothing**: {}.", result.result.output_text())
                }
            },
            None => format!("The {thing} was never asked for."),
        };
        format!(
            "## What just happened\n\n\
             You said *{}*. I am a **script**: no model has read that. The rest was real:\n\n\
             - The clock showed `{time}`.\n\
             - In this directory there are **{}**.\n\
             - {came_of_it}\n\n\
             Every word of this run is in the log, also after a crash. See it again:\n\n\
             ```sh\nwellspring runs replay last\nwellspring runs show last\n```\n\n\
             With a real model the same screen shows its thoughts and its tools: \
             `wellspring run --agent NAME \"…\"`, once an agent is configured. \
             Say `help` to see what else this script can do.",
            quote(self.asked),
            self.files()
        )
    }

    fn weekday(&self) -> &str {
        self.output("clock", "weekday").and_then(Value::as_str).unwrap_or("some day")
    }

    fn files(&self) -> String {
        let count = |member| self.output("survey_files", member).and_then(Value::as_u64);
        match (count("files"), count("directories")) {
            (Some(files), Some(directories)) => format!("{files} files in {directories} folders"),
            _ => "files that I could not count".into(),
        }
    }

    fn help(&self, say: Say) -> Say {
        say.thought("Somebody wants to know what I can do. That is a short list.").text(
            "I am a script, not a model. Say\n\n\
             - anything: thoughts, a plan, tools, a question and an answer\n\
             - `ask`: a question with several answers\n\
             - `long`: an answer of several screens\n\
             - `fail`: the answer breaks off and is said again\n\
             - `fail for good`: the run fails\n\
             - `help`: this list\n",
        )
    }

    /// Fails at every other attempt: a request does not say which attempt it is, and an attempt
    /// that fails twice is retried anyway.
    fn fail_once(&self, say: Say, attempts: &AtomicU32) -> Say {
        if attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let failure = Failure::new(FailureKind::Unavailable, "the script broke off, as asked");
            say.thought("I will break off in the middle of a sentence.")
                .text("It was a bright cold day in April, and the clocks were ")
                .fail(failure)
        } else {
            say.text(
                "The first attempt **broke off** in mid-sentence. What it had said was taken \
                 back, and this is the second attempt: nothing is said twice, nothing is lost.",
            )
        }
    }

    fn long(&self, say: Say) -> Say {
        let mut text = String::from("# A long answer\n\n");
        for paragraph in 1..=LONG_PARAGRAPHS {
            text.push_str(&format!(
                "{paragraph}. A spring does not hurry. It gives what the rain left behind, a \
                 little at a time, and whoever comes late finds it still running. This is \
                 paragraph **{paragraph}** of {LONG_PARAGRAPHS}.\n\n"
            ));
        }
        say.thought("Several screens, as asked.").text(text + "That was all.")
    }

    fn ask(&self, say: Say) -> Say {
        match self.result("ask_user") {
            None => say.thought("I will let the user choose.").call(
                "ask_user",
                json!({"question": "Which water do you like best?",
                       "choices": ["spring", "river", "rain", "the sea"]}),
            ),
            Some(result) if result.outcome == ToolOutcome::Ok => {
                let chosen = result.result.output_text();
                say.text(format!("You chose **{chosen}**. A good choice, as all of them are."))
            }
            Some(result) => say.text(format!(
                "There was no choice: {}. Then it stays open.",
                result.result.output_text()
            )),
        }
    }
}

/// What the tour asks permission for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asking {
    Command,
    Countdown,
}

impl Asking {
    fn of(request: &TurnRequest) -> Self {
        let has_shell = request.tools.iter().any(|tool| &*tool.name == "run_shell_command");
        if has_shell { Self::Command } else { Self::Countdown }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Command => "run_shell_command",
            Self::Countdown => "count_down",
        }
    }

    fn arguments(self) -> Value {
        match self {
            Self::Command => json!({"command": COMMAND}),
            Self::Countdown => json!({"from": 3}),
        }
    }

    fn thing(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Countdown => "countdown",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Command => {
                "Now a command. It is harmless, but a command could change things, so it runs \
                 only if you say yes."
            }
            Self::Countdown => {
                "Now a countdown. It is harmless, but its tool is set to ask first, so it runs \
                 only if you say yes."
            }
        }
    }
}

/// The plan while step `at`, counted from 1, is in progress; beyond the last step, everything
/// is done.
fn plan(at: usize, asking: Asking) -> Value {
    let last = match asking {
        Asking::Command => "Run a command, if allowed",
        Asking::Countdown => "Count down, if allowed",
    };
    let steps = ["Look at the clock and around here", last];
    let entry = |(number, content)| {
        let status = match at.cmp(&(number + 1)) {
            std::cmp::Ordering::Less => "pending",
            std::cmp::Ordering::Equal => "in_progress",
            std::cmp::Ordering::Greater => "completed",
        };
        json!({"content": content, "status": status})
    };
    json!({"entries": steps.into_iter().enumerate().map(entry).collect::<Vec<_>>()})
}

/// The user's text, shortened to be repeated in a sentence.
fn quote(said: &str) -> String {
    const CHARS_MAX: usize = 60;
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    if line.chars().count() <= CHARS_MAX {
        return line.into();
    }
    line.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// A script has no tokens, so it counts words.
fn usage(messages: &[Message], say: &Say) -> Usage {
    let read = messages.iter().map(|message| match message {
        Message::User { content } => content.iter().filter_map(Content::as_text).map(words).sum(),
        Message::Results { results } => {
            results.iter().map(|result| words(&result.result.output_text())).sum::<u64>()
        }
        Message::Assistant { parts, .. } => {
            let said = parts.iter().filter(|part| !matches!(part.kind, PartKind::Opaque(_)));
            said.map(|part| words(&part.text)).sum()
        }
    });
    let (input, output) = (read.sum(), words(&say.said()));
    Usage { provider: Some("script".into()), input, output, ..Usage::default() }
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

#[cfg(test)]
mod tests;
