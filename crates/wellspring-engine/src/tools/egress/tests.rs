use std::sync::Mutex;

use super::*;
use crate::tools::test_server::{Peer, ok, redirect};

/// Answers from a table. The last answer of a name repeats.
struct Table {
    answers: &'static [(&'static str, &'static [&'static str])],
    asked: Arc<Mutex<Vec<String>>>,
}

impl Resolver for Table {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|earlier| *earlier == host).count();
        asked.push(host.to_owned());
        let found = self.answers.iter().find(|(name, _)| *name == host);
        let answer = found.map(|(_, answers)| answers[before.min(answers.len() - 1)]);
        let addresses = answer.map(|line| line.split(' ').map(|a| a.parse().unwrap()).collect());
        std::future::ready(addresses.ok_or_else(|| io::Error::other("no such host"))).boxed()
    }
}

const NAMES: &[(&str, &[&str])] = &[
    ("here.test", &["127.0.0.1"]),
    ("private.test", &["192.168.1.1"]),
    ("mixed.test", &["127.0.0.1 10.0.0.1"]),
    ("metadata.test", &["169.254.169.254"]),
    ("disguised.test", &["::ffff:127.0.0.1"]),
    ("rebinding.test", &["127.0.0.1", "10.0.0.1"]),
];

fn egress() -> Egress {
    egress_and_log().0
}

/// A guard that allows the peer, and the names that it looked up.
fn egress_and_log() -> (Egress, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::default());
    let table = Table { answers: NAMES, asked: Arc::clone(&asked) };
    (Egress::new().allow("127.0.0.1".parse().unwrap()).resolver(table), asked)
}

async fn body(mut fetched: Fetched) -> Result<String, EgressError> {
    let mut body = Vec::new();
    while let Some(chunk) = fetched.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(body).unwrap())
}

