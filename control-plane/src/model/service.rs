//! `Service`: the endpoints behind routes.

use std::net::IpAddr;

use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    gateway::PORT,
    kinds::{self, KindSchema, Spec},
};

/// The whole document.
pub(super) const SCHEMA: KindSchema = KindSchema {
    name: "Service",
    about: "The endpoints behind routes.",
    document: Object {
        fields: &[
            kinds::API_VERSION,
            kinds::kind(&["Service"]),
            kinds::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Where the service is."),
        ],
        exactly_one_of: &[],
    },
};

const SPEC: Object = Object {
    fields: &[Field::required(
        "endpoints",
        Kind::List { item: &Kind::Object(&ENDPOINT), at_least: 1 },
        "Where requests can be sent.",
    )],
    exactly_one_of: &[],
};

const ENDPOINT: Object = Object {
    fields: &[
        Field::required("address", Kind::Address, "An IP address or a DNS name."),
        Field::required("port", PORT, "The port."),
    ],
    exactly_one_of: &[],
};

/// The endpoints behind routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Where requests can be sent: at least one.
    pub endpoints: Vec<Endpoint>,
}

/// One place to send requests to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The port, never 0.
    pub port: u16,
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

impl Spec for Service {
    const SCHEMA: &'static KindSchema = &SCHEMA;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, read};

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
        let ip = Endpoint { address: Address::Ip("10.0.0.1".parse().unwrap()), port: 80 };
        let name = Endpoint { address: Address::Name("users.svc".to_owned()), port: 8080 };
        check("{endpoints: [{address: 10.0.0.1, port: 80}, {address: users.svc, port: 8080}]}", Ok(&[ip, name]));
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
