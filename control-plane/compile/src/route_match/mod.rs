//! The route that a request takes: what Envoy does with generated listeners and routes, as a pure function. It predicts
//! Envoy's decision, and does not take part in it.

mod conditions;
mod headers;
mod host;
mod marks;
mod path;
mod spelling;
#[cfg(test)]
mod testing;
mod values;

pub use conditions::PatternError;
pub use headers::{headers_of_route, matched_headers};
pub use marks::{MARK, guarded_services, marked_names};
use postern_model::{Backend, Gateway, PathParameters, Underscores};

use self::{conditions::Conditions, host::HostMatch};

/// A request as Envoy's connection manager has parsed it, before normalization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `:method`.
    pub method: Vec<u8>,
    /// `:authority`, or the `Host` headers joined by `,`.
    pub authority: Vec<u8>,
    /// `:path`, with the query.
    pub path: Vec<u8>,
    /// All other headers in order, with names in lower case.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The result for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteDecision<'a> {
    /// Refused with 400.
    Refused(BadRequest),
    /// Redirected with 307 to this path.
    Redirected(Vec<u8>),
    /// Refused with 404.
    NotFound,
    /// It takes a route and the route's chain.
    Taken(Taken<'a>),
}

/// Why a request is refused before a route is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadRequest {
    /// A header's name contains `_`.
    Underscore,
    /// The authority is not exactly one host.
    Host,
    /// The path does not start with `/`, or has invalid characters.
    Path,
    /// The path contains `%2F` or `%5C`.
    EscapedSlash,
    /// The path contains `;` or `%3B`.
    Parameters,
}

/// The route that a request takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<'a> {
    /// The index of the route in the gateway.
    pub index: usize,
    /// The name of the route.
    pub name: &'a str,
    /// The services of the route.
    pub backends: &'a [Backend],
    /// The normalized path with the query.
    pub path: Vec<u8>,
}

/// The compiled routes of a gateway.
#[derive(Debug)]
pub struct Matcher<'a> {
    gateway: &'a Gateway,
    routes: Vec<Conditions<'a>>,
}

impl<'a> Matcher<'a> {
    /// Compiles the routes of a gateway. An error if a regular expression cannot be compiled.
    pub fn new(gateway: &'a Gateway) -> Result<Self, PatternError> {
        let routes = gateway.routes.iter().map(|route| Conditions::new(&route.matching)).collect::<Result<_, _>>()?;
        Ok(Self { gateway, routes })
    }

