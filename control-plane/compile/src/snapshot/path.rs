//! Projects the path of a route to Envoy's matcher. It matches all spellings that an upstream could read as the route's
//! path ([`PathText`]).

use std::fmt::Write;

use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use postern_model::{PathMatch, PathText, Spelling};

use super::matcher::Regexes;

/// The matcher for a path. A prefix matches whole segments: `/users` matches `/users` and `/users/7`, never
/// `/userspace`.
pub(super) fn path_specifier(path: &PathMatch, regexes: Regexes) -> PathSpecifier {
    match path {
        PathMatch::Exact(text) => exact(&PathText::read(text), regexes),
        PathMatch::Prefix(text) => prefix(&PathText::read(text), regexes),
        PathMatch::Template(template) => PathSpecifier::SafeRegex(Pattern::of_template(template).compile(regexes)),
        PathMatch::Regex(pattern) => PathSpecifier::SafeRegex(regexes.regex(pattern)),
    }
}

fn exact(path: &PathText, regexes: Regexes) -> PathSpecifier {
    match path.plain() {
        Some(plain) => PathSpecifier::Path(plain),
        None => PathSpecifier::SafeRegex(Pattern::default().text(path).compile(regexes)),
    }
}

fn prefix(path: &PathText, regexes: Regexes) -> PathSpecifier {
    let whole = path.spellings().last() == Some(&Spelling::Plain(b'/'));
    match path.plain() {
        Some(plain) if whole => PathSpecifier::Prefix(plain),
        Some(plain) => PathSpecifier::PathSeparatedPrefix(plain),
        None if whole => PathSpecifier::SafeRegex(Pattern::default().text(path).part(REST).compile(regexes)),
        None => PathSpecifier::SafeRegex(Pattern::default().text(path).part(BELOW).compile(regexes)),
    }
}

/// A part of a regular expression, with the number of RE2 instructions that it may become.
type Part = (&'static str, usize);

const SEGMENT: Part = ("[^/]+", 16);
const REST: Part = (".*", 16);
const BELOW: Part = ("(?:/.*)?", 20);
/// Envoy's default limit of instructions, and the number of those around every expression.
const MOST: usize = 100;
const AROUND: usize = 10;

/// Builds a regular expression.
///
/// Envoy's own template matcher is not used: its `{name}` does not match segments with `[` or `]`, so that such a
/// request would bypass the route.
#[derive(Default)]
struct Pattern {
    text: String,
    instructions: usize,
}

impl Pattern {
    fn of_template(template: &str) -> Self {
        let segments = template.split('/').skip(1);
        segments.fold(Self::default(), |pattern, segment| {
            let pattern = pattern.part(("/", 1));
            match segment {
                rest if rest.ends_with("=**}") => pattern.part(REST),
                name if name.starts_with('{') => pattern.part(SEGMENT),
                text => pattern.text(&PathText::read(text)),
            }
        })
    }

    fn part(mut self, (text, instructions): Part) -> Self {
        self.text += text;
        self.instructions += instructions;
        self
    }

    fn text(self, path: &PathText) -> Self {
        path.spellings().iter().fold(self, |pattern, spelling| pattern.spelling(*spelling))
    }

    fn spelling(mut self, spelling: Spelling) -> Self {
        match spelling {
            Spelling::Plain(b'.') => self.part((r"\.", 1)),
            Spelling::Plain(byte) => {
                self.text.push(char::from(byte));
                self.part(("", 1))
            }
            Spelling::Either(byte) => {
                let _ = write!(self.text, r"(?:\{}|", char::from(byte));
                self.escaped(byte).part((")", 3))
            }
            Spelling::Escaped(byte) => self.escaped(byte),
        }
    }

    /// Appends a byte as `%` and two digits in either case.
    fn escaped(mut self, byte: u8) -> Self {
        self.text.push('%');
        for digit in [byte >> 4, byte & 0xf] {
            let _ = match digit {
                0..=9 => write!(self.text, "{digit}"),
                _ => write!(self.text, "[{digit:x}{digit:X}]"),
            };
        }
        self.part(("", 5))
    }

    fn compile(self, regexes: Regexes) -> envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher {
        regexes.regex_of(&self.text, self.instructions + AROUND > MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Support;

    fn check(path: PathMatch, expect: &str) {
        let text = match path_specifier(&path, Regexes::of(Support::default())) {
            PathSpecifier::Path(text) => format!("path {text}"),
            PathSpecifier::Prefix(text) => format!("prefix {text}"),
            PathSpecifier::PathSeparatedPrefix(text) => format!("separated {text}"),
            PathSpecifier::SafeRegex(regex) => format!("regex {}", regex.regex),
            other => panic!("{other:?}"),
        };
        assert_eq!(text, expect, "{path:?}");
    }

    #[test]
    fn uses_the_cheapest_matcher_that_knows_all_spellings() {
        let (exact, prefix) = (|text: &str| PathMatch::Exact(text.into()), |text: &str| PathMatch::Prefix(text.into()));
        let template = |text: &str| PathMatch::Template(text.into());
        check(exact("/users"), "path /users");
        check(exact("/%75sers"), "path /users");
        check(exact("/a@b"), r"regex /a(?:\@|%40)b");
        check(exact("/a%2Fb"), "regex /a%2[fF]b");
        check(prefix("/"), "prefix /");
        check(prefix("/a"), "separated /a");
        check(prefix("/a/"), "prefix /a/");
        check(prefix("/ä"), "regex /%[cC]3%[aA]4(?:/.*)?");
        check(prefix("/ä/"), "regex /%[cC]3%[aA]4/.*");
        check(template("/users/{id}/keys"), "regex /users/[^/]+/keys");
        check(template("/v1.0/{rest=**}"), r"regex /v1\.0/.*");
        check(template("/a/{b}/"), "regex /a/[^/]+/");
    }
}
