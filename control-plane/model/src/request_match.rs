//! `query` and `cookies` of a route's `match`: conditions on a request's query parameters and cookies.
//!
//! Both are compared as the caller sent them, as Envoy does: escapes are not decoded, and quotes are kept.

use postern_base::{
    diagnostic::{Path, quote},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{cookie_pattern::CookiePattern, header_match::HeaderCondition, report::Report};

/// White space around the name and the value of a cookie.
const SPACE: &str = "[ \\t]*";

/// The schema of one query parameter.
pub(super) const QUERY: Object = Object {
    fields: &[
        Field::required("name", Kind::Text, "The parameter, spelt as it is sent: nothing is unescaped."),
        Field::optional("exact", Kind::Text, "Its value, spelt as it is sent. The first counts if there are several."),
        Field::optional("present", Kind::Boolean, "Whether it is there."),
        Field::optional("regex", Kind::Regex, "A regular expression for its whole value, spelt as it is sent."),
    ],
    exactly_one_of: &["exact", "present", "regex"],
};

/// The schema of one cookie.
pub(super) const COOKIE: Object = Object {
    fields: &[
        Field::required("name", Kind::Text, "The cookie, of exactly this case. Cookies are separated by `;` or `,`."),
        Field::optional("exact", Kind::Text, "Its value. One of them must fit if there are several."),
        Field::optional("present", Kind::Boolean, "Whether it is there."),
        Field::optional(
            "regex",
            Kind::Regex,
            "A regular expression for its whole value, which has no `;`, no `,` and no spaces: `.` stands for none of them.",
        ),
    ],
    exactly_one_of: &["exact", "present", "regex"],
};

/// A condition on a query parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueryMatch {
    /// The name, as it is sent.
    pub name: String,
    /// The condition on its first value.
    #[serde(flatten)]
    pub condition: HeaderCondition,
}

/// A condition on a cookie.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CookieMatch {
    /// The name: a token.
    pub name: String,
    /// The condition, which one of its values must meet.
    #[serde(flatten)]
    pub condition: CookieCondition,
}

/// A condition on the value of a cookie.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CookieCondition {
    /// The value equals this text.
    Exact(String),
    /// Whether it is present.
    Present(bool),
    /// The whole value matches a regular expression.
    Regex(CookiePattern),
}

impl CookieMatch {
    /// A regular expression for the whole `cookie` header: it matches if a cookie meets the condition. For a cookie
    /// that must be absent, it matches if the cookie is present.
    pub fn header_pattern(&self) -> String {
        let value = match &self.condition {
            CookieCondition::Exact(value) => format!("{SPACE}{}{SPACE}(?:[;,].*)?", regex_syntax::escape(value)),
            CookieCondition::Present(_) => ".*".to_owned(),
            CookieCondition::Regex(pattern) => format!("{SPACE}{}{SPACE}(?:[;,].*)?", pattern.as_str()),
        };
        format!("(?:.*[;,])?{SPACE}{}{SPACE}={value}", regex_syntax::escape(&self.name))
    }
}

/// Reports faults in a route's `match` that the schemas cannot express.
pub(super) fn rules(matching: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let items = |name| matching.get(name).map_or(&[][..], Node::items).iter().enumerate();
    let list = path.field("query");
    for (index, query) in items("query") {
        let path = list.item(index);
        text_rule(query, "name", query_name, &path, report);
        text_rule(query, "exact", query_value, &path, report);
    }
    let list = path.field("cookies");
    for (index, cookie) in items("cookies") {
        let path = list.item(index);
        text_rule(cookie, "name", cookie_name, &path, report);
        text_rule(cookie, "exact", cookie_value, &path, report);
        text_rule(cookie, "regex", |text| CookiePattern::read(text).map(|_| ()), &path, report);
    }
}

fn text_rule(
    node: &Node,
    field: &'static str,
    rule: impl Fn(&str) -> Result<(), String>,
    path: &Path<'_>,
    report: &mut Report<'_>,
) {
    let Some(found) = node.get(field) else { return };
    if let Some(Err(message)) = found.text().map(rule) {
        report.error(found.at, &path.field(field), message);
    }
}

fn query_name(text: &str) -> Result<(), String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| is_sent_in_a_query(byte) && byte != b'=');
    let expected = "the name of a query parameter as it is sent, in visible ASCII without `&`, `=` and `#` \
                    (a space is `%20` or `+`)";
    if fits { Ok(()) } else { Err(format!("expected {expected}, found {}", quote(text))) }
}

fn query_value(text: &str) -> Result<(), String> {
    let expected = "the value of a query parameter as it is sent, in visible ASCII without `&` and `#` \
                    (a space is `%20` or `+`)";
    if text.bytes().all(is_sent_in_a_query) {
        Ok(())
    } else {
        Err(format!("expected {expected}, found {}", quote(text)))
    }
}

fn is_sent_in_a_query(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'&' | b'#')
}

fn cookie_name(text: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let fits = !text.is_empty() && text.bytes().all(token);
    if fits { Ok(()) } else { Err(format!("expected the name of a cookie, found {}", quote(text))) }
}

