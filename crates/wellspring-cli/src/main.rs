//! The command `wellspring`: agents in the terminal.
mod screen;
mod text;
fn main() {}
