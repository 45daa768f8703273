//! The formats of values that are strings, one function each. The error says what was expected.

use std::net::{IpAddr, Ipv4Addr};

use postern_base::diagnostic::{one_of, quote, suggestion};
use postern_engine::{
    cel::Pattern,
    header::{self, HeaderUse},
};

use super::{cidr::Cidr, name_template::Template, unit};

/// How the names of generated routes start. No user's route has such a name.
const OWN_ROUTES: &str = "postern/";

/// The longest path template that Envoy accepts, in bytes.
const LONGEST_TEMPLATE: usize = 256;
/// The largest repetition count in RE2.
const MOST_TIMES: u64 = 1000;

/// Whether a string has a format; the error is the message.
pub(super) type Checked = Result<(), String>;

pub(super) fn text(_: &str) -> Checked {
    Ok(())
}

pub(super) fn name(text: &str) -> Checked {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let all = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    expect(
        first && all && text.len() <= 253,
        "a name of at most 253 letters, digits, `.`, `_` and `-` that starts with a letter or digit",
        text,
    )
}

/// The name of a route, which may look like a path. It has no `#`, which starts the mark of a route in Envoy, and
/// nothing that could end a pair in an access log.
pub(super) fn route_name(text: &str) -> Checked {
    if text.starts_with(OWN_ROUTES) {
        return Err(format!(
            "names that start with {} are the control plane's own, found {}",
            quote(OWN_ROUTES),
            quote(text)
        ));
    }
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let all = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:*{}~".contains(c));
    expect(
        first && all && text.len() <= 253,
        "the name of a route: at most 253 letters, digits and `._-/:*{}~`, starting with a letter, digit or `/`",
        text,
    )
}

pub(super) fn header_name(text: &str) -> Checked {
    // In HTTP/2 and in Envoy it is `:authority`.
    expect(!text.eq_ignore_ascii_case("host"), "the name of a header other than `host`", text)?;
    if text.starts_with(':') {
        return Err(format!("expected the name of a header, found the pseudo-header {}", quote(text)));
    }
    expect(is_token(text), "the name of a header", text)
}

/// The name of a header that a step sets or removes. The engine decides which are allowed.
pub(super) fn edited_header(text: &str, how: HeaderUse) -> Checked {
    header_name(text)?;
    let done = match how {
        HeaderUse::Set => "set",
        HeaderUse::Remove => "removed",
    };
    match header::refusal(&text.to_ascii_lowercase(), how) {
        None => Ok(()),
        Some(why) => Err(format!("header {} cannot be {done}: {why}", quote(text))),
    }
}

/// A header value. The message does not repeat it, since it may be a credential.
pub(super) fn header_value(text: &str) -> Checked {
    match text.chars().find(|c| c.is_ascii_control() && *c != '\t') {
        None => Ok(()),
        Some(control) => Err(format!("control character {} is not allowed in a header", quote(&control.to_string()))),
    }
}

/// A duration above zero.
pub(super) fn duration(text: &str) -> Checked {
    let valid = unit::duration(text).is_some_and(|time| !time.is_zero());
    time(valid, "a length of time such as `250ms`, `1s` or `5m`", text)
}

/// A duration; zero means no time-out.
pub(super) fn timeout(text: &str) -> Checked {
    time(unit::duration(text).is_some(), "a length of time such as `250ms` or `5m`, or `0s` for no limit", text)
}

/// Suggests the unit that a number lacks.
fn time(valid: bool, what: &str, text: &str) -> Checked {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    expect(valid, what, text).map_err(|message| match is_number && text.bytes().any(|digit| digit != b'0') {
        true => format!("{message}: did you mean {}?", quote(&format!("{text}s"))),
        false => message,
    })
}

pub(super) fn size(text: &str) -> Checked {
    expect(unit::size(text).is_some(), "a size such as `65536`, `64KiB` or `1MiB`", text)
}

pub(super) fn method(text: &str) -> Checked {
    let upper = !text.chars().any(|c| c.is_ascii_lowercase());
    expect(is_token(text) && upper, "an HTTP method in upper case", text)
}

