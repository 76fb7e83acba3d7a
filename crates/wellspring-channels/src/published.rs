//! Checks every request against the types that third parties publish for the networks, and our
//! Telegram client against an independent fake of Telegram. The tests run only if
//! `WELLSPRING_PEER_CHAT` is set, after `npm ci` in `tests/peer`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use wellspring_core::MediaSource;
use wellspring_testkit::{Answer, Asked, FakeProvider};
use wellspring_wire::stream_delta::StreamDelta;

use crate::channel::{Action, Body, Button, Call, Channel, File, Growth, Stream};
use crate::testing::{Bot, risky};
use crate::view::{Reader, ThinkingMode, View, render};
use crate::{Discord, Slack, SlackSecrets, Telegram};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer")
}

fn is_there() -> bool {
    std::env::var_os("WELLSPRING_PEER_CHAT").is_some()
}

/// A chat, a person's message there, and a message of the bot.
struct Place {
    chat: &'static str,
    topic: Option<&'static str>,
    asked: &'static str,
    ours: &'static str,
}

/// Every call that the scheduler can make.
fn calls(channel: &dyn Channel, place: &Place) -> Vec<Call> {
    let can = channel.capabilities();
    let reader = Reader { thinking: ThinkingMode::On, ..Reader::default() };
    let delta = StreamDelta::Content {
        content: "**Yes** & [no](https://a.b)\n```sh\nls <x>\n```".into(),
        thinking: Some("Hm. ".repeat(200)),
        thinking_duration_ms: Some(5),
    };
    let view = View { tool: Some("searching".into()), ..View::of(delta) };
    let body = render(&view, reader, can).remove(0);
    let button =
        |n: usize| Button { label: format!("No. {n}").into(), data: format!("a:{n}").into() };
    let buttons = (0..20).map(|n| vec![button(n)]).collect();
    let asking = Body { buttons, stream: None, ..body.clone() };
    let (ours, reply_to) = (Box::<str>::from(place.ours), Some(place.asked.into()));
    let mut actions = vec![Action::Typing, Action::Delete { message: ours.clone() }];
    for body in [body.clone(), asking] {
        for markup in 0..can.markups.len() {
            for preview in [true, false] {
                let (reply_to, message) = (reply_to.clone(), ours.clone());
                let (body, again) = (body.clone(), body.clone());
                actions.push(Action::Send { reply_to, body, markup, preview, nonce: u64::MAX });
                actions.push(Action::Edit { message, body: again, markup, preview });
            }
        }
    }
    if can.can_draft {
        actions.push(Action::Draft { draft: 1, body: body.clone(), markup: 0 });
    }
    if can.can_append {
        let half = Stream { title: "Thinking".into(), is_thinking: true, ..Stream::default() };
        let whole = body.stream.unwrap();
        let none = Stream::default();
        let growth = |before: &Stream, after: &Stream| {
            Box::new(Growth { before: before.clone(), after: after.clone() })
        };
        actions.push(Action::Begin { reply_to, growth: growth(&none, &half) });
        let message = ours.clone();
        actions.push(Action::Append { message, growth: growth(&half, &whole) });
        for (before, after) in [(&half, &whole), (&whole, &whole)] {
            actions.push(Action::End { message: ours.clone(), growth: growth(before, after) });
        }
    }
    for source in [MediaSource::Url("https://a.b/c".into()), MediaSource::Data("aGk=".into())] {
        let file = File { name: "a.txt".into(), media_type: "text/plain".into(), source };
        let body = Body { texts: vec![String::new()], file: Some(file), ..Body::default() };
        actions.push(Action::Send { reply_to: None, body, markup: 0, preview: false, nonce: 1 });
    }
    let topic = place.topic.map(Into::into);
    actions
        .into_iter()
        .map(|action| Call { chat: place.chat.into(), topic: topic.clone(), action })
        .collect()
}

/// Makes every kind of request. The results do not matter here.
async fn ask_everything(channel: &dyn Channel, places: &[Place]) {
    for place in places {
        for call in calls(channel, place) {
            let _ = channel.call(call).await;
        }
    }
    let _ = channel.acknowledge("C1/1.5/U7", "Noted.").await;
    let _ = channel.check().await;
}

async fn server() -> FakeProvider {
    FakeProvider::answering(|asked| {
        let url = format!("http://{}/upload", asked.header("host").unwrap_or_default());
        let answer = json!({
            "ok": true, "upload_url": url, "file_id": "F1", "ts": "1.5", "id": "1",
            "result": {"message_id": 1}, "url": "ws://127.0.0.1:1", "verify_key": "00",
        });
        Answer::ok("application/json", answer.to_string())
    })
    .await
    .unwrap()
}

/// A request as a TypeScript constant of its type; `None` for requests without JSON.
fn constant(asked: &Asked, kind: impl Fn(&Asked, &str) -> String) -> Option<String> {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let body = if asked.body.is_null() && !query.is_empty() {
        let url = reqwest::Url::parse(&format!("query:?{query}")).unwrap();
        let value = |text: &str| text.parse::<u64>().map_or_else(|_| text.into(), Value::from);
        let pairs = url.query_pairs().map(|(key, text)| (key.into_owned(), value(&text)));
        Value::Object(pairs.collect::<Map<_, _>>())
    } else {
        asked.body.clone()
    };
    body.is_object().then(|| format!("{} = {body};", kind(asked, path)))
}

