//! The items of a screen, and their lines.

use std::time::Duration;

use serde_json::Value;
use wellspring_core::{
    AgentNo, Answer, Content, ContentChange, Form, Millis, Outcome, PartId, PlanEntry, PlanStatus,
    QuestionId, RunId, ToolCall, ToolContent, ToolOutcome, ToolResult, ToolUpdate, Usage,
};

use super::Look;
use super::phrase::{
    answer_phrase, arguments_phrase, content_phrase, duration, outcome_phrase, short_id,
    value_phrase,
};
use crate::text::markdown::Markdown;
use crate::text::{Line, Span, Style, clean, clean_line, span, width as columns, wrap};

/// Lines of output that a running call shows: the latest.
const OUTPUT_LINES: usize = 5;

/// Lines of output that remain of a call that has ended.
const OUTPUT_LINES_KEPT: usize = 3;

/// Bytes of a call's output that are held for that.
const OUTPUT_BYTES_MAX: usize = 8 * 1024;

/// Lines of an error that a call shows; the log has all of it.
const ERROR_LINES_MAX: usize = 4;

/// Columns of a progress bar.
const BAR_COLUMNS: usize = 20;

/// A thought shorter than this shows no time.
const THOUGHT_TIME_MIN: Duration = Duration::from_secs(2);

/// An item of the screen.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) agent: AgentNo,
    /// The nesting depth of its agent.
    pub(super) depth: usize,
    pub(super) body: Body,
    /// Whether it cannot change any more.
    pub(super) settled: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Input(String),
    Thought(Words),
    Text(Words),
    Tool(Box<Tool>),
    Question(Box<Question>),
    Plan(Vec<PlanEntry>),
    Note(Style, String),
    End(Box<End>),
}

/// The group of an item: items of one group are printed without a blank line between them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Group {
    Words,
    Tools,
    Notes,
    Plan,
    End,
}

/// A text that grows.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) part: PartId,
    text: String,
    markdown: Markdown,
    depth: usize,
    look: Look,
    since: Millis,
    until: Millis,
    finished: bool,
    partly_printed: bool,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) part: PartId,
    pub(super) arguments: String,
    name: String,
    title: Option<String>,
    quiet: bool,
    started_at: Option<Millis>,
    percent: Option<f64>,
    note: String,
    output: String,
    ended: Option<(ToolOutcome, Millis)>,
    result: String,
    diffs: Vec<String>,
}

/// A question and its answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) id: QuestionId,
    pub(super) prompt: String,
    pub(super) form: Form,
    /// The tool that asks for approval, and its arguments.
    pub(super) tool: Option<(String, String)>,
    pub(super) answered: Option<Answer>,
}

/// A run's end.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) turns: u32,
    pub(super) usage: Usage,
    pub(super) run: Option<RunId>,
}

impl Item {
    pub(super) fn is_words(&self, part: PartId) -> bool {
        matches!(&self.body, Body::Text(words) | Body::Thought(words) if words.part == part)
    }

    pub(super) fn is_call(&self, part: PartId) -> bool {
        matches!(&self.body, Body::Tool(tool) if tool.part == part)
    }

    pub(super) fn is_unstarted(&self) -> bool {
        matches!(&self.body, Body::Tool(tool) if tool.started_at.is_none())
    }

    pub(super) fn is_partly_printed(&self) -> bool {
        matches!(&self.body, Body::Text(words) | Body::Thought(words) if words.partly_printed)
    }

    /// Whether it is complete, unless its turn is voided.
    pub(super) fn is_finished(&self) -> bool {
        match &self.body {
            Body::Text(words) | Body::Thought(words) => words.finished,
            Body::Tool(tool) => tool.ended.is_some(),
            Body::Question(question) => question.answered.is_some(),
            Body::Input(_) | Body::Plan(_) | Body::Note(..) | Body::End(_) => true,
        }
    }

    pub(super) fn group(&self) -> Group {
        match &self.body {
            Body::Input(_) | Body::Thought(_) | Body::Text(_) => Group::Words,
            Body::Tool(_) => Group::Tools,
            Body::Question(_) | Body::Note(..) => Group::Notes,
            Body::Plan(_) => Group::Plan,
            Body::End(_) => Group::End,
        }
    }

