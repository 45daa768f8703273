//! Formats of access logs: text with Envoy's operators, such as `%REQ(:PATH)%`. Envoy refuses a listener whose format it
//! does not understand, so every operator is checked, and those that would log a credential are refused.

use postern_base::diagnostic::{one_of, quote, suggestion};

use super::secret::CREDENTIAL_HEADERS;

/// Parameters of a query that carry credentials, as `auditLog` redacts them.
const CREDENTIAL_PARAMETERS: [&str; 8] =
    ["access_token", "api_key", "apikey", "client_secret", "id_token", "password", "refresh_token", "token"];
const MOST: usize = 8 << 10;

/// What stands in the parentheses of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    None,
    /// A format of time.
    Time,
    /// One of these words, or nothing.
    Word(&'static [&'static str]),
    /// Several parts with colons between them: so many at least, of which the first is one of these words.
    Parts(usize, &'static [&'static str]),
    /// The name of a filter state, and how it is written.
    State,
    /// A header, or two of which the second is the fallback: `A?B`.
    Header,
    /// A parameter of the query.
    Parameter,
}

impl Argument {
    /// Whether a length may follow.
    fn takes_length(self) -> bool {
        matches!(self, Self::State | Self::Header | Self::Parameter)
    }
}

/// Envoy's operators with an argument. Of all others, [`PLAIN`], none has one.
const WITH_ARGUMENT: &[(&str, Argument)] = &[
    ("CLUSTER_METADATA", Argument::Parts(1, &[])),
    ("COMMON_DURATION", Argument::Parts(2, &[])),
    ("DOWNSTREAM_PEER_CERT_V_END", Argument::Time),
    ("DOWNSTREAM_PEER_CERT_V_START", Argument::Time),
    ("DYNAMIC_METADATA", Argument::Parts(1, &[])),
    ("EMIT_TIME", Argument::Time),
    ("EMIT_TIME_LOCAL", Argument::Time),
    ("FILTER_STATE", Argument::State),
    ("GRPC_STATUS", Argument::Word(&["CAMEL_STRING", "NUMBER", "SNAKE_STRING"])),
    ("METADATA", Argument::Parts(2, &["CLUSTER", "DYNAMIC", "LISTENER", "ROUTE", "UPSTREAM_HOST", "VIRTUAL_HOST"])),
    ("QUERY_PARAM", Argument::Parameter),
    ("REQ", Argument::Header),
    ("REQUEST_HEADER", Argument::Header),
    ("RESP", Argument::Header),
    ("RESPONSE_HEADER", Argument::Header),
    ("RESPONSE_TRAILER", Argument::Header),
    ("START_TIME", Argument::Time),
    ("START_TIME_LOCAL", Argument::Time),
    ("TRAILER", Argument::Header),
    ("UPSTREAM_METADATA", Argument::Parts(1, &[])),
];

/// Operators that Envoy has and we refuse, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("CEL", "an expression could log a credential"),
    ("COALESCE", "it could log a credential: use `%REQ(A?B)%` for a fallback"),
    ("ENVIRONMENT", "variables of Envoy's environment can hold secrets"),
    ("QUERY_PARAMS", "a query can hold credentials: use `%QUERY_PARAM(name)%`"),
    ("UPSTREAM_FILTER_STATE", "it has no value in access logs of a listener"),
];

/// Envoy's operators without an argument.
const PLAIN: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PATH",
    "PROTOCOL",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

/// An operator in a format.
struct Operator<'a> {
    name: &'a str,
    argument: Option<&'a str>,
    /// The largest length, after a colon.
    length: Option<&'a str>,
}

/// Everything that is wrong with a format; empty if Envoy takes it, and it logs no credential that we know.
pub(super) fn faults(format: &str) -> Vec<String> {
    if format.len() > MOST {
        return vec![format!("a format is of at most {MOST} bytes")];
    }
    operators(format).into_iter().filter_map(|found| found.map_or_else(Some, |operator| fault(&operator))).collect()
}

/// The headers that a format logs.
pub(super) fn headers(format: &str) -> Vec<String> {
    arguments(format, Argument::Header).flat_map(|names| names.split('?')).map(str::to_owned).collect()
}

/// The parameters of the query that a format logs.
pub(super) fn parameters(format: &str) -> Vec<String> {
    arguments(format, Argument::Parameter).map(str::to_owned).collect()
}

fn arguments(format: &str, kind: Argument) -> impl Iterator<Item = &str> {
    let found = operators(format).into_iter().flatten();
    found.filter(move |operator| argument_of(operator.name) == Some(kind)).filter_map(|operator| operator.argument)
}