/// All requests of all networks match `@grammyjs/types`, `@slack/web-api` and `discord-api-types`.
/// An unknown key, a wrong type or a missing key is an error.
#[tokio::test]
async fn requests_hold_to_the_published_types() {
    if !is_there() {
        return;
    }
    let mut source = String::from(
        "import type { ApiMethods } from '@grammyjs/types';\n\
         import type { WebClient } from '@slack/web-api';\n\
         import type * as D from 'discord-api-types/v10';\n\
         type P<M extends keyof ApiMethods<never>> = Parameters<ApiMethods<never>[M]>[0];\n\
         type T<M extends keyof ApiMethods<never>> = P<M> extends undefined ? {} : NonNullable<P<M>>;\n\
         type S<F> = F extends (...args: infer A) => unknown ? NonNullable<A[0]> : never;\n",
    );
    let mut count = 0;
    let mut add = |server: &FakeProvider, kind: &dyn Fn(&Asked, &str) -> String| {
        for asked in server.asked() {
            if let Some(constant) = constant(&asked, kind) {
                count += 1;
                writeln!(source, "const r{count}: {constant}").unwrap();
            }
        }
    };

    let fake = server().await;
    let telegram = Telegram::new("12:secret", Some(&fake.url())).unwrap();
    let place = |chat, topic| Place { chat, topic, asked: "3", ours: "4" };
    ask_everything(&telegram, &[place("7", None), place("-100", Some("5"))]).await;
    let _ = telegram.use_webhook("https://a.b/c", "s").await;
    let _ = telegram.use_polling().await;
    let _ = telegram.download("f1", 10).await;
    add(&fake, &|_, path| {
        let method = path.strip_prefix("/bot12:secret/").unwrap();
        format!("T<'{method}'>")
    });

    let fake = server().await;
    let secrets = SlackSecrets {
        token: "xoxb-1".into(),
        signing_secret: "s".into(),
        app_token: "xapp-1".into(),
    };
    let slack = Slack::new(secrets, Some(&fake.url())).unwrap();
    let place = |chat| Place { chat, topic: None, asked: "1.5/U7/T1", ours: "2.5" };
    ask_everything(&slack, &[place("C1/1.5"), place("D1/1.5")]).await;
    let _ = slack.download("F1", 10).await;
    add(&fake, &|_, path| {
        let method = path.trim_start_matches('/').split('.');
        let keys: String = method.map(|key| format!("['{key}']")).collect();
        format!("S<WebClient{keys}>")
    });

    let fake = server().await;
    let key = "00".repeat(32);
    let discord = Discord::new("secret", Some(&key), Some(&fake.url())).unwrap();
    let place = Place { chat: "5", topic: None, asked: "3", ours: "4" };
    ask_everything(&discord, &[place]).await;
    add(&fake, &|asked, path| {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let kind = match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["channels", _, "messages"]) => "RESTPostAPIChannelMessageJSONBody",
            ("PATCH", ["channels", _, "messages", _]) => "RESTPatchAPIChannelMessageJSONBody",
            ("POST", ["interactions", .., "callback"]) => "RESTPostAPIInteractionCallbackJSONBody",
            (method, parts) => panic!("{method} {parts:?}"),
        };
        format!("D.{kind}")
    });
    let introductions = crate::discord::introductions();
    for frame in introductions {
        count += 1;
        writeln!(source, "const r{count}: D.GatewaySendPayload = {frame};").unwrap();
    }
    assert!(count > 60, "{count}");

    // The check itself works: the compiler reports a wrong request at exactly this line.
    let wrong = source.lines().count() + 1;
    source.push_str("const wrong: T<'sendMessage'> = { chat_id: 1, txt: 'x' };\n");
    let mut node = std::process::Command::new("node")
        .arg("types.mjs")
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    node.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("error TS")).collect();
    let is_wrong = |line: &&&str| line.starts_with(&format!("requests.mts({wrong},"));
    let others: Vec<_> = errors.iter().filter(|line| !is_wrong(line)).collect();
    assert!(others.is_empty(), "{others:#?}\n{source}");
    assert_eq!(errors.len(), 1, "{said}");
}

/// A conversation with an independent fake of Telegram: an answer that grows by edits, and a press.
#[tokio::test]
async fn a_telegram_by_others_agrees() {
    if !is_there() {
        return;
    }
    let mut node = tokio::process::Command::new("node")
        .arg("telegram.mjs")
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut people = node.stdin.take().unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(crate::testing::PATIENCE, said.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    };
    let place = next().await;
    let telegram = Telegram::new("12:secret", place["url"].as_str()).unwrap();
    assert_eq!(telegram.check().await.unwrap(), "@TestNameBot");
    let bot = Bot::new(Arc::new(telegram.clone()), risky()).await;
    let instance = bot.instance.clone();
    let polling = tokio::spawn(async move { telegram.poll(&instance).await });
    let mut write = async |line: Value| {
        people.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    };
    write(json!({"write": "Launch it"})).await;
    let data = loop {
        let shown = next().await;
        let data = shown["shown"]
            .as_array()
            .unwrap()
            .iter()
            .find_map(|it| it["buttons"][0]["callback_data"].as_str().map(ToOwned::to_owned));
        if let Some(data) = data {
            break data;
        }
    };
    write(json!({"press": data})).await;
    let texts = loop {
        let shown = next().await;
        let texts: Vec<_> = shown["shown"].as_array().unwrap().clone();
        if texts.iter().any(|it| it["text"] == "It is up.") {
            break texts;
        }
    };
    assert!(texts.iter().all(|it| !it["text"].as_str().unwrap().contains('█')), "{texts:?}");
    bot.instance.stop().await;
    polling.await.unwrap();
}
