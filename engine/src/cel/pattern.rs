//! Regular expressions: `matches` is a search for a partial match in time linear in the text, as RE2 has it.
//!
//! `regex-lite`, not `regex` or `regex-automata`. It adds 67 KB to the filter; `regex` adds 340 KB without Unicode tables
//! and 657 KB with them. And its `\d`, `\w` and `\b` are ASCII, which is what RE2 says and the larger ones do not. Where
//! it knows less than RE2 (`\pL`, `\Q…\E`) it refuses to compile, so that a pattern never means something else; we refuse
//! `(?i)` with other letters than ASCII for the same reason. What is left is that `\s` has the vertical tab, which RE2
//! leaves out.

use std::ops::Range;

use regex_lite::{Regex, RegexBuilder};

/// The kilobytes that a compiled pattern may have if it is part of an expression.
const CONSTANT_SIZE: usize = 64;
/// The same for a pattern that is computed, and compiled at each evaluation.
const COMPUTED_SIZE: usize = 16;
/// How deep a pattern may nest.
const MAX_NESTING: u32 = 32;
/// The longest pattern.
const MAX_LENGTH: usize = 4 << 10;
/// What a search costs for each byte of text and kilobyte of the pattern: measured, up to 160 ns natively.
const STEPS: usize = 2;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// Steps for each byte of a text.
    cost: usize,
}

impl Pattern {
    /// Compiles a pattern that is part of an expression; the error says why it cannot be.
    pub fn compile(pattern: &str) -> Result<Self, String> {
        Self::build(pattern, CONSTANT_SIZE)
    }

    pub(super) fn computed(pattern: &str) -> Option<Self> {
        Self::build(pattern, COMPUTED_SIZE).ok()
    }

    /// The regular expression does not tell its size: the smallest limit that it fits into does.
    fn build(pattern: &str, most: usize) -> Result<Self, String> {
        if pattern.len() > MAX_LENGTH {
            return Err(format!("longer than {MAX_LENGTH} bytes"));
        }
        if !pattern.is_ascii() && ignores_case(pattern) {
            return Err("`(?i)` knows ASCII letters only".to_owned());
        }
        let mut kilobytes: usize = 1;
        loop {
            let limit = kilobytes.saturating_mul(1 << 10);
            match RegexBuilder::new(pattern).size_limit(limit).nest_limit(MAX_NESTING).build() {
                Ok(regex) => return Ok(Self { regex, cost: kilobytes.saturating_mul(STEPS) }),
                Err(error) if kilobytes >= most => return Err(error.to_string()),
                Err(_) => kilobytes = kilobytes.saturating_mul(2),
            }
        }
    }

    /// How many steps it takes to search a text of this size.
    pub(crate) fn cost(&self, size: usize) -> usize {
        self.cost.saturating_mul(size)
    }

    /// How many groups it has; the first is all of it.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The place of the first match, and its groups; one that took no part is empty.
    pub(crate) fn captures<'t>(&self, text: &'t str) -> Option<(Range<usize>, Vec<&'t str>)> {
        let found = self.regex.captures(text)?;
        let groups = found.iter().map(|group| group.map_or("", |group| group.as_str())).collect();
        Some((found.get(0)?.range(), groups))
    }

    /// Whether the pattern matches some part of a text.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Whether a group sets the flag `i`. What looks like a group but is none only makes us stricter.
fn ignores_case(pattern: &str) -> bool {
    let flags = |group: &str| group.chars().take_while(char::is_ascii_alphabetic).any(|flag| flag == 'i');
    pattern.split("(?").skip(1).any(flags)
}
