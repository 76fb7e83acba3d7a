use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use wellspring_testkit::slack::{FakeSlack, Reply, Shown};
use wellspring_testkit::{Answer, FakeProvider, FakeSocket};

use super::*;
use crate::channel::{ChatKind, Limit};
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::testing::{Bot, risky, until};

fn mention(text: &str, ts: &str, thread: Option<&str>) -> Value {
    json!({
        "type": "event_callback", "team_id": "T1", "event_id": format!("Ev{ts}"),
        "event": {
            "type": "app_mention", "user": "U7", "channel": "C1", "text": text, "ts": ts,
            "thread_ts": thread, "event_ts": ts,
        },
    })
}

#[test]
fn events() {
    let said =
        |text: &str, files| What::Message { message: "9.5/U7/T1".into(), text: text.into(), files };
    let incoming = |chat: &str, kind, what| Incoming {
        id: format!("{}/9.5", &chat[..2]).into(),
        chat: chat.into(),
        kind,
        topic: None,
        user: User { id: "U7".into(), name: "U7".into(), language: None },
        what,
    };
    let text = "<@UBOT> is 1 &lt; 2? <https://a.b/?x=1&amp;y=2|a.b> <@U8>";
    let want = said("is 1 < 2? https://a.b/?x=1&y=2 <@U8>", vec![]);
    assert_eq!(
        event::read(&mention(text, "9.5", None)),
        Some(incoming("C1/9.5", ChatKind::Group, want))
    );
    let want = said("more", vec![]);
    assert_eq!(
        event::read(&mention("<@UBOT> more", "9.5", Some("3.5"))),
        Some(incoming("C1/3.5", ChatKind::Group, want))
    );

    let mut direct = mention("look", "9.5", None);
    direct["event"]["type"] = json!("message");
    direct["event"]["channel_type"] = json!("im");
    direct["event"]["channel"] = json!("D1");
    direct["event"]["subtype"] = json!("file_share");
    direct["event"]["files"] = json!([{"id": "F1", "mimetype": "image/png", "name": "a.png"}]);
    let file = IncomingFile {
        id: "F1".into(),
        media_type: "image/png".into(),
        name: Some("a.png".into()),
    };
    let want = incoming("D1/9.5", ChatKind::Direct, said("look", vec![file]));
    assert_eq!(event::read(&direct), Some(want));

    let press = json!({
        "type": "block_actions", "user": {"id": "U7", "username": "ana"}, "channel": {"id": "C1"},
        "message": {"ts": "9.9", "thread_ts": "9.5"},
        "actions": [{"action_id": "b0", "value": "a:x", "action_ts": "10.1"}],
    });
    let want = Incoming {
        id: "U7/10.1".into(),
        chat: "C1/9.5".into(),
        kind: ChatKind::Group,
        topic: None,
        user: User { id: "U7".into(), name: "ana".into(), language: None },
        what: What::Press { press: "C1/9.5/U7".into(), data: "a:x".into() },
    };
    assert_eq!(event::read(&press), Some(want));

    let with = |key: &str, value: Value| {
        let mut event = direct.clone();
        event["event"][key] = value;
        event
    };
    for nothing in [
        with("bot_id", json!("B1")),
        with("subtype", json!("message_changed")),
        with("channel_type", json!("channel")),
        with("user", Value::Null),
        json!({"type": "event_callback"}),
        json!({"type": "app_rate_limited"}),
        json!([]),
    ] {
        assert_eq!(event::read(&nothing), None, "{nothing}");
    }
}

#[test]
fn errors() {
    let error =
        |status, error: &str| wire::error(status, None, &json!({"ok": false, "error": error}));
    assert_eq!(
        wire::error(429, Some(30), &json!({"ok": false, "error": "ratelimited"})),
        CallError::BotLimited { retry_after: Duration::from_secs(30), limit: Limit::Action }
    );
    assert_eq!(error(429, "ratelimited"), CallError::RateLimited { retry_after: None });
    assert_eq!(error(200, "message_not_in_streaming_state"), CallError::StreamEnded);
    assert_eq!(error(200, "message_not_found"), CallError::MessageGone);
    assert!(matches!(error(200, "msg_too_long"), CallError::BadMarkup(_)));
    assert!(matches!(error(200, "not_in_channel"), CallError::ChatGone(_)));
    assert!(matches!(error(200, "internal_error"), CallError::AnswerLost(_)));
    assert!(matches!(error(503, ""), CallError::AnswerLost(_)));
    assert!(matches!(error(200, "service_unavailable"), CallError::Unavailable(_)));
    let missing = json!({"ok": false, "error": "missing_scope", "needed": "chat:write"});
    assert_eq!(
        wire::error(200, None, &missing),
        CallError::Refused("missing_scope (the app needs the scope chat:write)".into())
    );
}

