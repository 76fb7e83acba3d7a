//! The input of a request, built piece by piece.

use wellspring_core::Content;

/// Text and other content, in order. Adjacent texts are one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompt {
    content: Vec<Content>,
    words: String,
}

impl Prompt {
    pub(crate) fn text(&mut self, text: &str) {
        self.words.push_str(text);
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.words.push_str(text);
        self.words.push('\n');
    }

    /// Marks every line, so that nothing in the text can end the quotation.
    pub(crate) fn quote(&mut self, text: &str) {
        self.paragraph();
        for line in text.lines() {
            self.words.push_str(if line.is_empty() { ">" } else { "> " });
            self.line(line);
        }
        self.words.push('\n');
    }

    /// Uses a fence longer than any in the source, so that nothing in it can end the block.
    pub(crate) fn code(&mut self, language: &str, source: &str) {
        self.paragraph();
        let longest = source.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.words.push_str(&fence);
        self.line(language);
        self.words.push_str(source);
        if !source.is_empty() && !source.ends_with('\n') {
            self.words.push('\n');
        }
        self.line(&fence);
        self.words.push('\n');
    }

    pub(crate) fn push(&mut self, content: Content) {
        self.end_words();
        self.content.push(content);
    }

    pub(crate) fn into_content(mut self) -> Vec<Content> {
        self.end_words();
        self.content
    }

    /// Starts a new paragraph.
    fn paragraph(&mut self) {
        if !self.words.is_empty() && !self.words.ends_with('\n') {
            self.words.push('\n');
        }
        if !self.words.is_empty() && !self.words.ends_with("\n\n") {
            self.words.push('\n');
        }
    }

    fn end_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        if !words.trim().is_empty() {
            self.content.push(Content::text(words.trim_end()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(build: impl FnOnce(&mut Prompt)) -> Vec<Content> {
        let mut prompt = Prompt::default();
        build(&mut prompt);
        prompt.into_content()
    }

    #[test]
    fn words_run_on_and_blocks_stand_alone() {
        let content = built(|prompt| {
            prompt.text("Review ");
            prompt.line("this:");
            prompt.quote("+ a\n\n- b");
            prompt.text("It is from ");
            prompt.code("rust", "fn main() {}");
            prompt.text("Thanks.");
        });
        let want = "Review this:\n\n> + a\n>\n> - b\n\nIt is from \n\n```rust\nfn main() {}\n```\n\nThanks.";
        assert_eq!(content, [Content::text(want)]);
    }

    #[test]
    fn a_fence_in_the_source_does_not_end_the_block() {
        let content = built(|prompt| prompt.code("md", "````\nx\n````\n"));
        assert_eq!(content, [Content::text("`````md\n````\nx\n````\n`````")]);
    }

    #[test]
    fn other_content_keeps_its_place() {
        let link = Content::Link { uri: "file:///a".into(), name: None, media_type: None };
        let content = built(|prompt| {
            prompt.text("before ");
            prompt.push(link.clone());
            prompt.text("after");
        });
        assert_eq!(content, [Content::text("before"), link, Content::text("after")]);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(built(|prompt| prompt.text(" \n")), []);
    }
}
