use super::markdown::Markdown;
use super::*;

fn wrapped(text: &str, max: usize) -> Vec<String> {
    let lines = wrap(
        &[span(text, Style::PLAIN)],
        &[span("> ", Style::DIM)],
        &[span("  ", Style::DIM)],
        max,
    );
    lines.iter().map(Line::text).collect()
}

#[test]
fn nothing_that_commands_a_terminal_is_left() {
    for (raw, want) in [
        ("a\x1b[31mb\x07", "a␛[31mb␇"),
        ("\u{9b}31m", "\u{fffd}31m"),
        ("abc\u{202e}cba\u{2066}", "abc\u{fffd}cba\u{fffd}"),
        ("one\r\ntwo\rthree\u{2028}four", "one\ntwo\nthree\nfour"),
        ("a\tb\u{7f}", "a    b␡"),
        ("ünïcode 水 👩‍🚀", "ünïcode 水 👩‍🚀"),
    ] {
        assert_eq!(clean(raw), want, "{raw:?}");
    }
}

#[test]
fn lines_break_at_spaces_and_never_overflow() {
    assert_eq!(wrapped("the quick brown fox", 11), ["> the quick", "  brown fox"]);
    assert_eq!(wrapped("abcdefghijkl", 7), ["> abcde", "  fghij", "  kl"]);
    assert_eq!(wrapped("水水水水 x", 7), ["> 水水", "  水水", "  x"]);
    assert_eq!(wrapped("", 7), [">"]);
    for max in 4..40 {
        for line in wrapped("a somewhat-longer text 水水 with wörds andaverylongonetoo", max) {
            assert!(width(&line) <= max, "{max}: {line:?}");
        }
    }
}

#[test]
fn what_is_cut_shows_it() {
    let line = Line::of([span("abc", Style::PLAIN), span("defg", Style::BOLD)]);
    assert_eq!(line.clone().truncated(7).text(), "abcdefg");
    assert_eq!(line.clone().truncated(5).text(), "abcd…");
    assert_eq!(line.truncated(3).text(), "ab…");
}

/// Styles as marks, so that a snapshot shows them.
fn marks(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        for Span { text, style } in &line.spans {
            let mark = match style {
                Style { colour: Some(_), .. } => "`",
                Style { bold: true, .. } => "*",
                Style { italic: true, .. } => "/",
                Style { dim: true, .. } => "~",
                _ => "",
            };
            out.push_str(&format!("{mark}{text}{mark}"));
        }
        out.push('\n');
    }
    out
}

#[test]
fn markdown_is_shown_lightly() {
    let source = "# Title\n\nSome **bold words**, *slanted*, `code *x*` and snake_case_names.\n\
        - item one is a little longer\n  1. nested\n- [x] done\n> quoted\n\n```rust\nlet x = *y;\n```\n\
        [here](https://example.com) 2 * 3 * 4 \\*no\\* **open\n---";
    let mut markdown = Markdown::default();
    let lines: Vec<Line> = source
        .split('\n')
        .flat_map(|line| markdown.line(line, &[span("  ", Style::PLAIN)], 32))
        .collect();
    insta::assert_snapshot!(marks(&lines));
}
