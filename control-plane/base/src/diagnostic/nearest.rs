//! Suggestions for words that are probably misspelled.

use super::quote;

/// The longest word for which a suggestion is looked for, since comparing words costs time.
const LONGEST: usize = 64;

/// `: did you mean …?` with the nearest candidate, or an empty string if none is near.
pub fn suggestion<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(": did you mean {}?", quote(near)))
}

/// Like [`suggestion`], but lists all candidates if none is near.
pub fn suggestion_or_all(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!(": did you mean {}?", quote(near)),
        None => format!(": expected {}", one_of(candidates)),
    }
}

/// The words as alternatives: "`a`", or "one of `a`, `b`".
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| quote(word)).collect();
    let prefix = if words.len() == 1 { "" } else { "one of " };
    format!("{prefix}{}", quoted.join(", "))
}

/// The candidate with the smallest distance, ignoring case. `None` if every candidate differs in more than a third of
/// the letters, but at least two.
fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > LONGEST {
        return None;
    }
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let word = letters(word);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| {
            let candidate_letters = letters(candidate);
            let allowed = (word.len().max(candidate_letters.len()) / 3).max(1);
            (distance(&word, &candidate_letters), allowed, candidate)
        })
        .filter(|(distance, allowed, candidate)| distance <= allowed && *distance < candidate.len())
        .min_by_key(|(distance, _, _)| *distance)
        .map(|(_, _, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of neighbours between two words ("optimal string
/// alignment").
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut previous = None;
    for (row, letter) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, target) in to.iter().enumerate() {
            let cell = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(letter != target);
            let mut best = replaced.min(cell(&last, column + 1) + 1).min(cell(&current, column) + 1);
            let neighbour = column.checked_sub(1).and_then(|left| Some((left, to.get(left)?)));
            if let Some((left, left_target)) = neighbour
                && previous == Some(target)
                && letter == left_target
            {
                best = best.min(cell(&before_last, left) + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
        previous = Some(letter);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, candidates: &[&str], expect: Option<&str>) {
        assert_eq!(nearest(word, candidates.iter().copied()), expect, "for `{word}`");
    }

    #[test]
    fn finds_inserted_deleted_replaced_and_swapped_letters() {
        check("heder", &["params", "header"], Some("header"));
        check("headder", &["params", "header"], Some("header"));
        check("hender", &["params", "header"], Some("header"));
        check("ehader", &["params", "header"], Some("header"));
    }

    #[test]
    fn ignores_case() {
        check("gateway", &["Service", "Gateway"], Some("Gateway"));
        check("APIKEYAUTH", &["apiKeyAuth"], Some("apiKeyAuth"));
    }

    #[test]
    fn prefers_the_nearest() {
        check("users-v2", &["users-v1", "users-v22", "users-v2x"], Some("users-v1"));
        check("route", &["rout", "routes"], Some("rout"));
    }

    #[test]
    fn suggests_nothing_far_away() {
        check("colour", &["header", "params"], None);
        check("a", &["b"], None);
        check("", &["b"], None);
        check(&"x".repeat(100), &["x"], None);
    }

    #[test]
    fn measures_the_distance_of_empty_words() {
        assert_eq!(distance(&[], &['a', 'b']), 2);
        assert_eq!(distance(&['a', 'b'], &[]), 2);
        assert_eq!(distance(&['a', 'b'], &['b', 'a']), 1);
    }

    #[test]
    fn lists_candidates_when_none_is_near() {
        assert_eq!(suggestion_or_all("colour", &["a1", "b2"]), ": expected one of `a1`, `b2`");
        assert_eq!(suggestion("colour", ["header"]), "");
    }
}
