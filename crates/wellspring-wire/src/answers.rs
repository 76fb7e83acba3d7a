//! What the tests of the providers' readers share: an answer read in one piece, or cut in any
//! other way, as lines that a person can compare.

use std::fmt::Write as _;

use wellspring_core::{AgentNo, Batch, Event, Message, PartId, PartKind, Stop, Transcript, Usage};
use wellspring_testkit::RunBuilder;

use crate::Framer;
use crate::provider::{AnswerReader, ReadError};

type Stopped = (Stop, Option<Usage>);

/// A provider's reader, and how its stream is framed.
#[derive(Clone, Copy)]
pub(crate) struct Answers {
    pub(crate) reader: fn() -> Box<dyn AnswerReader>,
    pub(crate) framer: fn() -> Framer,
}

impl Answers {
    /// One line per event, then how it stopped, or why it could not.
    pub(crate) fn render(self, body: &[u8]) -> String {
        self.render_cut(body, &[])
    }

    /// The same with the body cut at these places.
    pub(crate) fn render_cut(self, body: &[u8], cuts: &[usize]) -> String {
        let mut lines = String::new();
        let (events, stop) = self.read(body, cuts);
        for event in events {
            let _ = writeln!(lines, "{event}");
        }
        let _ = match stop {
            Ok((stop, usage)) => {
                writeln!(lines, "stop {stop:?} {}", serde_json::to_string(&usage).unwrap())
            }
            Err(error) => writeln!(lines, "error {:?} {error}", error.kind()),
        };
        lines
    }

    /// An answer that came whole.
    pub(crate) fn render_whole(self, body: &[u8]) -> String {
        let mut reader = (self.reader)();
        let mut batch = Batch::default();
        let read = reader.whole(body, &mut batch);
        let mut lines = String::new();
        let stop = batch.take_stop();
        for (_, event) in batch.into_events() {
            let _ = writeln!(lines, "{event}");
        }
        let _ = writeln!(lines, "{read:?} {stop:?}");
        lines
    }

    /// Cut at every byte, it says the same.
    pub(crate) fn cut_everywhere(self, body: &[u8]) {
        let whole = self.render(body);
        for cut in 1..body.len() {
            assert_eq!(self.render_cut(body, &[cut]), whole, "cut at {cut}");
        }
        let single: Vec<usize> = (1..body.len()).collect();
        assert_eq!(self.render_cut(body, &single), whole, "byte by byte");
    }

    /// The conversation that goes on after this answer: every call has the result `done`.
    pub(crate) fn conversation(self, question: &str, body: &[u8]) -> Vec<Message> {
        let (events, stop) = self.read(body, &[]);
        let mut run = RunBuilder::new("demo", question);
        run.turn();
        let mut calls = Vec::new();
        for event in events {
            if let Event::PartStarted { part, kind: PartKind::ToolCall(call) } = &event
                && call.runs_on.is_ours()
            {
                calls.push(*part);
            }
            run.push(event);
        }
        run.stop(stop.map_or(Stop::EndTurn, |(stop, _)| stop));
        for call in calls {
            run.start(call).ok(call, "done");
        }
        let records = run.complete();
        Transcript::fold(&records).messages(AgentNo::ROOT)
    }

    fn read(self, body: &[u8], cuts: &[usize]) -> (Vec<Event>, Result<Stopped, ReadError>) {
        let mut framer = (self.framer)();
        let mut reader = (self.reader)();
        let mut batch = Batch::default();
        let mut events = Vec::new();
        let mut stops = Vec::new();
        let mut start = 0;
        let mut read = Ok(());
        for end in cuts.iter().copied().chain([body.len()]) {
            let mut chunk = &body[start..end];
            start = end;
            while read.is_ok()
                && let Some(frame) = framer.next(&mut chunk).unwrap()
            {
                read = reader.push(frame, &mut batch);
            }
        }
        if read.is_ok()
            && let Some(frame) = framer.end()
        {
            read = reader.push(frame, &mut batch);
        }
        if read.is_ok() {
            read = reader.end(&mut batch);
        }
        stops.extend(batch.take_stop());
        events.extend(batch.into_events().map(|(_, event)| event));
        let stop = read.map(|()| stops.pop().expect("an end without an error has a stop"));
        check(&events, stop.is_ok());
        (events, stop)
    }
}

/// The rules by which the engine takes a model's events.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever is not listed is wrong here")]
fn check(events: &[Event], whole: bool) {
    let mut open = Vec::new();
    for event in events {
        match event {
            Event::PartStarted { part, .. } => {
                assert_eq!(part.0 as usize, open.len(), "parts count from 0");
                open.push(true);
            }
            Event::PartDelta { part, chunk } => {
                assert!(open[part.0 as usize], "{event} names a closed part");
                assert!(!chunk.is_empty(), "a delta is empty");
            }
            Event::PartFinished { part } => {
                assert!(std::mem::take(&mut open[part.0 as usize]), "{event} twice");
            }
            Event::ToolStarted { call: PartId(call), .. }
            | Event::ToolUpdated { call: PartId(call), .. }
            | Event::ToolFinished { call: PartId(call), .. } => {
                assert!(!open[*call as usize], "{event} before its arguments are whole");
            }
            Event::PartAnnotated { part, .. } => assert!((part.0 as usize) < open.len()),
            Event::SourceCited(_)
            | Event::FileProduced(_)
            | Event::UsageReported(_)
            | Event::Extended(_) => {}
            other => panic!("{other} is not a model's to say"),
        }
    }
    assert!(!whole || !open.contains(&true), "a part is open at the end");
}
