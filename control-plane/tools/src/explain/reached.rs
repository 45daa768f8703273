//! Where a request gets at a node: the route that Envoy chooses among those of the node's Gateways, or what Envoy answers
//! by itself.

use postern_base::diagnostic::{quote, suggestion};
use postern_compile::{
    attach::Scope,
    pipeline::CompileError,
    route_match::{self, BadRequest, Matcher, RouteDecision},
};
use postern_model::{Gateway, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::simulate::Request;

/// Where a request gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reached {
    /// The Gateway that it comes to.
    pub gateway: String,
    /// The route that it takes. Absent if Envoy answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The path that steps see, as Envoy normalizes it, or the one that Envoy redirects to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What Envoy answers, before any step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<EnvoyAnswer>,
}

/// An answer that Envoy gives by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvoyAnswer {
    /// The status.
    pub status: u16,
    /// Why.
    pub reason: String,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The resources are not valid for this node.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The node has several Gateways, and the question names none.
    #[error("the node has the Gateways {}: say which one the request comes to", list(.0))]
    WhichGateway(Vec<String>),
    /// The node has no Gateway of this name.
    #[error("the node has no Gateway {}{hint}", quote(.name))]
    NoGateway {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// A Gateway has a regular expression that cannot be tried.
    #[error("Gateway {}: {error}", quote(.gateway))]
    Pattern {
        /// The Gateway.
        gateway: String,
        /// The error.
        error: route_match::PatternError,
    },
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}

/// Where a request gets at a node: at the Gateway of this name, or at the only one. `None` if the node has no Gateway, so
/// that only its Envoy knows its routes.
pub(crate) fn reached(
    scope: &Scope<'_>,
    gateway: Option<&str>,
    request: &Request,
) -> Result<Option<Reached>, ExplainError> {
    let Some(gateway) = gateway_of(scope, gateway)? else { return Ok(None) };
    let matcher =
        Matcher::new(&gateway.spec).map_err(|error| ExplainError::Pattern { gateway: gateway.name.clone(), error })?;
    let name = gateway.name.clone();
    let answered = |status, reason: String, path| Reached {
        gateway: name.clone(),
        route: None,
        path,
        answer: Some(EnvoyAnswer { status, reason }),
    };
    Ok(Some(match matcher.decide(&request.as_envoy_parses_it()) {
        RouteDecision::Taken(taken) => {
            let path = Some(String::from_utf8_lossy(&taken.path).into_owned());
            Reached { gateway: name, route: Some(taken.name.to_owned()), path, answer: None }
        }
        RouteDecision::NotFound => answered(404, "no route matches the request".to_owned(), None),
        RouteDecision::Redirected(path) => {
            let path = String::from_utf8_lossy(&path).into_owned();
            answered(307, "the path is not in its normal form".to_owned(), Some(path))
        }
        RouteDecision::Refused(refused) => answered(400, words(refused).to_owned(), None),
    }))
}

fn gateway_of<'s>(scope: &'s Scope<'_>, name: Option<&str>) -> Result<Option<&'s Resource<Gateway>>, ExplainError> {
    let names = || scope.gateways.iter().map(|gateway| gateway.name.as_str());
    match (name, scope.gateways.as_slice()) {
        (Some(name), _) => {
            let found = scope.gateways.iter().find(|gateway| gateway.name == name);
            let missing = || ExplainError::NoGateway { name: name.to_owned(), hint: suggestion(name, names()) };
            found.copied().map(Some).ok_or_else(missing)
        }
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(only)),
        (None, _) => Err(ExplainError::WhichGateway(names().map(str::to_owned).collect())),
    }
}

fn words(refused: BadRequest) -> &'static str {
    match refused {
        BadRequest::Underscore => "the name of a header contains `_`",
        BadRequest::Host => "the host is not exactly one host",
        BadRequest::Path => "the path does not start with `/`, or has invalid characters",
        BadRequest::EscapedSlash => "the path contains an escaped slash",
        BadRequest::Parameters => "the path contains `;`",
    }
}

#[cfg(test)]
mod tests {
    use postern_base::node::NodeIdentity;
    use postern_model::{File, read};

    use super::*;

    const RESOURCES: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: orders, hosts: [shop.example.com], match: { path: { prefix: /orders } }, service: s }
    - { name: writes, match: { methods: [POST], headers: [{ name: x-a, exact: '1' }] }, service: s }
---
apiVersion: postern/v1
kind: Service
metadata: { name: s }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
";

    fn check(resources: &str, gateway: Option<&str>, request: Request, expect: &str) {
        let bundle = read(&[File { name: "f".to_owned(), bytes: resources.into() }]).unwrap();
        let node = NodeIdentity::default();
        let said = match reached(&Scope::of(&bundle, &node), gateway, &request) {
            Ok(Some(Reached { route: Some(route), path, .. })) => format!("{route} {}", path.unwrap_or_default()),
            Ok(Some(Reached { answer, .. })) => answer.map_or_else(String::new, |answer| answer.status.to_string()),
            Ok(None) => "unknown".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expect);
    }

    fn get(host: &str, path: &str) -> Request {
        Request { host: host.to_owned(), path: path.to_owned(), ..Request::default() }
    }

    #[test]
    fn matches_as_envoy_does() {
        let headers = [("X-A".to_owned(), "1".to_owned())].into();
        let post = Request { method: "POST".to_owned(), headers, ..get("any", "/") };
        let cases = [
            (get("shop.example.com:8080", "/orders/1?q"), "orders /orders/1?q"),
            (get("SHOP.example.com.", "/x/../orders"), "orders /orders"),
            (get("other", "/orders/1"), "404"),
            (post, "writes /"),
            (get("shop.example.com", "/orders;a"), "400"),
            (get("a,b", "/orders"), "400"),
        ];
        for (request, expect) in cases {
            check(RESOURCES, None, request, expect);
        }
    }

    #[test]
    fn asks_which_gateway_is_meant() {
        let (first, _) = RESOURCES.split_once("---").unwrap();
        let renamed =
            [("edge", "inner"), ("8080", "8081"), ("name: orders", "name: inner-orders"), ("writes", "other")];
        let second = renamed.iter().fold(first.to_owned(), |text, (from, to)| text.replace(from, to));
        let two = format!("{RESOURCES}---\n{second}");
        let orders = || get("shop.example.com", "/orders");
        check(&two, None, orders(), "the node has the Gateways `edge`, `inner`: say which one the request comes to");
        check(&two, Some("inner"), orders(), "inner-orders /orders");
        check(&two, Some("iner"), orders(), "the node has no Gateway `iner`: did you mean `inner`?");
        check(RESOURCES.split("---").nth(1).unwrap(), None, orders(), "unknown");
    }
}
