//! Hardening of a `Gateway` against untrusted callers: limits and checks of connection managers, and the routes that
//! refuse invalid hosts and paths with parameters.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{
                DataSource, Http2ProtocolOptions, HttpProtocolOptions, Metadata, SchemeHeaderTransformation,
                data_source::Specifier, http_protocol_options::HeadersWithUnderscoresAction,
                scheme_header_transformation::Transformation,
            },
            route::v3::{
                DirectResponseAction, HeaderMatcher, Route, RouteMatch, header_matcher::HeaderMatchSpecifier,
                route::Action, route_match::PathSpecifier,
            },
        },
        extensions::filters::network::http_connection_manager::v3::{
            HttpConnectionManager, http_connection_manager::PathWithEscapedSlashesAction,
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
    google::protobuf::{BoolValue, Struct, UInt32Value, Value, value::Kind},
};
use postern_model::{
    EdgeHttp, EscapedSlashes, MISDIRECTED_ROUTE, NO_HOST_ROUTE, PATH_PARAMETERS_ROUTE, PathParameters, Underscores,
};

use super::{
    duration::duration,
    matcher::{header_matcher, regex_of},
};

/// One name or address with an optional port: the engine's definition of a host (`text::host`) without the trailing
/// dot, which Envoy has removed before.
const HOST: &str = r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*(:[0-9]*)?|\[[0-9A-Fa-f:.]+\](:[0-9]*)?";

/// Sets the limits and checks of a connection manager. Only the connection itself is trusted.
pub(super) fn hardened(manager: HttpConnectionManager, http: &EdgeHttp, secured: bool) -> HttpConnectionManager {
    HttpConnectionManager {
        // Internal headers from callers must not be trusted …
        use_remote_address: truth(true),
        xff_num_trusted_hops: http.trusted_hops,
        scheme_header_transformation: (http.trusted_hops == 0).then(|| scheme(secured)),
        // … and the router must see the same host and path as the upstream.
        strip_trailing_host_dot: true,
        normalize_path: truth(true),
        merge_slashes: true,
        path_with_escaped_slashes_action: escaped_slashes(http.escaped_slashes).into(),
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: Some(duration(http.idle_timeout)),
            max_headers_count: number(http.max_headers),
            headers_with_underscores_action: underscores(http.headers_with_underscores).into(),
            ..Default::default()
        }),
        http2_protocol_options: Some(Http2ProtocolOptions {
            max_concurrent_streams: number(http.max_concurrent_streams),
            initial_stream_window_size: number(http.stream_window),
            initial_connection_window_size: number(http.connection_window),
            ..Default::default()
        }),
        max_request_headers_kb: number(http.max_header_size.div_ceil(1 << 10)),
        request_headers_timeout: Some(duration(http.headers_timeout)),
        request_timeout: Some(duration(http.request_timeout)),
        stream_idle_timeout: Some(duration(http.stream_idle_timeout)),
        ..manager
    }
}

/// Overwrites the scheme, which HTTP/2 callers name themselves. Not for use behind a trusted proxy, which names it.
fn scheme(secured: bool) -> SchemeHeaderTransformation {
    let scheme = if secured { "https" } else { "http" };
    let transformation = Some(Transformation::SchemeToOverwrite(scheme.to_owned()));
    SchemeHeaderTransformation { transformation, ..Default::default() }
}

const fn escaped_slashes(wish: EscapedSlashes) -> PathWithEscapedSlashesAction {
    match wish {
        EscapedSlashes::Reject => PathWithEscapedSlashesAction::RejectRequest,
        EscapedSlashes::Redirect => PathWithEscapedSlashesAction::UnescapeAndRedirect,
        EscapedSlashes::Unescape => PathWithEscapedSlashesAction::UnescapeAndForward,
        EscapedSlashes::Keep => PathWithEscapedSlashesAction::KeepUnchanged,
    }
}

const fn underscores(wish: Underscores) -> HeadersWithUnderscoresAction {
    match wish {
        Underscores::Reject => HeadersWithUnderscoresAction::RejectRequest,
        Underscores::Drop => HeadersWithUnderscoresAction::DropHeader,
        Underscores::Allow => HeadersWithUnderscoresAction::Allow,
    }
}

/// Matches a path that contains `;`, literally or escaped.
const PARAMETERS: &str = ".*(?:;|%3[bB]).*";

/// The first routes of every virtual host, which answer 400 whatever the other routes are. They match on nothing that a
/// filter can edit.
pub(super) fn refusals(http: &EdgeHttp) -> impl Iterator<Item = Route> {
    let parameters = (http.path_parameters == PathParameters::Reject).then(path_parameters);
    [no_host()].into_iter().chain(parameters)
}

/// Answers 400 to an authority that is not exactly one host.
fn no_host() -> Route {
    let host =
        StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex_of(HOST, false))), ..Default::default() };
    let matcher = HeaderMatcher {
        invert_match: true,
        treat_missing_header_as_empty: true,
        ..header_matcher(":authority", HeaderMatchSpecifier::StringMatch(host))
    };
    let matching = RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
        headers: vec![matcher],
        ..Default::default()
    };
    refusal(NO_HOST_ROUTE, matching, 400, "the request does not name one host\n")
}

/// Answers 400 to paths that some upstreams read as another path.
fn path_parameters() -> Route {
    let matching = RouteMatch {
        path_specifier: Some(PathSpecifier::SafeRegex(regex_of(PARAMETERS, false))),
        ..Default::default()
    };
    refusal(PATH_PARAMETERS_ROUTE, matching, 400, "the path has a `;`, which is not taken here\n")
}

/// Answers 421 to requests for hosts that this connection is not for.
pub(super) fn misdirected() -> Route {
    let matching = RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_owned())), ..Default::default() };
    refusal(MISDIRECTED_ROUTE, matching, 421, "this host is not served on a connection for another host\n")
}

fn refusal(name: &str, matching: RouteMatch, status: u32, body: &str) -> Route {
    let body = DataSource { specifier: Some(Specifier::InlineString(body.to_owned())), ..Default::default() };
    let answer = DirectResponseAction { status, body: Some(body), ..Default::default() };
    Route {
        name: name.to_owned(),
        r#match: Some(matching),
        action: Some(Action::DirectResponse(answer)),
        metadata: Some(named(name)),
        ..Default::default()
    }
}

/// Metadata with the user's name of a route for logs, since the name in Envoy has a mark.
pub(super) fn named(route: &str) -> Metadata {
    let name = Value { kind: Some(Kind::StringValue(route.to_owned())) };
    let fields = Struct { fields: [("route".to_owned(), name)].into() };
    Metadata { filter_metadata: [("postern".to_owned(), fields)].into(), ..Default::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "the fields are messages of their own")]
const fn truth(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

#[expect(clippy::unnecessary_wraps, reason = "the fields are messages of their own")]
const fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}
