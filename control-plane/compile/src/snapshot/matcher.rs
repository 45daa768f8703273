//! Expressions and conditions on headers, as Envoy writes them.

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

/// More than any expression that the model admits can become.
const MOST_INSTRUCTIONS: u32 = 1_000_000;

/// Envoy wants the whole text to fit, always, and refuses an expression that becomes more than 100 instructions unless a
/// field says otherwise. It is deprecated, and Envoy warns of it, so that only expressions have it that may need it.
pub(super) fn regex(pattern: &str) -> RegexMatcher {
    regex_of(pattern, may_be_large(pattern))
}

/// Like [`regex`], for an expression of which it is known whether it can become so many.
#[expect(deprecated, reason = "there is no other way to say it but the runtime of each Envoy")]
pub(super) fn regex_of(pattern: &str, large: bool) -> RegexMatcher {
    let raised = GoogleRe2 { max_program_size: Some(UInt32Value { value: MOST_INSTRUCTIONS }) };
    let engine_type = large.then_some(EngineType::GoogleRe2(raised));
    RegexMatcher { regex: pattern.to_owned(), engine_type }
}

/// Whether an expression can become more than 100 instructions: a character is two at most, what stands for most of
/// Unicode a dozen, and a counted repetition as many as it counts.
fn may_be_large(pattern: &str) -> bool {
    let wide = pattern.matches('.').count() + pattern.matches("[^").count() + pattern.matches('\\').count();
    let other = pattern.chars().any(|character| matches!(character, '{') || !character.is_ascii());
    other || 2 * pattern.len() + 12 * wide > 90
}

/// A condition on a header.
pub(super) fn header_match(header: &HeaderMatch) -> HeaderMatcher {
    let condition = match &header.condition {
        HeaderCondition::Exact(value) => exact(value),
        HeaderCondition::Present(present) => HeaderMatchSpecifier::PresentMatch(*present),
        HeaderCondition::Regex(pattern) => {
            let matcher =
                StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex(pattern))), ..Default::default() };
            HeaderMatchSpecifier::StringMatch(matcher)
        }
    };
    header_matcher(&header.name.to_ascii_lowercase(), condition)
}

/// The whole value, as it is.
pub(super) fn exact(value: &str) -> HeaderMatchSpecifier {
    let matcher = StringMatcher { match_pattern: Some(MatchPattern::Exact(value.to_owned())), ..Default::default() };
    HeaderMatchSpecifier::StringMatch(matcher)
}

/// A condition on the header of a name.
pub(super) fn header_matcher(name: &str, condition: HeaderMatchSpecifier) -> HeaderMatcher {
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(condition), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
