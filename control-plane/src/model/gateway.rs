//! `Gateway`: listeners, and the routes that they serve.

use std::net::{IpAddr, Ipv4Addr};

use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    diagnostic::Report,
    kinds::{self, KindSchema, Spec},
    path::Path,
    target_ref::{self, TargetRef},
    tree::Node,
};

/// The whole document.
pub(super) const SCHEMA: KindSchema = KindSchema {
    name: "Gateway",
    about: "Listeners, and the routes that they serve.",
    document: Object {
        fields: &[
            kinds::API_VERSION,
            kinds::kind(&["Gateway"]),
            kinds::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What the gateway serves."),
        ],
        exactly_one_of: &[],
    },
};

const SPEC: Object = Object {
    fields: &[
        Field::optional("targetRef", target_ref::NODES, "The nodes that serve it; all of the mesh if left out."),
        Field::required("listeners", Kind::List { item: &Kind::Object(&LISTENER), at_least: 1 }, "Where it listens."),
        Field::required(
            "routes",
            Kind::List { item: &Kind::Object(&ROUTE), at_least: 1 },
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
        Field::optional("address", Kind::IpAddress, "The address to bind; 127.0.0.1 if left out."),
        Field::required("port", PORT, "The port to bind."),
    ],
    exactly_one_of: &[],
};

const ROUTE: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "The name, unique among the routes of all gateways."),
        Field::optional("hosts", Kind::List { item: &Kind::Host, at_least: 1 }, "The hosts; any if left out."),
        Field::optional("match", Kind::Object(&MATCH), "What a request must be like; anything if left out."),
        Field::required("service", Kind::Name, "The Service that gets the requests."),
    ],
    exactly_one_of: &[],
};

const MATCH: Object = Object {
    fields: &[
        Field::optional("path", Kind::Object(&PATH), "The path; any if left out."),
        Field::optional("methods", Kind::List { item: &Kind::Method, at_least: 1 }, "The methods; any if left out."),
    ],
    exactly_one_of: &[],
};

const PATH: Object = Object {
    fields: &[
        Field::optional("exact", Kind::Path, "The whole path."),
        Field::optional("prefix", Kind::Path, "The start of the path."),
    ],
    exactly_one_of: &["exact", "prefix"],
};

/// Listeners, and the routes that they serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The nodes that serve it; all of its mesh if there is none.
    #[serde(default, rename = "targetRef", skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Where it listens: at least one, names are unique.
    pub listeners: Vec<Listener>,
    /// Which requests go where, in the order of precedence: at least one.
    pub routes: Vec<Route>,
}

/// An address to listen on.
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
}

/// Requests that go to one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The name, unique among the routes of all gateways.
    pub name: String,
    /// Host names and `*.` wildcards in lower case, or `*`: at least one.
    #[serde(default = "any_host", deserialize_with = "lower_case")]
    pub hosts: Vec<String>,
    /// What a request must be like.
    #[serde(default, rename = "match")]
    pub matching: Match,
    /// The name of a Service that exists.
    pub service: String,
}

/// What a request must be like, apart from its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// The path.
    #[serde(default)]
    pub path: PathMatch,
    /// The methods; any if empty.
    #[serde(default)]
    pub methods: Vec<String>,
}

/// What a path must be like. The query is no part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// The start of the path.
    Prefix(String),
}

impl Default for PathMatch {
    /// Any path.
    fn default() -> Self {
        Self::Prefix("/".to_owned())
    }
}

impl Spec for Gateway {
    const SCHEMA: &'static KindSchema = &SCHEMA;

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &[], path, report);
    }
}

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

fn any_host() -> Vec<String> {
    vec!["*".to_owned()]
}

fn lower_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(deserializer)?;
    Ok(hosts.iter().map(|host| host.to_ascii_lowercase()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, read};

    fn read_spec(spec: &str) -> Result<Gateway, String> {
        let head = "apiVersion: postern/v1\nkind: Gateway\nmetadata: {name: edge}\n";
        let service = "\n---\napiVersion: postern/v1\nkind: Service\nmetadata: {name: users}\n\
            spec: {endpoints: [{address: 127.0.0.1, port: 9000}]}\n";
        let bytes = format!("{head}spec:{spec}{service}").into_bytes();
        let mut bundle = read(&[File { name: "g".to_owned(), bytes }]).map_err(|errors| errors.to_string())?;
        Ok(bundle.gateways.remove(0).spec)
    }

    fn check(spec: &str, expect: &[&str]) {
        let errors = read_spec(spec).err().unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn fills_in_defaults() {
        let spec = " {listeners: [{name: http, port: 8080}], routes: [{name: all, service: users}]}";
        let gateway = read_spec(spec).unwrap();
        let listener = Listener { name: "http".to_owned(), address: Ipv4Addr::LOCALHOST.into(), port: 8080 };
        assert_eq!(gateway.listeners, [listener]);
        let route = Route {
            name: "all".to_owned(),
            hosts: vec!["*".to_owned()],
            matching: Match { path: PathMatch::Prefix("/".to_owned()), methods: vec![] },
            service: "users".to_owned(),
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
                "g:8:7: Gateway `edge`: spec.routes[0].service: missing required field `service`",
                "g:9:15: Gateway `edge`: spec.routes[0].hosts[0]: expected a host name, `*`, or `*.` and a host name, \
                 without a port, found `users:80`",
                "g:11:15: Gateway `edge`: spec.routes[0].match.path: expected exactly one of `exact`, `prefix`",
                "g:11:36: Gateway `edge`: spec.routes[0].match.path.prefix: expected a path that starts with `/`, found `b`",
                "g:12:18: Gateway `edge`: spec.routes[0].match.methods: expected at least 1 item, found 0",
                "g:13:7: Gateway `edge`: spec.routes[0].servce: unknown field `servce`: did you mean `service`?",
            ],
        );
    }
}
