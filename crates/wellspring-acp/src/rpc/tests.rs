use futures::FutureExt as _;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::{PENDING_MAX, Peer, RpcError, Unasked, Wish, write};

/// A peer, and the messages that it gets.
fn peer(room: usize) -> (Peer, mpsc::Receiver<Vec<u8>>) {
    let (out, lines) = mpsc::channel(room);
    (Peer::new(out), lines)
}

fn said(lines: &mut mpsc::Receiver<Vec<u8>>) -> Vec<String> {
    let text = |line| String::from_utf8(line).unwrap().trim_end().to_owned();
    std::iter::from_fn(|| lines.try_recv().ok()).map(text).collect()
}

/// A task that is cancelled in the middle of a line must not break the stream for other tasks.
#[tokio::test]
async fn whoever_is_cancelled_while_it_waits_breaks_no_line() {
    let (here, mut there) = tokio::io::duplex(4);
    let (peer, lines) = peer(1);
    let writing = tokio::spawn(write(here, lines));
    peer.say(b"first line\n".to_vec()).await.unwrap();
    peer.say(b"second line\n".to_vec()).await.unwrap();
    assert!(peer.say(b"never said\n".to_vec()).now_or_never().is_none(), "there is no room");
    let mut read = vec![0; "first line\nsecond line\n".len()];
    there.read_exact(&mut read).await.unwrap();
    assert_eq!(read, b"first line\nsecond line\n");
    peer.say(b"third line\n".to_vec()).await.unwrap();
    peer.lose();
    let mut rest = Vec::new();
    there.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"third line\n", "what was said before the end still goes out");
    writing.await.unwrap();
}

/// A request to a peer that has disconnected does not wait for an answer.
#[tokio::test]
async fn whoever_waits_is_told_that_nobody_is_there() {
    let (peer, lines) = peer(8);
    let answer = peer.request("x", &json!({})).await.unwrap();
    drop(lines);
    assert_eq!(peer.say(b"line\n".to_vec()).await, Err(Unasked::Gone));
    assert_eq!(answer.await.unwrap_err().message, "the other side is gone");
    assert!(peer.is_gone());
}

#[tokio::test]
async fn a_peer_owes_a_bounded_number_of_answers() {
    let (peer, mut lines) = peer(2 * PENDING_MAX);
    let mut asked = Vec::new();
    for _ in 0..PENDING_MAX {
        asked.push(peer.request("x", &json!({})).await.unwrap());
    }
    assert_eq!(peer.request("x", &json!({})).await.unwrap_err(), Unasked::TooMany);
    // A request whose caller has stopped waiting makes room, and so does one that is answered.
    asked.pop();
    asked.push(peer.request("x", &json!({})).await.unwrap());
    assert!(peer.take(br#"{"jsonrpc":"2.0","id":1,"result":7}"#).await.unwrap().is_none());
    assert_eq!(asked.remove(0).await, Ok(json!(7)));
    peer.request("x", &json!({})).await.unwrap();
    assert_eq!(said(&mut lines).len(), PENDING_MAX + 2);
}

#[tokio::test]
async fn what_is_said_is_told_apart() {
    let (peer, mut lines) = peer(8);
    for (line, code) in [
        ("nonsense", RpcError::PARSE),
        ("[1]", RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0"}"#, RpcError::INVALID_REQUEST),
    ] {
        assert_eq!(peer.take(line.as_bytes()).await.unwrap_err().code, code, "{line}");
    }
    assert!(peer.take(b" \n").await.unwrap().is_none());
    assert!(peer.take(br#"{"id":77,"result":{}}"#).await.unwrap().is_none(), "nobody asked");
    let told = peer.take(br#"{"method":"a","params":[1]}"#).await.unwrap();
    assert!(
        matches!(told, Some(Wish::Notification(method, params)) if &*method == "a" && params == json!([1]))
    );
    for give in [true, false] {
        let told = peer.take(br#"{"id":"x","method":"b"}"#).await.unwrap();
        let Some(Wish::Request(request)) = told else { unreachable!() };
        if give {
            request.give(Ok(json!(1))).await;
        }
    }
    assert_eq!(
        said(&mut lines),
        [
            r#"{"jsonrpc":"2.0","id":"x","result":1}"#,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32800,"message":"the run has finished"}}"#,
        ]
    );
}
