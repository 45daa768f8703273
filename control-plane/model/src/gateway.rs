//! `Gateway`: listeners, and the routes that they serve.

use std::net::{IpAddr, Ipv4Addr};

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    edge::{self, EdgeHttp},
    kind::{self, Absence, KindSchema, Spec},
    listener_tls::{self, ListenerTls},
    report::Report,
    route::{self, Route},
    target_ref::{self, Reach, TargetRef},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Gateway",
    about: "Listeners, and the routes that they serve.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Gateway"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What the gateway serves."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners:
    - name: https
      address: 0.0.0.0
      port: 8443
      tls:
        certificate: { file: edge.crt }
        key: { file: edge.key }
        clientCa: { file: ca.crt }
  routes:
    - name: user
      hosts: [api.example.com]
      match:
        path: { template: \"/users/{id}\" }
        methods: [GET]
        headers: [{ name: x-preview, present: false }]
      services:
        - { service: users, weight: 95 }
        - { service: users-next, weight: 5 }
      retries: { on: [connectFailure, gatewayError], attempts: 2, perTryTimeout: 500ms }
";

const SPEC: Object = Object {
    fields: &[
        Field::optional("targetRef", target_ref::NODES, "The nodes that serve it; all of the mesh if left out."),
        Field::required("listeners", Kind::List { item: &Kind::Object(&LISTENER), at_least: 1 }, "Where it listens."),
        Field::optional(
            "http",
            Kind::Object(&edge::SCHEMA),
            "What its listeners take from callers. The defaults are for callers whom nobody knows.",
        ),
        Field::required(
            "routes",
            Kind::List { item: &Kind::Object(&route::SCHEMA), at_least: 1 },
            "Which requests go where; the first that matches wins.",
        ),
    ],
    exactly_one_of: &[],
};

/// A TCP or UDP port.
pub(super) const PORT: Kind = Kind::Integer { min: 1, max: 65535 };

const LISTENER: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "The name, unique in the gateway."),
        Field::optional("address", Kind::IpAddress, "The address to bind.").or("127.0.0.1"),
        Field::required("port", PORT, "The port to bind."),
        Field::optional(
            "tls",
            Kind::Object(&listener_tls::SCHEMA),
            "How connections are secured; in the clear if left out.",
        ),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `Gateway`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The nodes that serve it. `None` means all of its mesh.
    #[serde(default, rename = "targetRef", skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The listeners: at least one, with unique names.
    pub listeners: Vec<Listener>,
    /// Limits and normalization for requests of untrusted callers.
    #[serde(default)]
    pub http: EdgeHttp,
    /// The routes in order of precedence: at least one.
    pub routes: Vec<Route>,
}

/// An address that accepts connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The name, unique in the gateway.
    pub name: String,
    /// The address to bind.
    #[serde(default = "loopback")]
    pub address: IpAddr,
    /// The port to bind, never 0.
    pub port: u16,
    /// TLS. `None` means plain text.
    pub tls: Option<ListenerTls>,
}

impl Spec for Gateway {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::nodes(self.target_ref.as_ref())
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &[], path, report);
        let items = |name| spec.get(name).map_or(&[][..], Node::items).iter().enumerate();
        let listeners = path.field("listeners");
        for (index, listener) in items("listeners") {
            if let Some(tls) = listener.get("tls") {
                listener_tls::rules(tls, &listeners.item(index).field("tls"), report);
            }
        }
        if let Some(http) = spec.get("http") {
            edge::rules(http, &path.field("http"), report);
        }
        let routes = path.field("routes");
        let parameters = edge::path_parameters(spec.get("http"));
        for (index, route) in items("routes") {
            route::rules(route, parameters, &routes.item(index), report);
        }
    }
}

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, File, Match, PathMatch, read};

    fn read_spec(spec: &str) -> Result<Gateway, String> {
        let head = "apiVersion: postern/v1\nkind: Gateway\nmetadata: {name: edge}\n";
        let service = "\n---\napiVersion: postern/v1\nkind: Service\nmetadata: {name: users}\n\
            spec: {endpoints: [{address: 127.0.0.1, port: 9000}]}\n";
        let bytes = format!("{head}spec:{spec}{service}").into_bytes();
        let mut bundle = read(&[File { name: "g".to_owned(), bytes }]).map_err(|errors| errors.to_string())?;
        Ok(bundle.gateways.remove(0).spec.clone())
    }

    fn check(spec: &str, expect: &[&str]) {
        let errors = read_spec(spec).err().unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn fills_in_defaults() {
        let spec = " {listeners: [{name: http, port: 8080}], routes: [{name: all, service: users}]}";
        let gateway = read_spec(spec).unwrap();
        let listener = Listener { name: "http".to_owned(), address: Ipv4Addr::LOCALHOST.into(), port: 8080, tls: None };
        assert_eq!(gateway.listeners, [listener]);
        let route = Route {
            name: "all".to_owned(),
            hosts: vec!["*".to_owned()],
            matching: Match { path: PathMatch::Prefix("/".to_owned()), ..Match::default() },
            backends: vec![Backend { service: "users".to_owned(), weight: 1 }],
            retries: None,
            public: None,
        };
        assert_eq!(gateway.routes, [route]);
    }

    #[test]
    fn reads_everything() {
        let gateway = read_spec(
            "
  listeners:
    - { name: http, address: '::1', port: 80 }
  routes:
    - name: users
      hosts: [API.example.com, '*.example.org']
      match:
        path: { exact: /users }
        methods: [GET, POST]
      service: users",
        )
        .unwrap();
        assert_eq!(gateway.listeners[0].address.to_string(), "::1");
        assert_eq!(gateway.routes[0].hosts, ["api.example.com", "*.example.org"]);
        assert_eq!(gateway.routes[0].matching.path, PathMatch::Exact("/users".to_owned()));
        assert_eq!(gateway.routes[0].matching.methods, ["GET", "POST"]);
    }

    #[test]
    fn wants_listeners_and_routes() {
        check(
            " {listeners: []}",
            &[
                "g:4:7: Gateway `edge`: spec.routes: missing required field `routes`",
                "g:4:19: Gateway `edge`: spec.listeners: expected at least 1 item, found 0",
            ],
        );
    }

    #[test]
    fn reports_all_errors_of_a_gateway_at_once() {
        check(
            "
  listeners:
    - { name: http!, address: localhost, port: 0 }
  routes:
    - name: users
      hosts: [users:80]
      match:
        path: { exact: /a, prefix: b }
        methods: []
      servce: users",
            &[
                "g:6:15: Gateway `edge`: spec.listeners[0].name: expected a name of at most 253 letters, digits, `.`, `_` \
                 and `-` that starts with a letter or digit, found `http!`",
                "g:6:31: Gateway `edge`: spec.listeners[0].address: expected an IP address, found `localhost`",
                "g:6:48: Gateway `edge`: spec.listeners[0].port: expected a whole number from 1 to 65535, found `0`",
                "g:9:15: Gateway `edge`: spec.routes[0].hosts[0]: expected a host name, `*`, or `*.` and a host name, \
                 without a port, found `users:80`",
                "g:11:15: Gateway `edge`: spec.routes[0].match.path: expected exactly one of `exact`, `prefix`, \
                 `template`, `regex`",
                "g:11:36: Gateway `edge`: spec.routes[0].match.path.prefix: expected a path that starts with `/`, found `b`",
                "g:12:18: Gateway `edge`: spec.routes[0].match.methods: expected at least 1 item, found 0",
                "g:13:7: Gateway `edge`: spec.routes[0].servce: unknown field `servce`: did you mean `service`?",
            ],
        );
    }
}
