//! Names of routes that look like paths: of an Envoy's own routes, and of those of a Gateway.

use std::net::SocketAddr;

use postern_tests::{Client, ControlPlane, Envoy, Request, Upstream, site::free_port, wait};

use crate::{chains::overlay_with, world::assert_no_vm_failure};

const NAME: &str = "/api/v1/users";
const POLICY: &str = "apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users }
spec:
  targetRef: { kind: HTTPRoute, name: /api/v1/users }
  request: [{ policy: apiKeyAuth, params: { header: x-api-key } }]
  response: [{ policy: securityHeaders }]
";

/// What `postern explain` says of the route.
fn explained(control_plane: &ControlPlane) -> String {
    let output = ControlPlane::command()
        .unwrap()
        .args(["explain", "--server", &format!("http://{}", control_plane.http()), "--route", NAME])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn check(control_plane: &ControlPlane, envoy: &Envoy, listener: SocketAddr) {
    wait::until_true("the guard", || {
        Ok(Client::new(listener).get("/api/v1/users").is_ok_and(|answer| answer.status == 401))
    })
    .unwrap();
    assert_eq!(Client::new(listener).send(&Request::get("/open")).unwrap().status, 200);
    let log = envoy.access_log();
    let decision = |line: &serde_json::Value| line["decision"].as_str().unwrap_or_default().to_owned();
    assert!(log.iter().any(|line| decision(line).contains(" route=/api/v1/users ")), "{log:?}");
    let said = explained(control_plane);
    assert!(said.contains("apiKeyAuth") && said.contains(NAME), "{said}");
    assert_no_vm_failure(envoy);
}

#[test]
fn a_route_may_be_called_by_its_path() {
    let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
    std::fs::write(directory.path().join("policy.yaml"), POLICY).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let port = free_port().unwrap();
    let line = |name: &str| {
        format!(
            "                        - {{ name: {name}, match: {{ path_separated_prefix: {name} }}, route: {{ cluster: backend }} }}\n"
        )
    };
    let envoy = overlay_with(port, upstream.address(), &[line(NAME), line("/open")].concat(), control_plane.xds());
    check(&control_plane, &envoy, ([127, 0, 0, 1], port).into());
}

#[test]
fn a_route_of_a_gateway_may_be_called_by_its_path() {
    let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
    let port = free_port().unwrap();
    let gateway = format!(
        "---
apiVersion: postern/v1
kind: Gateway
metadata: {{ name: edge }}
spec:
  listeners: [{{ name: http, port: {port} }}]
  routes:
    - {{ name: {NAME}, match: {{ path: {{ prefix: {NAME} }} }}, service: backend }}
    - {{ name: /open, match: {{ path: {{ prefix: /open }} }}, service: backend }}
---
apiVersion: postern/v1
kind: Service
metadata: {{ name: backend }}
spec: {{ endpoints: [{{ address: 127.0.0.1, port: {} }}] }}
",
        upstream.address().port()
    );
    std::fs::write(directory.path().join("all.yaml"), [POLICY, &gateway].concat()).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let envoy = Envoy::whole(control_plane.xds()).unwrap();
    check(&control_plane, &envoy, ([127, 0, 0, 1], port).into());
}
