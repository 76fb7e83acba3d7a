//! Renders the state of an answer for a chat. Pure.

use serde::{Deserialize, Serialize};
use wellspring_wire::stream_delta::StreamDelta;

use crate::channel::{Body, Capabilities, Stream};
use crate::markup::{Markup, Text, first_chars, last_chars, utf16};
use crate::texts::Language;

/// The last characters of the thoughts that are shown while there is no text yet.
pub const THINKING_CHARS_MAX: usize = 400;

/// The first characters of the thoughts that stay above a finished answer.
pub const FINAL_THINKING_CHARS_MAX: usize = 600;

/// In `auto`, shorter thoughts are not shown, because they would only flicker.
pub const THINKING_SHOWN_FROM_MS: u64 = 2000;

/// UTF-16 units that a growing answer leaves free for the cursor, the headers and markup: 3,800
/// of Telegram's 4,096 are used.
const GROWING_RESERVE: usize = 296;

/// A longer answer is truncated by this many UTF-16 units: 3,600 are shown on Telegram.
const TAIL_RESERVE: usize = 496;

/// Shown at the end of a growing answer.
pub const CURSOR: &str = "█";

/// Maximum length of a tool's title.
const TOOL_CHARS_MAX: usize = 120;

/// Maximum length of an error message.
const ERROR_CHARS_MAX: usize = 300;

/// Whether a person sees thoughts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingMode {
    /// Always.
    On,
    /// Never.
    Off,
    /// If thinking takes two seconds or more.
    #[default]
    Auto,
}

impl ThinkingMode {
    /// The mode with this name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// The state of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct View {
    /// The text and the thoughts.
    pub delta: StreamDelta,
    /// The running tool.
    pub tool: Option<Box<str>>,
    /// The text before an error; [`StreamDelta::Error`] does not contain it.
    pub said: String,
}

impl View {
    /// An answer without tools.
    #[must_use]
    pub fn of(delta: StreamDelta) -> Self {
        Self { delta, tool: None, said: String::new() }
    }

    /// Whether the state is final.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        match self.delta {
            StreamDelta::Thinking { .. } | StreamDelta::Content { .. } => false,
            StreamDelta::Final { .. } | StreamDelta::Error { .. } => true,
        }
    }
}

/// The person for whom a view is rendered.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Reader {
    /// The language of our own messages.
    pub language: Language,
    /// Whether they see thoughts.
    pub thinking: ThinkingMode,
}

/// The messages that show a view, in order.
#[must_use]
pub fn render(view: &View, reader: Reader, can: &Capabilities) -> Vec<Body> {
    let language = reader.language;
    match &view.delta {
        StreamDelta::Thinking { thinking, thinking_elapsed_ms } => {
            let shown = shows(reader.thinking, *thinking_elapsed_ms);
            let thoughts =
                if shown { last_chars(thinking, THINKING_CHARS_MAX) } else { String::new() };
            let text = Text::thoughts(language.thinking(), &thoughts);
            let shows_words = shown && !thoughts.is_empty();
            let all = Some(&**thinking).filter(|_| shown);
            let (title, is_thinking) = (language.thinking().into(), true);
            let stream = Stream { title, is_thinking, ..stream("", all, view) };
            vec![with_stream(body(with_tool(text, view), shows_words, can), stream, can)]
        }
        StreamDelta::Content { content, thinking, thinking_duration_ms } => {
            let shown = shows(reader.thinking, thinking_duration_ms.unwrap_or_default());
            let thoughts = thinking.as_deref().filter(|_| shown);
            let body = growing(content, thoughts, view, language, can);
            vec![with_stream(body, stream(content, thoughts, view).titled(language), can)]
        }
        StreamDelta::Final { content, thinking, thinking_duration_ms } => {
            let shown = shows(reader.thinking, thinking_duration_ms.unwrap_or_default());
            let thoughts = thinking.as_deref().filter(|_| shown);
            let bodies = finished(content, thoughts, None, language, can);
            whole(bodies, stream(content, thoughts, view).titled(language), can)
        }
        StreamDelta::Error { error } => {
            let note = format!("{}: {}", language.failed(), first_chars(error, ERROR_CHARS_MAX));
            finished(&view.said, None, Some(&note), language, can)
        }
    }
}

