use std::fs;

use tempfile::TempDir;
use wellspring_core::{CancellationToken, Tool as _, ToolResult};

use super::*;
use crate::tools::test_host::{Heard, RecordingHost};
use crate::tools::test_server::{Peer, ok, redirect};

fn tool(bytes_max: u64) -> (TempDir, FunctionTool) {
    let directory = tempfile::tempdir().unwrap();
    let egress = Egress::new().allow("127.0.0.1".parse().unwrap());
    let tool = file_transfer_up_to(bytes_max, directory.path(), egress).unwrap();
    (directory, tool)
}

fn percents(percents: impl IntoIterator<Item = u64>) -> Vec<Heard> {
    let shape = |percent| json!({"subtype": "transfer_progress", "percent": percent});
    percents.into_iter().map(|percent| Heard::progress(shape(percent))).collect()
}

fn names(directory: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn it_asks_first() {
    let (_directory, tool) = tool(10);
    assert_eq!((tool.spec().kind, tool.spec().approval()), (ToolKind::Fetch, Approval::Ask));
}

#[tokio::test]
async fn a_download_replaces_the_file_when_it_is_whole() {
    let peer = Peer::new(|_| ok(b"new")).await;
    let (directory, tool) = tool(10);
    fs::write(directory.path().join("a"), "old").unwrap();
    let arguments = json!({"url": peer.url("/a"), "path": "a", "direction": "download"});
    let answer = RecordingHost::new().call(&tool, arguments).await;
    assert_eq!(answer, (percents([100]), Ok(ToolResult::new(json!({"bytes": 3})))));
    assert_eq!(fs::read_to_string(directory.path().join("a")).unwrap(), "new");
    assert_eq!(names(&directory), ["a"]);
}

#[tokio::test]
async fn percentages_grow_and_none_is_said_twice() {
    let body = vec![7; 1_000_000];
    let sent = body.clone();
    let peer = Peer::new(move |_| ok(&sent)).await;
    let (directory, tool) = tool(1_000_000);
    let arguments = json!({"url": peer.url("/a"), "path": "a", "direction": "download"});
    let host = RecordingHost::new();
    let (_, result) = host.call(&tool, arguments).await;
    assert_eq!(result, Ok(ToolResult::new(json!({"bytes": 1_000_000}))));
    let said: Vec<u64> =
        host.progress().iter().map(|data| data["percent"].as_u64().unwrap()).collect();
    assert!(said.is_sorted_by(|one, next| one < next), "{said:?}");
    assert_eq!(said.last(), Some(&100));
    assert!(fs::read(directory.path().join("a")).unwrap() == body);
}

/// Chunks of a megabyte, without a length in front.
fn chunked(count: usize) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n".to_vec();
    answer.extend(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..count {
        answer.extend(format!("{UNKNOWN_STEP_BYTES:x}\r\n").bytes());
        answer.extend(vec![b'a'; UNKNOWN_STEP_BYTES as usize]);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

#[tokio::test]
async fn without_a_length_nothing_is_done_until_all_is() {
    let peer = Peer::new(|_| chunked(2)).await;
    let bytes = 2 * UNKNOWN_STEP_BYTES;
    let (_directory, tool) = tool(bytes);
    let arguments = json!({"url": peer.url("/a"), "path": "a", "direction": "download"});
    let host = RecordingHost::new();
    let (_, result) = host.call(&tool, arguments).await;
    assert_eq!(result, Ok(ToolResult::new(json!({"bytes": bytes, "media_type": "text/plain"}))));
    let shape = |percent: u64| json!({"subtype": "transfer_progress", "percent": percent});
    let mut said = host.progress();
    assert_eq!(said.pop(), Some(shape(100)));
    assert!(!said.is_empty() && said.iter().all(|data| *data == shape(0)), "{said:?}");
}

#[tokio::test]
async fn a_download_that_fails_leaves_nothing() {
    let peer = Peer::new(|path| match path {
        "/long" => ok(&[0; 11]),
        "/endless" => {
            let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            answer.extend(b"4\r\nabcd\r\n".repeat(100));
            answer
        }
        "/half" => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec(),
        "/away" => redirect("http://10.0.0.1/"),
        _ => b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_vec(),
    })
    .await;
    let (directory, tool) = tool(10);
    fs::write(directory.path().join("kept"), "old").unwrap();
    let broken = format!("the download failed: {} answered 500", peer.url("/broken"));
    for (path, want) in [
        ("/long", "the file is longer than 10 bytes"),
        ("/endless", "the file is longer than 10 bytes"),
        ("/half", "the download failed: cannot reach 127.0.0.1: "),
        ("/away", "the download failed: 10.0.0.1 is at 10.0.0.1, which is refused: private"),
        ("/broken", broken.as_str()),
    ] {
        let arguments = json!({"url": peer.url(path), "path": "kept", "direction": "download"});
        let (_, result) = RecordingHost::new().call(&tool, arguments).await;
        let error = result.unwrap_err();
        assert!(error.starts_with(want), "{path}: {error}");
        assert_eq!(names(&directory), ["kept"], "{path}");
        assert_eq!(fs::read_to_string(directory.path().join("kept")).unwrap(), "old");
    }
}

#[tokio::test]
async fn no_path_leads_out() {
    let peer = Peer::new(|_| ok(b"new")).await;
    let (directory, tool) = tool(10);
    std::os::unix::fs::symlink("/tmp", directory.path().join("up")).unwrap();
    let out = "leads out of the directory; use a path below it";
    for (path, want) in [
        ("../a", format!("../a {out}")),
        ("/tmp/a", format!("/tmp/a {out}")),
        ("up/a", format!("up/a {out}")),
        ("no/a", "there is no no".to_owned()),
        ("..", ".. does not name a file".to_owned()),
    ] {
        let arguments = json!({"url": peer.url("/"), "path": path, "direction": "download"});
        let (_, result) = RecordingHost::new().call(&tool, arguments).await;
        assert_eq!(result, Err(want), "{path}");
    }
    let arguments = json!({"url": peer.url("/"), "path": "../a", "direction": "upload"});
    let (_, result) = RecordingHost::new().call(&tool, arguments).await;
    assert_eq!(result, Err(format!("../a {out}")));
    assert_eq!(peer.requests(), [""; 0], "nothing is fetched for a path that cannot be");
}

#[tokio::test]
async fn an_upload_puts_the_bytes() {
    let peer = Peer::new(|_| ok(b"thanks")).await;
    let (directory, tool) = tool(10);
    fs::write(directory.path().join("a"), "contents").unwrap();
    let arguments = json!({"url": peer.url("/b"), "path": "a", "direction": "upload"});
    let (heard, result) = RecordingHost::new().call(&tool, arguments).await;
    assert_eq!((heard, result), (percents([100]), Ok(ToolResult::new(json!({"bytes": 8})))));
    let [request] = peer.requests().try_into().unwrap();
    assert!(
        request.starts_with("put /b http/1.1") && request.ends_with("\n\ncontents"),
        "{request}"
    );
}

#[tokio::test]
async fn an_upload_that_cannot_be() {
    let peer = Peer::new(|path| match path {
        "/moved" => redirect("http://elsewhere.test/"),
        _ => b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n".to_vec(),
    })
    .await;
    let (directory, tool) = tool(10);
    fs::write(directory.path().join("a"), "contents").unwrap();
    fs::write(directory.path().join("long"), "eleven byte").unwrap();
    fs::create_dir(directory.path().join("d")).unwrap();
    let refused = format!("the upload failed: {} answered 403", peer.url("/b"));
    for (url, path, want) in [
        (peer.url("/b"), "long", "the file is longer than 10 bytes"),
        (peer.url("/b"), "d", "d is not a file"),
        (peer.url("/b"), "none", "there is no none"),
        (peer.url("/b"), "a", refused.as_str()),
        (
            peer.url("/moved"),
            "a",
            "the upload failed: the server redirects this upload to \"http://elsewhere.test/\"",
        ),
        (
            "http://10.0.0.1/".to_owned(),
            "a",
            "the upload failed: 10.0.0.1 is at 10.0.0.1, which is refused: private",
        ),
    ] {
        let arguments = json!({"url": url, "path": path, "direction": "upload"});
        let (_, result) = RecordingHost::new().call(&tool, arguments).await;
        assert_eq!(result, Err(want.to_owned()), "{url} {path}");
    }
}

#[tokio::test]
async fn a_file_without_bytes() {
    let peer = Peer::new(|_| ok(b"")).await;
    let (directory, tool) = tool(10);
    for direction in ["download", "upload"] {
        let arguments = json!({"url": peer.url("/"), "path": "empty", "direction": direction});
        let answer = RecordingHost::new().call(&tool, arguments).await;
        assert_eq!(answer, (percents([100]), Ok(ToolResult::new(json!({"bytes": 0})))));
    }
    assert_eq!(fs::read_to_string(directory.path().join("empty")).unwrap(), "");
}

/// The peer announces more than it sends and keeps the connection open.
#[tokio::test]
async fn cancelling_or_dropping_leaves_no_partial_file() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let _peer = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
            open.push(stream);
        }
    });
    let (directory, tool) = tool(10);
    let arguments = json!({"url": url, "path": "a", "direction": "download"});
    for drops in [false, true] {
        let (host, signal) = (RecordingHost::new(), CancellationToken::new());
        let mut call = tool.call(arguments.clone(), host.context_with(signal.clone()));
        tokio::select! {
            result = &mut call => panic!("{result:?}"),
            () = host.until(1) => {}
        }
        assert_eq!(host.heard(), percents([44]));
        assert_eq!(names(&directory).len(), 1);
        if drops {
            drop(call);
        } else {
            signal.cancel();
            let error = call.await.unwrap_err().to_string();
            assert_eq!(error, "cancelled before the transfer was over");
        }
        assert_eq!(names(&directory), [""; 0]);
    }
}
