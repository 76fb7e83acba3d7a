//! Connections: each phase has a time limit, and clients cannot use up all places.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use wellspring_core::RunId;
use wellspring_engine::Runtime;
use wellspring_log::Log;
use wellspring_models::{Gate, Say};
use wellspring_server::{ServerConfig, ServerLimits};

use crate::kit::{Kit, agent, config, parse_sse};

/// The beginning of an HTTP/2 connection: the preface, and an empty SETTINGS frame.
const H2_BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Longer than any time-out of a connection. Time is simulated.
const LONG: Duration = Duration::from_secs(120);

/// A client that connects and sends no request is disconnected in every phase. Time is simulated.
#[tokio::test(start_paused = true)]
async fn who_asks_nothing_is_let_go() {
    let kit = Kit::new(agent([], [])).await;
    for said in ["", "P", "PRI * HTTP/2", "POST /v1/runs HTTP/1.1\r\nhost: local"] {
        let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
        connection.write_all(said.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = connection.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        // A connection that is closed with unread data is reset.
        let _ = ended.unwrap_or_else(|_| panic!("{said:?} is still waited for"));
        assert!(answer.is_empty(), "{said:?}: {answer:?}");
    }
    // Between two requests.
    let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
    connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(until_closed(&mut connection).await).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

/// The beginning of a connection may arrive in pieces. Time is simulated.
#[tokio::test(start_paused = true)]
async fn who_is_slow_is_understood() {
    let kit = Kit::new(agent([], [])).await;
    let http1 = "OPFIND / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    // With an empty SETTINGS frame.
    let http2 = "I * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let is_405 = |head: [u8; 12]| head == *b"HTTP/1.1 405";
    // The fourth byte of a frame is its type.
    let sets = |head: [u8; 12]| head[3] == 4;
    for (rest, is_answer) in [(http1, is_405 as fn([u8; 12]) -> bool), (http2, sets)] {
        let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
        for piece in ["P", "R", rest] {
            connection.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).await.unwrap();
        assert!(is_answer(answer), "{answer:?}");
    }
}

/// The head of an HTTP/2 request without a body.
fn h2_get(path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| {
        let length = u8::try_from(value.len()).unwrap();
        assert!(length < 127, "longer ones are written otherwise");
        [&[name, length], value.as_bytes()].concat()
    };
    // `GET` and `http` by their indexes in the static table, then `:path` and `:authority`.
    let block = [vec![0x82, 0x86], literal(0x04, path), literal(0x01, "localhost")].concat();
    let length = u8::try_from(block.len()).unwrap();
    // END_STREAM and END_HEADERS are set, and the stream is 1.
    [&[0, 0, length, 1, 5, 0, 0, 0, 1], &block[..]].concat()
}

/// Reads until the server closes the connection.
async fn until_closed(connection: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let ended = tokio::time::timeout(LONG, connection.read_to_end(&mut all)).await;
    // A connection that is closed with unread data is reset.
    let _ = ended.unwrap_or_else(|_| panic!("the connection is still open"));
    all
}

/// The types of the frames in some bytes.
fn h2_frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        kinds.push(*kind);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        bytes = &rest[length.min(rest.len())..];
    }
    kinds
}

/// Before the first request, in the middle of a request's head, and after a response.
#[tokio::test(start_paused = true)]
async fn an_http2_connection_without_a_request_is_let_go() {
    let kit = Kit::new(agent([], [])).await;
    let request = h2_get("/healthz");
    // The same frame without END_HEADERS, so a CONTINUATION frame is expected.
    let mut half = request.clone();
    half[4] = 1;
    for (said, is_answered) in [(&[][..], false), (&half, false), (&request, true)] {
        let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
        connection.write_all(&[H2_BEGIN, said].concat()).await.unwrap();
        let frames = h2_frames(&until_closed(&mut connection).await);
        // A HEADERS frame has type 1.
        assert_eq!(frames.contains(&1), is_answered, "{frames:?}");
    }
}

