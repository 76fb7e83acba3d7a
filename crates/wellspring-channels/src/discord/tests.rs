use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::body::Body as HttpBody;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use wellspring_testkit::discord::{FakeDiscord, Reply, Shown};
use wellspring_testkit::{Answer, FakeProvider, FakeSocket};

use super::session::{After, Session};
use super::*;
use crate::channel::{ChatKind, Limit};
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::testing::{Bot, risky, until};
use crate::texts::Language;

fn said(id: &str, text: &str) -> Value {
    json!({
        "id": id, "channel_id": "5", "type": 0, "content": text, "mentions": [], "attachments": [],
        "author": {"id": "7", "username": "ana", "global_name": "Ana"},
    })
}

#[test]
fn messages() {
    let user = User { id: "7".into(), name: "Ana @ana".into(), language: None };
    let incoming = |kind, text: &str, files| Incoming {
        id: "9".into(),
        chat: "5".into(),
        kind,
        topic: None,
        user: user.clone(),
        what: What::Message { message: "9".into(), text: text.into(), files },
    };
    let mut direct = said("9", "Oi");
    assert_eq!(event::message(&direct, "1"), Some(incoming(ChatKind::Direct, "Oi", vec![])));
    direct["attachments"] =
        json!([{"url": "https://cdn/a.png", "content_type": "image/png", "filename": "a.png"}]);
    let file = IncomingFile {
        id: "https://cdn/a.png".into(),
        media_type: "image/png".into(),
        name: Some("a.png".into()),
    };
    assert_eq!(event::message(&direct, "1"), Some(incoming(ChatKind::Direct, "Oi", vec![file])));
    let mut group = said("9", "<@1> !stop");
    group["guild_id"] = json!("3");
    assert_eq!(event::message(&group, "1"), None);
    group["mentions"] = json!([{"id": "1"}]);
    assert_eq!(event::message(&group, "1"), Some(incoming(ChatKind::Group, "!stop", vec![])));
    let with = |key: &str, value: Value| {
        let mut message = said("9", "Oi");
        message[key] = value;
        message
    };
    for nothing in [
        with("author", json!({"id": "2", "bot": true})),
        with("webhook_id", json!("4")),
        with("type", json!(7)),
        with("content", json!("")),
        json!([]),
    ] {
        assert_eq!(event::message(&nothing, "1"), None, "{nothing}");
    }
}

fn pressed(id: &str, data: &str) -> Value {
    json!({
        "id": id, "type": 3, "token": "tok", "channel_id": "5", "guild_id": "3",
        "data": {"custom_id": data, "component_type": 2}, "locale": "pt-BR",
        "member": {"user": {"id": "7", "username": "ana"}},
    })
}

#[test]
fn presses() {
    let want = Incoming {
        id: "8".into(),
        chat: "5".into(),
        kind: ChatKind::Group,
        topic: None,
        user: User { id: "7".into(), name: "@ana".into(), language: Some(Language::Portuguese) },
        what: What::Press { press: "8/tok".into(), data: "a:x".into() },
    };
    assert_eq!(event::interaction(&pressed("8", "a:x")), Some(want));
    assert_eq!(event::interaction(&json!({"type": 2, "id": "8", "token": "t"})), None);
}

#[test]
fn errors() {
    let headers = wire::Headers::default();
    let error = |status, code: u64| wire::error(status, headers, &json!({"code": code}));
    let slow = |global| json!({"retry_after": 1.5, "global": global, "message": "slow"});
    let retry_after = Duration::from_millis(1501);
    assert_eq!(
        wire::error(429, headers, &slow(false)),
        CallError::RateLimited { retry_after: Some(retry_after) }
    );
    assert_eq!(
        wire::error(429, headers, &slow(true)),
        CallError::BotLimited { retry_after, limit: Limit::Bot }
    );
    // The proxy in front of Discord sends no body.
    let proxy = wire::Headers { retry_after: Some(1.5), ..headers };
    assert_eq!(
        wire::error(429, proxy, &Value::Null),
        CallError::BotLimited { retry_after, limit: Limit::Bot }
    );
    assert_eq!(error(404, 10008), CallError::MessageGone);
    assert!(matches!(error(400, 50035), CallError::BadMarkup(_)));
    assert!(matches!(error(403, 50007), CallError::ChatGone(_)));
    assert!(matches!(error(502, 0), CallError::AnswerLost(_)));
    assert!(matches!(error(401, 0), CallError::Refused(_)));
}

/// An empty bucket delays the next call by at least the reported time.
#[test]
fn an_empty_bucket_is_waited_for() {
    let read = |name: &str| match name {
        "x-ratelimit-remaining" => Some("0"),
        "x-ratelimit-reset-after" => Some("0.25"),
        _ => None,
    };
    let done = wire::result(200, wire::Headers::read(read), &json!({"id": "1"}), &Value::Null);
    assert_eq!(done.unwrap().wait, Some(Duration::from_millis(251)));
    let headers = wire::Headers { remaining: Some(1), ..wire::Headers::read(read) };
    assert_eq!(wire::result(204, headers, &Value::Null, &Value::Null).unwrap().wait, None);
}

