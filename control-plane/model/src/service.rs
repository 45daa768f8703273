//! `Service`: endpoints, and how requests reach them.

use std::{collections::BTreeMap, net::IpAddr};

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    gateway::PORT,
    health_check::{self, HealthCheck},
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    resource::Resource,
    target_ref::{Reach, TargetRef},
    upstream_tls::{self, UpstreamTls},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Service",
    about: "The endpoints behind routes, and how requests reach them.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Service"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Where the service is."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Service
metadata: { name: users }
spec:
  protocol: http2
  endpoints:
    - { address: 10.0.0.1, port: 8443, tags: { version: v1 } }
    - { address: 10.0.0.2, port: 8443, tags: { version: v1 } }
  tls:
    ca: { file: ca.crt }
    certificate: { file: edge.crt }
    key: { file: edge.key }
  healthCheck:
    http: { path: /healthz }
    interval: 5s
---
apiVersion: postern/v1
kind: Service
metadata: { name: users-next }
spec:
  endpoints:
    - { address: users-next.internal, port: 8080 }
";

const SPEC: Object = Object {
    fields: &[
        Field::required(
            "endpoints",
            Kind::List { item: &Kind::Object(&ENDPOINT), at_least: 1 },
            "Where requests can be sent.",
        ),
        Field::optional(
            "protocol",
            Kind::Choice(&["http1", "http2", "grpc"]),
            "What the endpoints speak. `grpc` is HTTP/2 by another name.",
        )
        .or("http1"),
        Field::optional(
            "tls",
            Kind::Object(&upstream_tls::SCHEMA),
            "How connections are secured; in the clear if left out.",
        ),
        Field::optional(
            "healthCheck",
            Kind::Object(&health_check::SCHEMA),
            "How each Envoy finds out which endpoints can take requests; all of them if left out.",
        ),
    ],
    exactly_one_of: &[],
};

const ENDPOINT: Object = Object {
    fields: &[
        Field::required(
            "address",
            Kind::Address,
            "An IP address, or a DNS name that each Envoy resolves, to IPv4 addresses if it has any.",
        ),
        Field::required("port", PORT, "The port."),
        Field::optional(
            "tags",
            Kind::Map { key: &Kind::Text, value: &Kind::Text },
            "What tells this endpoint from others, such as its version: Envoy's metadata `envoy.lb` of it.",
        ),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `Service`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    /// The endpoints: at least one.
    pub endpoints: Vec<Endpoint>,
    /// The protocol of the endpoints.
    #[serde(default)]
    pub protocol: Protocol,
    /// TLS. `None` means plain text.
    pub tls: Option<UpstreamTls>,
    /// Active health checks. `None` means none.
    pub health_check: Option<HealthCheck>,
}

/// The protocol of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge.
    #[serde(alias = "grpc")]
    Http2,
}

/// An address that takes requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The port, never 0.
    pub port: u16,
    /// Tags, which targets select by.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// The address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Address {
    /// An IP address.
    Ip(IpAddr),
    /// A DNS name that Envoy resolves.
    Name(String),
}

impl Resource<Service> {
    /// The SPIFFE identity in certificates of the service.
    pub fn spiffe_id(&self) -> String {
        format!("spiffe://{}/{}", self.mesh, self.name)
    }

    /// Whether an entry's destination selects the service, by its name and the tags that all endpoints have.
    pub fn is_selected_by(&self, target: &TargetRef) -> bool {
        let named = target.service().is_none_or(|name| *name == self.name);
        let mut tags = target.tags().into_iter().flatten();
        target.route().is_none() && named && tags.all(|(name, value)| self.spec.tag(name) == Ok(value.as_str()))
    }
}

/// Why a service has no value for a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTag<'a> {
    /// No endpoint has it.
    Absent,
    /// Some endpoints have it, and this one does not.
    Partial(&'a Endpoint),
    /// Two endpoints have these different values.
    Differs(&'a str, &'a str),
}

impl Service {
    /// The value of a tag that all endpoints have.
    pub fn tag(&self, name: &str) -> Result<&str, NoTag<'_>> {
        let first = self.endpoints.iter().find_map(|endpoint| endpoint.tags.get(name)).ok_or(NoTag::Absent)?;
        for endpoint in &self.endpoints {
            match endpoint.tags.get(name) {
                None => return Err(NoTag::Partial(endpoint)),
                Some(other) if other != first => return Err(NoTag::Differs(first, other)),
                Some(_) => {}
            }
        }
        Ok(first)
    }
}

impl Spec for Service {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::Mesh
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        if let Some(tls) = spec.get("tls") {
            upstream_tls::rules(tls, &path.field("tls"), report);
        }
        if let Some(check) = spec.get("healthCheck") {
            let protocol = spec.get("protocol").and_then(Node::text).unwrap_or("http1");
            health_check::rules(check, protocol, &path.field("healthCheck"), report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    fn check(spec: &str, expect: Result<&[Endpoint], &[&str]>) {
        let bytes =
            format!("apiVersion: postern/v1\nkind: Service\nmetadata: {{name: users}}\nspec: {spec}").into_bytes();
        let outcome = read(&[File { name: "s".to_owned(), bytes }]);
        match (outcome, expect) {
            (Ok(bundle), Ok(endpoints)) => assert_eq!(bundle.services[0].spec.endpoints, endpoints),
            (Err(errors), Err(lines)) => assert_eq!(errors.to_string().lines().collect::<Vec<_>>(), lines),
            (outcome, _) => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn tells_ip_addresses_from_dns_names() {
        let ip = Endpoint { address: Address::Ip("10.0.0.1".parse().unwrap()), port: 80, tags: BTreeMap::new() };
        let tags = BTreeMap::from([("version".to_owned(), "v2".to_owned())]);
        let name = Endpoint { address: Address::Name("users.svc".to_owned()), port: 8080, tags };
        let spec =
            "{endpoints: [{address: 10.0.0.1, port: 80}, {address: users.svc, port: 8080, tags: {version: v2}}]}";
        check(spec, Ok(&[ip, name]));
    }

    #[test]
    fn reports_bad_endpoints() {
        check("{endpoints: []}", Err(&["s:4:19: Service `users`: spec.endpoints: expected at least 1 item, found 0"]));
        check(
            "{endpoints: [{address: '10.0.0.1:80'}]}",
            Err(&[
                "s:4:20: Service `users`: spec.endpoints[0].port: missing required field `port`",
                "s:4:30: Service `users`: spec.endpoints[0].address: expected an IP address or a DNS name, without a port, \
                 found `10.0.0.1:80`",
            ]),
        );
    }
}
