//! All fields of a Gateway and its Services, on a real Envoy.

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Upstream, site::free_port, wait};
use tempfile::TempDir;

/// An Envoy with one gateway.
struct World {
    envoy: Envoy,
    client: Client,
    _control_plane: ControlPlane,
    _upstream: Upstream,
    _directory: TempDir,
}

/// A port that nobody listens on, nor gets by asking for a free one.
const DEAD: u16 = 1;

const ROUTES: &str = "
    - { name: versioned, match: { path: { exact: /users/me }, headers: [{ name: X-Version, exact: v2 }] }, service: a }
    - { name: patterned, match: { path: { exact: /users/me }, headers: [{ name: x-version, regex: 'v[0-9]+' }] }, service: a }
    - { name: without, match: { path: { exact: /users/me }, headers: [{ name: x-version, present: false }] }, service: a }
    - { name: with, match: { path: { exact: /users/me }, headers: [{ name: x-version, present: true }] }, service: a }
    - { name: user, match: { path: { template: '/users/{id}' }, methods: [GET] }, service: a }
    - { name: files, match: { path: { template: '/v1.0/files/{rest=**}' } }, service: a }
    - { name: long, match: { path: { template: '/api/organizations/{organization}/projects/{project}/environments/{environment}/deployments/{deployment}/logs/{log}/lines/' } }, service: a }
    - { name: large, match: { path: { regex: '/large/([a-z]+|[0-9]{2,200})/[^/]+/[^/]+/.*' } }, service: a }
    - { name: items, match: { path: { regex: '/items/[0-9]+(/parts)?' } }, service: a }
    - { name: all-to-b, match: { path: { exact: /weights/b } }, services: [{ service: a, weight: 0 }, { service: b }] }
    - { name: both, match: { path: { exact: /weights/both } }, services: [{ service: c }, { service: d, weight: 2 }] }
    - { name: again, match: { path: { exact: /again } }, service: e, retries: { on: [5xx], attempts: 2, perTryTimeout: 5s } }
    - { name: once, match: { path: { exact: /once } }, service: e }
    - { name: checked, match: { path: { exact: /checked } }, service: checked }
    - { name: named, match: { path: { exact: /named } }, service: named }";

impl World {
    fn start() -> Self {
        let upstream = Upstream::start(0).unwrap();
        let (port, live) = (free_port().unwrap(), upstream.address().port());
        let directory = tempfile::tempdir().unwrap();
        let mut text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  listeners: [{{ name: http, port: \
             {port} }}]\n  routes:{ROUTES}\n"
        );
        let mut service = |name: &str, spec: &str| {
            text +=
                &format!("---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {name} }}\nspec: {spec}\n");
        };
        for name in ["a", "b", "c", "d", "e"] {
            service(name, &format!("{{ endpoints: [{{ address: 127.0.0.1, port: {live} }}] }}"));
        }
        let tagged = |port| format!("{{ address: 127.0.0.1, port: {port}, tags: {{ version: v1, zone: z1 }} }}");
        let check =
            "{ http: { path: /healthz }, interval: 100ms, timeout: 5s, unhealthyThreshold: 1, healthyThreshold: 1 }";
        service("checked", &format!("{{ endpoints: [{}, {}], healthCheck: {check} }}", tagged(live), tagged(DEAD)));
        let named = format!("{{ address: localhost, port: {live}, tags: {{ version: v1, zone: z1 }} }}");
        service("named", &format!("{{ endpoints: [{named}], healthCheck: {{ tcp: {{}} }} }}"));
        text += "---\napiVersion: postern/v1\nkind: Agent\nmetadata: { name: risk }\nspec: { address: 'unix:/run/risk.sock' }\n";
        for (index, route) in ROUTES.lines().filter_map(route_name).enumerate() {
            text += &format!(
                "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p{index} }}\nspec:\n  targetRef: {{ kind: \
                 HTTPRoute, name: {route} }}\n  response: [{{ policy: headers, params: {{ set: {{ x-route: {route} }} }} }}]\n"
            );
        }
        std::fs::write(directory.path().join("all.yaml"), text).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        let mut client = Client::new(([127, 0, 0, 1], port).into());
        wait::until_true("the gateway to serve", || Ok(client.get("/users/7")?.status == 200)).unwrap();
        Self { envoy, client, _control_plane: control_plane, _upstream: upstream, _directory: directory }
    }

    fn send(&mut self, request: &Request) -> Received {
        self.client.send(request).unwrap()
    }

    /// Checks which route a request takes; `None` for none.
    fn check_route(&mut self, request: &Request, expect: Option<&str>) {
        let answer = self.send(request);
        assert_eq!(answer.status, if expect.is_some() { 200 } else { 404 }, "{request:?}");
        assert_eq!(answer.header("x-route"), expect, "{request:?}");
    }

    fn stat(&self, name: &str) -> u64 {
        self.envoy.stat(name).unwrap().unwrap_or_default()
    }
}

