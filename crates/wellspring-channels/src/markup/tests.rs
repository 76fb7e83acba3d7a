use proptest::prelude::*;
use wellspring_testkit::telegram::parse_html;

use super::{Markup, Text};

fn html(source: &str) -> String {
    Text::markdown(source).render(Markup::TelegramHtml)
}

#[test]
fn what_models_write() {
    for (source, want) in [
        ("plain & <simple>", "plain &amp; &lt;simple&gt;"),
        ("**bold** and *italic* and ~~gone~~", "<b>bold</b> and <i>italic</i> and <s>gone</s>"),
        ("***both***", "<b><i>both</i></b>"),
        ("**bold with *italic* inside**", "<b>bold with </b><b><i>italic</i></b><b> inside</b>"),
        ("snake_case_name and _this_", "snake_case_name and <i>this</i>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("`a < b` and ``x ` y``", "<code>a &lt; b</code> and <code>x ` y</code>"),
        ("[site](https://a.b/?x=1&y=2)", "<a href=\"https://a.b/?x=1&amp;y=2\">site</a>"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("# Title\n- one\n  * two\n1. three", "<b>Title</b>\n• one\n  • two\n1. three"),
        ("> a\n> > b\nc", "<blockquote>a\nb</blockquote>\nc"),
        (
            "```rust\nlet x = 1 < 2;\n```\nend",
            "<pre><code class=\"language-rust\">let x = 1 &lt; 2;</code></pre>\nend",
        ),
        ("```\nopen", "<pre>open</pre>"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>"),
        (r"\*not italic\*", "*not italic*"),
        ("**open", "**open"),
    ] {
        assert_eq!(html(source), want, "{source}");
        parse_html(want).unwrap();
    }
}

#[test]
fn other_networks() {
    let text = Text::markdown("**b** *i* `c` [s](https://a.b)\n> q\n> r\n```sh\nls\n```");
    let all = [Markup::Discord, Markup::Slack, Markup::WhatsApp, Markup::TelegramHtmlItalic];
    let shown: Vec<String> = all.iter().map(|markup| text.render(*markup)).collect();
    insta::assert_snapshot!(shown.join("\n\n===\n\n"), @r#"
    **b** _i_ `c` [s](https://a.b)
    > q
    > r
    ```sh
    ls
    ```

    ===

    *b* _i_ `c` <https://a.b|s>
    > q
    > r
    ```
    ls
    ```

    ===

    *b* _i_ `c` s (https://a.b)
    > q
    > r
    ```
    ls
    ```

    ===

    <b>b</b> <i>i</i> <code>c</code> <a href="https://a.b">s</a>
    <i>q
    r</i>
    <pre><code class="language-sh">ls</code></pre>
    "#);
}

/// A cut in a block of code or in bold closes and opens it again, and prefers the end of a line.
#[test]
fn cuts_close_and_reopen() {
    let text = Text::markdown("Intro.\n\n```py\na = 1\nb = 2\nc = 3\n```");
    let pieces: Vec<_> =
        text.split(14, 14).iter().map(|it| it.render(Markup::TelegramHtml)).collect();
    assert_eq!(
        pieces,
        [
            "Intro.",
            "<pre><code class=\"language-py\">a = 1\nb = 2</code></pre>",
            "<pre><code class=\"language-py\">c = 3</code></pre>",
        ]
    );
    let bold = Text::markdown("**one two three**");
    let pieces: Vec<_> =
        bold.split(8, 8).iter().map(|it| it.render(Markup::TelegramHtml)).collect();
    assert_eq!(pieces, ["<b>one two</b>", "<b>three</b>"]);
    // Families are not torn apart.
    let family = Text::plain("aaaaaa👨‍👩‍👧bbb");
    let pieces: Vec<_> = family.split(9, 20).iter().map(|it| it.render(Markup::Plain)).collect();
    assert_eq!(pieces, ["aaaaaa", "👨‍👩‍👧bbb"]);
}

fn arb_markdown() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("word ".to_owned()),
        Just("**".to_owned()),
        Just("*".to_owned()),
        Just("_".to_owned()),
        Just("`".to_owned()),
        Just("```\n".to_owned()),
        Just("\n```rust\n".to_owned()),
        Just("\n> ".to_owned()),
        Just("\n\n".to_owned()),
        Just("\n".to_owned()),
        Just("[x](https://a.b)".to_owned()),
        Just("& <b> ".to_owned()),
        Just("~~".to_owned()),
        Just("\\".to_owned()),
        Just("👩‍💻 ".to_owned()),
        Just("| a |\n".to_owned()),
        "[a-zé\\PC]{0,12}",
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

proptest! {
    /// Whatever a model writes, Telegram takes every piece, none is too long, and the pieces
    /// together have every letter of the whole.
    #[test]
    fn any_markdown_is_split_without_loss(source in arb_markdown(), max in 8usize..200) {
        let text = Text::markdown(&source);
        let whole = parse_html(&text.render(Markup::TelegramHtml)).unwrap();
        prop_assert_eq!(letters(&whole), letters(&text.render(Markup::Plain)));
        let mut together = String::new();
        for piece in text.split(max, max) {
            let shown = parse_html(&piece.render(Markup::TelegramHtml)).unwrap();
            parse_html(&piece.render(Markup::TelegramHtmlItalic)).unwrap();
            prop_assert!(shown.encode_utf16().count() <= max, "{:?}", shown);
            together.push_str(&shown);
        }
        prop_assert_eq!(letters(&together), letters(&whole));
        let tail = text.tail(max).render(Markup::Plain);
        prop_assert!(tail.encode_utf16().count() <= max);
        prop_assert!(whole.ends_with(&tail));
    }
}
