//! An Envoy of the oldest series that is served: it gets nothing that it would ignore, and what it cannot do is refused.
//!
//! `path_rewrite` and `host_rewrite` of a route came with 1.37. An older Envoy ignores them, so that a `rewrite` would do
//! nothing. Every Envoy of these tests fails its test if it was sent a field that it does not know.

use postern_tests::{Client, ControlPlane, Envoy, Release, Request, Site, Upstream, site::free_port, wait};
use tempfile::TempDir;

use crate::world::{KEY, Variant};

struct Stage {
    envoy: Envoy,
    client: Client,
    control_plane: ControlPlane,
    _upstream: Upstream,
    _directory: TempDir,
}

/// The quickstart, with chains for its two routes.
fn start(release: Release, variant: Variant, whole: bool, users: &str, welcome: &str) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let policy = |name: &str, chain: &str| {
        format!(
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {name} }}\nspec:\n  targetRef: {{ kind: \
             HTTPRoute, name: {name} }}\n  request: [{chain}]\n"
        )
    };
    site.write("policies.yaml", &[policy("users", users), policy("welcome", welcome)].concat()).unwrap();
    if !whole {
        std::fs::remove_file(site.path("gateway.yaml")).unwrap();
    }
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let mut replace = match variant {
        Variant::StateOfTheWorld => vec![],
        Variant::Incremental => vec![("api_type: GRPC", "api_type: DELTA_GRPC")],
    };
    let port = if whole { site.listener().port() } else { free_port().unwrap() };
    let (backend, listener) = (format!("port_value: {}", upstream.address().port()), format!("port_value: {port}"));
    let bootstrap = if whole { "whole.yaml" } else { "overlay.yaml" };
    if !whole {
        replace.extend([("port_value: 10001", backend.as_str()), ("port_value: 10000", listener.as_str())]);
    }
    let envoy = Envoy::start_release(release, bootstrap, control_plane.xds(), &replace).unwrap();
    let mut client = Client::new(([127, 0, 0, 1], port).into());
    let probe = Request::get("/welcome").header("x-api-key", KEY);
    wait::until_true("the listener to serve", || Ok(client.send(&probe).is_ok_and(|answer| answer.status == 200)))
        .unwrap();
    Stage { envoy, client, control_plane, _upstream: upstream, _directory: directory }
}

const REWRITE: &str = "{ policy: rewrite, params: { regex: { pattern: '^/users/(.*)$', substitution: '/v2/\\1' } } }";
const HEADERS: &str = "{ policy: headers, params: { set: { x-guarded: \"1\" } } }";

#[test]
fn refuses_what_an_old_envoy_would_not_carry_out_and_serves_the_rest() {
    for variant in [Variant::StateOfTheWorld, Variant::Incremental] {
        let mut old = start(Release::Oldest, variant, true, REWRITE, HEADERS);
        let answer = old.client.send(&Request::get("/users/7")).unwrap();
        assert_eq!(answer.status, 500, "{answer:?}");
        let answer = old.client.get("/welcome").unwrap();
        assert_eq!((answer.status, answer.echoed("x-guarded")), (200, vec!["1".to_owned()]), "{answer:?}");
        assert_eq!(old.envoy.unknown_fields().unwrap(), 0);
        wait::until_true("the reason in the control plane's log", || {
            let says = "`path_rewrite` of a route came with Envoy 1.37";
            Ok(old.control_plane.log().iter().any(|line| line.contains(says)))
        })
        .unwrap();
        let mut new = start(Release::Usual, variant, true, REWRITE, HEADERS);
        let answer = new.client.send(&Request::get("/users/7")).unwrap();
        assert!(answer.status == 200 && answer.body.contains("/v2/7"), "{answer:?}");
    }
}

/// Every policy of the demo, on an old Envoy with listeners of its own and with generated ones.
#[test]
fn guards_routes_of_an_old_envoy() {
    let key = "{ policy: apiKeyAuth, params: { header: x-api-key } }";
    for whole in [true, false] {
        let mut old = start(Release::Oldest, Variant::StateOfTheWorld, whole, key, HEADERS);
        assert_eq!(old.client.send(&Request::get("/users/7")).unwrap().status, 401, "{whole}");
        assert_eq!(old.client.send(&Request::get("/users/7").header("x-api-key", KEY)).unwrap().status, 200, "{whole}");
        let answer = old.client.get("/welcome").unwrap();
        assert_eq!((answer.status, answer.echoed("x-guarded")), (200, vec!["1".to_owned()]), "{whole}: {answer:?}");
    }
}
