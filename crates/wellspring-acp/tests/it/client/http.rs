//! An agent over HTTP, with a server that is written by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::json;
use wellspring_acp::client::{AcpAgent, AcpConfig};

/// A server that handles `initialize`, keeps the connection's stream open, and records the
/// requests.
fn serve() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/acp", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let tell = tell.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &tell));
        }
    });
    (url, told)
}

/// Answers the requests of one connection.
fn answer(mut stream: TcpStream, tell: &Sender<String>) {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    while let Some(head) = head(&mut requests) {
        let header = |name: &str| header(&head, name);
        let method = head[0].split(' ').next().unwrap();
        let (connection, cookie) = (header("acp-connection-id: "), header("cookie: "));
        tell.send(format!("{method} {connection:?} {cookie:?}")).unwrap();
        let body = json!({"jsonrpc": "2.0", "id": 1,
            "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        .to_string();
        let answer = match method {
            "post" => format!(
                "content-type: application/json\r\nacp-connection-id: c1\r\nset-cookie: node=7; \
                 Path=/\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
            "get" => "content-type: text/event-stream\r\n\r\n".to_owned(),
            _ => "content-length: 0\r\n\r\n".to_owned(),
        };
        write!(stream, "HTTP/1.1 200 OK\r\n{answer}").unwrap();
    }
}

/// Reads a whole request and returns the lines of its head; `None` at the end of the connection.
fn head(requests: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match requests.read_line(&mut line) {
            Ok(1..) if !line.trim().is_empty() => head.push(line.trim().to_lowercase()),
            Ok(1..) => break,
            Ok(0) | Err(_) => return None,
        }
    }
    let length = header(&head, "content-length: ").map_or(0, |it| it.parse().unwrap());
    requests.read_exact(&mut vec![0; length]).unwrap();
    Some(head)
}

fn header<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    head.iter().find_map(|line| line.strip_prefix(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_told_when_we_are_done_and_gets_its_cookies_back() {
    let (url, told) = serve();
    let agent = AcpAgent::new("elsewhere", url.parse::<AcpConfig>().unwrap());
    agent.start().await.unwrap();
    drop(agent);
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(told.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    assert_eq!(
        heard,
        [
            "post None None",
            r#"get Some("c1") Some("node=7")"#,
            r#"delete Some("c1") Some("node=7")"#,
        ]
    );
}

/// A first response without an end is read up to a limit only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_answer_without_an_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/acp", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        // Closing a connection with unread bytes would reset it.
        head(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        let begin =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nacp-connection-id: c1\r\n\r\n";
        stream.write_all(begin.as_bytes()).unwrap();
        let spaces = vec![b' '; 1024 * 1024];
        let sent = std::iter::repeat_with(|| stream.write_all(&spaces)).take_while(Result::is_ok);
        // Ends when the client disconnects.
        tell.send(sent.count()).unwrap();
    });
    let agent = AcpAgent::new("elsewhere", url.parse::<AcpConfig>().unwrap());
    let refused = agent.start().await.unwrap_err().to_string();
    assert!(refused.contains("its first answer is too large"), "{refused}");
    let megabytes = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(megabytes < 100, "{megabytes} MB were taken");
}