/// Why a header must not be logged. `None` if it may.
pub(super) fn credential(header: &str) -> Option<String> {
    let is_one = CREDENTIAL_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(header));
    is_one.then(|| format!("{} carries credentials, which no access log may show", quote(header)))
}

/// The operators of a format in order, with an error in the place of what is none.
fn operators(format: &str) -> Vec<Result<Operator<'_>, String>> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let (operator, after) = operator(after);
        found.push(operator);
        rest = after;
    }
    found
}

/// The operator at the start of a text that follows a `%`, and what comes after it.
fn operator(text: &str) -> (Result<Operator<'_>, String>, &str) {
    let is_name = |byte: char| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == '_';
    let (name, mut rest) = text.split_at(text.find(|byte| !is_name(byte)).unwrap_or(text.len()));
    let mut argument = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let Some((found, after)) = inner.split_once(')') else {
            return (Err(format!("`%{name}(` has no `)`")), "");
        };
        (argument, rest) = (Some(found), after);
    }
    let mut length = None;
    if let Some(after) = rest.strip_prefix(':') {
        let (digits, after) = after.split_at(after.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(after.len()));
        (length, rest) = (Some(digits), after);
    }
    match rest.strip_prefix('%') {
        Some(after) if !name.is_empty() => (Ok(Operator { name, argument, length }), after),
        _ => {
            let shown: String = text.chars().take(24).collect();
            let message = format!(
                "{} is no operator: expected `%NAME%`, `%NAME(…)%`, or `%%` for a percent sign",
                quote(&format!("%{shown}"))
            );
            // What follows cannot be told apart from it.
            (Err(message), "")
        }
    }
}

fn argument_of(name: &str) -> Option<Argument> {
    let with = WITH_ARGUMENT.iter().find(|(known, _)| *known == name).map(|(_, argument)| *argument);
    with.or_else(|| PLAIN.contains(&name).then_some(Argument::None))
}

fn fault(operator: &Operator<'_>) -> Option<String> {
    let Operator { name, argument, length } = operator;
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| refused == name) {
        return Some(format!("`%{name}%` is not for access logs: {reason}"));
    }
    let Some(expected) = argument_of(name) else {
        let known = WITH_ARGUMENT.iter().map(|(known, _)| *known).chain(PLAIN.iter().copied());
        return Some(format!("unknown operator `%{name}%`{}", suggestion(name, known)));
    };
    let text = argument.unwrap_or_default();
    let is_required = !matches!(expected, Argument::None | Argument::Time | Argument::Word(_));
    if is_required && text.is_empty() {
        return Some(format!("`%{name}%` needs an argument: `%{name}(…)%`"));
    }
    match length {
        Some(_) if !expected.takes_length() => return Some(format!("`%{name}%` takes no length")),
        Some(length) if length.parse::<u32>().is_err() => {
            return Some(format!("the length of `%{name}(…)%` is a whole number"));
        }
        _ => {}
    }
    match expected {
        Argument::None => argument.map(|_| format!("`%{name}%` takes no argument")),
        Argument::Time => None,
        Argument::Word(words) => argument.filter(|word| !words.contains(word)).map(|_| of_words(name, words)),
        Argument::Parts(least, words) => parts_fault(name, text, least, words),
        Argument::State => state_fault(name, text),
        Argument::Header => header_fault(name, text),
        Argument::Parameter => parameter_fault(text),
    }
}

fn of_words(name: &str, words: &[&str]) -> String {
    format!("`%{name}(…)%` takes {}", one_of(words))
}

fn parts_fault(name: &str, text: &str, least: usize, words: &[&str]) -> Option<String> {
    let parts: Vec<_> = text.split(':').collect();
    if parts.len() < least || parts.iter().any(|part| part.is_empty()) {
        return Some(format!("`%{name}(…)%` takes at least {least} parts with `:` between them"));
    }
    let is_known = words.is_empty() || parts.first().is_some_and(|first| words.contains(first));
    (!is_known).then(|| of_words(name, words))
}

fn state_fault(name: &str, text: &str) -> Option<String> {
    let (key, form) = text.split_once(':').unwrap_or((text, "PLAIN"));
    let is_field = form.strip_prefix("FIELD:").is_some_and(|field| !field.is_empty());
    let is_right = !key.is_empty() && (is_field || ["PLAIN", "TYPED"].contains(&form));
    (!is_right).then(|| {
        format!("expected `%{name}(key)%`, `%{name}(key:PLAIN)%`, `%{name}(key:TYPED)%` or `%{name}(key:FIELD:field)%`")
    })
}

