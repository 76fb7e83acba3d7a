use futures::FutureExt as _;
use tokio::io::AsyncReadExt as _;

use super::Peer;

/// A task that is cancelled in the middle of a line must not break the stream for the others.
#[tokio::test]
async fn a_writer_that_is_dropped_half_way_leaves_the_rest_to_the_next() {
    let (here, mut there) = tokio::io::duplex(4);
    let peer = Peer::new(here);
    assert!(peer.write(b"first line\n").now_or_never().is_none(), "it does not fit");
    let mut read = vec![0; "first line\nsecond line\n".len()];
    let (written, _) = tokio::join!(peer.write(b"second line\n"), there.read_exact(&mut read));
    written.unwrap();
    assert_eq!(read, b"first line\nsecond line\n");
}

/// Nobody waits for the answer of a peer that is gone.
#[tokio::test]
async fn whoever_waits_is_told_that_nobody_is_there() {
    let (here, there) = tokio::io::duplex(1024);
    let peer = Peer::new(here);
    let answer = peer.request("x", &serde_json::json!({})).await.unwrap();
    drop(there);
    assert!(peer.write(b"line\n").await.is_err());
    assert_eq!(answer.await.unwrap_err().message, "the client is gone");
    assert!(peer.is_gone());
}
