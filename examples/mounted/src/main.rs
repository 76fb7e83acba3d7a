//! An application with its own pages and login that mounts Wellspring under `/agents`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use tokio::net::TcpListener;
use wellspring_engine::{AgentDef, Permission, Principal, Runtime};
use wellspring_log::Log;
use wellspring_models::{Say, Scripted};
use wellspring_server::{Api, AuthError, Authenticate, router};

/// Logged-in users that are remembered: an example has no database to keep them in.
const SESSIONS_MAX: usize = 1000;

/// The application's own sessions: who is logged in, by the value of the cookie.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<HashMap<String, String>>>);

impl Sessions {
    /// Logs a user in and returns the session's id.
    fn begin(&self, user: &str) -> anyhow::Result<String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(sessions.len() < SESSIONS_MAX, "{SESSIONS_MAX} users are logged in");
        sessions.insert(id.clone(), user.to_owned());
        Ok(id)
    }

    /// The session's id in a request's cookies, and its user.
    fn find(&self, headers: &HeaderMap) -> Option<(String, String)> {
        let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
        let id = cookies.split("; ").find_map(|cookie| cookie.strip_prefix("session="))?;
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some((id.to_owned(), sessions.get(id)?.clone()))
    }

    fn end(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// Wellspring asks this for every request. Each user is a tenant of their own.
impl Authenticate for Sessions {
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
    ) -> BoxFuture<'a, Result<Principal, AuthError>> {
        async move {
            let (_, user) = self.find(&request.headers).ok_or(AuthError::Missing)?;
            let may = [Permission::Read, Permission::Run, Permission::Approve];
            Ok(Principal::new(user.as_str(), user.as_str(), may))
        }
        .boxed()
    }

    fn remedy(&self) -> &'static str {
        "log in at /"
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "it says where it is")]
async fn main() -> anyhow::Result<()> {
    let runtime = Runtime::new(Log::in_memory());
    let model = Scripted::with(|_| Say::new().text("Hello from ").text("the mounted agent."));
    runtime.register(AgentDef::model("greeter", Arc::new(model)));

    let sessions = Sessions::default();
    let api = Api::builder(runtime).authenticate(Arc::new(sessions.clone())).open().await?;
    let app = Router::new()
        .route("/", get(home))
        .route("/login", post(login))
        .route("/logout", post(logout))
        .with_state(sessions)
        .nest("/agents", router(&api));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7700".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async {
            // If signals cannot be heard, the process is ended some other way.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            api.stop().await;
        })
        .await?;
    Ok(())
}

async fn home(State(sessions): State<Sessions>, headers: HeaderMap) -> Html<String> {
    let body = match sessions.find(&headers) {
        // A user's name has letters and digits only, so it needs no escaping.
        Some((_, user)) => format!(
            "<h1>Welcome, {user}</h1><p><a href=\"/agents\">Talk to the agent</a></p>\
             <form action=\"/logout\" method=\"post\"><button>Log out</button></form>"
        ),
        None => "<h1>Log in</h1><form action=\"/login\" method=\"post\">\
                 <input name=\"user\" placeholder=\"Any name\" required pattern=\"[A-Za-z0-9]+\">\
                 <button>Log in</button></form>"
            .to_owned(),
    };
    Html(format!("<!doctype html><title>My application</title>{body}"))
}

#[derive(Deserialize)]
struct Login {
    user: String,
}

async fn login(State(sessions): State<Sessions>, Form(Login { user }): Form<Login>) -> Response {
    let fits = (1..=32).contains(&user.len()) && user.bytes().all(|it| it.is_ascii_alphanumeric());
    if !fits {
        let message = "use 1 to 32 letters and digits";
        return (axum::http::StatusCode::BAD_REQUEST, message).into_response();
    }
    match sessions.begin(&user) {
        Ok(id) => {
            let cookie = format!("session={id}; HttpOnly; SameSite=Lax; Path=/");
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        Err(error) => {
            (axum::http::StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
        }
    }
}

async fn logout(State(sessions): State<Sessions>, headers: HeaderMap) -> Redirect {
    if let Some((id, _)) = sessions.find(&headers) {
        sessions.end(&id);
    }
    Redirect::to("/")
}