pub(super) fn path(text: &str) -> Checked {
    expect(text.starts_with('/'), "a path that starts with `/`", text)?;
    let allowed = |c: char| !c.is_control() && !matches!(c, ' ' | '?' | '#');
    expect(text.chars().all(allowed), "a path without spaces, query and fragment", text)
}

/// A path template, whose segments are text, `{name}` or, as the last one, `{name=**}`. The limits are Envoy's.
pub(super) fn path_template(text: &str) -> Checked {
    expect(text.starts_with('/'), "a path that starts with `/`", text)?;
    if text.len() > LONGEST_TEMPLATE {
        return Err(format!("expected at most {LONGEST_TEMPLATE} bytes, found {}", text.len()));
    }
    let mut names = Vec::new();
    let mut segments = text.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let Some(inside) = segment.strip_prefix('{').and_then(|inside| inside.strip_suffix('}')) else {
            literal_segment(segment, segments.peek().is_none())?;
            continue;
        };
        let name = inside.strip_suffix("=**");
        if name.is_some() && segments.peek().is_some() {
            return Err(format!("nothing comes behind all the rest: {}", quote(segment)));
        }
        let name = name.unwrap_or(inside);
        let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !fits || names.contains(&name) {
            return Err(format!("a `{{name}}` is of letters, digits and `_`, and there once: {}", quote(segment)));
        }
        names.push(name);
    }
    Ok(())
}