/// Silent connections take every place, in any protocol, and lock no client out.
#[tokio::test]
async fn silent_connections_make_room() {
    let limits = ServerLimits { connections: 4, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), agent([], [])).await;
    let mut silent = Vec::new();
    for said in [b"".as_slice(), b"P", H2_BEGIN, b"GET / HTTP/1.1\r\n", b"", H2_BEGIN, H2_BEGIN] {
        let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
        connection.write_all(said).await.unwrap();
        silent.push(connection);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client.get(kit.url("/healthz")).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

/// If every connection has a request, a further client gets an error, and later a place.
#[tokio::test]
async fn one_connection_too_many_is_turned_away() {
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let gate = Gate::new();
    let def = agent([Say::new().gate(&gate).text("Hello.")], []);
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    let run = kit.start().await;
    let stream = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    let mut second = TcpStream::connect(kit.server.address()).await.unwrap();
    let mut answer = Vec::new();
    second.read_to_end(&mut answer).await.unwrap();
    insta::assert_snapshot!(String::from_utf8(answer).unwrap().replace('\r', ""), @r#"
    HTTP/1.1 503 Service Unavailable
    retry-after: 5
    connection: close
    content-type: application/json

    {"error":{"code":"too_many_connections","message":"the server is full","remedy":"try again in a few seconds"}}
    "#);
    gate.open();
    assert!(stream.text().await.unwrap().contains("run_finished"));
    let other = reqwest::Client::builder().no_proxy().build().unwrap();
    loop {
        // The server may not have seen the stream's end yet.
        if let Ok(response) = other.get(kit.url("/healthz")).send().await
            && response.status() == 200
        {
            break;
        }
    }
}

/// A run with eight megabytes of text.
async fn long_run() -> (Kit, RunId) {
    let text = "0123456789abcdef".repeat(64);
    let say = (0..8 * 1024).fold(Say::new(), |say, _| say.text(&text));
    let kit = Kit::new(agent([say], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    (kit, run)
}

/// The server's metric of that name.
async fn metric(kit: &Kit, name: &str) -> u64 {
    let text = kit.get("/metrics").send().await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap()
}

/// Output that a client does not read is neither encoded nor kept. The client is disconnected after
/// a while, and gets everything if it continues after its last event.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_let_go_and_resumes() {
    let (kit, run) = long_run().await;
    let path = format!("/v1/runs/{run}/events");
    let whole = parse_sse(&kit.get(&path).send().await.unwrap().text().await.unwrap());
    let made = metric(&kit, "wellspring_stream_bytes_total").await;
    let h1 = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
    let h2 = [H2_BEGIN, &h2_get(&path)].concat();
    for (said, is_http1) in [(h1, true), (h2, false)] {
        let before = metric(&kit, "wellspring_stream_bytes_total").await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut connection = socket.connect(kit.server.address()).await.unwrap();
        connection.write_all(&said).await.unwrap();
        let mut first = [0; 1];
        connection.read_exact(&mut first).await.unwrap();
        tokio::time::sleep(LONG).await;
        let unread = metric(&kit, "wellspring_stream_bytes_total").await - before;
        assert!(
            unread < made / 4,
            "of {made} bytes {unread} were made for a client that takes nothing"
        );
        let got = until_closed(&mut connection).await;
        if is_http1 {
            let mut events = parse_sse(&dechunked(&got));
            let last = events.last().and_then(|event| event.id.clone()).unwrap();
            let rest = kit.get(&path).header("last-event-id", last).send().await.unwrap();
            events.extend(parse_sse(&rest.text().await.unwrap()));
            assert_eq!(events.len(), whole.len());
            assert!(events == whole, "every event once, in order");
        }
    }
}

/// The body of a chunked response that was cut off.
fn dechunked(answer: &[u8]) -> String {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (mut rest, mut body) = (&answer[head + 4..], Vec::new());
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&rest[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        let chunk = &rest[line + 2..];
        body.extend_from_slice(&chunk[..length.min(chunk.len())]);
        let Some(next) = chunk.get(length + 2..) else { break };
        rest = next;
    }
    String::from_utf8(body).unwrap()
}
