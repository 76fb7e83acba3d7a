//! Follows a run to its end: shows it, asks its questions, and stops it at an interrupt.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Result;
use crossterm::event::{Event as TerminalEvent, EventStream};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use futures::StreamExt as _;
use tokio::time::MissedTickBehavior;
use wellspring_core::{
    Answer, CancelWhen, Event, Form, Outcome, Outline, Question, QuestionId, Record, RunId, Scope,
    Seq,
};
use wellspring_engine::{Control, ControlError};

use crate::output::View;
use crate::prompt::{Pressed, Prompt};
use crate::signals::Interrupts;
use crate::text::clean_line;
use crate::typed_lines::Lines;

/// Interval of repaints: smooth to the eye, and cheap.
const PICTURE: Duration = Duration::from_millis(40);

/// The hint that is shown after the run was cancelled.
const STOPPING: &str = "stopping; press Ctrl-C again to exit now";

/// Decides who answers a run's questions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answers {
    /// The user at the terminal.
    Ask,
    /// Approve everything.
    Yes,
    /// Deny everything.
    No,
    /// There is no terminal, and no option decides the answer.
    Nobody,
    /// Another process owns the run; this one only shows it.
    Others,
}

/// How following ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Followed {
    /// The run has finished.
    Over(Outcome),
    /// The user wants to exit now; the run continues.
    Left,
}

/// Follows a run until it finishes.
pub(crate) async fn follow(
    control: &Control,
    run: RunId,
    view: View,
    answers: Answers,
    lines: &Lines,
) -> Result<Followed> {
    let mut follower = Follower {
        control,
        run,
        view,
        answers,
        lines,
        outline: Outline::default(),
        asked: VecDeque::new(),
        outcome: None,
        stopping: false,
    };
    let followed = follower.follow().await;
    let _ = follower.view.leave();
    followed
}

struct Follower<'a> {
    control: &'a Control,
    run: RunId,
    view: View,
    answers: Answers,
    lines: &'a Lines,
    outline: Outline,
    /// The questions that wait for the user at this terminal, oldest first.
    asked: VecDeque<Prompt>,
    outcome: Option<Outcome>,
    stopping: bool,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Result<Followed> {
        let mut cursor = self.control.attach(self.run, Seq(0)).await?;
        let mut interrupts = Interrupts::new()?;
        let mut pictures = tokio::time::interval(PICTURE);
        pictures.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut keyboard: Option<Keyboard> = None;
        loop {
            keyboard = self.keyboard(keyboard)?;
            tokio::select! {
                frames = cursor.next() => {
                    let Some(frames) = frames? else { break };
                    for frame in &frames {
                        self.frame(frame.records()).await?;
                    }
                }
                _ = pictures.tick(), if self.view.is_live() => {
                    let shown = self.view.paint(self.asked.front());
                    self.shown(shown).await?;
                }
                typed = next_typed(&mut keyboard), if !self.asked.is_empty() => {
                    let pressed = match (typed, self.asked.front_mut()) {
                        (Some(Input::Key(key)), Some(prompt)) => prompt.key(key),
                        (Some(Input::Line(line)), Some(prompt)) => prompt.enter(&line),
                        (Some(_), None) => Pressed::Nothing,
                        // Standard input is closed.
                        (None, _) => Pressed::Answer(nobody()),
                    };
                    match pressed {
                        Pressed::Nothing => {}
                        Pressed::Interrupt => if self.interrupt().await? { return Ok(Followed::Left) },
                        Pressed::Answer(answer) => self.answer_first(answer).await?,
                    }
                    reprompt(&mut keyboard);
                }
                () = interrupts.next() => {
                    if self.interrupt().await? {
                        return Ok(Followed::Left);
                    }
                }
            }
        }
        let shown = self.view.paint(None);
        self.shown(shown).await?;
        self.outcome
            .take()
            .map(Followed::Over)
            .ok_or_else(|| anyhow::anyhow!("run {} ended without an outcome", self.run))
    }

    async fn frame(&mut self, records: &[Record]) -> Result<()> {
        let shown = self.view.frame(records);
        self.shown(shown).await?;
        for record in records {
            if let Event::QuestionAsked(question) = &record.event {
                self.question(question).await?;
            }
            if let Event::QuestionAnswered(answered) = &record.event {
                self.asked.retain(|prompt| prompt.question.question != answered.question);
            }
            if let Event::RunFinished { outcome } = &record.event {
                self.outcome = Some((**outcome).clone());
            }
            self.outline.apply(record);
        }
        Ok(())
    }

    async fn question(&mut self, question: &Question) -> Result<()> {
        let id = question.question;
        match self.answers {
            Answers::Others => Ok(()),
            Answers::Ask => {
                let call = question.call.and_then(|call| self.outline.call(call));
                let arguments = call.map(|call| call.arguments.clone()).unwrap_or_default();
                self.asked.push_back(Prompt::new(question.clone(), arguments));
                Ok(())
            }
            Answers::Yes => {
                let answer = match &question.form {
                    Form::Approve => Answer::Approve { scope: Scope::Once, arguments: None },
                    Form::Choose { .. } | Form::Schema(_) => {
                        complain(&format!(
                            "--yes does not answer {:?}; declined",
                            clean_line(&question.prompt)
                        ));
                        Answer::no("no user is available to choose")
                    }
                };
                self.answer(id, answer).await
            }
            Answers::No => self.answer(id, Answer::NO).await,
            Answers::Nobody => {
                complain(&format!(
                    "declined, because there is no terminal to ask in: {}\n  use --yes to approve, --no to \
                     decline without this message, or run it in a terminal",
                    clean_line(&question.prompt)
                ));
                self.answer(id, nobody()).await
            }
        }
    }

    /// Answers the first question; an answer that the run refuses is asked for again.
    async fn answer_first(&mut self, answer: Answer) -> Result<()> {
        let Some(mut prompt) = self.asked.pop_front() else { return Ok(()) };
        let question = prompt.question.question;
        match self.control.answer(self.run, question, answer).await {
            Err(ControlError::BadAnswer(why)) => {
                prompt.refused(&why);
                self.asked.push_front(prompt);
                Ok(())
            }
            sent => taken(sent),
        }
    }

    async fn answer(&mut self, question: QuestionId, answer: Answer) -> Result<()> {
        taken(self.control.answer(self.run, question, answer).await)
    }

    /// The first interrupt stops the run, the second leaves it. `true` to leave.
    async fn interrupt(&mut self) -> Result<bool> {
        if self.stopping || self.answers == Answers::Others {
            return Ok(true);
        }
        self.view.set_hint(STOPPING);
        self.stop("interrupted").await?;
        Ok(false)
    }

    async fn stop(&mut self, why: &str) -> Result<()> {
        self.stopping = true;
        self.asked.clear();
        self.control.stop(self.run, CancelWhen::Now, Some(why)).await?;
        Ok(())
    }

    /// Cancels the run once its output is closed, which is what closing a pipe means.
    async fn shown(&mut self, shown: std::io::Result<()>) -> Result<()> {
        if shown.is_err() {
            self.view = View::Silent;
            if !self.stopping && self.answers != Answers::Others && self.outcome.is_none() {
                self.stop("the output was closed").await?;
            }
        }
        Ok(())
    }

    /// Reads keys only while there is a question. A line reader is kept, because only a line ends
    /// its read, and that line must not be lost.
    fn keyboard(&self, keyboard: Option<Keyboard>) -> Result<Option<Keyboard>> {
        let Some(prompt) = self.asked.front() else {
            return Ok(keyboard.filter(|keyboard| matches!(keyboard, Keyboard::Lines { .. })));
        };
        let mut keyboard = match keyboard {
            Some(keyboard) => keyboard,
            None if self.view.is_live() => Keyboard::keys()?,
            None => Keyboard::Lines { lines: self.lines.clone(), asked: None },
        };
        if let Keyboard::Lines { asked, .. } = &mut keyboard
            && *asked != Some(prompt.question.question)
        {
            ask_line(prompt)?;
            *asked = Some(prompt.question.question);
        }
        Ok(Some(keyboard))
    }
}

