//! `http` of a `Gateway`: limits and normalization for requests of untrusted callers. The defaults are for the edge of
//! the internet, as in Envoy's best practices for edge proxies; each field relaxes one of them.

use std::time::Duration;

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{report::Report, unit};

/// The name of the generated route that refuses requests without a valid host. No user's route can have a name that
/// starts with `postern/`.
pub const NO_HOST_ROUTE: &str = "postern/no-host";
/// The name of the generated route that refuses paths with parameters.
pub const PATH_PARAMETERS_ROUTE: &str = "postern/path-parameters";
/// The name of the generated route that refuses hosts which are not served on a connection for another host.
pub const MISDIRECTED_ROUTE: &str = "postern/misdirected";

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// The schema of `http`.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        Field::optional(
            "trustedHops",
            Kind::Integer { min: 0, max: 16 },
            "How many proxies in front of this gateway are trusted to say in X-Forwarded-For who calls. 0 takes the peer's \
             own address for `source.address`; n takes the address that the n-th proxy, counted from here, saw.",
        )
        .or("0"),
        Field::optional(
            "escapedSlashes",
            Kind::Choice(&["reject", "redirect", "unescape", "keep"]),
            "What becomes of a path with `%2F` or `%5C`: a 400, a 307 to the path with slashes instead, or the path with \
             slashes instead. `keep` routes it as it came: an upstream that unescapes it may serve what another route guards.",
        )
        .or("reject"),
        Field::optional(
            "pathParameters",
            Kind::Choice(&["reject", "keep"]),
            "What becomes of a path with `;` or `%3B`: a 400. Servlet containers and others drop what follows a `;` in a \
             segment, so that `/admin;x` and `/open/%2e%2e;/admin` are `/admin` to them. `keep` routes it as it came: such an \
             upstream may serve what another route guards.",
        )
        .or("reject"),
        Field::optional(
            "headersWithUnderscores",
            Kind::Choice(&["reject", "drop", "allow"]),
            "What becomes of a header such as `x_user_id`, which many upstreams take for `x-user-id`: a 400 for the \
             request, or a request without it. `allow` lets it pass.",
        )
        .or("reject"),
        Field::optional(
            "maxHeaders",
            Kind::Integer { min: 1, max: 10_000 },
            "How many headers a request may have; 431 past it.",
        )
        .or("100"),
        Field::optional(
            "maxHeaderSize",
            Kind::Size,
            "How large the headers of a request may be, all together: from 1KiB to 8MiB; 431 past it.",
        )
        .or("60KiB"),
        Field::optional(
            "maxConcurrentStreams",
            Kind::Integer { min: 1, max: 2_147_483_647 },
            "How many requests may be under way on one HTTP/2 connection.",
        )
        .or("100"),
        Field::optional(
            "streamWindow",
            Kind::Size,
            "How much of one HTTP/2 request is taken in before its upstream reads it: from 65535 bytes to 2147483647.",
        )
        .or("64KiB"),
        Field::optional("connectionWindow", Kind::Size, "The same for all requests of one HTTP/2 connection together.")
            .or("1MiB"),
        Field::optional(
            "bufferLimit",
            Kind::Size,
            "How much is buffered for one connection in each direction. A body that a step reads is buffered whole, so \
             that `maxBodySize` of a RoutePolicy cannot be more than this.",
        )
        .or("1MiB"),
        Field::optional(
            "headersTimeout",
            Kind::Timeout,
            "Until the headers of a request are there, from their first byte.",
        )
        .or("10s"),
        Field::optional(
            "requestTimeout",
            Kind::Timeout,
            "Until the whole request is there, its body too. There is no limit by default, so that uploads and streams may \
             take their time.",
        )
        .or("0s"),
        Field::optional(
            "streamIdleTimeout",
            Kind::Timeout,
            "While nothing is sent on a request or its response, in either direction. A `Timeout` for a route counts more.",
        )
        .or("5m"),
        Field::optional("idleTimeout", Kind::Timeout, "While a connection has no request.").or("1h"),
    ],
    exactly_one_of: &[],
};