/// The frames that the bot sends to the gateway.
pub(crate) fn introductions() -> Vec<Value> {
    let resumed = Session { id: Some("s1".into()), seq: 3, ..Session::default() };
    let new = Session::default();
    vec![
        new.introduction("secret"),
        resumed.introduction("secret"),
        Session::beat(0),
        Session::beat(3),
    ]
}

/// What the end of a connection means.
#[test]
fn close_codes() {
    for (code, after) in [
        (None, After::Resume),
        (Some(4000), After::Resume),
        (Some(4009), After::Identify),
        (Some(1000), After::Identify),
        (Some(4004), After::GiveUp("the token is refused")),
        (Some(4014), After::GiveUp("the intents are refused")),
    ] {
        assert_eq!(Session::after(code), after, "{code:?}");
    }
}

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn signatures() {
    let key = key();
    let public = key.public_key().as_ref();
    let right = hex(key.sign(b"1000{}").as_ref());
    assert!(is_signed(public, "1000", 1000, &right, b"{}"));
    assert!(is_signed(public, "1000", 1300, &right, b"{}"));
    for (public, at, now, shown, body) in [
        (&[0u8; 32][..], "1000", 1000, right.as_str(), &b"{}"[..]),
        (&[], "1000", 1000, &right, b"{}"),
        (public, "1001", 1000, &right, b"{}"),
        (public, "1000", 1301, &right, b"{}"),
        (public, "1000", 699, &right, b"{}"),
        (public, "1000", 1000, &right, b"{ }"),
        (public, "1000", 1000, &right[2..], b"{}"),
        (public, "1000", 1000, "", b"{}"),
        (public, "1000", 1000, "zz", b"{}"),
    ] {
        assert!(!is_signed(public, at, now, shown, body), "{at} {now} {shown}");
    }
}

/// A strict Discord over HTTP. `gateway` is the URL of its gateway.
async fn network(gateway: String) -> (Arc<Mutex<FakeDiscord>>, FakeProvider) {
    let discord = Arc::new(Mutex::new(FakeDiscord::default()));
    let since = std::time::Instant::now();
    let serving = Arc::clone(&discord);
    let server = FakeProvider::answering(move |asked| {
        assert_eq!(asked.header("authorization"), Some("Bot secret"));
        assert!(asked.header("user-agent").unwrap().starts_with("DiscordBot ("));
        let at = u64::try_from(since.elapsed().as_millis()).unwrap();
        let plain = |answer: Value| Answer::ok("application/json", answer.to_string());
        match asked.path.as_str() {
            "/gateway/bot" => plain(json!({ "url": gateway })),
            "/users/@me" => plain(json!({"id": "1", "username": "spring"})),
            "/applications/@me" => plain(json!({"verify_key": hex(key().public_key().as_ref())})),
            path if path.starts_with("/interactions/") => Answer::status(204, ""),
            path => match serving.lock().unwrap().call(at, &asked.method, path, &asked.body) {
                Reply::Answer(status, headers, answer) => {
                    Answer::status(status, answer.to_string())
                        .header("x-ratelimit-remaining", &headers.remaining.to_string())
                        .header("x-ratelimit-reset-after", &headers.reset_after.to_string())
                }
                Reply::Unreached | Reply::Lost => Answer::hang_up(),
            },
        }
    });
    (discord, server.await.unwrap())
}

fn shown(discord: &Mutex<FakeDiscord>) -> Vec<Shown> {
    discord.lock().unwrap().shown("5").to_vec()
}