    pub(super) fn part(&self) -> Option<PartId> {
        match &self.body {
            Body::Text(words) | Body::Thought(words) => Some(words.part),
            Body::Tool(tool) => Some(tool.part),
            Body::Input(_) | Body::Question(_) | Body::Plan(_) | Body::Note(..) | Body::End(_) => {
                None
            }
        }
    }

    /// Takes the first complete line of a text that is too long for the live region.
    pub(super) fn take_line(&mut self, width: usize) -> Option<Vec<Line>> {
        match &mut self.body {
            Body::Text(words) => words.take_line(|words, line| words.text_line(line, width)),
            Body::Thought(words) => words.take_line(|words, line| words.thought_line(line, width)),
            Body::Input(_)
            | Body::Tool(_)
            | Body::Question(_)
            | Body::Plan(_)
            | Body::Note(..)
            | Body::End(_) => None,
        }
    }

    pub(super) fn lines(&self, width: usize, spinner: &str, now: Millis) -> Vec<Line> {
        let indent = indent(self.depth);
        match &self.body {
            Body::Input(said) => {
                let (first, rest) = ([span("› ", Style::CYAN.bold())], [span("  ", Style::PLAIN)]);
                let mut lines = Vec::new();
                for (number, line) in said.lines().enumerate() {
                    let lead = if number == 0 { &first } else { &rest };
                    lines.extend(wrap(&[span(line, Style::BOLD)], lead, &rest, width));
                }
                lines
            }
            Body::Thought(words) => words.thought_lines(width),
            Body::Text(words) => words.text_lines(width),
            Body::Tool(tool) => tool.lines(&indent, width, spinner, now),
            Body::Question(question) => question.lines(&indent, width),
            Body::Plan(entries) => plan_lines(entries, spinner, width),
            Body::Note(style, note) => wrap(
                &[span(note.as_str(), *style)],
                std::slice::from_ref(&indent),
                std::slice::from_ref(&indent),
                width,
            ),
            Body::End(end) => end.lines(width),
        }
    }
}

fn indent(depth: usize) -> Span {
    span("  ".repeat(depth), Style::PLAIN)
}

impl Words {
    pub(super) fn new(part: PartId, at: Millis, depth: usize, look: Look) -> Self {
        Self {
            part,
            text: String::new(),
            markdown: Markdown::default(),
            depth,
            look,
            since: at,
            until: at,
            finished: false,
            partly_printed: false,
        }
    }

    pub(super) fn push(&mut self, chunk: &str, at: Millis) {
        self.text.push_str(chunk);
        self.until = at;
    }

    pub(super) fn finish(&mut self, at: Millis) {
        self.until = at;
        self.finished = true;
    }

    fn take_line(&mut self, render: impl Fn(&mut Self, &str) -> Vec<Line>) -> Option<Vec<Line>> {
        let end = self.text.find('\n')?;
        let line: String = self.text.drain(..=end).collect();
        self.partly_printed = true;
        Some(render(self, clean(line.trim_end_matches('\n')).as_str()))
    }

    fn text_line(&mut self, line: &str, width: usize) -> Vec<Line> {
        match self.look {
            Look::Rich => self.markdown.line(line, &[indent(self.depth)], width),
            Look::Plain => vec![Line::of([indent(self.depth), span(line, Style::PLAIN)])],
        }
    }

    fn text_lines(&self, width: usize) -> Vec<Line> {
        let mut words = self.clone();
        let text = clean(self.text.trim_end());
        if text.is_empty() {
            return Vec::new();
        }
        let lines = text.split('\n').flat_map(|line| words.text_line(line, width)).collect();
        // Blank lines at the start would only widen the gap before it.
        if self.partly_printed { lines } else { without_blank_head(lines) }
    }

    fn thought_line(&mut self, line: &str, width: usize) -> Vec<Line> {
        let bar = [indent(self.depth), span("┊ ", Style::DIM)];
        wrap(&[span(line, Style::THOUGHT)], &bar, &bar, width)
    }