async fn fetched(egress: &Egress, url: &str) -> Result<String, String> {
    match egress.get(url).await {
        Ok(answer) => body(answer).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn addresses() {
    let egress = Egress::new();
    for (address, want) in [
        ("1.1.1.1", None),
        ("8.8.8.8", None),
        ("100.63.255.255", None),
        ("172.15.0.1", None),
        ("172.32.0.1", None),
        ("192.167.255.255", None),
        ("223.255.255.255", None),
        ("2606:4700::1111", None),
        ("2001:4860:4860::8888", None),
        ("64:ff9b::808:808", None),
        ("0.0.0.0", Some("unspecified")),
        ("0.1.2.3", Some("unspecified")),
        ("10.255.255.255", Some("private")),
        ("100.64.0.1", Some("shared by carriers")),
        ("100.127.255.255", Some("shared by carriers")),
        ("127.0.0.1", Some("loopback")),
        ("127.255.0.1", Some("loopback")),
        ("169.254.169.254", Some("link-local")),
        ("172.16.0.1", Some("private")),
        ("172.31.255.255", Some("private")),
        ("192.0.0.8", Some("reserved")),
        ("192.168.0.1", Some("private")),
        ("198.19.0.1", Some("for measurements")),
        ("203.0.113.7", Some("for documentation")),
        ("224.0.0.1", Some("multicast")),
        ("239.255.255.255", Some("multicast")),
        ("240.0.0.1", Some("reserved")),
        ("255.255.255.255", Some("reserved")),
        ("::", Some("unspecified")),
        ("::1", Some("loopback")),
        ("::7f00:1", Some("an embedded IPv4 address")),
        ("::ffff:127.0.0.1", Some("an embedded IPv4 address")),
        ("::ffff:8.8.8.8", Some("an embedded IPv4 address")),
        ("64:ff9b::7f00:1", Some("loopback")),
        ("64:ff9b::a00:1", Some("private")),
        ("64:ff9b:1::1", Some("a local translator")),
        ("2001::1", Some("reserved")),
        ("2001:db8::1", Some("for documentation")),
        ("2002:7f00:1::", Some("an embedded IPv4 address")),
        ("fc00::1", Some("private")),
        ("fdff::1", Some("private")),
        ("fe80::1", Some("link-local")),
        ("febf::1", Some("link-local")),
        ("fec0::1", Some("private")),
        ("ff02::1", Some("multicast")),
    ] {
        assert_eq!(egress.refusal(address.parse().unwrap()), want, "{address}");
    }
}

#[test]
fn what_is_allowed_is_allowed_and_nothing_else() {
    let range = |text: &str| text.parse().unwrap();
    let egress = Egress::new().allow(range("10.1.0.0/16")).allow(range("::1"));
    for (address, allowed) in [
        ("10.1.2.3", true),
        ("10.2.0.0", false),
        ("::1", true),
        ("127.0.0.1", false),
        ("::ffff:10.1.2.3", false),
        ("8.8.8.8", true),
    ] {
        assert_eq!(egress.refusal(address.parse().unwrap()).is_none(), allowed, "{address}");
    }
    let all = Egress::new().allow(range("0.0.0.0/0"));
    assert_eq!(all.refusal("127.0.0.1".parse().unwrap()), None);
}

#[test]
fn ranges() {
    for (text, want) in [
        ("10.0.0.0/8", Some("10.0.0.0/8")),
        ("10.0.0.1", Some("10.0.0.1/32")),
        ("::1", Some("::1/128")),
        ("fd00::/8", Some("fd00::/8")),
        ("10.0.0.0/33", None),
        ("::/129", None),
        ("10.0.0/8", None),
        ("10.0.0.0/", None),
        ("localhost", None),
    ] {
        let range = text.parse::<Range>().ok().map(|range| range.to_string());
        assert_eq!(range.as_deref(), want, "{text}");
    }
}

#[tokio::test]
async fn an_allowed_address_is_fetched() {
    let peer = Peer::new(|path| ok(path.as_bytes())).await;
    let port = peer.address.port();
    assert_eq!(fetched(&egress(), &peer.url("/a")).await, Ok("/a".to_owned()));
    let (egress, asked) = egress_and_log();
    let url = format!("http://here.test:{port}/b?secret=1");
    assert_eq!(fetched(&egress, &url).await, Ok("/b?secret=1".to_owned()));
    assert_eq!(*asked.lock().unwrap(), ["here.test"]);
    assert!(peer.requests()[1].starts_with("get /b?secret=1 http/1.1"));
}

#[tokio::test]
async fn what_must_not_be_reached_is_not() {
    let egress = egress();
    for (url, want) in [
        ("http://private.test/", "private.test is at 192.168.1.1, which is refused: private"),
        ("https://private.test/", "private.test is at 192.168.1.1, which is refused: private"),
        ("http://mixed.test/", "mixed.test is at 10.0.0.1, which is refused: private"),
        (
            "http://metadata.test/latest",
            "metadata.test is at 169.254.169.254, which is refused: link-local",
        ),
        (
            "http://disguised.test/",
            "disguised.test is at ::ffff:127.0.0.1, which is refused: an embedded IPv4 address",
        ),
        ("http://10.0.0.1/", "10.0.0.1 is at 10.0.0.1, which is refused: private"),
        ("http://[::1]/", "[::1] is at ::1, which is refused: loopback"),
        (
            "http://[::ffff:127.0.0.1]/",
            "[::ffff:7f00:1] is at ::ffff:127.0.0.1, which is refused: an embedded IPv4 address",
        ),
        // Other notations of 10.0.0.1.
        ("http://0x0a000001/", "10.0.0.1 is at 10.0.0.1, which is refused: private"),
        ("http://167772161/", "10.0.0.1 is at 10.0.0.1, which is refused: private"),
        ("http://10.1/", "10.0.0.1 is at 10.0.0.1, which is refused: private"),
        ("http://nowhere.test/", "cannot reach nowhere.test"),
        ("ftp://here.test/", "\"ftp://here.test/\" cannot be fetched: only http and https are"),
        ("file:///etc/passwd", "\"file:///etc/passwd\" cannot be fetched: only http and https are"),
        (
            "http://ada:secret@here.test/",
            "\"http://here.test/\" cannot be fetched: it has a name or a password in it",
        ),
        ("here.test", "\"here.test\" cannot be fetched: it is no absolute URL"),
    ] {
        assert_eq!(fetched(&egress, url).await, Err(want.to_owned()), "{url}");
    }
}

#[tokio::test]
async fn redirects_are_checked_like_the_first_address() {
    let peer = Peer::new(|path| match path {
        "/once" => redirect("/there"),
        "/there" => ok(b"there"),
        "/private" => redirect("http://10.0.0.1/"),
        "/dns" => redirect("//private.test/"),
        "/file" => redirect("file:///etc/passwd"),
        "/loop" => redirect("/loop"),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    })
    .await;
    let (egress, asked) = egress_and_log();
    let loops = format!("{} was redirected more than 5 times", peer.url("/loop"));
    let missing = format!("{} answered 404", peer.url("/missing"));
    for (path, want) in [
        ("/once", Ok("there")),
        ("/private", Err("10.0.0.1 is at 10.0.0.1, which is refused: private")),
        ("/dns", Err("private.test is at 192.168.1.1, which is refused: private")),
        ("/file", Err("\"file:///etc/passwd\" cannot be fetched: only http and https are")),
        ("/loop", Err(loops.as_str())),
        ("/missing?token=1", Err(missing.as_str())),
    ] {
        let want = want.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(fetched(&egress, &peer.url(path)).await, want, "{path}");
    }
    assert_eq!(*asked.lock().unwrap(), ["private.test"]);
    assert_eq!(peer.requests().len(), 2 + 1 + 1 + 1 + (REDIRECTS_MAX + 1) + 1);
}

/// A name that resolves to another address at the next lookup gains nothing: it is resolved once,
/// and that address is both checked and used.
#[tokio::test]
async fn a_name_is_looked_up_once() {
    let peer = Peer::new(|path| match path {
        "/again" => redirect("/there"),
        _ => ok(b"there"),
    })
    .await;
    let port = peer.address.port();
    let (egress, asked) = egress_and_log();
    let url = |path: &str| format!("http://rebinding.test:{port}{path}");
    assert_eq!(fetched(&egress, &url("/there")).await, Ok("there".to_owned()));
    assert_eq!(*asked.lock().unwrap(), ["rebinding.test"]);
    let want = "rebinding.test is at 10.0.0.1, which is refused: private";
    assert_eq!(fetched(&egress, &url("/there")).await, Err(want.to_owned()));
}

#[test]
fn an_encrypted_connection_is_not_left() {
    let from = Url::parse("https://here.test/a/b").unwrap();
    assert_eq!(follow(&from, "../c").unwrap().as_str(), "https://here.test/c");
    assert_eq!(
        follow(&from, "http://here.test/").unwrap_err().to_string(),
        "\"http://here.test/\" cannot be fetched: it would leave the encrypted connection"
    );
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let peer = Peer::new(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec()).await;
    assert_eq!(fetched(&egress(), &peer.url("/")).await, Err("cannot reach 127.0.0.1".to_owned()));
}

/// Paused time advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let start = tokio::time::Instant::now();
    assert_eq!(fetched(&egress(), &url).await, Err("cannot reach 127.0.0.1".to_owned()));
    assert!(start.elapsed() <= CONNECT_TIME + READ_TIME, "{:?}", start.elapsed());
}