/// If the question was answered elsewhere first, or the run has finished, the records show it.
fn taken<T>(sent: Result<T, ControlError>) -> Result<()> {
    match sent {
        Ok(_)
        | Err(
            ControlError::NoQuestion(_)
            | ControlError::Finished(_)
            | ControlError::AlreadyAnswered { .. },
        ) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn nobody() -> Answer {
    Answer::no("no user is available to answer")
}

#[expect(clippy::print_stderr, reason = "a command talks to people there")]
fn complain(message: &str) {
    eprintln!("wellspring: {message}");
}

enum Input {
    Key(crossterm::event::KeyEvent),
    Line(String),
}

/// The source of answers: keys of a terminal with a live view, or else whole lines.
enum Keyboard {
    Keys(EventStream, RawMode),
    Lines { lines: Lines, asked: Option<QuestionId> },
}

impl Keyboard {
    fn keys() -> Result<Self> {
        let raw = RawMode::enter()?;
        Ok(Self::Keys(EventStream::new(), raw))
    }
}

fn ask_line(prompt: &Prompt) -> Result<()> {
    let mut stderr = std::io::stderr().lock();
    let question = clean_line(&prompt.question.prompt);
    writeln!(stderr, "? {question}")?;
    for choice in prompt.choices() {
        writeln!(stderr, "  {choice}")?;
    }
    write!(stderr, "  {} > ", prompt.label())?;
    Ok(stderr.flush()?)
}

/// The input was invalid: ask for a line again.
fn reprompt(keyboard: &mut Option<Keyboard>) {
    if let Some(Keyboard::Lines { asked, .. }) = keyboard {
        *asked = None;
    }
}

async fn next_typed(keyboard: &mut Option<Keyboard>) -> Option<Input> {
    match keyboard {
        Some(Keyboard::Keys(events, _)) => loop {
            if let TerminalEvent::Key(key) = events.next().await?.ok()? {
                return Some(Input::Key(key));
            }
        },
        Some(Keyboard::Lines { lines, .. }) => lines.next().await.map(Input::Line),
        None => std::future::pending().await,
    }
}

/// Raw mode; left on drop.
struct RawMode;

impl RawMode {
    fn enter() -> Result<Self> {
        enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
    }
}

/// Decides who answers questions, from the command line and the terminal.
pub(crate) fn answers(yes: bool, no: bool) -> Answers {
    match (yes, no) {
        (true, _) => Answers::Yes,
        (_, true) => Answers::No,
        _ if std::io::stdin().is_terminal() => Answers::Ask,
        _ => Answers::Nobody,
    }
}
