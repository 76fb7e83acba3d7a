//! The NATS store logs in and uses TLS, with real servers. What cannot work is an error that says
//! what to do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use wellspring_core::{AgentNo, Event, Outcome, RunId, RunRequest, RunStarted, Stop, ThreadId};
use wellspring_log::{Log, LogOptions, NatsAuth, NatsOptions, NatsStore, NatsTls, Store};
use wellspring_testkit::NatsServers;

/// Opens a store. An error is returned without the server's address and the files' directory.
async fn open(options: NatsOptions, files: &Path) -> String {
    let before = format!("could not connect to NATS at {}: ", options.address);
    match NatsStore::open(options).await {
        Ok(_) => "opened".into(),
        Err(error) => {
            let files = format!("{}/", files.display());
            let said = error.to_string().replace(&files, "");
            said.strip_prefix(&before).unwrap_or(&said).to_owned()
        }
    }
}

const REFUSED: &str = "the server refused the login; check the user and the password, the token or \
                       the credentials file that [store.nats] names";
const REQUIRED: &str = "the server requires a login; set `user`, `token_env` or \
                        `credentials_file` in [store.nats]";

const FILES: &str = "in [store.nats], `ca_file`, `certificate_file` and `key_file` are files in \
                     PEM, and `credentials_file` is a file with a JWT and a seed";

#[tokio::test]
async fn tokens_and_users_log_in() {
    let user = |name: &str, password: &str| NatsAuth::User {
        name: name.into(),
        password: password.into(),
    };
    let token = |token: &str| NatsAuth::Token(token.into());
    for (lines, right, wrong) in [
        ("authorization { token: \"secret\" }", token("secret"), token("guess")),
        (
            "authorization { users: [{ user: me, password: secret }] }",
            user("me", "secret"),
            user("me", "guess"),
        ),
    ] {
        let Some(server) = NatsServers::start_with(lines) else { return };
        let options = |auth| NatsOptions { auth, ..NatsOptions::at(server.address()) };
        let files = Path::new("no files");
        assert_eq!(open(options(right), files).await, "opened", "{lines}");
        assert_eq!(open(options(wrong), files).await, REFUSED, "{lines}");
        assert_eq!(open(options(NatsAuth::None), files).await, REQUIRED, "{lines}");
    }
}

/// The permissions in `docs/nats.md` are sufficient. Without them, the error says what to look at.
#[tokio::test]
async fn a_user_needs_only_the_documented_permissions() {
    let documented = include_str!("../../../../docs/nats.md");
    let subjects = |of: &str| {
        let line = documented.lines().find_map(|line| line.strip_prefix(of)).unwrap();
        line.split_whitespace().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(", ")
    };
    let user = |name: &str, publish: &str| {
        format!(
            "{{ user: {name}, password: x, permissions: {{ publish: [{publish}], \
             subscribe: [{}] }} }}",
            subjects("subscribe: ")
        )
    };
    let users = [user("node", &subjects("publish:   ")), user("guest", "\"wellspring.>\"")];
    let lines = format!("authorization {{ users: [{}] }}", users.join(", "));
    let Some(server) = NatsServers::start_with(&lines) else { return };
    let options = |name: &str| NatsOptions {
        auth: NatsAuth::User { name: name.into(), password: "x".into() },
        ..NatsOptions::at(server.address())
    };
    let store = Arc::new(NatsStore::open(options("node")).await.unwrap());
    let log = Log::new(store.clone(), LogOptions::default());
    let started = RunStarted {
        run: RunId::new(uuid::Uuid::now_v7()),
        thread: ThreadId::new(uuid::Uuid::now_v7()),
        agent: "agent".into(),
        after: None,
        request: RunRequest::text("go"),
    };
    let owner = log.create("tenant", started).await.unwrap();
    let outcome = Outcome::Completed { stop: Stop::EndTurn };
    owner.push(AgentNo::ROOT, Event::RunFinished { outcome: Box::new(outcome) });
    owner.commit().await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    assert!(store.delete(owner.run()).await.unwrap());

    let hasty = NatsOptions { settle: Duration::ZERO, ..options("guest") };
    let error = open(hasty, Path::new("no files")).await;
    let end = "check that the NATS servers run with JetStream, and that our login may use it";
    assert!(error.starts_with("could not use the stream wellspring: "), "{error}");
    assert!(error.ends_with(end), "{error}");
}

/// A JWT as NATS has them.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let part = |it: &Value| BASE64.encode(it.to_string());
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let claims = json!({
        "jti": "x", "iat": 1_700_000_000, "name": "x",
        "iss": issuer.public_key(), "sub": subject.public_key(), "nats": nats,
    });
    let signed = format!("{}.{}", part(&head), part(&claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64.encode(signature))
}

