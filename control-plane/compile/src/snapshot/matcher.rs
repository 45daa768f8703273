//! Regular expressions and header conditions in Envoy's form.

use envoy_types::pb::{
    envoy::{
        config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
        r#type::matcher::v3::{
            RegexMatcher, StringMatcher,
            regex_matcher::{EngineType, GoogleRe2},
            string_matcher::MatchPattern,
        },
    },
    google::protobuf::UInt32Value,
};
use postern_model::{HeaderCondition, HeaderMatch};

use crate::support::Support;

/// Above the program size of any expression that the model accepts.
const MOST_INSTRUCTIONS: u32 = 1_000_000;

/// How nodes are told regular expressions. Envoy refuses programs above 100 instructions, unless the runtime of its
/// bootstrap allows more, or a deprecated field, of which it warns. Bootstraps say whether they do; only for those that do
/// not, and for expressions that may be large, the field is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Regexes {
    allowed: bool,
}

impl Regexes {
    pub(super) fn of(support: Support) -> Self {
        Self { allowed: support.large_regexes }
    }

    /// A regular expression for a whole text.
    pub(super) fn regex(self, pattern: &str) -> RegexMatcher {
        self.regex_of(pattern, may_be_large(pattern))
    }

    /// Like [`Self::regex`], for an expression whose size class is known.
    #[expect(deprecated, reason = "bootstraps of earlier versions do not raise the limit")]
    pub(super) fn regex_of(self, pattern: &str, large: bool) -> RegexMatcher {
        let raised = GoogleRe2 { max_program_size: Some(UInt32Value { value: MOST_INSTRUCTIONS }) };
        let engine_type = (large && !self.allowed).then_some(EngineType::GoogleRe2(raised));
        RegexMatcher { regex: pattern.to_owned(), engine_type }
    }
}

/// A small regular expression for a whole text.
pub(super) fn small_regex(pattern: &str) -> RegexMatcher {
    RegexMatcher { regex: pattern.to_owned(), ..Default::default() }
}

/// Whether an expression may exceed 100 instructions: a character is at most two, a class of most of Unicode a dozen,
/// and a counted repetition as many as it counts.
fn may_be_large(pattern: &str) -> bool {
    let wide = pattern.matches('.').count() + pattern.matches("[^").count() + pattern.matches('\\').count();
    let other = pattern.chars().any(|character| matches!(character, '{') || !character.is_ascii());
    other || 2 * pattern.len() + 12 * wide > 90
}

/// A header condition in Envoy's form.
pub(super) fn header_match(header: &HeaderMatch, regexes: Regexes) -> HeaderMatcher {
    let condition = match &header.condition {
        HeaderCondition::Exact(value) => exact(value),
        HeaderCondition::Present(present) => HeaderMatchSpecifier::PresentMatch(*present),
        HeaderCondition::Regex(pattern) => {
            let pattern = MatchPattern::SafeRegex(regexes.regex(pattern));
            let matcher = StringMatcher { match_pattern: Some(pattern), ..Default::default() };
            HeaderMatchSpecifier::StringMatch(matcher)
        }
    };
    header_matcher(&header.name.to_ascii_lowercase(), condition)
}

/// The condition that the whole value is equal.
pub(super) fn exact(value: &str) -> HeaderMatchSpecifier {
    let matcher = StringMatcher { match_pattern: Some(MatchPattern::Exact(value.to_owned())), ..Default::default() };
    HeaderMatchSpecifier::StringMatch(matcher)
}

/// A condition on the header with this name.
pub(super) fn header_matcher(name: &str, condition: HeaderMatchSpecifier) -> HeaderMatcher {
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(condition), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_deprecated_field_only_where_the_bootstrap_does_not_raise_the_limit() {
        let check = |large_regexes, pattern: &str, expect| {
            let regex = Regexes::of(Support { large_regexes }).regex(pattern);
            assert_eq!((regex.regex.as_str(), regex.engine_type.is_some()), (pattern, expect), "{large_regexes}");
        };
        check(false, "[a-z]{50}", true);
        check(false, "v[0-9]+", false);
        check(true, "[a-z]{50}", false);
        check(true, "v[0-9]+", false);
    }

    #[test]
    fn raises_the_limit_of_large_expressions_only() {
        let check = |pattern: &str, expect| assert_eq!(may_be_large(pattern), expect, "{pattern}");
        check("/items/[0-9]+(/parts)?", false);
        check("v[0-9]+", false);
        check("/a/.*/b/.*", false);
        check("/[^/]+/[^/]+/.*/[^/]+/[^/]+/.*", true);
        check("[a-z]{50}", true);
        check(&"a".repeat(50), true);
    }
}
