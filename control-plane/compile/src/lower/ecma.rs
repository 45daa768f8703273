//! Translates patterns of JSON Schema (ECMA-262) to the engine's regular expressions: syntax with a different meaning
//! is rewritten, and syntax that ECMA-262 does not have is refused.

/// White space and line ends (ECMA-262, sections 12.2 and 12.3), as ranges for a class.
const SPACES: &str = r"\t-\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
/// The complement of [`SPACES`], as ranges for a class.
const OTHERS: &str = r"\x00-\x08\x0E-\x1F!-\u{9F}\u{A1}-\u{167F}\u{1681}-\u{1FFF}\u{200B}-\u{2027}\u{202A}-\u{202E}\u{2030}-\u{205E}\u{2060}-\u{2FFF}\u{3001}-\u{FEFE}\u{FF00}-\u{10FFFF}";
/// `.` in ECMA-262: everything except line ends.
const IN_LINE: &str = r"[^\n\r\u{2028}\u{2029}]";

/// The translated pattern. The error names the syntax that is not allowed.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut translated = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let mut in_brackets = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let escaped = characters.next().ok_or("a `\\` at the end")?;
                let braced = characters.peek() == Some(&'{');
                translated.push_str(&escape(escaped, in_brackets, braced)?);
            }
            '[' if !in_brackets => {
                in_brackets = true;
                translated.push('[');
            }
            ']' if in_brackets => {
                in_brackets = false;
                translated.push(']');
            }
            '.' if !in_brackets => translated.push_str(IN_LINE),
            other => translated.push(other),
        }
    }
    Ok(translated)
}

/// The translation of a backslash with a character. `braced` means that a brace follows.
fn escape(escaped: char, in_brackets: bool, braced: bool) -> Result<String, String> {
    let class = |ranges: &str| if in_brackets { ranges.to_owned() } else { format!("[{ranges}]") };
    match escaped {
        's' => Ok(class(SPACES)),
        'S' => Ok(class(OTHERS)),
        // Escapes of the engine's dialect that ECMA-262 does not have.
        'a' | 'A' | 'z' | 'Z' | 'U' | 'Q' | 'E' | '<' | '>' => Err(format!("`\\{escaped}` is no escape of ECMA-262")),
        'b' | 'B' | 'x' if braced => Err(format!("`\\{escaped}{{` is no escape of ECMA-262")),
        'b' if in_brackets => Ok(r"\x08".to_owned()),
        other => Ok(format!("\\{other}")),
    }
}

#[cfg(test)]
mod tests {
    use postern_engine::{budget::Budget, cel::Pattern};

    use super::*;

    fn check(pattern: &str, text: &str, expect: bool) {
        let translated = translate(pattern).unwrap();
        let compiled = Pattern::compile(&translated).unwrap();
        assert_eq!(compiled.is_match(text, &Budget::default()), Ok(expect), "{pattern} {text:?}");
    }

    /// In ECMA-262, section 22.2.2.9, `\s` is WhiteSpace or LineTerminator, and `\S` is everything else.
    #[test]
    fn knows_white_space_as_ecma_262_does() {
        let spaces =
            "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{2003}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
        for character in (0..=0x3100).chain(0xfe00..=0xffff).filter_map(char::from_u32) {
            let (text, is_space) =
                (character.to_string(), spaces.contains(character) || ('\u{2000}'..='\u{200a}').contains(&character));
            check(r"^\s$", &text, is_space);
            check(r"^\S$", &text, !is_space);
            check(r"^[^\S]$", &text, is_space);
            check(r"^[\Sa]$", &text, !is_space);
        }
    }

    #[test]
    fn keeps_what_both_mean_alike() {
        check(r"^\d\w\.\\\/-[.\]]$", r"1a.\/-]", true);
        check(r"^[\s\S]$", "\u{10ffff}", true);
        check(r"^[\sx]+$", "x\u{feff}x", true);
        check(r"\\s", r"\s", true);
        check("^.$", "\r", false);
        check("^.$", "\u{2028}", false);
        check("^.$", "é", true);
        check("^[.]$", "é", false);
    }

    #[test]
    fn refuses_what_means_nothing_in_ecma_262() {
        for pattern in [r"\Aa", r"a\z", r"\a", r"\x{41}", r"\b{start}a", "\\"] {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
    }
}