fn header_fault(name: &str, argument: &str) -> Option<String> {
    let names: Vec<_> = argument.split('?').collect();
    if names.len() > 2 {
        return Some(format!("`%{name}(…)%` takes one header, or two as in `%{name}(A?B)%`"));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~:".contains(&byte);
    let odd = names.iter().find(|header| header.is_empty() || !header.bytes().all(is_token));
    odd.map(|header| format!("{} is no header", quote(header))).or_else(|| names.into_iter().find_map(credential))
}

fn parameter_fault(argument: &str) -> Option<String> {
    let is_one = CREDENTIAL_PARAMETERS.iter().any(|secret| secret.eq_ignore_ascii_case(argument));
    is_one.then(|| format!("the parameter {} carries credentials, which no access log may show", quote(argument)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, expect: &[&str]) {
        assert_eq!(faults(format), expect, "{format}");
    }

    #[test]
    fn takes_what_envoy_takes() {
        check("", &[]);
        check("100%% %START_TIME(%Y-%m-%dT%H:%M:%S)%", &[]);
        check("[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%\" %RESPONSE_CODE% 100%%", &[]);
        check("%REQ(user-agent):40% %FILTER_STATE(wasm.postern:PLAIN)% %TRAILER(grpc-message)%", &[]);
    }

    #[test]
    fn says_what_is_no_operator() {
        check("%RESPONSE_COD%", &["unknown operator `%RESPONSE_COD%`: did you mean `RESPONSE_CODE`?"]);
        check("%status%", &["`%status%` is no operator: expected `%NAME%`, `%NAME(…)%`, or `%%` for a percent sign"]);
        check("50%", &["`%` is no operator: expected `%NAME%`, `%NAME(…)%`, or `%%` for a percent sign"]);
        check("%REQ(:path", &["`%REQ(` has no `)`"]);
        check("%REQ%", &["`%REQ%` needs an argument: `%REQ(…)%`"]);
        check("%REQ()%", &["`%REQ%` needs an argument: `%REQ(…)%`"]);
        check("%REQ(a?b?c)%", &["`%REQ(…)%` takes one header, or two as in `%REQ(A?B)%`"]);
        check("%REQ(a b)%", &["`a b` is no header"]);
        check("%DURATION(x)%", &["`%DURATION%` takes no argument"]);
        check("%START_TIME:3%", &["`%START_TIME%` takes no length"]);
        check("%GRPC_STATUS(NUM)%", &["`%GRPC_STATUS(…)%` takes one of `CAMEL_STRING`, `NUMBER`, `SNAKE_STRING`"]);
        check(
            "%METADATA(ROUTES:a:b)%",
            &[
                "`%METADATA(…)%` takes one of `CLUSTER`, `DYNAMIC`, `LISTENER`, `ROUTE`, `UPSTREAM_HOST`, `VIRTUAL_HOST`",
            ],
        );
        check("%COMMON_DURATION(a)%", &["`%COMMON_DURATION(…)%` takes at least 2 parts with `:` between them"]);
        check("%REQ(a):%", &["the length of `%REQ(…)%` is a whole number"]);
    }

    #[test]
    fn refuses_credentials() {
        let carries = |header: &str| format!("`{header}` carries credentials, which no access log may show");
        for header in ["authorization", "Authorization", "COOKIE", "x-api-key", "proxy-authorization"] {
            for operator in ["REQ", "REQUEST_HEADER", "RESP", "TRAILER", "RESPONSE_TRAILER"] {
                check(&format!("%{operator}({header})%"), &[&carries(header)]);
                check(&format!("%{operator}(a?{header}):3%"), &[&carries(header)]);
            }
        }
        check("%RESPONSE_HEADER(set-cookie)%", &[&carries("set-cookie")]);
        let parameter = "the parameter `access_token` carries credentials, which no access log may show";
        check("%QUERY_PARAM(access_token)%", &[parameter]);
        check("%QUERY_PARAM(page)%", &[]);
        check(
            "%ENVIRONMENT(HOME)%",
            &["`%ENVIRONMENT%` is not for access logs: variables of Envoy's environment can hold secrets"],
        );
        assert_eq!(faults("%COALESCE({\"operators\": []})% %CEL(request.headers['authorization'])%").len(), 2);
    }

    #[test]
    fn has_every_operator_once() {
        let all: Vec<_> = WITH_ARGUMENT.iter().map(|(name, _)| *name).chain(PLAIN.iter().copied()).collect();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
        assert!(REFUSED.iter().all(|(name, _)| !all.contains(name)));
    }

    #[test]
    fn finds_the_headers() {
        let format = "%REQ(A?b)% %RESP(c):3% %DURATION% %QUERY_PARAM(d)%";
        assert_eq!((headers(format).concat(), parameters(format).concat()), ("Abc".to_owned(), "d".to_owned()));
    }
}
