use futures::StreamExt as _;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::test_helpers::cut;

type Seen = Vec<(String, String)>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All frames of some chunks, with the unfinished one last, and the framer's state afterwards.
fn read(mut framer: Framer, chunks: &[&[u8]]) -> (Seen, Result<Framer, FrameError>) {
    let mut seen = Vec::new();
    for mut chunk in chunks.iter().copied() {
        loop {
            match framer.next(&mut chunk) {
                Ok(Some(frame)) => seen.push((text(frame.event), text(frame.data))),
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            }
        }
        assert!(chunk.is_empty());
    }
    (seen, Ok(framer))
}

fn sse(input: &str) -> Seen {
    read(Framer::sse(), &[input.as_bytes()]).0
}

fn frames(want: &[(&str, &str)]) -> Seen {
    want.iter().map(|(event, data)| ((*event).to_owned(), (*data).to_owned())).collect()
}

#[test]
fn events() {
    for (input, want) in [
        ("data: a\n\n", &[("", "a")][..]),
        ("data:a\r\rdata:b\r\n\r\n", &[("", "a"), ("", "b")]),
        ("\u{feff}data: a\n\n", &[("", "a")]),
        ("\n\n\u{feff}data: a\n\n", &[]), // A byte order mark is only skipped at the very start.
        ("data:  two\n\n", &[("", " two")]),
        ("data: a\ndata: b\ndata\ndata:\n\n", &[("", "a\nb\n\n")]),
        ("data\n\n", &[("", "")]),
        ("event: x\ndata: a\n\ndata: b\n\n", &[("x", "a"), ("", "b")]),
        ("data: a\nevent: x\nevent: y\n\n", &[("y", "a")]),
        ("event: x\n\ndata: a\n\n", &[("", "a")]),
        (": keep-alive\n\n:\n\ndata: a\n: here too\n\n", &[("", "a")]),
        ("colour: red\nid: 1\nretry: 5\n\n", &[]),
        ("data: a\n", &[]),
        ("data: a", &[]),
    ] {
        assert_eq!(sse(input), frames(want), "{input:?}");
    }
}

#[test]
fn what_a_reconnect_needs() {
    let input = b"id: 7\n\nid: \0\nretry: 1x\nretry: 250\nretry\nretry: 99999999999999999999\n\n";
    let (seen, framer) = read(Framer::sse(), &[input]);
    let framer = framer.unwrap();
    assert_eq!((seen, framer.last_id(), framer.retry_millis()), (vec![], &b"7"[..], Some(250)));
}

#[test]
fn lines_of_json() {
    let input = "\u{feff}{\"a\":1}\n\r\n \n{\"b\":2}\r\n{\"c\":3}";
    for cut in 0..=input.len() {
        let (head, tail) = input.as_bytes().split_at(cut);
        let (mut seen, framer) = read(Framer::ndjson(), &[head, tail]);
        seen.extend(framer.unwrap().end().map(|last| (text(last.event), text(last.data))));
        assert_eq!(seen, frames(&[("", "{\"a\":1}"), ("", "{\"b\":2}"), ("", "{\"c\":3}")]));
    }
}

#[test]
fn an_unfinished_event_is_the_end() {
    for (input, want) in [
        ("data: a", Some(("", "a"))),
        ("event: x\ndata: a\n", Some(("x", "a"))),
        ("\u{feff}data: a", Some(("", "a"))),
        ("data: a\n\n", None),
        ("data: a\n\nevent: x\n: y", None),
    ] {
        let (_, framer) = read(Framer::sse(), &[input.as_bytes()]);
        let mut framer = framer.unwrap();
        let end = framer.end().map(|last| (text(last.event), text(last.data)));
        assert_eq!(end, want.map(|(event, data)| (event.into(), data.into())), "{input:?}");
        assert_eq!(framer.end(), None);
    }
}