/// The messages that show an answer that a person has stopped.
#[must_use]
pub fn stopped(said: &str, language: Language, can: &Capabilities) -> Vec<Body> {
    finished(said, None, Some(language.stopped()), language, can)
}

/// A message of our own.
#[must_use]
pub fn note(text: &str, can: &Capabilities) -> Vec<Body> {
    let pieces = pieces(&Text::plain(text), can.text_max, can);
    pieces.into_iter().map(|piece| body(piece, false, can)).collect()
}

fn shows(mode: ThinkingMode, millis: u64) -> bool {
    match mode {
        ThinkingMode::On => true,
        ThinkingMode::Off => false,
        ThinkingMode::Auto => millis >= THINKING_SHOWN_FROM_MS,
    }
}

fn growing(
    content: &str,
    thoughts: Option<&str>,
    view: &View,
    language: Language,
    can: &Capabilities,
) -> Body {
    let room = can.text_max.saturating_sub(GROWING_RESERVE);
    let answer = Text::markdown(content);
    let header = match thoughts.map(|it| first_chars(it, FINAL_THINKING_CHARS_MAX)) {
        Some(thoughts) => Text::thoughts(language.thoughts(), &thoughts).then(Text::plain("\n")),
        None => Text::default(),
    };
    let shown = if answer.len_utf16() > room {
        let tail = answer.tail(can.text_max.saturating_sub(TAIL_RESERVE));
        Text::bold(language.long_answer()).then(Text::plain("\n\n…")).then(tail)
    } else if header.len_utf16() + answer.len_utf16() <= room {
        header.then(answer)
    } else {
        answer
    };
    let whole = |shown: Text| with_tool(shown.then(Text::plain(CURSOR)), view);
    let mut text = whole(shown.clone());
    let mut room = shown.len_utf16();
    while !fits(&text, can.text_max, can) && room > 1 {
        room /= 2;
        text = whole(shown.tail(room));
    }
    body(text, true, can)
}

fn finished(
    content: &str,
    thoughts: Option<&str>,
    note: Option<&str>,
    language: Language,
    can: &Capabilities,
) -> Vec<Body> {
    let mut answer = Text::markdown(content);
    let has_words = !answer.is_blank();
    if let Some(note) = note {
        let break_before = if has_words { "\n\n" } else { "" };
        answer = answer.then(Text::plain(&format!("{break_before}{note}")));
    } else if !has_words {
        answer = Text::plain(language.empty());
    }
    let header = match thoughts.map(|it| first_chars(it, FINAL_THINKING_CHARS_MAX)) {
        Some(thoughts) if !thoughts.is_empty() => {
            Text::thoughts(language.thoughts(), &thoughts).then(Text::plain("\n"))
        }
        Some(_) | None => Text::default(),
    };
    let first = can.text_max.saturating_sub(length(&header, can));
    let mut pieces = pieces(&answer, first, can);
    if let Some(first) = pieces.first_mut() {
        *first = header.then(std::mem::take(first));
    }
    pieces.into_iter().map(|piece| body(piece, has_words, can)).collect()
}

/// The answer as a stream, without titles.
fn stream(words: &str, thoughts: Option<&str>, view: &View) -> Stream {
    Stream {
        thoughts: first_chars(thoughts.unwrap_or_default(), FINAL_THINKING_CHARS_MAX).into(),
        tool: view.tool.as_deref().map(tool_line).map(Into::into),
        words: words.into(),
        ..Stream::default()
    }
}

impl Stream {
    fn titled(self, language: Language) -> Self {
        let title = if self.thoughts.is_empty() { "" } else { language.thoughts() };
        Self { title: title.into(), ..self }
    }
}

/// Adds the whole answer as a stream to the first message of a finished answer.
fn whole(mut bodies: Vec<Body>, stream: Stream, can: &Capabilities) -> Vec<Body> {
    // An answer without text has a message that says so.
    if !stream.words.trim().is_empty()
        && let Some(first) = bodies.first_mut()
    {
        *first = with_stream(std::mem::take(first), stream, can);
    }
    bodies
}

fn with_stream(body: Body, stream: Stream, can: &Capabilities) -> Body {
    let fits = can.can_append && utf16(&stream.words) <= can.stream_max;
    Body { stream: fits.then_some(stream), ..body }
}

