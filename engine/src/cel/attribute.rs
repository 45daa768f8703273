//! The attributes that an expression can read, and how a host provides them.

use postern_proto::plan::v1::expression as wire;

use super::value::{Type, Value};

/// Declares the attributes once: the enum, its list, names, types and numbers cannot disagree.
macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal: $type:ident,)*) => {
        /// Something that an expression can read. The set is closed; names are Envoy's where Envoy has one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Attribute {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Attribute {
            /// Every attribute, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// What a user writes, such as `request.method`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it is, for documentation: lines that start with a space.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*),)*
                }
            }

            /// The type of its value, if it has a value.
            pub const fn value_type(self) -> Type {
                match self {
                    $(Self::$variant => Type::$type,)*
                }
            }

            /// Its number in a plan.
            pub const fn wire(self) -> wire::Attribute {
                match self {
                    $(Self::$variant => wire::Attribute::$variant,)*
                }
            }

            /// The attribute with this number in a plan. `None` if there is no such attribute.
            pub(super) fn from_wire(number: i32) -> Option<Self> {
                match wire::Attribute::try_from(number).ok()? {
                    $(wire::Attribute::$variant => Some(Self::$variant),)*
                    wire::Attribute::Unspecified => None,
                }
            }
        }
    };
}

attributes! {
    /// The method, such as `GET`.
    RequestMethod = "request.method": String,
    /// The path with its query.
    RequestPath = "request.path": String,
    /// The path without its query.
    RequestUrlPath = "request.url_path": String,
    /// What follows the path's `?`; empty without one.
    RequestQuery = "request.query": String,
    /// The host by which the route was chosen: in lower case, without port and trailing dot. Not available for an
    /// authority that could be read as several hosts. `request.headers[':authority']` is what came.
    RequestHost = "request.host": String,
    /// The scheme: `http` or `https`. Listeners of a `Gateway` set it by the connection. An Envoy with listeners of its
    /// own believes the caller over HTTP/2, unless they have `scheme_header_transformation`.
    RequestScheme = "request.scheme": String,
    /// The headers by lower-case name; values of one name are joined by `,`.
    RequestHeaders = "request.headers": Map,
    /// The size of the body in bytes, as `content-length` says; 0 without a body. Not available for a body that does not
    /// say how large it is (chunks, most of gRPC) unless an earlier step has read it: `requestSize` limits such a body.
    RequestSize = "request.size": Int,
    /// When the first byte came.
    RequestTime = "request.time": Timestamp,
    /// The value of `x-request-id`.
    RequestId = "request.id": String,
    /// The protocol, such as `HTTP/2`.
    RequestProtocol = "request.protocol": String,
    /// The body, as it came.
    RequestBody = "request.body": Bytes,
    /// The IP address of the caller, without a port: the peer's own, or the one that trusted proxies say. IPv4 addresses
    /// that are mapped into IPv6 are written as IPv4. Absent on a Unix socket.
    SourceAddress = "source.address": String,
    /// The port of the caller; 0 where the address is what a proxy says. Absent on a Unix socket.
    SourcePort = "source.port": Int,
    /// The service that the peer belongs to.
    SourceService = "source.service": String,
    /// What is known of the peer beyond its service.
    SourceTags = "source.tags": Map,
    /// The identity in the peer's certificate.
    SourcePrincipal = "source.principal": String,
    /// Our own IP address that the connection came to, written like `source.address`.
    DestinationAddress = "destination.address": String,
    /// Our own port that the connection came to.
    DestinationPort = "destination.port": Int,
    /// Whether the peer showed a valid certificate.
    ConnectionMtls = "connection.mtls": Bool,
    /// The server name that the peer asked for.
    ConnectionRequestedServerName = "connection.requested_server_name": String,
    /// The version of TLS, such as `TLSv1.3`.
    ConnectionTlsVersion = "connection.tls_version": String,
    /// The first URI among the alternative names of the peer's certificate.
    ConnectionUriSanPeerCertificate = "connection.uri_san_peer_certificate": String,
    /// The name of the route.
    XdsRouteName = "xds.route_name": String,
    /// The name of the cluster.
    XdsClusterName = "xds.cluster_name": String,
    /// The name of the virtual host.
    XdsVirtualHostName = "xds.virtual_host_name": String,
    /// The status of the response.
    ResponseCode = "response.code": Int,
    /// The headers of the response, like `request.headers`.
    ResponseHeaders = "response.headers": Map,
    /// The size of the response's body in bytes.
    ResponseSize = "response.size": Int,
    /// The response's body, as it came.
    ResponseBody = "response.body": Bytes,
    /// The consumer that a step before authenticated.
    ConsumerName = "consumer.name": String,
    /// The groups of that consumer.
    ConsumerGroups = "consumer.groups": List,
    /// The claims of the token that a step before validated.
    JwtClaims = "jwt.claims": Map,
    /// What steps before said about the request.
    Metadata = "metadata": Map,
}

impl Attribute {
    /// Whether it is available only once there is a response.
    pub const fn of_response(self) -> bool {
        matches!(self, Self::ResponseCode | Self::ResponseHeaders | Self::ResponseSize | Self::ResponseBody)
    }
}

/// Answers what an expression asks. It is asked only for what the evaluation needs, but perhaps more than once: whoever
/// has to fetch an answer keeps it.
///
/// An answer has the attribute's type, and nests at most [`MAX_DEPTH`](super::MAX_DEPTH) lists and maps. An attribute
/// that is a map is never absent: it is empty.
pub trait Attributes {
    /// The value of an attribute.
    fn attribute(&self, attribute: Attribute) -> Result<Value, AttributeError>;

    /// One entry of an attribute that is a map; `None` if it has no such key.
    fn member(&self, attribute: Attribute, key: &str) -> Result<Option<Value>, AttributeError>;
}

/// Why an attribute has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// This request does not have it: no peer certificate, no consumer.
    #[error("is absent")]
    Absent,
    /// Its type is text, but its bytes are not UTF-8.
    #[error("is not valid UTF-8")]
    NotUtf8,
    /// It is not available here: the host does not provide it, or it comes later.
    #[error("is not available here")]
    Unavailable,
    /// The request's budget does not allow reading it.
    #[error("takes too long to read")]
    TooCostly,
}

/// Provides no attribute. For expressions that read none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAttributes;

impl Attributes for NoAttributes {
    fn attribute(&self, _: Attribute) -> Result<Value, AttributeError> {
        Err(AttributeError::Unavailable)
    }

    fn member(&self, _: Attribute, _: &str) -> Result<Option<Value>, AttributeError> {
        Err(AttributeError::Unavailable)
    }
}
