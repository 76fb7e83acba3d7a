//! Runs for other programs, and for reading.

use std::io::Write as _;

use anyhow::Result;
use futures::TryStreamExt as _;
use wellspring_core::{
    AgentNo, FORMAT, Item, PartKind, Record, Role, Seq, ToolOutcome, Transcript,
};
use wellspring_engine::Control;
use wellspring_log::RunInfo;

use crate::args::Format;
use crate::screen::{answer_phrase, outcome_phrase};

/// Writes what is committed of a run to standard output.
pub(crate) async fn export(control: &Control, info: &RunInfo, format: Format) -> Result<()> {
    let transcript = control.transcript(info.run).await?;
    let mut out = std::io::stdout().lock();
    if format == Format::Markdown {
        out.write_all(markdown(&transcript).as_bytes())?;
        return Ok(out.flush()?);
    }
    if format == Format::Json {
        let run = serde_json::to_string(info)?;
        write!(out, "{{\"format\":{FORMAT},\"run\":{run},\"records\":[")?;
    }
    let head = transcript.outline.head;
    let mut records = std::pin::pin!(control.attach(info.run, Seq(0)).await?.into_records());
    let mut last = Seq(0);
    while last < head {
        let Some(record) = records.try_next().await? else { break };
        last = record.seq;
        write_record(&mut out, &record, format)?;
    }
    if format == Format::Json {
        let feedback = serde_json::to_string(&control.feedback(info.run).await?)?;
        writeln!(out, "],\"feedback\":{feedback}}}")?;
    }
    Ok(out.flush()?)
}

fn write_record(out: &mut impl std::io::Write, record: &Record, format: Format) -> Result<()> {
    match format {
        Format::Json if record.seq > Seq(1) => out.write_all(b",")?,
        Format::Json | Format::Jsonl | Format::Markdown => {}
    }
    serde_json::to_writer(&mut *out, record)?;
    if format == Format::Jsonl {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A run as a document. The words are the model's own: a file is no terminal.
fn markdown(transcript: &Transcript) -> String {
    let mut out = String::new();
    let Some(started) = &transcript.started else { return out };
    out.push_str(&format!("# Run {}\n\nAgent **{}**\n\n", started.run, started.agent));
    for content in &started.request.input {
        let said = content.as_text().unwrap_or("(not text)");
        out.push_str(&format!("## Asked\n\n{said}\n\n"));
    }
    let items = transcript.agents.get(&AgentNo::ROOT).map_or(&[][..], |root| &root.items);
    for item in items {
        match item {
            Item::Turn(turn) => {
                out.push_str(&format!("## Turn {}\n\n", turn.turn));
                turn.parts.iter().for_each(|part| push_part(transcript, *part, &mut out));
            }
            Item::Part(part) => push_part(transcript, *part, &mut out),
            Item::Input(inbox) => {
                for content in transcript.inputs.get(inbox).into_iter().flatten() {
                    out.push_str(&format!(
                        "## Added\n\n{}\n\n",
                        content.as_text().unwrap_or_default()
                    ));
                }
            }
        }
    }
    if let Some(result) = &transcript.result {
        out.push_str(&format!("## Result\n\n{}\n\n", fenced("json", &format!("{result:#}"))));
    }
    let outcome = transcript.outcome.as_ref().map_or("not over yet".into(), outcome_phrase);
    let usage = &transcript.usage;
    out.push_str(&format!("---\n\n{outcome}; {} tokens in, {} out\n", usage.input, usage.output));
    out
}

fn push_part(transcript: &Transcript, id: wellspring_core::PartId, out: &mut String) {
    let Some(part) = transcript.parts.get(&id) else { return };
    match &part.kind {
        PartKind::Text { role: Role::Assistant } => {
            out.push_str(&format!("{}\n\n", part.text.trim()))
        }
        PartKind::Thought => {
            for line in part.text.trim().lines() {
                out.push_str(&format!("> {line}\n"));
            }
            out.push('\n');
        }
        PartKind::ToolCall(tool) => {
            out.push_str(&format!(
                "### Tool `{}`\n\n{}\n\n",
                tool.name,
                fenced("json", &part.text)
            ));
            let asked =
                transcript.questions.values().filter(|asked| asked.question.call == Some(id));
            for answered in asked.filter_map(|asked| asked.answered.as_ref()) {
                out.push_str(&format!("Allowed? {}\n\n", answer_phrase(&answered.answer).0));
            }
            if let Some((outcome, result)) =
                part.call.as_ref().and_then(|call| call.finished.as_ref())
            {
                let word = match outcome {
                    ToolOutcome::Ok => "Result",
                    ToolOutcome::Error => "Error",
                    ToolOutcome::Denied => "Not allowed",
                    ToolOutcome::Interrupted => "Interrupted",
                    ToolOutcome::TimedOut => "Took too long",
                };
                out.push_str(&format!("{word}:\n\n{}\n\n", fenced("", &result.output_text())));
            }
        }
        PartKind::Text { role: Role::User } | PartKind::Output { .. } | PartKind::Opaque(_) => {}
    }
}

/// A code block whose fence is longer than any inside it.
fn fenced(language: &str, text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}
