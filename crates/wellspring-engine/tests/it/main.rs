//! The engine over the in-memory log, a scripted model and real tools. Time is paused, ids
//! are counted, whole runs are compared.

mod cancel;
mod kit;
mod limits;
mod questions;
mod recovery;
mod results;
mod sub_agents;
mod tools;
mod turns;
