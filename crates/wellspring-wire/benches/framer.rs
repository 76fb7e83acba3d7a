//! What cutting a body into events costs: `cargo bench -p wellspring-wire --bench framer`.
//!
//! The body is what a provider sends while a model talks: events of about 120 bytes, in
//! chunks of 1400, as one packet carries them, or 16 KiB, as a busy server reads them. An
//! item is an event. `eventsource_stream` is the crate of that name over the same chunks.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use divan::Bencher;
use divan::counter::ItemsCount;
use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use wellspring_wire::Framer;

fn main() {
    divan::main();
}

const EVENTS: usize = 1000;

fn body() -> Vec<u8> {
    let event = |index: usize| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\" w{index}\"}}}}\n\n"
        )
    };
    (0..EVENTS).map(event).collect::<String>().into_bytes()
}

#[divan::bench(args = [1400, 16384])]
fn ours(bencher: Bencher<'_, '_>, chunk_bytes: usize) {
    let body = body();
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut framer = Framer::sse();
        let (mut count, mut bytes) = (0, 0);
        for mut chunk in body.chunks(chunk_bytes) {
            while let Some(frame) = framer.next(&mut chunk).unwrap() {
                count += 1;
                bytes += frame.data.len();
            }
        }
        assert_eq!(count, EVENTS);
        bytes
    });
}

#[divan::bench(args = [1400, 16384])]
fn eventsource_stream(bencher: Bencher<'_, '_>, chunk_bytes: usize) {
    let body = body();
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let chunks = body.chunks(chunk_bytes).map(Ok::<_, std::convert::Infallible>);
        let mut events = futures::stream::iter(chunks).eventsource();
        futures::executor::block_on(async {
            let (mut count, mut bytes) = (0, 0);
            while let Some(event) = events.next().await {
                count += 1;
                bytes += event.unwrap().data.len();
            }
            assert_eq!(count, EVENTS);
            bytes
        })
    });
}
