use serde_json::json;

use super::{update, wire};
use crate::channel::{CallError, ChatKind};
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::texts::Language;

#[test]
fn updates() {
    let text = json!({"update_id": 5, "message": {
        "message_id": 9, "message_thread_id": 3, "is_topic_message": true, "text": "Oi",
        "chat": {"id": -100, "type": "supergroup"},
        "from": {"id": 7, "is_bot": false, "first_name": "Ana", "username": "ana", "language_code": "pt-BR"},
    }});
    let message =
        |text: &str, files| What::Message { message: "9".into(), text: text.into(), files };
    let user =
        User { id: "7".into(), name: "Ana @ana".into(), language: Some(Language::Portuguese) };
    let incoming = |kind, topic: Option<&str>, what| Incoming {
        id: "5".into(),
        chat: "-100".into(),
        kind,
        topic: topic.map(Into::into),
        user: user.clone(),
        what,
    };
    assert_eq!(
        update::read(&text),
        Some(incoming(ChatKind::Group, Some("3"), message("Oi", vec![])))
    );

    let mut photo = text.clone();
    photo["message"]["text"].take();
    photo["message"]["caption"] = json!("look");
    photo["message"]["photo"] = json!([{"file_id": "small"}, {"file_id": "large"}]);
    let file = IncomingFile { id: "large".into(), media_type: "image/jpeg".into(), name: None };
    let want = incoming(ChatKind::Group, Some("3"), message("look", vec![file]));
    assert_eq!(update::read(&photo), Some(want));

    let press = json!({"update_id": 5, "callback_query": {
        "id": "cb", "data": "a:x", "from": text["message"]["from"],
        "message": {"message_id": 1, "chat": {"id": -100, "type": "private"}},
    }});
    let what = What::Press { press: "cb".into(), data: "a:x".into() };
    assert_eq!(update::read(&press), Some(incoming(ChatKind::Direct, None, what)));

    let mut bot = text.clone();
    bot["message"]["from"]["is_bot"] = json!(true);
    for nothing in [
        bot,
        json!({}),
        json!({"update_id": 1}),
        json!([]),
        json!({"update_id": 1, "message": {"text": "x"}}),
    ] {
        assert_eq!(update::read(&nothing), None, "{nothing}");
    }
}

#[test]
fn errors() {
    let error = |code: i64, description: &str| {
        wire::error(&json!({"ok": false, "error_code": code, "description": description}))
    };
    assert_eq!(
        wire::error(&json!({"ok": false, "error_code": 429, "parameters": {"retry_after": 18}})),
        CallError::RateLimited { retry_after: Some(std::time::Duration::from_secs(18)) }
    );
    assert_eq!(error(429, "slow"), CallError::RateLimited { retry_after: None });
    assert_eq!(error(400, "Bad Request: message is not modified: x"), CallError::NotModified);
    assert_eq!(error(400, "Bad Request: message to edit not found"), CallError::MessageGone);
    assert!(matches!(error(400, "Bad Request: can't parse entities: x"), CallError::BadMarkup(_)));
    assert!(matches!(error(400, "Bad Request: message is too long"), CallError::BadMarkup(_)));
    assert!(matches!(error(403, "Forbidden: bot was blocked by the user"), CallError::ChatGone(_)));
    assert!(matches!(error(400, "Bad Request: chat not found"), CallError::ChatGone(_)));
    assert!(matches!(error(502, "Bad Gateway"), CallError::Unavailable(_)));
    assert!(matches!(error(401, "Unauthorized"), CallError::Refused(_)));
    assert!(matches!(wire::error(&json!("nonsense")), CallError::Refused(_)));
}