fn literal_segment(segment: &str, last: bool) -> Checked {
    if segment.contains(['{', '}']) {
        return Err(format!("a `{{name}}` is a whole segment: {}", quote(segment)));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~%!$&'()+,;:@=".contains(c);
    if !segment.chars().all(fits) {
        return Err(format!("only letters, digits and `-._~%!$&'()+,;:@=` stand for themselves: {}", quote(segment)));
    }
    if segment.is_empty() && !last {
        return Err("a segment cannot be empty".to_owned());
    }
    Ok(())
}

/// A regular expression for Envoy. RE2 accepts what our own dialect accepts, except large repetition counts.
pub(super) fn regex(text: &str) -> Checked {
    match Pattern::compile(text) {
        _ if text.is_empty() => expect(false, "a regular expression", text),
        Ok(_) if text.split(['{', ',', '}']).any(|part| part.parse().is_ok_and(|times: u64| times > MOST_TIMES)) => {
            Err(format!("{} repeats something more than {MOST_TIMES} times", quote(text)))
        }
        Ok(_) => Ok(()),
        Err(reason) => Err(format!("{} is no regular expression: {reason}", quote(text))),
    }
}

pub(super) fn host(text: &str) -> Checked {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let valid = text == "*" || is_host_name(name) || text.parse::<Ipv4Addr>().is_ok();
    expect(valid, "a host name, `*`, or `*.` and a host name, without a port", text)
}

/// A template for a host. It must become one whatever simple name a placeholder stands for.
pub(super) fn host_template(text: &str) -> Checked {
    let template = Template::read(text)?;
    expect(
        is_one_host(&template.sample("a")),
        "a host name, without a port, in which `{service}`, `{mesh}` and `{tags.NAME}` are replaced",
        text,
    )
}

/// A template for a port. It must become one if a placeholder stands for a digit.
pub(super) fn port_template(text: &str) -> Checked {
    let template = Template::read(text)?;
    expect(
        port(&template.sample("1")).is_some(),
        "a port from 1 to 65535, or text such as `{tags.port}` that becomes one",
        text,
    )
}

/// The port that a text is. `None` if it is none.
pub fn port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

/// Whether a text is exactly one host: no wildcard.
pub fn is_one_host(text: &str) -> bool {
    is_host_name(text) || text.parse::<Ipv4Addr>().is_ok()
}

pub(super) fn address(text: &str) -> Checked {
    let valid = text.parse::<IpAddr>().is_ok() || is_host_name(text);
    expect(valid, "an IP address or a DNS name, without a port", text)
}

pub(super) fn ip_address(text: &str) -> Checked {
    expect(text.parse::<IpAddr>().is_ok(), "an IP address", text)
}

/// A network. Bits set after the prefix are most often a mistake, so the message has the corrected form.
pub(super) fn cidr(text: &str) -> Checked {
    let Some(cidr) = Cidr::parse(text) else {
        return expect(false, "an IP address or a network such as `10.0.0.0/8`", text);
    };
    match cidr.without_host_bits() {
        right if right == cidr => Ok(()),
        right => {
            Err(format!("{} has bits set past its prefix: did you mean {}?", quote(text), quote(&right.to_string())))
        }
    }
}

/// A SHA-256 digest. The message does not repeat the value, since it may be the secret itself.
pub(super) fn sha256(text: &str) -> Checked {
    if text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err("expected a SHA-256 digest of 64 hexadecimal digits".to_owned())
}

pub(super) fn choice(text: &str, words: &[&str]) -> Checked {
    if words.contains(&text) {
        return Ok(());
    }
    match suggestion(text, words.iter().copied()) {
        near if near.is_empty() || words.len() == 1 => expect(false, &one_of(words), text),
        near => Err(format!("unknown value {}{near}", quote(text))),
    }
}

fn expect(valid: bool, what: &str, text: &str) -> Checked {
    match text {
        _ if valid => Ok(()),
        "" => Err(format!("expected {what}, found an empty string")),
        _ => Err(format!("expected {what}, found {}", quote(text))),
    }
}

/// A token (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// A host name of DNS labels. The last label is not a number, so that a misspelled IPv4 address is not a name.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(label) && !last.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&str) -> Checked, valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert_eq!(rule(text), Ok(()), "for `{text}`");
        }
        for text in invalid {
            assert!(rule(text).is_err(), "for `{text}`");
        }
    }

    #[test]
    fn knows_names() {
        check(
            name,
            &["a", "0", "users-api_v1.2", "A", &"a".repeat(253)],
            &["", "-a", ".a", "a b", "é", "a/b", &"a".repeat(254)],
        );
    }

    #[test]
    fn knows_names_of_routes() {
        check(
            route_name,
            &[
                "a",
                "/",
                "/api/v1/users",
                "users-api_v1.2",
                "/users/{id}",
                "httproute/a/b/rule/0/match/0/*",
                "a:b",
                "//",
            ],
            &["", "#", "a#b", "a b", "a=b", "é", "-a", "a\nb", "postern/no-host", "a\\b", "'", &"a".repeat(254)],
        );
    }

    #[test]
    fn knows_header_names() {
        check(
            header_name,
            &["x-api-key", "X-Api-Key", "a!#$%&'*+.^_`|~1"],
            &["", "a b", "a:", ":path", "Host", "host", "é"],
        );
    }

    #[test]
    fn knows_headers_that_steps_may_edit() {
        let framing =
            ["Content-Length", "transfer-encoding", "TE", "connection", "Host", ":path", "upgrade", "a b", ""];
        check(|text| edited_header(text, HeaderUse::Set), &["x-a", "Authorization"], &framing);
        check(|text| edited_header(text, HeaderUse::Remove), &["x-a", "x-envoy-internal"], &framing);
        check(|text| edited_header(text, HeaderUse::Set), &[], &["X-Envoy-Internal", "x-envoy-max-retries"]);
        let said =
            "header `Content-Length` cannot be set: it frames a message or a connection, which only the proxy may do";
        assert_eq!(edited_header("Content-Length", HeaderUse::Set), Err(said.to_owned()));
    }

    #[test]
    fn knows_header_values() {
        check(header_value, &["", "a b\tc", "é"], &["a\nb", "a\r", "\0", "\u{7f}"]);
    }

    #[test]
    fn never_repeats_a_header_value_or_a_digest() {
        assert_eq!(header_value("secret\r"), Err(r"control character `\r` is not allowed in a header".to_owned()));
        assert_eq!(sha256("secret"), Err("expected a SHA-256 digest of 64 hexadecimal digits".to_owned()));
    }

    #[test]
    fn knows_methods() {
        check(method, &["GET", "M-SEARCH", "X1"], &["", "get", "Get", "GE T"]);
    }

    #[test]
    fn knows_paths() {
        check(path, &["/", "/a/b.c", "/%20/é"], &["", "a", "*", "/a?b", "/a#b", "/a b", "/\n"]);
    }

    #[test]
    fn knows_path_templates() {
        check(
            path_template,
            &["/", "/users/{id}", "/{a}/{b_1}", "/files/{rest=**}", "/users/", "/v1.0/a%20b/{a}/"],
            &[
                "users",
                "/{}",
                "/{a}/{a}",
                "/x{a}",
                "/{a=**}/b",
                "/{a-b}",
                "/{a=*}",
                "/a?b",
                "/{a",
                "/a}",
                "//a",
                "/*",
                "/é",
                &format!("/{}", "a".repeat(256)),
            ],
        );
    }

    #[test]
    fn knows_regular_expressions() {
        check(
            regex,
            &["a", "/users/[0-9]+", r"v\d{1,3}", "(a|b)*c"],
            &["", "(", "[a", "*", r"(a)\1", "(?=a)", "a{1001}", "(ab){2,1001}", &"a".repeat(4097)],
        );
    }

    #[test]
    fn knows_hosts() {
        let invalid =
            ["", "a:80", "*a", "*.", "a.*", "*.*", "a..b", "a.", "-a", "a-", "::1", "*.1.2.3.4", &"a".repeat(64)];
        check(host, &["*", "a", "a.example.com", "*.example.com", "A_b-c.x1", "1.2.3.4"], &invalid);
    }

    #[test]
    fn knows_addresses() {
        check(
            address,
            &["10.0.0.1", "::1", "users.svc", "localhost"],
            &["", "a:80", "10.0.0.1:80", "[::1]", "300.0.0.1", "*"],
        );
        check(ip_address, &["10.0.0.1", "::1"], &["", "localhost", "10.0.0.1:80", "10.0.0"]);
    }

    #[test]
    fn knows_networks() {
        check(
            cidr,
            &[
                "10.0.0.1",
                "10.0.0.0/8",
                "0.0.0.0/0",
                "10.0.0.1/32",
                "::1",
                "2001:db8::/32",
                "::/0",
                "::ffff:10.0.0.0/104",
            ],
            &[
                "",
                "10.0.0.0/33",
                "10.0.0.0/",
                "/8",
                "10.0.0.0/+8",
                "10.0.0.0/08",
                "10.0/8",
                "::/129",
                "a/8",
                "10.0.0.1/8",
            ],
        );
        let said = "`10.1.2.3/8` has bits set past its prefix: did you mean `10.0.0.0/8`?";
        assert_eq!(cidr("10.1.2.3/8"), Err(said.to_owned()));
    }

    #[test]
    fn knows_digests() {
        check(
            sha256,
            &[&"0a".repeat(32), &"0A".repeat(32)],
            &["", &"0a".repeat(31), &"0g".repeat(32), &"é".repeat(32)],
        );
    }

    #[test]
    fn knows_choices() {
        assert_eq!(choice("Mesh", &["Mesh", "Proxy"]), Ok(()));
        assert_eq!(choice("mehs", &["Mesh", "Proxy"]), Err("unknown value `mehs`: did you mean `Mesh`?".to_owned()));
        assert_eq!(choice("x", &["Mesh", "Proxy"]), Err("expected one of `Mesh`, `Proxy`, found `x`".to_owned()));
        assert_eq!(choice("postern/v2", &["postern/v1"]), Err("expected `postern/v1`, found `postern/v2`".to_owned()));
        assert_eq!(
            choice("", &["Mesh", "Proxy"]),
            Err("expected one of `Mesh`, `Proxy`, found an empty string".to_owned())
        );
    }
}
