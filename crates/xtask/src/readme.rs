//! Finds the commands in the README, so that they can be run.
//!
//! Every fenced block of `console` or `sh` is run from the workspace's root, in order. In a
//! `console` block, lines that start with `$ ` are commands (a backslash continues one) and all
//! others are output; in an `sh` block every line is a command. A block that cannot be run
//! (because it needs input or a key) has a comment on the line before, and is skipped with a
//! message:
//!
//! ````markdown
//! <!-- not run: it needs a key -->
//! ```sh
//! ANTHROPIC_API_KEY=… cargo run --release
//! ```
//! ````
//!
//! A block that serves until it is stopped has `<!-- serves a page -->` before it: it must
//! print its address, respond there, and stop on a signal.
//!
//! Blocks of `rust` are skipped: rustdoc compiles them where the library includes the file.

use anyhow::{bail, ensure};

/// The comment before a block that serves.
const SERVES: &str = "<!-- serves a page -->";

/// A block of commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    /// The line of its fence, from 1.
    pub line: usize,
    /// Its commands, as a script.
    pub script: String,
    /// The reason why it is not run; `None` if it is.
    pub not_run: Option<String>,
    /// Whether it runs until it is stopped, and serves a page.
    pub serves: bool,
}

/// Finds the blocks of commands in a Markdown text.
///
/// # Errors
///
/// If a block has no command, or is not closed.
///
/// ````
/// let blocks = xtask::readme::blocks("Try it:\n\n```console\n$ echo hello\nhello\n```\n")?;
/// assert_eq!(blocks[0].script, "echo hello\n");
/// # anyhow::Ok(())
/// ````
pub fn blocks(markdown: &str) -> anyhow::Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines().enumerate();
    let mut before = "";
    while let Some((index, line)) = lines.next() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        if ticks < 3 {
            if !line.trim().is_empty() {
                before = line.trim();
            }
            continue;
        }
        let (fence, language) = line.split_at(ticks);
        let mut body = Vec::new();
        loop {
            match lines.next() {
                Some((_, line)) if line.trim_end() == fence => break,
                Some((_, line)) => body.push(line),
                None => bail!("the block at line {} is never closed", index + 1),
            }
        }
        let script = match language.trim() {
            "console" => console_commands(&body),
            "sh" => body.iter().flat_map(|line| [line, "\n"]).collect(),
            _ => {
                before = "";
                continue;
            }
        };
        ensure!(!script.trim().is_empty(), "the block at line {} has no command", index + 1);
        let not_run = before
            .strip_prefix("<!-- not run:")
            .and_then(|comment| comment.strip_suffix("-->"))
            .map(|why| why.trim().to_owned());
        let serves = before == SERVES;
        blocks.push(Block { line: index + 1, script, not_run, serves });
        before = "";
    }
    Ok(blocks)
}

fn console_commands(body: &[&str]) -> String {
    let mut script = String::new();
    let mut continues = false;
    for line in body {
        let command = if continues { Some(*line) } else { line.strip_prefix("$ ") };
        continues = false;
        if let Some(command) = command {
            continues = command.ends_with('\\');
            script.push_str(command);
            script.push('\n');
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_and_output_is_not() {
        let markdown = "\
# Title

```console
$ cargo run -- \\
    --json
$ and its output
more output
```

```rust
let not = \"ours\";
```

<!-- not run: it waits for a person -->

````sh
one
two # ``` three
````

<!-- serves a page -->
```sh
last
```
";
        let block = |line, script: &str, not_run| {
            let serves = line == 22;
            Block { line, script: script.to_owned(), not_run, serves }
        };
        let waits = Some("it waits for a person".to_owned());
        assert_eq!(
            blocks(markdown).unwrap(),
            [
                block(3, "cargo run -- \\\n    --json\nand its output\n", None),
                block(16, "one\ntwo # ``` three\n", waits),
                block(22, "last\n", None),
            ]
        );
    }

    #[test]
    fn a_block_that_shows_nothing_is_an_error() {
        for (markdown, want) in [
            ("```console\nhello\n```\n", "the block at line 1 has no command"),
            ("text\n```sh\nhello\n", "the block at line 2 is never closed"),
        ] {
            assert_eq!(blocks(markdown).unwrap_err().to_string(), want);
        }
    }
}
