//! Regular expressions: `matches` is a search for a partial match in time linear in the text, as RE2 has it.
//!
//! `regex-lite`, not `regex` or `regex-automata`. It adds 67 KB to the filter; `regex` adds 340 KB without Unicode tables
//! and 657 KB with them. And its `\d`, `\w` and `\b` are ASCII, which is what RE2 says and the larger ones do not. Where
//! it knows less than RE2 (`\pL`, `\Q…\E`) it refuses to compile, so that a pattern never means something else; we refuse
//! `(?i)` with other letters than ASCII for the same reason. What is left is that `\s` has the vertical tab, which RE2
//! leaves out.

//!
//! A search cannot be interrupted, so it takes a [`Budget`] and is charged its worst case first: every state of the
//! pattern at every byte of the text. There is no way to search without one.

use std::ops::Range;

use regex_lite::{Regex, RegexBuilder};

use crate::budget::{Budget, Exhausted, meter::work, steps};

/// The states that a pattern may have if it is part of an expression.
const CONSTANT_SIZE: usize = 2_048;
/// The states that a computed pattern may have, which is compiled at each evaluation.
const COMPUTED_SIZE: usize = 512;
/// The bytes that a state takes, more or less, by which the crate limits what it compiles: they are the same states, but
/// smaller where pointers are.
const STATE: usize = if cfg!(target_pointer_width = "32") { 20 } else { 32 };
/// How deeply a pattern may nest.
const MAX_NESTING: u32 = 32;
/// The longest pattern.
const MAX_LENGTH: usize = 4 << 10;
/// The cost of a search for each state and byte, in quarters of a step.
const QUARTERS: u64 = 5;
/// The cost of compiling for each byte of a pattern, and for each state that it may get.
const COMPILE_STEPS: u64 = 64;

/// The position of a match in a text, and its groups. The first group is the whole match.
type Match<'t> = (Range<usize>, Vec<&'t str>);

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// Steps for each byte of a text.
    cost: u64,
}

impl Pattern {
    /// Compiles a pattern that is part of an expression; the error says why it cannot be.
    pub fn compile(pattern: &str) -> Result<Self, String> {
        Self::build(pattern, CONSTANT_SIZE)
    }

    /// Compiles a pattern that an expression has computed. `None` if it is not a pattern.
    pub(super) fn computed(pattern: &str, budget: &Budget) -> Result<Option<Self>, Exhausted> {
        let size = pattern.len().min(MAX_LENGTH);
        budget.spend(steps(size.saturating_add(COMPUTED_SIZE / 4)).saturating_mul(COMPILE_STEPS))?;
        work(size);
        Ok(Self::build(pattern, COMPUTED_SIZE).ok())
    }

    /// The regular expression does not tell its size: the smallest limit that it fits into does.
    fn build(pattern: &str, most: usize) -> Result<Self, String> {
        if pattern.len() > MAX_LENGTH {
            return Err(format!("longer than {MAX_LENGTH} bytes"));
        }
        if !pattern.is_ascii() && ignores_case(pattern) {
            return Err("`(?i)` knows ASCII letters only".to_owned());
        }
        let mut states: usize = 8;
        loop {
            let limit = states.saturating_mul(STATE);
            match RegexBuilder::new(pattern).size_limit(limit).nest_limit(MAX_NESTING).build() {
                Ok(regex) => return Ok(Self { regex, cost: steps(states).saturating_mul(QUARTERS).div_ceil(4) }),
                Err(error) if states >= most => return Err(error.to_string()),
                // 8, 12, 16, 24, 32, …
                Err(_) if states.is_power_of_two() => states = (states / 2).saturating_mul(3),
                Err(_) => states = (states / 3).saturating_mul(4),
            }
        }
    }

    /// How many steps it takes to search a text of this size. The end of the text counts as one more byte.
    pub fn cost(&self, size: usize) -> u64 {
        self.cost.saturating_mul(steps(size).saturating_add(1))
    }

    /// Like [`Self::cost`], for `captures`: each state has the positions of all groups.
    pub fn cost_of_captures(&self, size: usize) -> u64 {
        self.cost(size).saturating_mul(steps(self.groups()).div_ceil(4).saturating_add(1))
    }

    /// How many groups it has. The first is the whole match.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The position of the first match, and its groups. A group that took no part is empty. `None` without a match.
    pub(crate) fn captures<'t>(&self, text: &'t str, budget: &Budget) -> Result<Option<Match<'t>>, Exhausted> {
        budget.spend(self.cost_of_captures(text.len()))?;
        work(text.len());
        let Some(found) = self.regex.captures(text) else { return Ok(None) };
        let groups = found.iter().map(|group| group.map_or("", |group| group.as_str())).collect();
        Ok(found.get(0).map(|whole| (whole.range(), groups)))
    }

    /// Whether the pattern matches some part of a text.
    pub fn is_match(&self, text: &str, budget: &Budget) -> Result<bool, Exhausted> {
        budget.spend(self.cost(text.len()))?;
        work(text.len());
        Ok(self.regex.is_match(text))
    }
}

/// Whether a group sets the flag `i`. Text that only looks like such a group counts too, which makes us stricter.
fn ignores_case(pattern: &str) -> bool {
    let flags = |group: &str| group.chars().take_while(char::is_ascii_alphabetic).any(|flag| flag == 'i');
    pattern.split("(?").skip(1).any(flags)
}
