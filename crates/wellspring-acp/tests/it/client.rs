//! The promises of a client of ACP agents.

mod cancel;
mod elicitation;
mod faults;
mod http;
mod kit;
mod many;
mod maxima;
mod peer;
mod permissions;
mod served;
mod sessions;
mod tools;
mod updates;
