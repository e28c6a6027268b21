//! "Did you mean": the known names nearest to one that is not known.

/// Up to three known names that resemble the word, the nearest first.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    resembling(word, known, 0.6)
}

/// Those whose likeness is at least this much; 1 is the same word.
pub(super) fn resembling<'a>(word: &str, known: &[&'a str], at_least: f64) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> = known.iter().map(|name| (likeness(word, name), *name)).filter(|(score, _)| *score >= at_least).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    // A clear winner stands alone: a list beside it would only hide it.
    scored.into_iter().filter(|(score, _)| *score >= best - 0.05).take(3).map(|(_, name)| name).collect()
}

/// 1 for the same word; a setting is also known by its last part (`nodes` for `gpu.nodes`).
fn likeness(word: &str, name: &str) -> f64 {
    let (word, name) = (word.to_lowercase(), name.to_lowercase());
    let whole = strsim::normalized_damerau_levenshtein(&word, &name);
    match name.rsplit_once('.') {
        Some((_, last)) if last == word.rsplit('.').next().unwrap_or(&word) => whole.max(0.8),
        _ => whole,
    }
}

/// `; did you mean "gpu.nodes"?`, or nothing when no known name is near.
pub(super) fn did_you_mean(word: &str, known: &[&str]) -> String {
    let names: Vec<_> = nearest(word, known).iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let known = ["gpu.nodes", "gpu.zone", "system.nodes", "name"];
        assert_eq!(nearest("gpu.nodse", &known), ["gpu.nodes"]);
        assert_eq!(nearest("nodes", &known), ["gpu.nodes", "system.nodes"]);
        assert_eq!(nearest("GPU.Zone", &known), ["gpu.zone"]);
        assert!(nearest("colour", &known).is_empty());
        assert_eq!(did_you_mean("nmae", &known), "; did you mean \"name\"?");
    }
}
