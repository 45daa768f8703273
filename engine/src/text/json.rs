//! JSON strings, for the bodies of our own answers.

use std::fmt::Write;

/// A string in quotes, escaped as JSON requires.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            // Log viewers end lines at some of these, and turn the text around at others.
            character
                if character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_json_wants_escaped() {
        assert_eq!(quote("a\"b\\c\n\u{1}é"), r#""a\"b\\c\n\u0001é""#);
    }
}
