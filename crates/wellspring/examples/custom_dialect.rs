//! How do I write a run in my own vocabulary?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use wellspring::dialect::{Before, Closed, Dialect, Encoder, Framing, Out, Positions};
use wellspring::futures::TryStreamExt as _;
use wellspring::prelude::*;
use wellspring::{Event, Record, Seq};

/// Text, and the end. Everything else is left out.
struct Words;

impl Dialect for Words {
    fn encode(&mut self, _before: Before<'_>, record: &Record, out: &mut Out) {
        if let Event::PartDelta { chunk, .. } = &record.event {
            out.event(&json!({"word": &**chunk}));
        } else if let Event::RunFinished { .. } = &record.event {
            out.event(&json!({"over": true}));
        }
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&json!({"error": why.message}));
    }
}

#[tokio::main]
async fn main() -> Result<(), ThinkError> {
    let agent = Agent::model(Scripted::new([Say::new().chunks(["Hello", " there."])]));
    let records: Vec<Record> = agent.say("Hi").stream().records(Seq(0)).try_collect().await?;
    let mut encoder = Encoder::new(Words);
    let mut out = Out::default();
    encoder.frame(&records, &mut out);
    for (position, json) in out.events() {
        // A reader that was disconnected resumes after the last position that it received.
        println!("{position} {}", String::from_utf8_lossy(json));
    }
    // The same as server-sent events.
    print!("{}", String::from_utf8_lossy(&Framing::SSE.frame(&out, Positions::Told)));
    Ok(())
}
