//! One typed stream from any agent to any screen: the library people import.

pub mod demo;