/// Accounts of an operator: a user with a credentials file, and one of an account that the server
/// does not know.
#[tokio::test]
async fn credentials_files_log_in() {
    let operator = KeyPair::new_operator();
    let [system, ours, unknown] = [(); 3].map(|()| KeyPair::new_account());
    let no_limit = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_system = json!({"type": "account", "version": 2});
    let of_ours = json!({"type": "account", "version": 2, "limits": no_limit});
    let lines = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}\n {}: {} }}",
        jwt(&operator, &operator, &json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, &of_system),
        ours.public_key(),
        jwt(&operator, &ours, &of_ours),
    );
    let Some(server) = NatsServers::start_with(&lines) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, account: &KeyPair| {
        let user = KeyPair::new_user();
        let limits = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            jwt(account, &user, &limits),
            user.seed().unwrap()
        );
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    file("right.creds", &ours);
    file("unknown.creds", &unknown);
    std::fs::write(directory.path().join("damaged.creds"), "secret").unwrap();
    let mut found = Vec::new();
    for name in ["right.creds", "unknown.creds", "damaged.creds", "missing.creds"] {
        let auth = NatsAuth::Credentials(directory.path().join(name));
        let options = NatsOptions { auth, ..NatsOptions::at(server.address()) };
        found.push(open(options, directory.path()).await);
    }
    assert_eq!(
        found,
        [
            "opened".into(),
            REFUSED.into(),
            format!(
                "cannot read damaged.creds: cannot parse user JWT from the credentials file; {FILES}"
            ),
            format!("cannot read missing.creds: No such file or directory (os error 2); {FILES}"),
        ]
    );
}

/// Certificates, made by `openssl`.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let config = "[req]\ndistinguished_name = name\n[name]\n\
                      [ca]\nbasicConstraints = critical, CA:TRUE\n\
                      [end]\nbasicConstraints = critical, CA:FALSE\n\
                      subjectAltName = IP:127.0.0.1\n";
        std::fs::write(made.file("config"), config).unwrap();
        for authority in ["ca", "stranger"] {
            made.make(authority, &["-extensions", "ca"]);
        }
        for (name, by) in [("server", "ca"), ("client", "ca"), ("other", "stranger")] {
            let [certificate, key] = made.pair(by);
            let [certificate, key] = [&certificate, &key].map(|it| it.to_str().unwrap());
            made.make(name, &["-extensions", "end", "-CA", certificate, "-CAkey", key]);
        }
        made
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A certificate and its key.
    fn pair(&self, name: &str) -> [PathBuf; 2] {
        [format!("{name}.pem"), format!("{name}.key")].map(|name| self.file(&name))
    }

    fn make(&self, name: &str, more: &[&str]) {
        let [certificate, key] = self.pair(name);
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.args(["-nodes", "-days", "1", "-subj", &format!("/CN={name}"), "-config"]);
        openssl.arg(self.file("config")).arg("-keyout").arg(key).arg("-out").arg(certificate);
        let output = openssl.args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The lines of a server that has a certificate, and perhaps asks clients for one.
    fn server(&self, verify: bool) -> String {
        let [certificate, key] = self.pair("server");
        format!(
            "tls {{ cert_file: {certificate:?}\n key_file: {key:?}\n ca_file: {:?}\n \
             verify: {verify} }}",
            self.pair("ca")[0]
        )
    }

    fn tls(&self, authority: Option<&str>, client: Option<&str>) -> NatsTls {
        NatsTls {
            root_certificates: authority.map(|name| self.pair(name)[0].clone()),
            client_certificate: client.map(|name| self.pair(name).into()),
        }
    }
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    if std::env::var_os("WELLSPRING_PEER_OPENSSL").is_none() {
        println!("skipped: WELLSPRING_PEER_OPENSSL is not set; `cargo xtask test` sets it");
        return;
    }
    let made = Certificates::new();
    let mut found = Vec::new();
    for (lines, cases) in [
        (
            made.server(false),
            vec![
                ("trusted", made.tls(Some("ca"), None)),
                ("of the system", NatsTls::default()),
                ("of a stranger", made.tls(Some("stranger"), None)),
                ("missing", made.tls(Some("missing"), None)),
            ],
        ),
        (
            made.server(true),
            vec![
                ("ours", made.tls(Some("ca"), Some("client"))),
                ("none", made.tls(Some("ca"), None)),
                ("a stranger's", made.tls(Some("ca"), Some("other"))),
            ],
        ),
        (String::new(), vec![("without TLS", made.tls(Some("ca"), None))]),
    ] {
        let Some(server) = NatsServers::start_with(&lines) else { return };
        for (case, tls) in cases {
            let options = NatsOptions { tls, ..NatsOptions::at(server.address()) };
            found.push((case, open(options, made.0.path()).await));
        }
    }
    let untrusted = "the server's certificate is not accepted: UnknownIssuer; set `ca_file` in \
                     [store.nats] to the certificates that signed it, and use a host name in \
                     `address` that it was made for";
    let missing =
        format!("cannot read missing.pem: No such file or directory (os error 2); {FILES}");
    let refused = |why: &str| {
        format!(
            "the server does not accept our certificate: {why}; set `certificate_file` and \
             `key_file` in [store.nats] to a certificate that the server trusts"
        )
    };
    let plain = "the server does not use TLS; set `tls` in the server's configuration, or begin \
                 `address` with nats:// and remove `ca_file` and `certificate_file` from \
                 [store.nats]";
    assert_eq!(
        found,
        [
            ("trusted", "opened".into()),
            ("of the system", untrusted.into()),
            ("of a stranger", untrusted.into()),
            ("missing", missing),
            ("ours", "opened".into()),
            ("none", refused("CertificateRequired")),
            ("a stranger's", refused("UnknownCA")),
            ("without TLS", plain.to_owned()),
        ]
    );
}