/// `x` of a line with `name: x,`.
fn route_name(line: &str) -> Option<&str> {
    line.split_once("- { name: ")?.1.split(',').next()
}

#[test]
fn matches_paths_methods_and_headers() {
    let mut world = World::start();
    let get = |path: &str| Request::get(path);
    let me = |version: &str| get("/users/me").header("x-version", version);
    world.check_route(&me("v2"), Some("versioned"));
    world.check_route(&me("v3"), Some("patterned"));
    world.check_route(&me("v3x"), Some("with"));
    world.check_route(&get("/users/me"), Some("without"));
    world.check_route(&get("/users/7"), Some("user"));
    world.check_route(&get("/users/7?a=/b"), Some("user"));
    world.check_route(&get("/users/"), None);
    world.check_route(&get("/users/7/8"), None);
    world.check_route(&Request::new("POST", "/users/7"), None);
    world.check_route(&get("/v1.0/files/a/b/c"), Some("files"));
    world.check_route(&get("/v1.0/files/"), Some("files"));
    world.check_route(&get("/v1x0/files/a"), None);
    let long = "/api/organizations/o/projects/p/environments/e/deployments/d/logs/l/lines/";
    world.check_route(&get(long), Some("long"));
    world.check_route(&get(long.trim_end_matches('/')), None);
    world.check_route(&get("/large/123/a/b/c/d"), Some("large"));
    world.check_route(&get("/large/1/a/b/c"), None);
    world.check_route(&get("/items/12"), Some("items"));
    world.check_route(&get("/items/12/parts?x=y"), Some("items"));
    world.check_route(&get("/items/12/part"), None);
}

#[test]
fn spreads_requests_by_weight_and_repeats_those_that_fail() {
    let mut world = World::start();
    for _ in 0..10 {
        world.check_route(&Request::get("/weights/b"), Some("all-to-b"));
    }
    assert_eq!(world.stat("cluster.b.upstream_rq_total"), 10);
    // That one of the two gets none of so many is less likely than a broken machine.
    for _ in 0..100 {
        world.check_route(&Request::get("/weights/both"), Some("both"));
    }
    let (one, two) = (world.stat("cluster.c.upstream_rq_total"), world.stat("cluster.d.upstream_rq_total"));
    assert!(one > 0 && two > 0 && one + two == 100, "{one} and {two}");

    let failing = |path: &str| Request::get(path).header("x-upstream", r#"{"status": 503}"#);
    assert_eq!(world.send(&failing("/once")).status, 503);
    assert_eq!(world.stat("cluster.e.upstream_rq_total"), 1);
    assert_eq!(world.send(&failing("/again")).status, 503);
    assert_eq!((world.stat("cluster.e.upstream_rq_total"), world.stat("cluster.e.upstream_rq_retry")), (4, 2));
    assert_eq!(world.send(&Request::get("/again")).status, 200);
    assert_eq!(world.stat("cluster.e.upstream_rq_total"), 5);
}

#[test]
fn sends_nothing_to_endpoints_that_fail_their_checks() {
    let mut world = World::start();
    wait::until_true("the checks", || {
        Ok(world.stat("cluster.checked.membership_total") == 2 && world.stat("cluster.checked.membership_healthy") == 1)
    })
    .unwrap();
    for _ in 0..20 {
        world.check_route(&Request::get("/checked"), Some("checked"));
    }
    wait::until_true("a name to be resolved and checked", || Ok(world.stat("cluster.named.membership_healthy") >= 1))
        .unwrap();
    world.check_route(&Request::get("/named"), Some("named"));
    let clusters = Client::new(world.envoy.admin()).get("/clusters").unwrap().body;
    assert!(clusters.contains("agent/risk::/run/risk.sock::"), "{clusters}");
    let endpoints = Client::new(world.envoy.admin()).get("/config_dump?include_eds").unwrap().body;
    assert!(endpoints.contains("envoy.lb") && endpoints.contains("z1"), "the tags did not arrive");
}