/// The value of a cookie. The message does not repeat it, since it may be a credential.
fn cookie_value(text: &str) -> Result<(), String> {
    let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b','));
    if fits { Ok(()) } else { Err("expected the value of a cookie, in visible ASCII without `;` and `,`".to_owned()) }
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;
    use crate::{File, Match, read};

    fn read_match(matching: &str) -> Result<Match, String> {
        let text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  \
             routes:\n    - name: r\n      service: a\n      match: {matching}\n---\napiVersion: postern/v1\nkind: \
             Service\nmetadata: {{name: a}}\nspec: {{endpoints: [{{address: x, port: 1}}]}}\n"
        );
        let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        let route = bundle.map(|bundle| bundle.gateways[0].spec.routes[0].clone());
        route.map(|route| route.matching).map_err(|errors| errors.to_string())
    }

    fn check_fails(matching: &str, expect: &[&str]) {
        assert_eq!(read_match(matching).unwrap_err().lines().collect::<Vec<_>>(), expect, "for `{matching}`");
    }

    #[test]
    fn reads_query_parameters_and_cookies() {
        let text = "{query: [{name: v, exact: '2'}, {name: a%20b, present: false}, {name: e, exact: ''}], \
                    cookies: [{name: Beta, regex: '[0-9]+'}]}";
        let query = |name: &str, condition| QueryMatch { name: name.to_owned(), condition };
        let expect = Match {
            query: vec![
                query("v", HeaderCondition::Exact("2".to_owned())),
                query("a%20b", HeaderCondition::Present(false)),
                query("e", HeaderCondition::Exact(String::new())),
            ],
            cookies: vec![CookieMatch {
                name: "Beta".to_owned(),
                condition: CookieCondition::Regex(CookiePattern::read("[0-9]+").unwrap()),
            }],
            ..Match::default()
        };
        assert_eq!(read_match(text), Ok(expect));
    }

    #[test]
    fn finds_a_cookie_in_a_header() {
        let check = |condition: CookieCondition, fits: &[&str], differs: &[&str]| {
            let pattern = CookieMatch { name: "n.x".to_owned(), condition }.header_pattern();
            let regex = Regex::new(&format!("(?-u)^(?:{pattern})$")).unwrap();
            fits.iter().for_each(|header| assert!(regex.is_match(header.as_bytes()), "`{pattern}` for `{header}`"));
            differs.iter().for_each(|header| assert!(!regex.is_match(header.as_bytes()), "`{pattern}` for `{header}`"));
        };
        check(
            CookieCondition::Exact("a.b".to_owned()),
            &["n.x=a.b", "m=1; n.x=a.b", "n.x=a.b;m=1", "m=1,n.x=a.b", "m;n.x = a.b ;", "n.x=c; n.x=a.b"],
            &["", "n.x=aab", "nyx=a.b", "an.x=a.b", "n.x=a.bc", "N.x=a.b", "m=n.x=a.b", "n.x=\"a.b\"", "n.x=a.b c"],
        );
        check(CookieCondition::Present(true), &["n.x=", "m=1;n.x=2"], &["", "n.x", "m=n.x=", "n.x2=1"]);
        check(
            CookieCondition::Regex(CookiePattern::read("a|.b*").unwrap()),
            &["n.x=a", "n.x=cbb; m=1", "n.x= a ;"],
            &["n.x=", "n.x=; a", "n.x=;b", "n.x= b b", "n.x=aa"],
        );
    }

    #[test]
    fn reports_what_is_never_sent() {
        check_fails(
            "{query: [{name: 'a b', exact: 'c&d'}, {name: '', present: true}, {name: a}]}",
            &[
                "f:9:30: Gateway `g`: spec.routes[0].match.query[0].name: expected the name of a query parameter as it is \
                 sent, in visible ASCII without `&`, `=` and `#` (a space is `%20` or `+`), found `a b`",
                "f:9:44: Gateway `g`: spec.routes[0].match.query[0].exact: expected the value of a query parameter as it \
                 is sent, in visible ASCII without `&` and `#` (a space is `%20` or `+`), found `c&d`",
                "f:9:59: Gateway `g`: spec.routes[0].match.query[1].name: expected the name of a query parameter as it is \
                 sent, in visible ASCII without `&`, `=` and `#` (a space is `%20` or `+`), found ``",
                "f:9:79: Gateway `g`: spec.routes[0].match.query[2]: expected exactly one of `exact`, `present`, `regex`",
            ],
        );
        check_fails(
            "{cookies: [{name: a=b, exact: 'c;d'}, {name: a, regex: 'a b'}, {name: a, regex: '^a'}]}",
            &[
                "f:9:32: Gateway `g`: spec.routes[0].match.cookies[0].name: expected the name of a cookie, found `a=b`",
                "f:9:44: Gateway `g`: spec.routes[0].match.cookies[0].exact: expected the value of a cookie, in visible \
                 ASCII without `;` and `,`",
                "f:9:69: Gateway `g`: spec.routes[0].match.cookies[1].regex: no cookie has a value with `;`, `,`, \
                 spaces or tabs, which `a b` asks for",
                "f:9:94: Gateway `g`: spec.routes[0].match.cookies[2].regex: the whole value must fit anyway: leave out \
                 `^`, `$`, `\\b` and `\\B` in `^a`",
            ],
        );
        check_fails(
            "{query: [], cookies: []}",
            &[
                "f:9:22: Gateway `g`: spec.routes[0].match.query: expected at least 1 item, found 0",
                "f:9:35: Gateway `g`: spec.routes[0].match.cookies: expected at least 1 item, found 0",
            ],
        );
    }
}
