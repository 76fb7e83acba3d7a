//! Reads one simple shell command, for rules that allow or deny commands.
//!
//! It understands words, quotes and backslashes, and nothing else. Everything that could make
//! a shell do more than run one program with these words is refused: `;`, `&`, pipes,
//! redirections, substitutions, variables, globs, braces, assignments, comments, newlines and
//! reserved words. A rule that cannot read a command does not allow it.
//!
//! The decision record `why-our-own-reader-of-commands.md` says why this is written by hand.

/// The longest command that is read, in bytes. Longer ones are scripts, which no pattern
/// describes.
pub(super) const COMMAND_BYTES_MAX: usize = 8 * 1024;

/// Words that a shell treats as syntax if they come first.
const RESERVED: [&str; 21] = [
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while", "[[", "]]", "{", "}",
];

/// The words of one simple command, or `None` if the text could be anything else.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    if text.len() > COMMAND_BYTES_MAX {
        return None;
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    // Whether the word so far has no quote and no backslash: only such a word is reserved, or
    // assigns a variable.
    let mut bare = true;
    let mut chars = text.chars();
    loop {
        let next = chars.next();
        match next {
            Some(' ' | '\t') | None => {
                if let Some(word) = word.take() {
                    let first = words.is_empty();
                    if first && bare && (RESERVED.contains(&&*word) || word.contains('=')) {
                        return None;
                    }
                    words.push(word);
                }
                bare = true;
                if next.is_none() {
                    break;
                }
            }
            Some('\'') => {
                let word = word.get_or_insert_default();
                bare = false;
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c if c.is_control() => return None,
                        c => word.push(c),
                    }
                }
            }
            Some('"') => {
                let word = word.get_or_insert_default();
                bare = false;
                loop {
                    match chars.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => match chars.next()? {
                            c @ ('$' | '`' | '"' | '\\') => word.push(c),
                            c if c.is_control() => return None,
                            c => word.extend(['\\', c]),
                        },
                        c if c.is_control() => return None,
                        c => word.push(c),
                    }
                }
            }
            Some('\\') => {
                let c = chars.next().filter(|c| !c.is_control())?;
                word.get_or_insert_default().push(c);
                bare = false;
            }
            Some(c) if is_plain(c) => word.get_or_insert_default().push(c),
            Some(_) => return None,
        }
    }
    (!words.is_empty()).then_some(words)
}

/// Words as one line that reads back as the same words: those with other characters than plain
/// ones are in single quotes.
pub(super) fn quoted<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        if !line.is_empty() {
            line.push(' ');
        }
        if !word.is_empty() && word.chars().all(is_plain) {
            line.push_str(word);
        } else {
            line.push('\'');
            line.push_str(&word.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

/// Characters that mean themselves outside quotes, in every shell.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "_@%+=:,./-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_simple_command_is_read_as_its_words() {
        for (text, line) in [
            ("git log", "git log"),
            ("  git\tlog  --oneline ", "git log --oneline"),
            ("git 'log'", "git log"),
            ("git \"log\"", "git log"),
            ("g\\it log", "git log"),
            ("git 'log; id'", "git 'log; id'"),
            ("'git log'", "'git log'"),
            ("echo \"a b\" 'c d'", "echo 'a b' 'c d'"),
            ("echo \"it's\"", r"echo 'it'\''s'"),
            (r#"echo "\$HOME \x""#, r"echo '$HOME \x'"),
            ("echo ''", "echo ''"),
            ("env A=b", "env A=b"),
            ("echo a\\;b", "echo 'a;b'"),
            ("grep -- -x datei.txt", "grep -- -x datei.txt"),
        ] {
            let words = words(text).unwrap_or_else(|| panic!("{text:?} was not read"));
            assert_eq!(quoted(&words), line, "{text:?}");
            assert_eq!(super::words(line), Some(words), "{line:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "  ",
            "git log; id",
            "git log;id",
            "git log & id",
            "git log && id",
            "git log | id",
            "git log || id",
            "git log\nid",
            "git log\r\nid",
            "git log > file",
            "git log < file",
            "git log 2>&1",
            "$(id)",
            "git `id`",
            "git \"$(id)\"",
            "git \"`id`\"",
            "git $HOME",
            "git \"$HOME\"",
            "(id)",
            "{ id; }",
            "! id",
            "if id",
            "while id",
            "time id",
            "A=b id",
            "ls *",
            "ls ?",
            "ls [a]",
            "ls ~",
            "ls ~root",
            "echo {a,b}",
            "git log # id",
            "git 'log",
            "git \"log",
            "git log \\",
            "git log \\\n",
            "git \"log\nid\"",
            "git 'log\nid'",
            "git\0log",
            "git\u{a0}log",
            "[[ a ]]",
            "for x",
            "^x^y",
            "git log\u{2028}id",
        ] {
            assert_eq!(words(text), None, "{text:?}");
        }
        assert_eq!(words(&"x".repeat(COMMAND_BYTES_MAX + 1)), None);
    }
}
