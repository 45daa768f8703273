//! Values of headers, query parameters and cookies as Envoy compares them: unchanged.

use super::Request;

/// Headers of which Envoy joins repeated lines by `,` (`HTTP header map info` in its log). Headers that Envoy sets or
/// removes itself are omitted, since no matcher sees their value.
const JOINED: [&str; 23] = [
    "accept",
    "accept-encoding",
    "access-control-request-headers",
    "access-control-request-method",
    "access-control-request-private-network",
    "authentication",
    "authorization",
    "cache-control",
    "cdn-loop",
    "content-encoding",
    "content-type",
    "grpc-accept-encoding",
    "grpc-timeout",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "pragma",
    "referer",
    "user-agent",
    "via",
];

/// The values of a header: one for each line, except for [`JOINED`] headers.
pub(super) fn of_header(request: &Request, name: &str) -> std::vec::IntoIter<Vec<u8>> {
    let found = request.headers.iter().filter(|(candidate, _)| candidate == name.as_bytes());
    let values: Vec<_> = found.map(|(_, value)| value.clone()).collect();
    if values.len() < 2 || !JOINED.contains(&name) {
        return values.into_iter();
    }
    vec![joined(&values)].into_iter()
}

/// Joins values by `,`. Empty values are omitted.
fn joined(values: &[Vec<u8>]) -> Vec<u8> {
    values.iter().filter(|value| !value.is_empty()).map(Vec::as_slice).collect::<Vec<_>>().join(&b',')
}

/// The values of a query parameter, in order.
pub(super) fn of_parameter<'r>(query: &'r [u8], name: &str) -> impl Iterator<Item = &'r [u8]> {
    query.split(|byte| *byte == b'&').filter_map(move |parameter| {
        let end = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        let (candidate, value) = parameter.split_at_checked(end)?;
        (!parameter.is_empty() && candidate == name.as_bytes()).then(|| value.get(1..).unwrap_or_default())
    })
}

/// The values of a cookie, in order.
pub(super) fn of_cookie<'r>(request: &'r Request, name: &str) -> impl Iterator<Item = &'r [u8]> {
    let headers = request.headers.iter().filter(|(candidate, _)| candidate == b"cookie");
    let cookies = headers.flat_map(|(_, value)| value.split(|byte| matches!(byte, b';' | b',')));
    cookies.filter_map(move |cookie| {
        let (candidate, value) = cookie.split_at_checked(cookie.iter().position(|byte| *byte == b'=')?)?;
        (trimmed(candidate) == name.as_bytes()).then(|| trimmed(value.get(1..).unwrap_or_default()))
    })
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<'a>(found: impl Iterator<Item = &'a [u8]>, expect: &[&str], of: &str) {
        assert_eq!(found.map(|value| str::from_utf8(value).unwrap()).collect::<Vec<_>>(), expect, "{of}");
    }

    fn request(name: &str, values: &[&str]) -> Request {
        let headers = values.iter().map(|value| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        Request { headers, ..Request::default() }
    }

    #[test]
    fn joins_headers_of_which_envoy_keeps_one_line() {
        let check = |name: &str, values: &[&str], expect: &[&str]| {
            let found: Vec<_> = of_header(&request(name, values), name).collect();
            assert_eq!(found, expect.iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>(), "{name}");
        };
        check("x-a", &["1", "", "2"], &["1", "", "2"]);
        check("accept", &["1", "2"], &["1,2"]);
        check("accept", &["", "2", ""], &["2"]);
        check("accept", &[""], &[""]);
        check("accept", &[], &[]);
    }

    #[test]
    fn reads_query_parameters_as_they_were_sent() {
        let check = |query: &str, expect: &[&str]| check(of_parameter(query.as_bytes(), "a"), expect, query);
        check("a=1&b=2&a=3", &["1", "3"]);
        check("a&a=&a==", &["", "", "="]);
        check("%61=1&A=1&xa=1&;a=1", &[]);
        check("", &[]);
    }

    #[test]
    fn reads_cookies_as_they_were_sent() {
        let check =
            |header: &str, expect: &[&str]| check(of_cookie(&request("cookie", &[header]), "a"), expect, header);
        check("a=1; b=2;a = 3 ,a=\"4\"", &["1", "3", "\"4\""]);
        check("a; A=1; xa=1; b=a=1", &[]);
    }
}