/// The example in Slack's documentation, and variations of it.
#[test]
fn signatures() {
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
        &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
        &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands\
        %2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121\
        .803a0bc887a14d10d2c447fce8b6703c";
    let right = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let (at, now) = ("1531420618", 1_531_420_618);
    assert!(is_signed(secret, at, now, right, body));
    assert!(is_signed(secret, at, now + 300, right, body));
    for (secret, at, now, shown) in [
        ("another", at, now, right),
        ("", at, now, right),
        (secret, "1531420619", now, right),
        (secret, at, now + 301, right),
        (secret, at, now - 301, right),
        (secret, at, now, &right[3..]),
        (secret, at, now, ""),
        (secret, "", now, right),
    ] {
        assert!(!is_signed(secret, at, now, shown, body), "{secret} {at} {now} {shown}");
    }
    assert!(!is_signed(secret, at, now, right, &body[1..]));
}

const SECRETS: [&str; 3] = ["xoxb-1", "signing", "xapp-1"];

fn secrets(has_socket: bool) -> SlackSecrets {
    let [token, signing_secret, app_token] = SECRETS.map(Arc::from);
    let app_token = if has_socket { app_token } else { "".into() };
    SlackSecrets { token, signing_secret, app_token }
}

/// A strict Slack over HTTP. `socket` is the URL of its sockets.
async fn network(socket: String) -> (Arc<Mutex<FakeSlack>>, FakeProvider) {
    let slack = Arc::new(Mutex::new(FakeSlack::default()));
    let since = std::time::Instant::now();
    let serving = Arc::clone(&slack);
    let server = FakeProvider::answering(move |asked| {
        let method = asked.path.trim_start_matches('/').split('?').next().unwrap_or_default();
        let is_app = method == "apps.connections.open";
        let token = format!("Bearer {}", SECRETS[if is_app { 2 } else { 0 }]);
        assert_eq!(asked.header("authorization"), Some(token.as_str()), "{method}");
        let at = u64::try_from(since.elapsed().as_millis()).unwrap();
        let reply = match method {
            "apps.connections.open" => json!({"ok": true, "url": format!("{socket}/link")}),
            "auth.test" => json!({"ok": true, "user": "spring", "team": "Acme"}),
            "chat.postEphemeral" => json!({ "ok": true }),
            _ => match serving.lock().unwrap().call(at, method, &asked.body) {
                Reply::Answer(_, _, answer) => answer,
                Reply::Unreached | Reply::Lost => Value::Null,
            },
        };
        let scopes = "app_mentions:read,chat:write,files:read,files:write,im:history";
        Answer::ok("application/json", reply.to_string()).header("x-oauth-scopes", scopes)
    });
    (slack, server.await.unwrap())
}

fn signed(now: u64, kind: &'static str, body: String) -> Request<HttpBody> {
    use hmac::Mac as _;
    let at = (now / 1000).to_string();
    let mut hmac = hmac::Hmac::<sha2::Sha256>::new_from_slice(b"signing").unwrap();
    hmac.update(format!("v0:{at}:{body}").as_bytes());
    let bytes = hmac.finalize().into_bytes();
    let signature: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Request::post("/channels/s")
        .header("content-type", kind)
        .header("x-slack-request-timestamp", at)
        .header("x-slack-signature", format!("v0={signature}"))
        .body(HttpBody::from(body))
        .unwrap()
}

fn thread(slack: &Mutex<FakeSlack>) -> Vec<Shown> {
    slack.lock().unwrap().shown("C1", "1.5")
}

