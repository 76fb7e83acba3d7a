use serde_json::json;

use super::{is_signed, wire};
use crate::channel::{CallError, ChatKind};
use crate::incoming::{Incoming, User, What};

/// The example of HMAC-SHA256 in RFC 4231 (test case 2), and what differs from it.
#[test]
fn signatures() {
    let right = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    let body = b"what do ya want for nothing?";
    assert!(is_signed("Jefe", right, body));
    for (secret, shown, body) in [
        ("Jeff", right, &body[..]),
        ("Jefe", &right[7..], &body[..]),
        ("Jefe", "", &body[..]),
        ("Jefe", right, b"what do ya want"),
        ("", right, &body[..]),
    ] {
        assert!(!is_signed(secret, shown, body), "{secret} {shown}");
    }
}

#[test]
fn notifications() {
    let notification = json!({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [
        {"field": "messages", "value": {
            "messaging_product": "whatsapp",
            "contacts": [{"profile": {"name": "Ana"}, "wa_id": "5511"}],
            "messages": [
                {"from": "5511", "id": "wamid.1", "timestamp": "1", "type": "text", "text": {"body": "Oi"}},
                {"from": "5511", "id": "wamid.2", "timestamp": "2", "type": "reaction", "reaction": {}},
            ],
        }},
        {"field": "messages", "value": {"statuses": [{"id": "wamid.0", "status": "read"}]}},
    ]}]});
    let user = User { id: "5511".into(), name: "Ana".into(), language: None };
    let what = What::Message { message: "wamid.1".into(), text: "Oi".into(), files: vec![] };
    let want = Incoming {
        id: "wamid.1".into(),
        chat: "5511".into(),
        kind: ChatKind::Direct,
        topic: None,
        user,
        what,
    };
    assert_eq!(wire::read(&notification), [want]);
    assert_eq!(wire::read(&json!("nonsense")), []);
}

#[test]
fn errors() {
    let error = |status, code: i64| wire::error(status, &json!({"error": {"code": code}}));
    assert_eq!(error(400, 131_056), CallError::RateLimited { retry_after: None });
    assert!(matches!(error(400, 131_047), CallError::ChatGone(_)));
    assert!(matches!(error(401, 190), CallError::Refused(_)));
    assert!(matches!(error(500, 1), CallError::Unavailable(_)));
}

/// The most specific webhook counts; a number without one receives nothing.
#[test]
fn a_number_is_checked_with_its_webhook() {
    let checked = |webhook: serde_json::Value| {
        wire::checked(&json!({"display_phone_number": "+1 555", "verified_name": "Spring",
            "webhook_configuration": webhook, "id": "1"}))
    };
    let app = "https://bot.example.com/channels/whatsapp";
    assert_eq!(
        checked(json!({ "application": app })).unwrap(),
        format!("+1 555 (Spring), whose messages are delivered to {app}")
    );
    let other = checked(json!({"phone_number": "https://other.example.com", "application": app}));
    assert!(other.unwrap().ends_with("delivered to https://other.example.com"));
    for none in [json!({}), json!({"application": ""}), serde_json::Value::Null] {
        assert!(matches!(checked(none), Err(CallError::Refused(_))));
    }
}