/// Limits and normalization of a Gateway's listeners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EdgeHttp {
    /// The number of trusted proxies in front.
    pub trusted_hops: u32,
    /// How `%2F` and `%5C` in a path are handled.
    pub escaped_slashes: EscapedSlashes,
    /// How `;` and `%3B` in a path are handled.
    pub path_parameters: PathParameters,
    /// How headers with `_` in their names are handled.
    pub headers_with_underscores: Underscores,
    /// The largest number of headers of a request.
    pub max_headers: u32,
    /// The largest size of all headers of a request together, in bytes.
    #[serde(deserialize_with = "unit::deserialize_size")]
    pub max_header_size: u32,
    /// The largest number of concurrent streams on an HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// The initial window of an HTTP/2 stream, in bytes.
    #[serde(deserialize_with = "unit::deserialize_size")]
    pub stream_window: u32,
    /// The initial window of an HTTP/2 connection, in bytes.
    #[serde(deserialize_with = "unit::deserialize_size")]
    pub connection_window: u32,
    /// The buffer limit of a connection in each direction, in bytes.
    #[serde(deserialize_with = "unit::deserialize_size")]
    pub buffer_limit: u32,
    /// The time-out until all headers have come. Zero means none.
    #[serde(deserialize_with = "unit::deserialize_duration")]
    pub headers_timeout: Duration,
    /// The time-out until the whole request has come. Zero means none.
    #[serde(deserialize_with = "unit::deserialize_duration")]
    pub request_timeout: Duration,
    /// The time-out of a stream on which nothing is sent. Zero means none.
    #[serde(deserialize_with = "unit::deserialize_duration")]
    pub stream_idle_timeout: Duration,
    /// The time-out of a connection without streams. Zero means none.
    #[serde(deserialize_with = "unit::deserialize_duration")]
    pub idle_timeout: Duration,
}

impl Default for EdgeHttp {
    fn default() -> Self {
        Self {
            trusted_hops: 0,
            escaped_slashes: EscapedSlashes::default(),
            path_parameters: PathParameters::default(),
            headers_with_underscores: Underscores::default(),
            max_headers: 100,
            max_header_size: 60 * KIB,
            max_concurrent_streams: 100,
            stream_window: 64 * KIB,
            connection_window: MIB,
            buffer_limit: MIB,
            headers_timeout: Duration::from_secs(10),
            request_timeout: Duration::ZERO,
            stream_idle_timeout: Duration::from_secs(5 * 60),
            idle_timeout: Duration::from_secs(60 * 60),
        }
    }
}

/// How `%2F` and `%5C` in a path are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EscapedSlashes {
    /// The request is refused with 400.
    #[default]
    Reject,
    /// The caller is redirected to the path with slashes.
    Redirect,
    /// They are treated as slashes.
    Unescape,
    /// They are treated as part of a segment.
    Keep,
}

/// How `;` and `%3B` in a path are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PathParameters {
    /// The request is refused with 400.
    #[default]
    Reject,
    /// They are treated as part of a segment.
    Keep,
}

/// How headers with `_` in their names are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Underscores {
    /// The request is refused with 400.
    #[default]
    Reject,
    /// The header is removed.
    Drop,
    /// The header is accepted.
    Allow,
}

/// The sizes that Envoy accepts, by field.
const SIZES: [(&str, u32, u32); 4] = [
    ("maxHeaderSize", KIB, 8 * MIB),
    ("streamWindow", 65_535, 2_147_483_647),
    ("connectionWindow", 65_535, 2_147_483_647),
    ("bufferLimit", 16 * KIB, 2_147_483_647),
];

