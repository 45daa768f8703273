//! `postern simulate` finds the route that a real Envoy takes, and says what that Envoy answers.

use postern_tests::{ControlPlane, Request};
use serde_json::Value;

use crate::world::{KEY, World};

/// Requests as method, host and path, with and without the key.
const REQUESTS: [(&str, &str, &str); 18] = [
    ("GET", "any", "/users/7"),
    ("POST", "any", "/users/7"),
    ("GET", "any", "/users"),
    ("GET", "any", "/users?q=/welcome"),
    ("GET", "any", "/welcome"),
    ("GET", "any", "/welcome?q"),
    ("GET", "any", "/welcome/"),
    ("GET", "any", "/nowhere"),
    ("GET", "any", "/orders/1"),
    ("DELETE", "shop.example.com:8080", "/orders/1"),
    ("GET", "SHOP.example.com.", "/orders/1"),
    ("GET", "shop.example.com", "/orders/1"),
    ("GET", "any", "/welcome/../users/7"),
    ("GET", "any", "//users/7"),
    ("GET", "any", "/%75sers/7"),
    ("GET", "any", "/users%2F7"),
    ("GET", "any", "/welcome;x"),
    ("GET", "a,b", "/welcome"),
];

const ORDERS: &str = "  routes:
    - name: orders
      hosts: [shop.example.com]
      match: { path: { prefix: /orders }, methods: [DELETE] }
      service: backend
";

#[test]
fn says_of_each_request_what_envoy_answers() {
    let world = World::start();
    world.site.replace("gateway.yaml", "  routes:\n", ORDERS).unwrap();
    let policy = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: orders }\nspec:\n  targetRef: { kind: \
                  HTTPRoute, name: orders }\n  request: [{ policy: respond, params: { status: 418 } }]\n";
    world.site.write("orders.yaml", policy).unwrap();
    let order = || Request::new("DELETE", "/orders/1").host("shop.example.com");
    postern_tests::wait::until_true("the route", || Ok(world.client().send(&order())?.status == 418)).unwrap();

    for (method, host, path) in REQUESTS {
        for key in ["", KEY] {
            let said = simulated(&world, &[method, host, path], key);
            let request = Request::new(method, path).host(host);
            let request = if key.is_empty() { request } else { request.header("x-api-key", key) };
            let status = world.send(&request).status;
            let decision = &said["decision"];
            let expect = decision["status"].as_u64().unwrap_or(200);
            assert_eq!(expect, u64::from(status), "{method} {host} {path} with key `{key}`: {said:#}");
        }
    }
    // A route that the request does not take is said to be another.
    let site = world.site.directory().to_str().unwrap();
    let output = ControlPlane::command().unwrap();
    let output =
        { output }.args(["simulate", "--config", site, "--route", "users", "--path", "/welcome"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("this request takes route `welcome` of Gateway `edge`, not `users`"), "{told}");
}

fn simulated(world: &World, [method, host, path]: &[&str; 3], key: &str) -> Value {
    let mut command = ControlPlane::command().unwrap();
    command.args(["simulate", "--config", world.site.directory().to_str().unwrap(), "-o", "json"]);
    command.args(["--method", method, "--host", host, "--path", path]);
    if !key.is_empty() {
        command.args(["--header", &format!("x-api-key: {key}")]);
    }
    let output = command.output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let upstream = said["decision"]["status"].is_null();
    assert_eq!(output.status.code(), Some(i32::from(!upstream)), "{said:#}");
    said
}