/// The length of a text as the network counts it.
fn length(text: &Text, can: &Capabilities) -> usize {
    if can.counts_markup {
        let markup = can.markups.first().copied().unwrap_or(Markup::Plain);
        utf16(&text.render(markup))
    } else {
        text.len_utf16()
    }
}

fn fits(text: &Text, max: usize, can: &Capabilities) -> bool {
    !can.counts_markup || length(text, can) <= max
}

/// The messages for a text: the first one has less room.
fn pieces(text: &Text, first: usize, can: &Capabilities) -> Vec<Text> {
    let mut fitting = Vec::new();
    let mut waiting: Vec<Text> = text.split(first, can.text_max);
    waiting.reverse();
    while let Some(piece) = waiting.pop() {
        let max = if fitting.is_empty() { first } else { can.text_max };
        let units = piece.len_utf16();
        if units <= 1 || fits(&piece, max, can) {
            fitting.push(piece);
        } else {
            let halves = piece.split(units.div_ceil(2), units.div_ceil(2));
            waiting.extend(halves.into_iter().rev());
        }
    }
    fitting
}

fn tool_line(tool: &str) -> String {
    first_chars(&tool.split_whitespace().collect::<Vec<_>>().join(" "), TOOL_CHARS_MAX)
}

fn with_tool(text: Text, view: &View) -> Text {
    match &view.tool {
        Some(tool) => text.then(Text::plain(&format!("\n\n🔧 {}", tool_line(tool)))),
        None => text,
    }
}

/// A message with this text, in every markup of the network.
pub(crate) fn body(text: Text, shows_words: bool, can: &Capabilities) -> Body {
    let texts = can.markups.iter().map(|markup| text.render(*markup)).collect();
    Body { texts, shows_words, ..Body::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telegram::wire::CAPABILITIES;

    fn shown(delta: StreamDelta, thinking: ThinkingMode) -> String {
        let reader = Reader { language: Language::Portuguese, thinking };
        let bodies = render(&View::of(delta), reader, &CAPABILITIES);
        bodies.into_iter().map(|body| body.text(2).to_owned()).collect::<Vec<_>>().join("|")
    }

    /// While thinking, the last 400 characters are shown; above an answer, the first 600.
    #[test]
    fn thoughts_are_capped() {
        let thinking: String = (0..1000).map(|n| if n % 2 == 0 { 'a' } else { 'b' }).collect();
        let delta = StreamDelta::Thinking { thinking: thinking.clone(), thinking_elapsed_ms: 1 };
        let text = shown(delta, ThinkingMode::On);
        assert_eq!(text, format!("🧠 Pensando…\n…{}", &thinking[600..]));
        let delta = StreamDelta::Final {
            content: "Yes.".into(),
            thinking: Some(thinking.clone()),
            thinking_duration_ms: Some(1),
        };
        let text = shown(delta, ThinkingMode::On);
        assert_eq!(text, format!("🧠 Raciocínio\n{}…\nYes.", &thinking[..600]));
    }

    /// Thoughts are shown by the person's wish; short thinking is not shown unless asked for.
    #[test]
    fn thoughts_are_shown_by_wish() {
        for (mode, millis, is_shown) in [
            (ThinkingMode::On, 1, true),
            (ThinkingMode::Off, 60_000, false),
            (ThinkingMode::Auto, 1999, false),
            (ThinkingMode::Auto, 2000, true),
        ] {
            let delta = StreamDelta::Final {
                content: "Yes.".into(),
                thinking: Some("Hm.".into()),
                thinking_duration_ms: Some(millis),
            };
            assert_eq!(shown(delta, mode).contains("Hm."), is_shown, "{mode:?} {millis}");
        }
    }

    /// An answer without text shows a message that says so, and an error is shown below the text.
    #[test]
    fn the_end_is_never_empty() {
        let (thinking, thinking_duration_ms) = (None, None);
        let delta = StreamDelta::Final { content: " ".into(), thinking, thinking_duration_ms };
        assert_eq!(shown(delta, ThinkingMode::Auto), "(sem resposta)");
        let delta = StreamDelta::Error { error: "no money".into() };
        assert_eq!(shown(delta.clone(), ThinkingMode::Auto), "⚠️ Algo deu errado: no money");
        let view = View { delta, tool: None, said: "Half".into() };
        let bodies = render(&view, Reader::default(), &CAPABILITIES);
        assert_eq!(bodies[0].text(2), "Half\n\n⚠️ Something went wrong: no money");
    }
}