    fn thought_lines(&self, width: usize) -> Vec<Line> {
        let text = clean(self.text.trim());
        if text.is_empty() {
            return Vec::new();
        }
        let mut words = self.clone();
        let mut lines: Vec<Line> =
            text.split('\n').flat_map(|line| words.thought_line(line, width)).collect();
        let took = self.until.since(self.since);
        if let Some(last) = lines.last_mut()
            && self.finished
            && took >= THOUGHT_TIME_MIN
        {
            let time = span(format!("  {}", duration(took)), Style::DIM);
            if last.width() + columns(&time.text) <= width {
                last.spans.push(time);
            }
        }
        lines
    }
}

fn without_blank_head(lines: Vec<Line>) -> Vec<Line> {
    lines.into_iter().skip_while(|line| line.spans.is_empty()).collect()
}

impl Tool {
    pub(super) fn new(part: PartId, call: &ToolCall, quiet: bool) -> Self {
        Self {
            part,
            arguments: String::new(),
            name: clean_line(&call.name),
            title: call.title.as_deref().map(clean_line),
            quiet,
            started_at: None,
            percent: None,
            note: String::new(),
            output: String::new(),
            ended: None,
            result: String::new(),
            diffs: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, at: Millis) {
        self.started_at = Some(at);
    }

    pub(super) fn update(&mut self, update: &ToolUpdate) {
        if let Some(title) = &update.title {
            self.title = Some(clean_line(title));
        }
        match &update.content {
            Some(ContentChange::Append(more)) => self.show(more),
            Some(ContentChange::Replace(all)) => {
                self.output.clear();
                self.diffs.clear();
                self.show(all);
            }
            None => {}
        }
        match &update.data {
            Some(Value::String(note)) => self.note = clean_line(note),
            Some(data) => self.progress(data),
            None => {}
        }
    }

    /// Progress in the shapes that the built-in tools have.
    fn progress(&mut self, data: &Value) {
        if let Some(percent) = data.get("percent").and_then(Value::as_f64) {
            self.percent = Some(percent.clamp(0.0, 100.0));
        }
        let ratio =
            data.get("done").and_then(Value::as_f64).zip(data.get("total").and_then(Value::as_f64));
        if let Some((done, total)) = ratio.filter(|(_, total)| *total > 0.0) {
            self.percent = Some((100.0 * done / total).clamp(0.0, 100.0));
        }
        if let Some(content) = data.get("content").and_then(Value::as_str) {
            self.output(content);
        }
    }

    pub(super) fn output(&mut self, chunk: &str) {
        self.output.push_str(chunk);
        if self.output.len() > OUTPUT_BYTES_MAX {
            let cut = self.output.len() - OUTPUT_BYTES_MAX / 2;
            let cut = (cut..self.output.len()).find(|at| self.output.is_char_boundary(*at));
            self.output.drain(..cut.unwrap_or(self.output.len()));
        }
    }

    fn show(&mut self, content: &[ToolContent]) {
        for block in content {
            match block {
                ToolContent::Content(Content::Text(text)) => {
                    self.output(text);
                    self.output("\n");
                }
                ToolContent::Content(other) => self.output(&format!("{}\n", content_phrase(other))),
                ToolContent::Diff { path, old_text, new_text } => {
                    let (old, new) = (old_text.as_deref().unwrap_or_default(), &**new_text);
                    let path = clean_line(path);
                    self.diffs.push(format!(
                        "{path}  +{} -{}",
                        new.lines().count(),
                        old.lines().count()
                    ));
                }
                ToolContent::Terminal { .. } => {}
            }
        }
    }

    pub(super) fn finish(&mut self, outcome: ToolOutcome, result: &ToolResult, at: Millis) {
        self.ended = Some((outcome, at));
        // A failure is always shown.
        self.quiet &= outcome == ToolOutcome::Ok;
        if !result.content.is_empty() {
            self.output.clear();
            self.diffs.clear();
            self.show(&result.content);
        }
        self.result = value_phrase(&result.output);
    }

    fn lines(&self, indent: &Span, width: usize, spinner: &str, now: Millis) -> Vec<Line> {
        if self.quiet {
            return Vec::new();
        }
        let mut lines = vec![self.head(indent, width, spinner, now)];
        let lead = |mark: &str, style| [indent.clone(), span(format!("  {mark} "), style)];
        for diff in &self.diffs {
            let line = lead("±", Style::DIM).into_iter().chain([span(diff.as_str(), Style::PLAIN)]);
            lines.push(Line::of(line).truncated(width));
        }
        let failed = self.ended.is_some_and(|(outcome, _)| outcome != ToolOutcome::Ok);
        let output = clean(self.output.trim_end());
        let shown = if self.ended.is_some() { OUTPUT_LINES_KEPT } else { OUTPUT_LINES };
        if !output.is_empty() {
            let all: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in &all[all.len().saturating_sub(shown)..] {
                let line = lead("│", Style::DIM).into_iter().chain([span(*line, Style::DIM)]);
                lines.push(Line::of(line).truncated(width));
            }
        }
        if failed {
            let text = [span(self.result.as_str(), Style::RED)];
            let (first, rest) = (lead("└", Style::DIM), lead(" ", Style::DIM));
            lines.extend(wrap(&text, &first, &rest, width).into_iter().take(ERROR_LINES_MAX));
        } else if self.ended.is_some()
            && output.is_empty()
            && self.diffs.is_empty()
            && !self.result.is_empty()
        {
            let line =
                lead("└", Style::DIM).into_iter().chain([span(self.result.as_str(), Style::DIM)]);
            lines.push(Line::of(line).truncated(width));
        }
        lines
    }

    fn head(&self, indent: &Span, width: usize, spinner: &str, now: Millis) -> Line {
        let (mark, style) = match (self.ended, self.started_at) {
            (Some((ToolOutcome::Ok, _)), _) => ("✓", Style::GREEN),
            (Some((ToolOutcome::Denied, _)), _) => ("⊘", Style::YELLOW),
            (Some(_), _) => ("✗", Style::RED),
            (None, Some(_)) if !spinner.is_empty() => (spinner, Style::CYAN),
            (None, _) => ("·", Style::DIM),
        };
        let title = self.title.as_ref().unwrap_or(&self.name);
        let mut left = vec![
            indent.clone(),
            span(format!("{mark} "), style),
            span(title.as_str(), Style::BOLD),
        ];
        let mut right = Vec::new();
        match (self.ended, self.percent) {
            (None, Some(percent)) => right.extend(bar(percent)),
            (Some((outcome, at)), _) => {
                let word = match outcome {
                    ToolOutcome::Ok | ToolOutcome::Error => "",
                    ToolOutcome::Denied => "not allowed",
                    ToolOutcome::Interrupted => "interrupted",
                    ToolOutcome::TimedOut => "took too long",
                };
                let took = self.started_at.map(|since| at.since(since)).unwrap_or_default();
                let time = (took >= Duration::from_millis(100)).then(|| duration(took));
                let words = [word.to_owned(), time.unwrap_or_default()];
                let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
                right.push(span(words.join(" "), Style::DIM));
            }
            (None, None) => {
                let time = self.started_at.map(|since| now.since(since)).unwrap_or_default();
                if time >= Duration::from_secs(1) {
                    right.push(span(duration(time), Style::DIM));
                }
            }
        }
        let right_width: usize = right.iter().map(|span| columns(&span.text)).sum();
        let about = if self.note.is_empty() || self.ended.is_some() {
            arguments_phrase(&self.arguments)
        } else {
            self.note.clone()
        };
        if !about.is_empty() {
            left.push(span(format!("  {about}"), Style::DIM));
        }
        let room = if right_width == 0 { width } else { width.saturating_sub(right_width + 2) };
        let mut line = Line::of(left).truncated(room);
        if right_width > 0 && right_width + 2 < width {
            line.spans.push(span("  ", Style::PLAIN));
            line.spans.extend(right);
        }
        line
    }
}

fn bar(percent: f64) -> [Span; 3] {
    // In range by construction: a percentage of twenty.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 20")]
    let full = (percent / 100.0 * BAR_COLUMNS as f64).round() as usize;
    [
        span("━".repeat(full.min(BAR_COLUMNS)), Style::CYAN),
        span("─".repeat(BAR_COLUMNS - full.min(BAR_COLUMNS)), Style::DIM),
        span(format!(" {percent:3.0} %"), Style::PLAIN),
    ]
}

impl Question {
    fn lines(&self, indent: &Span, width: usize) -> Vec<Line> {
        let first = [indent.clone(), span("? ", Style::YELLOW.bold())];
        let rest = [indent.clone(), span("  ", Style::PLAIN)];
        let text = match (&self.form, &self.tool) {
            (Form::Approve, Some((tool, _))) => format!("May {tool} run?"),
            _ => self.prompt.clone(),
        };
        let mut lines = wrap(&[span(text, Style::BOLD)], &first, &rest, width);
        match &self.form {
            Form::Approve => {
                let arguments = self.tool.as_ref().map_or("", |(_, arguments)| arguments);
                for line in argument_lines(arguments) {
                    let bar = [indent.clone(), span("  │ ", Style::YELLOW)];
                    lines.extend(wrap(&[span(line, Style::PLAIN)], &bar, &bar, width));
                }
            }
            Form::Choose { choices, .. } => {
                for (number, choice) in choices.iter().enumerate() {
                    let mark = [indent.clone(), span(format!("  {}. ", number + 1), Style::YELLOW)];
                    let label = [span(clean_line(&choice.label), Style::PLAIN)];
                    lines.extend(wrap(&label, &mark, &rest, width));
                }
            }
            Form::Schema(_) => {}
        }
        if let Some(answer) = &self.answered {
            let (said, style) = answer_phrase(answer);
            let lead = [indent.clone(), span("  → ", Style::DIM)];
            lines.extend(wrap(&[span(said, style)], &lead, &rest, width));
        }
        lines
    }
}

/// All arguments, because an approver must see the whole call.
fn argument_lines(arguments: &str) -> Vec<String> {
    let Ok(Value::Object(members)) = serde_json::from_str(arguments) else {
        return clean(arguments).lines().map(Into::into).collect();
    };
    let mut lines = Vec::new();
    for (name, value) in &members {
        let text = value.as_str().map_or_else(|| clean(&value.to_string()), clean);
        let mut texts = text.lines();
        let first = texts.next().unwrap_or_default();
        let alone = members.len() == 1;
        lines.push(if alone { first.into() } else { format!("{}: {first}", clean_line(name)) });
        lines.extend(texts.map(|text| if alone { text.into() } else { format!("  {text}") }));
    }
    lines
}

pub(super) fn plan_lines(entries: &[PlanEntry], spinner: &str, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in entries {
        let (mark, mark_style, style) = match entry.status {
            PlanStatus::Completed => ("✓", Style::GREEN, Style::DIM),
            PlanStatus::InProgress => {
                (if spinner.is_empty() { "▸" } else { spinner }, Style::CYAN, Style::BOLD)
            }
            PlanStatus::Pending => ("○", Style::DIM, Style::PLAIN),
        };
        let lead = [span(format!("{mark} "), mark_style)];
        let text = [span(clean_line(&entry.content), style)];
        lines.extend(wrap(&text, &lead, &[span("  ", Style::PLAIN)], width));
    }
    lines
}

impl End {
    fn lines(&self, width: usize) -> Vec<Line> {
        let (mark, style) = match &self.outcome {
            Outcome::Completed { .. } => ("✓ ", Style::GREEN),
            Outcome::Cancelled { .. } => ("■ ", Style::YELLOW),
            Outcome::Failed { .. } => ("✗ ", Style::RED),
        };
        let mut figures = vec![duration(self.took)];
        match self.turns {
            0 => {}
            1 => figures.push("1 turn".into()),
            turns => figures.push(format!("{turns} turns")),
        }
        let Usage { input, output, .. } = self.usage;
        if input + output > 0 {
            figures.push(format!("{input} in, {output} out"));
        }
        if let Some(run) = self.run {
            figures.push(format!("run {}", short_id(run.uuid())));
        }
        let spans = [
            span(outcome_phrase(&self.outcome), style),
            span(format!("  {}", figures.join(" · ")), Style::DIM),
        ];
        wrap(&spans, &[span(mark, style)], &[span("  ", Style::PLAIN)], width)
    }
}
