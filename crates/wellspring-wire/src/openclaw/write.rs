//! Requests to the gateway.

use serde_json::{Map, Value, json};

use super::types::Challenge;

/// The oldest protocol version that we support.
pub const PROTOCOL_MIN: u64 = 4;

/// The newest protocol version that we support.
pub const PROTOCOL_MAX: u64 = 4;

/// Our client id and mode. The gateway accepts only ids and modes from fixed lists.
const CLIENT_ID: &str = "gateway-client";
const CLIENT_MODE: &str = "backend";

const ROLE: &str = "operator";
const SCOPES: [&str; 2] = ["operator.read", "operator.write"];

/// A request frame.
#[must_use]
pub fn request(id: &str, method: &str, params: Value) -> Value {
    json!({"type": "req", "id": id, "method": method, "params": params})
}

/// The parameters of `connect`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect<'a> {
    /// Our version.
    pub version: &'a str,
    /// The operating system.
    pub platform: &'a str,
    /// The gateway's token.
    pub token: Option<&'a str>,
    /// The gateway's password.
    pub password: Option<&'a str>,
    /// Our device, if it has an identity.
    pub device: Option<Device<'a>>,
}

/// A device with a signature of [`signed_by_device`].
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// SHA-256 of the public key, in hexadecimal.
    pub id: &'a str,
    /// The Ed25519 public key, in base64url without padding.
    pub public_key: &'a str,
    /// The signature, in base64url without padding.
    pub signature: &'a str,
    /// The challenge that was signed.
    pub challenge: &'a Challenge,
}

impl Connect<'_> {
    /// The parameters as JSON.
    #[must_use]
    pub fn params(&self) -> Value {
        let mut auth = Map::new();
        for (name, secret) in [("token", self.token), ("password", self.password)] {
            auth.extend(secret.map(|secret| (name.to_owned(), json!(secret))));
        }
        let mut params = json!({
            "minProtocol": PROTOCOL_MIN,
            "maxProtocol": PROTOCOL_MAX,
            "client": {
                "id": CLIENT_ID,
                "version": self.version,
                "platform": self.platform,
                "mode": CLIENT_MODE,
            },
            "role": ROLE,
            "scopes": SCOPES,
            "caps": ["tool-events"],
            "auth": auth,
            "locale": "en-US",
            "userAgent": format!("wellspring/{}", self.version),
        });
        if let Some(Device { id, public_key, signature, challenge }) = self.device {
            params["device"] = json!({
                "id": id,
                "publicKey": public_key,
                "signature": signature,
                "signedAt": challenge.ts,
                "nonce": challenge.nonce,
            });
        }
        params
    }
}

/// The text that a device signs with Ed25519 to prove its identity. The device's family is
/// empty, because we do not send one.
#[must_use]
pub fn signed_by_device(
    id: &str,
    token: Option<&str>,
    platform: &str,
    challenge: &Challenge,
) -> String {
    let (ts, nonce) = (challenge.ts, &challenge.nonce);
    let scopes = SCOPES.join(",");
    let token = token.unwrap_or_default();
    // The gateway lowercases the platform before it verifies the signature.
    let platform = platform.trim().to_ascii_lowercase();
    format!("v3|{id}|{CLIENT_ID}|{CLIENT_MODE}|{ROLE}|{scopes}|{ts}|{token}|{nonce}|{platform}|")
}

/// The parameters of `agent`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompt<'a> {
    /// The user's message.
    pub message: &'a str,
    /// The session.
    pub session_key: &'a str,
    /// The run's id, which is also the idempotency key.
    pub run_id: &'a str,
    /// Instructions of the agent, added to the gateway's own.
    pub instructions: &'a str,
    /// The model, if not the gateway's default.
    pub model: Option<&'a str>,
    /// Images and documents.
    pub attachments: &'a [Value],
}

impl Prompt<'_> {
    /// The parameters as JSON.
    #[must_use]
    pub fn params(&self) -> Value {
        let mut params = json!({
            "message": self.message,
            "sessionKey": self.session_key,
            "idempotencyKey": self.run_id,
            "deliver": false,
        });
        if !self.instructions.is_empty() {
            params["extraSystemPrompt"] = json!(self.instructions);
        }
        if let Some(model) = self.model {
            params["model"] = json!(model);
        }
        if !self.attachments.is_empty() {
            params["attachments"] = json!(self.attachments);
        }
        params
    }

    /// An attachment of a prompt; `data` is base64.
    #[must_use]
    pub fn attachment(media_type: &str, name: Option<&str>, data: &str) -> Value {
        let kind = if media_type.starts_with("image/") { "image" } else { "file" };
        let mut attachment = json!({"type": kind, "mimeType": media_type, "content": data});
        if let Some(name) = name {
            attachment["fileName"] = json!(name);
        }
        attachment
    }
}

/// The parameters of `chat.abort`, the only way to stop a run on the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Abort<'a> {
    /// The session.
    pub session_key: &'a str,
    /// The run.
    pub run_id: &'a str,
}

impl Abort<'_> {
    /// The parameters as JSON.
    #[must_use]
    pub fn params(&self) -> Value {
        json!({"sessionKey": self.session_key, "runId": self.run_id})
    }
}
