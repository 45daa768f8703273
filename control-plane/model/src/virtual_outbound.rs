//! `VirtualOutbound`: host names by which proxies reach services on listeners for outbound requests.

use std::net::IpAddr;

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    gateway::Gateway,
    kind::{self, Absence, KindSchema, Spec},
    name_template::Template,
    outbound::{Outbound, To},
    report::Report,
    resource::Resource,
    target_ref::{self, Reach, TargetRef, Targeted},
};

/// How the names of generated routes start. No other route of a mesh with VirtualOutbounds has such a name.
pub const OUTBOUND_ROUTE: &str = "outbound:";

/// The name of the route to a service.
pub fn outbound_route(service: &str) -> String {
    format!("{OUTBOUND_ROUTE}{service}")
}

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "VirtualOutbound",
    about: "Host names by which applications reach services through the Envoy beside them. Each address and port that an \
            entry comes to is a listener for outbound requests, with a virtual host for each host name; other hosts get a \
            404. The route to Service `users` is the HTTPRoute `outbound:users`, which policies can target. Requests are \
            HTTP/1.1, HTTP/2 or gRPC in the clear: raw TCP is not supported.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["VirtualOutbound"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who reaches whom by which name."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: VirtualOutbound
metadata: { name: names }
spec:
  targetRef: { kind: Service, name: web }
  to:
    - targetRef: { kind: Service, name: users }
      host: \"{tags.version}.{service}.mesh\"
    - targetRef: { kind: Mesh }
      host: \"{service}.mesh\"
      port: 15001
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::NODES, "Who calls: the nodes that have the listeners."),
        kind::OVERRIDE,
        Field::required(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "Whom. Where several entries are for one service, the first that sets a field counts, so a service has one \
             host name at a node.",
        ),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required(
            "targetRef",
            target_ref::SERVICES,
            "The services: all, one by its name, or those whose endpoints all have some tags.",
        ),
        HOST,
        PORT,
        ADDRESS,
    ],
    exactly_one_of: &[],
};

const CONF: Object = Object { fields: &[HOST, PORT, ADDRESS], exactly_one_of: &[] };

const HOST: Field = Field::optional(
    "host",
    Kind::HostTemplate,
    "The host name of each service. `{service}` stands for its name, `{mesh}` for its mesh, and `{tags.NAME}` for the value \
     of a tag that all of its endpoints have. A service for which no entry sets one has no host name.",
);
const PORT: Field = Field::optional(
    "port",
    Kind::PortTemplate,
    "The port of the listener: a number, or text such as `\"{tags.port}\"`, with the same placeholders as `host`; 15001 if \
     left out.",
);
const ADDRESS: Field = Field::optional(
    "address",
    Kind::IpAddress,
    "The address of the listener; 127.0.0.1 if left out. On any other than a loopback address, callers are strangers: \
     `from` entries and TrafficPermissions hold, and a route without authentication is reported.",
);

/// The `spec` of a `VirtualOutbound`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualOutbound {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination: at least one.
    pub to: Vec<To<OutboundName>>,
}

/// How a service is reached. An absent field changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboundName {
    /// The host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Template>,
    /// The port of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<OutboundPort>,
    /// The address of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// The port of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OutboundPort {
    /// The port itself, never 0.
    Number(u16),
    /// Text that becomes a port for each service.
    Template(Template),
}

impl Resource<Gateway> {
    /// Whether VirtualOutbounds came to it. Users' gateways have no such names.
    pub fn is_outbound(&self) -> bool {
        self.name.starts_with(OUTBOUND_ROUTE)
    }

    /// Whether VirtualOutbounds came to it, and only its own node reaches it.
    pub fn is_local(&self) -> bool {
        self.is_outbound() && self.spec.listeners.iter().all(|listener| listener.address.is_loopback())
    }
}

impl Targeted for VirtualOutbound {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Outbound for VirtualOutbound {
    type Conf = OutboundName;