    /// The result for a request.
    pub fn decide(&self, request: &Request) -> RouteDecision<'a> {
        // It concerns the server as a whole, so no route matches it.
        if request.method == b"OPTIONS" && request.path == b"*" {
            return RouteDecision::NotFound;
        }
        match self.admit(request) {
            Ok(request) => self.choose(&request),
            Err(answer) => answer,
        }
    }

    /// The normalized request, or the result that is decided before a route is chosen.
    fn admit(&self, request: &Request) -> Result<Request, RouteDecision<'a>> {
        let refused = |refusal| Err(RouteDecision::Refused(refusal));
        let http = &self.gateway.http;
        let mut request = request.clone();
        let has_underscore = |(name, _): &(Vec<u8>, Vec<u8>)| name.contains(&b'_');
        match http.headers_with_underscores {
            Underscores::Allow => {}
            Underscores::Drop => request.headers.retain(|header| !has_underscore(header)),
            Underscores::Reject if request.headers.iter().any(has_underscore) => {
                return refused(BadRequest::Underscore);
            }
            Underscores::Reject => {}
        }
        request.path = match path::normalize(&request.path, http.escaped_slashes) {
            path::Normalized::Path(path) => path,
            path::Normalized::Redirect(path) => return Err(RouteDecision::Redirected(path)),
            path::Normalized::Invalid => return refused(BadRequest::Path),
            path::Normalized::EscapedSlash => return refused(BadRequest::EscapedSlash),
        };
        request.authority = host::without_trailing_dot(&request.authority);
        if !host::is_one_host(&request.authority) {
            return refused(BadRequest::Host);
        }
        if http.path_parameters == PathParameters::Reject && path::has_parameters(&request.path) {
            return refused(BadRequest::Parameters);
        }
        Ok(request)
    }

    /// Only routes of the most specific matching host count. The first of them that matches is taken.
    fn choose(&self, request: &Request) -> RouteDecision<'a> {
        let host = host::without_port(&request.authority);
        let patterns = self.gateway.routes.iter().flat_map(|route| &route.hosts);
        let best = patterns.filter_map(|pattern| HostMatch::of(pattern, &host)).max().unwrap_or(HostMatch::Any);
        let routes = self.gateway.routes.iter().zip(&self.routes).enumerate();
        let mut fitting = routes.filter(|(_, (route, conditions))| {
            route.hosts.iter().any(|pattern| HostMatch::of(pattern, &host).is_some_and(|found| found <= best))
                && conditions.fit(request)
        });
        fitting.next().map_or(RouteDecision::NotFound, |(index, (route, _))| {
            let path = request.path.clone();
            RouteDecision::Taken(Taken { index, name: &route.name, backends: &route.backends, path })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::gateway, *};

    fn request(method: &str, authority: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let headers = headers.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        Request { method: bytes(method), authority: bytes(authority), path: bytes(path), headers }
    }

    fn check(routes: &str, cases: &[(Request, &str)]) {
        let gateway = gateway(routes);
        let matcher = Matcher::new(&gateway).unwrap();
        for (request, expect) in cases {
            let got = match matcher.decide(request) {
                RouteDecision::Taken(taken) => taken.name.to_owned(),
                RouteDecision::NotFound => "404".to_owned(),
                RouteDecision::Redirected(path) => String::from_utf8(path).unwrap(),
                RouteDecision::Refused(refusal) => format!("{refusal:?}"),
            };
            assert_eq!(got, *expect, "{request:?} of {routes}");
        }
    }

    fn get(authority: &str, path: &str) -> Request {
        request("GET", authority, path, &[])
    }

    #[test]
    fn takes_the_most_specific_host_and_then_the_first_route() {
        check(
            "[{name: any, service: s, match: {path: {prefix: /any}}}, {name: wild, hosts: ['*.example.com'], service: s}, \
             {name: exact, hosts: [a.example.com], service: s, match: {path: {exact: /x}}}]",
            &[
                (get("a.example.com", "/x"), "wild"),
                (get("a.example.com:80", "/any"), "any"),
                (get("A.Example.Com.:443", "/any/x"), "any"),
                (get("b.example.com", "/x"), "wild"),
                (get("example.com", "/x"), "404"),
                (get("other", "/anything"), "404"),
                (get("x@a.example.com", "/x"), "Host"),
                (get("a.example.com,b.example.com", "/x"), "Host"),
                (get("", "/any"), "Host"),
                (get("[::1]:80", "/any"), "any"),
            ],
        );
        check(
            "[{name: exact, hosts: [a.b.c], service: s, match: {path: {prefix: /x}}}, {name: near, hosts: ['*.b.c'], \
             service: s, match: {path: {prefix: /y}}}, {name: far, hosts: ['*.c'], service: s}]",
            &[(get("a.b.c", "/x"), "exact"), (get("a.b.c", "/y"), "near"), (get("a.b.c", "/z"), "far")],
        );
    }

    #[test]
    fn compares_all_that_a_route_asks_for() {
        check(
            "[{name: a, service: s, match: {methods: [GET, PUT], headers: [{name: X-A, exact: '1'}], query: [{name: q, \
             present: true}], cookies: [{name: c, exact: v}]}}, {name: b, service: s}]",
            &[
                (request("GET", "h", "/?q", &[("x-a", "1"), ("cookie", "c=v")]), "a"),
                (request("PUT", "h", "/?p&q=1", &[("x-a", "0"), ("x-a", "1"), ("cookie", "b=1;c=v")]), "a"),
                (request("get", "h", "/?q", &[("x-a", "1"), ("cookie", "c=v")]), "b"),
                (request("GET", "h", "/?%71", &[("x-a", "1"), ("cookie", "c=v")]), "b"),
                (request("GET", "h", "/?q", &[("x-a", "2"), ("cookie", "c=v")]), "b"),
                (request("GET", "h", "/?q", &[("x-a", "1"), ("cookie", "c=w")]), "b"),
                (request("GET", "h", "/?q", &[("x-a", "1")]), "b"),
                (request("GET", "h", "/", &[("x_a", "1")]), "Underscore"),
                (request("GET", "h", "/a%2Fb", &[]), "EscapedSlash"),
                (request("GET", "h", "/a;b", &[]), "Parameters"),
                (request("GET", "h", "/a/%2e%2e%3B/b", &[]), "Parameters"),
                (request("GET", "h", "/?a;b%3b", &[]), "b"),
                (request("GET", "h", "a", &[]), "Path"),
                (request("GET", "h", "*", &[]), "Path"),
                (request("OPTIONS", "h", "*", &[]), "404"),
            ],
        );
    }
}