/// The bot identifies itself, sends heartbeats, receives a message, resumes after a broken
/// connection and after a restart, and starts a new session if Discord does not know the old one.
#[tokio::test]
async fn a_session_of_the_gateway() {
    let gateway = FakeSocket::start().await.unwrap();
    let (discord, server) = network(gateway.url()).await;
    let channel = Discord::new("secret", None, Some(&server.url())).unwrap();
    let mut bot = Bot::new(Arc::new(channel.clone()), risky()).await;
    let listen = |bot: &Bot| {
        let (channel, instance) = (channel.clone(), bot.instance.clone());
        tokio::spawn(async move { channel.listen(&instance).await })
    };
    let hello = |millis: u64| json!({"op": 10, "d": {"heartbeat_interval": millis}});
    let resumed =
        |seq: u64| json!({"op": 6, "d": {"token": "secret", "session_id": "s1", "seq": seq}});
    let message = |seq: u64, id: &str, text: &str| json!({"op": 0, "t": "MESSAGE_CREATE", "s": seq, "d": said(id, text)});
    let is_kept = async |bot: &Bot, seq: u64| {
        loop {
            let kept = bot.instance.inner.documents.get("gateway").await.unwrap();
            if kept.is_some_and(|it| it.text.contains(&format!("\"seq\":{seq},"))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let listening = listen(&bot);
    let mut first = gateway.accept().await.unwrap();
    assert_eq!(first.path, "/?v=10&encoding=json");
    first.send(&hello(45_000)).await.unwrap();
    let introduced = first.next().await.unwrap();
    assert_eq!(introduced["op"], 2);
    assert_eq!(introduced["d"]["token"], "secret");
    assert_eq!(introduced["d"]["intents"], 4608);
    let ready = json!({"op": 0, "t": "READY", "s": 1, "d": {
        "session_id": "s1", "resume_gateway_url": gateway.url(), "user": {"id": "1"},
    }});
    first.send(&ready).await.unwrap();
    first.send(&json!({"op": 1})).await.unwrap();
    assert_eq!(first.next().await.unwrap(), json!({"op": 1, "d": 1}));
    first.send(&message(2, "101", "!help")).await.unwrap();
    until("help", || shown(&discord).iter().any(|it| it.text.contains("!stop"))).await;
    assert_eq!(shown(&discord)[0].reply_to.as_deref(), Some("101"));
    is_kept(&bot, 2).await;
    drop(first);

    // The event is delivered again and recognised.
    let mut second = gateway.accept().await.unwrap();
    second.send(&hello(45_000)).await.unwrap();
    assert_eq!(second.next().await.unwrap(), resumed(2));
    second.send(&message(2, "101", "!help")).await.unwrap();
    second.send(&message(3, "102", "!stop")).await.unwrap();
    let is_told = || shown(&discord).iter().any(|it| it.text.contains("nothing to stop"));
    until("an answer", is_told).await;
    assert_eq!(shown(&discord).len(), 2);
    is_kept(&bot, 3).await;
    second.send(&json!({"op": 7})).await.unwrap();

    // A connection without acknowledgements of heartbeats is dead.
    let mut silent = gateway.accept().await.unwrap();
    silent.send(&hello(50)).await.unwrap();
    assert_eq!(silent.next().await.unwrap(), resumed(3));
    assert_eq!(silent.next().await.unwrap(), json!({"op": 1, "d": 3}));
    assert!(silent.next().await.is_err());

    // The next process resumes, and starts a new session if Discord does not know the old one.
    bot.instance.stop().await;
    listening.await.unwrap();
    bot.restart(Arc::new(channel.clone())).await;
    let listening = listen(&bot);
    let mut other = loop {
        // The connection that the previous process was opening may arrive first.
        let mut other = gateway.accept().await.unwrap();
        if other.send(&hello(45_000)).await.is_ok()
            && other.next().await.is_ok_and(|it| it == resumed(3))
        {
            break other;
        }
    };
    other.send(&json!({"op": 9, "d": false})).await.unwrap();
    let mut last = gateway.accept().await.unwrap();
    last.send(&hello(45_000)).await.unwrap();
    assert_eq!(last.next().await.unwrap()["op"], 2);
    // If Discord rejects the token, the bot does not try again.
    last.close(4004).await.unwrap();
    listening.await.unwrap();
    bot.instance.stop().await;
}

/// An approval is shown with buttons, and the signed press arrives at the webhook.
#[tokio::test]
async fn a_press_at_the_webhook() {
    let (discord, server) = network(String::new()).await;
    let public = hex(key().public_key().as_ref());
    let channel = Discord::new("secret", Some(&public), Some(&server.url())).unwrap();
    assert_eq!(channel.check().await.unwrap(), "@spring");
    let other = Discord::new("secret", Some(&"0".repeat(64)), Some(&server.url())).unwrap();
    assert!(other.check().await.is_err());
    let bot = Bot::new(Arc::new(channel.clone()), risky()).await;
    let routes = channel.webhook(bot.instance.clone(), "/channels/d");
    let now = bot.instance.now().0 / 1000;
    let post = async |at: u64, body: &Value| {
        let body = body.to_string();
        let signature = hex(key().sign(format!("{at}{body}").as_bytes()).as_ref());
        let request = Request::post("/channels/d")
            .header("x-signature-timestamp", at.to_string())
            .header("x-signature-ed25519", signature)
            .body(HttpBody::from(body))
            .unwrap();
        routes.clone().oneshot(request).await.unwrap()
    };
    let answer = post(now, &json!({"type": 1})).await;
    let answer = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
    assert_eq!(&answer[..], br#"{"type":1}"#);
    assert_eq!(post(now - 301, &json!({"type": 1})).await.status(), 401);

    bot.instance.incoming(event::message(&said("100", "Launch it"), "1").unwrap()).await.unwrap();
    until("buttons", || shown(&discord).iter().any(|it| !it.buttons.is_empty())).await;
    let asked = shown(&discord).into_iter().find(|it| !it.buttons.is_empty()).unwrap();
    assert_eq!(asked.buttons[0].0, "✅ Approve");
    let press = pressed("8", &asked.buttons[0].1);
    assert_eq!(post(now, &press).await.status(), 202);
    until("the answer", || shown(&discord).iter().any(|it| it.text == "It is up.")).await;
    until("the end", || bot.instance.pending() == 0).await;
    assert!(shown(&discord).iter().all(|it| it.buttons.is_empty()));
    let told = server.asked().into_iter().find(|it| it.path == "/interactions/8/tok/callback");
    assert_eq!(told.unwrap().body["data"]["content"], "Anotado.");
    wellspring_testkit::discord::check_rates(&discord.lock().unwrap().log).unwrap();
    bot.instance.stop().await;
}