/// Over the webhook: a mention is answered in its thread, an approval has a button, and every
/// request must be signed.
#[tokio::test]
async fn a_conversation_over_the_webhook() {
    let (slack, server) = network(String::new()).await;
    let channel = Slack::new(secrets(false), Some(&server.url())).unwrap();
    assert_eq!(channel.check().await.unwrap(), "@spring in Acme");
    let bot = Bot::new(Arc::new(channel.clone()), risky()).await;
    let routes = channel.webhook(bot.instance.clone(), "/channels/s");
    let post = async |request| routes.clone().oneshot(request).await.unwrap();
    let now = bot.instance.now().0;

    let asked = json!({"type": "url_verification", "challenge": "c4"}).to_string();
    let answer = post(signed(now, "application/json", asked)).await;
    let answer = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
    assert_eq!(&answer[..], b"c4");
    let event = mention("<@UBOT> Launch it", "1.5", None).to_string();
    let old = signed(now - 301_000, "application/json", event.clone());
    assert_eq!(post(old).await.status(), 401);
    assert_eq!(post(signed(now, "application/json", "nonsense".into())).await.status(), 400);
    assert_eq!(post(signed(now, "application/json", event.clone())).await.status(), 200);
    // Slack delivers an event again if the response is late.
    assert_eq!(post(signed(now, "application/json", event)).await.status(), 200);

    until("buttons", || thread(&slack).iter().any(|it| !it.buttons.is_empty())).await;
    let asked = thread(&slack).into_iter().find(|it| !it.buttons.is_empty()).unwrap();
    assert_eq!(asked.buttons[0].0, "✅ Approve");
    let press = json!({
        "type": "block_actions", "user": {"id": "U7"}, "channel": {"id": "C1"},
        "message": {"ts": asked.ts, "thread_ts": "1.5"},
        "actions": [{"value": asked.buttons[0].1, "action_ts": "2.5"}],
    });
    let form = reqwest::Url::parse_with_params("form:", [("payload", press.to_string())]).unwrap();
    let form = form.query().unwrap().to_owned();
    let kind = "application/x-www-form-urlencoded";
    assert_eq!(post(signed(now, kind, form)).await.status(), 200);
    let is_up = || thread(&slack).iter().any(|it| it.text == "It is up." && !it.is_streaming);
    until("the answer", is_up).await;
    until("the end", || bot.instance.pending() == 0).await;
    assert!(thread(&slack).iter().all(|it| it.buttons.is_empty()));
    let told = server.asked().into_iter().find(|it| it.path == "/chat.postEphemeral").unwrap();
    let want = json!({"channel": "C1", "thread_ts": "1.5", "user": "U7", "text": "Noted."});
    assert_eq!(told.body, want);
    wellspring_testkit::slack::check_rates(&slack.lock().unwrap().log).unwrap();
    bot.instance.stop().await;
}

/// Over the socket: an event is acknowledged once it is stored, and the socket is opened again when
/// Slack requests it.
#[tokio::test]
async fn events_over_the_socket() {
    let socket = FakeSocket::start().await.unwrap();
    let (slack, server) = network(socket.url()).await;
    let channel = Slack::new(secrets(true), Some(&server.url())).unwrap();
    let bot = Bot::new(Arc::new(channel.clone()), risky()).await;
    let instance = bot.instance.clone();
    let listening = tokio::spawn(async move { channel.listen(&instance).await });
    let mut first = socket.accept().await.unwrap();
    assert_eq!(first.path, "/link");
    first.send(&json!({"type": "hello"})).await.unwrap();
    let event = mention("<@UBOT> !help", "1.5", None);
    let frame = json!({"type": "events_api", "envelope_id": "e1", "payload": event});
    first.send(&frame).await.unwrap();
    assert_eq!(first.next().await.unwrap(), json!({"envelope_id": "e1"}));
    until("help", || thread(&slack).iter().any(|it| it.text.contains("!stop"))).await;
    first.send(&json!({"type": "disconnect", "reason": "refresh_requested"})).await.unwrap();
    let mut second = socket.accept().await.unwrap();
    second.send(&json!({"type": "hello"})).await.unwrap();
    second.send(&json!({"type": "slash_commands", "envelope_id": "e2"})).await.unwrap();
    assert_eq!(second.next().await.unwrap(), json!({"envelope_id": "e2"}));
    bot.instance.stop().await;
    listening.await.unwrap();
}