/// Reports sizes that Envoy does not accept, which the schema cannot express.
pub(super) fn rules(http: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    for (name, least, most) in SIZES {
        let Some(node) = http.get(name) else { continue };
        let Some(size) = unit::written_size(&node.to_json()) else { continue };
        if !(least..=most).contains(&size) {
            report.error(node.at, &path.field(name), format!("expected from {least} to {most} bytes, found {size}"));
        }
    }
}

/// `pathParameters` of a gateway's `http` as written; the default if it is absent or invalid.
pub(super) fn path_parameters(http: Option<&Node>) -> PathParameters {
    match http.and_then(|http| http.get("pathParameters")).and_then(Node::text) {
        Some("keep") => PathParameters::Keep,
        _ => PathParameters::Reject,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, format, read};

    #[test]
    fn no_route_of_a_user_has_the_name_of_a_generated_one() {
        for name in [NO_HOST_ROUTE, PATH_PARAMETERS_ROUTE, MISDIRECTED_ROUTE] {
            assert!(format::route_name(name).is_err(), "{name}");
        }
    }

    fn read_http(http: &str) -> Result<EdgeHttp, String> {
        let text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  \
             http: {http}\n  routes: [{{name: r, service: a}}]\n---\napiVersion: postern/v1\nkind: Service\nmetadata: {{name: \
             a}}\nspec: {{endpoints: [{{address: x, port: 1}}]}}\n"
        );
        let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        bundle.map(|mut bundle| bundle.gateways.remove(0).spec.http.clone()).map_err(|errors| errors.to_string())
    }

    /// Compares the default of every optional field with that in the schema.
    #[test]
    fn has_the_defaults_of_its_schema() {
        for field in SCHEMA.fields {
            let written = read_http(&format!("{{{}: {}}}", field.name, field.default.unwrap())).unwrap();
            assert_eq!(written, EdgeHttp::default(), "{}", field.name);
        }
        assert_eq!(read_http("{}").unwrap(), EdgeHttp::default());
    }

    #[test]
    fn reads_everything() {
        let http = read_http(
            "{trustedHops: 2, escapedSlashes: keep, pathParameters: keep, headersWithUnderscores: drop, maxHeaders: 200, maxHeaderSize: 96KiB, \
             maxConcurrentStreams: 1000, streamWindow: 256KiB, connectionWindow: 16MiB, bufferLimit: 4MiB, headersTimeout: \
             1m, requestTimeout: 10m, streamIdleTimeout: 0s, idleTimeout: 2h}",
        );
        let expect = EdgeHttp {
            trusted_hops: 2,
            escaped_slashes: EscapedSlashes::Keep,
            path_parameters: PathParameters::Keep,
            headers_with_underscores: Underscores::Drop,
            max_headers: 200,
            max_header_size: 96 * KIB,
            max_concurrent_streams: 1_000,
            stream_window: 256 * KIB,
            connection_window: 16 * MIB,
            buffer_limit: 4 * MIB,
            headers_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(600),
            stream_idle_timeout: Duration::ZERO,
            idle_timeout: Duration::from_secs(7_200),
        };
        assert_eq!(http, Ok(expect));
    }

    #[test]
    fn reports_what_envoy_would_refuse() {
        let errors =
            read_http("{maxHeaderSize: 9MiB, streamWindow: 1KiB, bufferLimit: 0, trustedHops: 17}").unwrap_err();
        let expect = [
            "f:6:25: Gateway `g`: spec.http.maxHeaderSize: expected from 1024 to 8388608 bytes, found 9437184",
            "f:6:45: Gateway `g`: spec.http.streamWindow: expected from 65535 to 2147483647 bytes, found 1024",
            "f:6:64: Gateway `g`: spec.http.bufferLimit: expected from 16384 to 2147483647 bytes, found 0",
            "f:6:80: Gateway `g`: spec.http.trustedHops: expected a whole number from 0 to 16, found `17`",
        ];
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }
}
