//! Suggestions for mistyped words.

/// The minimum similarity of two words for a suggestion.
const ALIKE: f64 = 0.8;

/// The known word that is most similar to an unknown one.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let alike = known.into_iter().map(|known| (strsim::jaro_winkler(&word, known), known));
    let best = alike.filter(|(alike, _)| *alike >= ALIKE);
    best.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// `did you mean …?`, or a list of the known words.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("there {}", there_are(known)),
    }
}

/// `are a, b and c`, to follow "there".
pub(crate) fn there_are(known: &[&str]) -> String {
    match known {
        [] => "are none".to_owned(),
        [one] => format!("is {one}"),
        [most @ .., last] => format!("are {} and {last}", most.join(", ")),
    }
}
