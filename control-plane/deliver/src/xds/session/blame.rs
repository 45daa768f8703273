//! Finds the resources that a client's error message names.

use crate::xds::content::Content;

/// The resources of a response that a message names as separate words.
pub(super) fn named_in(message: &str, content: &Content) -> Vec<String> {
    let part_of_word = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '/');
    let names = |name: &str| {
        !name.is_empty()
            && message.match_indices(name).any(|(start, _)| {
                let (before, rest) = message.split_at_checked(start).unwrap_or_default();
                let after = rest.strip_prefix(name).unwrap_or_default();
                // A full stop after a name ends a sentence.
                !before.ends_with(part_of_word) && !after.strip_prefix('.').unwrap_or(after).starts_with(part_of_word)
            })
    };
    content.names().into_iter().filter(|name| names(name)).map(str::to_owned).collect()
}