#[test]
fn an_event_has_a_largest_size() {
    let whole = "event: x\ndata: 5678\n\n";
    let framer = || Framer::sse().event_bytes_max(18);
    assert_eq!(read(framer(), &[whole.as_bytes()]).0, frames(&[("x", "5678")]));
    assert_eq!(read(framer(), &[whole.repeat(3).as_bytes()]).0.len(), 3);
    for (input, seen) in [
        ("event: x\ndata: 56789\n\n", 0),
        ("event: x\ndata: 56789", 0),
        ("data: a\n\n:234567890123456789\n\n", 1),
        ("data: 7890\ndata: 678\n\n", 0),
    ] {
        for size in 1..input.len() {
            let chunks: Vec<&[u8]> = input.as_bytes().chunks(size).collect();
            let (frames, error) = read(framer(), &chunks);
            assert_eq!((frames.len(), error.err()), (seen, Some(FrameError::TooLarge { max: 18 })));
        }
    }
    // Comments between events do not belong to an event.
    assert!(read(framer(), &[":12345678901234\n".repeat(100).as_bytes()]).1.is_ok());
    let line = Framer::ndjson().event_bytes_max(4);
    assert_eq!(read(line.clone(), &[b"1234\n123", b"4\n"]).0.len(), 2);
    assert!(read(line.clone(), &[b"12345\n"]).1.is_err());
    assert!(read(line, &[b"123", b"45"]).1.is_err());
}

/// An event within one chunk is borrowed from it.
#[test]
fn what_lies_in_one_chunk_is_borrowed() {
    let input = b"event: x\ndata: abc\n\n";
    let mut rest = &input[..];
    let mut framer = Framer::sse();
    let frame = framer.next(&mut rest).unwrap().unwrap();
    assert_eq!(
        (frame.event.as_ptr(), frame.data.as_ptr()),
        (&raw const input[7], &raw const input[15])
    );
}

/// Tokens of the format, in any order.
fn arb_stream() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "\n",
            "\r",
            "\r\n",
            "\n\n",
            "data",
            "data:",
            "data: ",
            "event: ",
            "id: ",
            "id:",
            "retry: ",
            ":",
            " ",
            "7",
            "\u{feff}",
            "{\"a\":1}",
            "x",
            "ä",
            "😀",
            "data: {}\n\n",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Reads the same bytes with another crate.
fn read_by_another(chunks: &[&[u8]]) -> Seen {
    use eventsource_stream::Eventsource as _;
    let chunks: Vec<Result<Vec<u8>, ()>> = chunks.iter().map(|chunk| Ok(chunk.to_vec())).collect();
    let events = futures::stream::iter(chunks).eventsource();
    let events: Vec<_> = futures::executor::block_on(events.collect());
    let event = |event: Result<eventsource_stream::Event, _>| {
        let event = event.unwrap();
        (if event.event == "message" { String::new() } else { event.event }, event.data)
    };
    events.into_iter().map(event).collect()
}

proptest! {
    #[test]
    fn as_another_crate_reads_it(stream in arb_stream(), cuts: Vec<Index>) {
        // The other crate panics if the stream starts with a byte order mark, and after a CR it
        // waits for the next byte before it yields the event.
        let stream = format!("{}:", stream.trim_start_matches('\u{feff}'));
        let chunks = cut(stream.as_bytes(), &cuts);
        prop_assert_eq!(read(Framer::sse(), &chunks).0, read_by_another(&chunks));
    }

    #[test]
    fn cuts_change_nothing(
        stream in prop_oneof![arb_stream().prop_map(String::into_bytes), any::<Vec<u8>>()],
        cuts: Vec<Index>,
        max in 1usize..80,
        lines: bool,
    ) {
        let framer = if lines { Framer::ndjson() } else { Framer::sse() };
        let framer = framer.event_bytes_max(max);
        let all = |chunks: &[&[u8]]| {
            let (mut seen, framer) = read(framer.clone(), chunks);
            let known = framer.map(|mut framer| {
                seen.extend(framer.end().map(|last| (text(last.event), text(last.data))));
                (framer.last_id().to_vec(), framer.retry_millis())
            });
            (seen, known)
        };
        prop_assert_eq!(all(&cut(&stream, &cuts)), all(&[&stream]));
    }
}