    const CONF: &'static Object = &CONF;
    const PER_ROUTE: &'static [&'static str] = &[];

    fn to(&self) -> &[To<OutboundName>] {
        &self.to
    }
}

impl Spec for VirtualOutbound {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to"], path, report);
    }
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    fn check(to: &str, expect: &[&str]) {
        let text = format!(
            "apiVersion: postern/v1\nkind: VirtualOutbound\nmetadata: {{name: v}}\nspec:\n  targetRef: {{kind: Mesh}}\n  to:\n  \
             - {to}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string()).unwrap_or_default();
        let message =
            |line: &'_ str| line.split_once("VirtualOutbound `v`: ").map_or(line, |(_, rest)| rest).to_owned();
        assert_eq!(found.lines().map(message).collect::<Vec<_>>(), expect, "{to}");
    }

    fn check_host(host: &str, expect: &str) {
        let expect = format!("spec.to[0].host: {expect}");
        check(&format!("{{targetRef: {{kind: Mesh}}, host: '{host}'}}"), &[&expect]);
    }

    #[test]
    fn reads_templates_of_hosts_and_ports() {
        for right in [
            "host: backend.mesh",
            "host: '{service}'",
            "host: '{service}.mesh', port: 80",
            "host: 'v{tags.version}-{service}.{mesh}.internal', port: '{tags.port}', address: '::1'",
            "host: '{tags.kuma.io/zone}.{service}', port: '1{tags.port}'",
            "port: '8080'",
        ] {
            check(&format!("{{targetRef: {{kind: Mesh}}, {right}}}"), &[]);
        }
        for target in
            ["kind: Service, name: a", "kind: MeshSubset, tags: {a: b}", "kind: ServiceSubset, name: a, tags: {a: b}"]
        {
            check(&format!("{{targetRef: {{{target}}}, host: a}}"), &[]);
        }
    }

    #[test]
    fn refuses_what_becomes_no_host() {
        check_host("{service", "`{` without `}` in `{service`");
        check_host("service}", "`}` without `{` in `service}`");
        let placeholders = "expected `{service}`, `{mesh}` or `{tags.NAME}`";
        check_host("{name}.mesh", &format!("unknown placeholder `{{name}}`: {placeholders}"));
        check_host("{tags.}.mesh", &format!("unknown placeholder `{{tags.}}`: {placeholders}"));
        check_host("{}", &format!("unknown placeholder `{{}}`: {placeholders}"));
        let host =
            "expected a host name, without a port, in which `{service}`, `{mesh}` and `{tags.NAME}` are replaced";
        for wrong in
            ["*.mesh", "*", "a b", "{service}:80", "{service}..mesh", "{service}.", ".{service}", "", "{service}/x"]
        {
            let shown = if wrong.is_empty() { "an empty string".to_owned() } else { format!("`{wrong}`") };
            check_host(wrong, &format!("{host}, found {shown}"));
        }
    }

    #[test]
    fn refuses_what_becomes_no_port() {
        let port = "a port from 1 to 65535, or text such as `{tags.port}` that becomes one";
        for (wrong, shown) in [("0", "0"), ("65536", "65536"), ("'a{tags.port}'", "a{tags.port}"), ("'0'", "0")] {
            let expect = format!("spec.to[0].port: expected {port}, found `{shown}`");
            check(&format!("{{targetRef: {{kind: Mesh}}, port: {wrong}}}"), &[&expect]);
        }
        check(
            "{targetRef: {kind: Mesh}, address: localhost}",
            &["spec.to[0].address: expected an IP address, found `localhost`"],
        );
    }

    #[test]
    fn is_not_attached_to_routes() {
        let nodes = "`Mesh`, `MeshSubset`, `Service`, `ServiceSubset`";
        check(
            "{targetRef: {kind: HTTPRoute, name: r}, host: a}",
            &[&format!("spec.to[0].targetRef.kind: expected one of {nodes}, found `HTTPRoute`")],
        );
    }
}
