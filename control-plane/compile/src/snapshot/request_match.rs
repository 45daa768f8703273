//! Projects conditions on query parameters and cookies to Envoy's matchers.

use envoy_types::pb::envoy::{
    config::route::v3::{
        HeaderMatcher, QueryParameterMatcher, header_matcher::HeaderMatchSpecifier,
        query_parameter_matcher::QueryParameterMatchSpecifier,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use postern_model::{CookieCondition, CookieMatch, HeaderCondition, QueryMatch};

use super::matcher::{Regexes, header_matcher};

const COOKIE: &str = "cookie";

/// The matcher for a query parameter. Envoy compares the first value, undecoded.
pub(super) fn query(query: &QueryMatch, regexes: Regexes) -> QueryParameterMatcher {
    let specifier = match &query.condition {
        HeaderCondition::Exact(value) => {
            QueryParameterMatchSpecifier::StringMatch(string(MatchPattern::Exact(value.clone())))
        }
        HeaderCondition::Present(present) => QueryParameterMatchSpecifier::PresentMatch(*present),
        HeaderCondition::Regex(pattern) => {
            QueryParameterMatchSpecifier::StringMatch(string(MatchPattern::SafeRegex(regexes.regex(pattern))))
        }
    };
    QueryParameterMatcher { name: query.name.clone(), query_parameter_match_specifier: Some(specifier) }
}

/// The matcher for a cookie: a regular expression on the whole header, since Envoys before 1.38 silently ignore
/// `RouteMatch.cookies`.
pub(super) fn cookie(cookie: &CookieMatch, regexes: Regexes) -> HeaderMatcher {
    let matcher = string(MatchPattern::SafeRegex(regexes.regex(&cookie.header_pattern())));
    let absent = cookie.condition == CookieCondition::Present(false);
    HeaderMatcher {
        invert_match: absent,
        // A request without cookies lacks this cookie too.
        treat_missing_header_as_empty: absent,
        ..header_matcher(COOKIE, HeaderMatchSpecifier::StringMatch(matcher))
    }
}

fn string(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Support;

    #[test]
    fn inverts_only_what_must_be_absent() {
        let of = |condition| cookie(&CookieMatch { name: "a".to_owned(), condition }, Regexes::of(Support::default()));
        let present = of(CookieCondition::Present(true));
        let absent = of(CookieCondition::Present(false));
        assert!(!present.invert_match && !present.treat_missing_header_as_empty);
        assert!(absent.invert_match && absent.treat_missing_header_as_empty);
        assert_eq!(present.header_match_specifier, absent.header_match_specifier);
        assert_eq!(present.name, "cookie");
    }
}
