//! The oldest Envoy that is supported does all that a newer one does. Every Envoy of these tests fails its test if it was
//! sent a field that it does not know.

use postern_tests::{Client, ControlPlane, Envoy, Release, Request, Site, Upstream, site::free_port, wait};
use tempfile::TempDir;

use crate::world::{KEY, Variant};

struct Stage {
    envoy: Envoy,
    client: Client,
    _control_plane: ControlPlane,
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
    Stage { envoy, client, _control_plane: control_plane, _upstream: upstream, _directory: directory }
}

const REWRITE: &str =
    "{ policy: rewrite, params: { regex: { pattern: '^/users/(.*)$', substitution: '/v2/\\1' }, host: new.internal } }";
const HEADERS: &str = "{ policy: headers, params: { set: { x-guarded: \"1\" } } }";

/// `path_rewrite` and `host_rewrite` of a route came with 1.37: an older Envoy would ignore them.
#[test]
fn the_oldest_envoy_rewrites_paths_and_hosts() {
    for variant in [Variant::StateOfTheWorld, Variant::Incremental] {
        for release in [Release::Oldest, Release::Usual] {
            let mut stage = start(release, variant, true, REWRITE, HEADERS);
            let answer = stage.client.send(&Request::get("/users/7")).unwrap();
            assert!(answer.status == 200 && answer.body.contains("/v2/7"), "{release:?}: {answer:?}");
            assert_eq!(answer.echoed("host"), ["new.internal"], "{release:?}: {answer:?}");
            let answer = stage.client.get("/welcome").unwrap();
            assert_eq!((answer.status, answer.echoed("x-guarded")), (200, vec!["1".to_owned()]), "{answer:?}");
            assert_eq!(stage.envoy.unknown_fields().unwrap(), 0);
        }
    }
}

/// Every policy of the demo, with listeners of the Envoy's own and with generated ones.
#[test]
fn the_oldest_envoy_guards_its_routes() {
    let key = "{ policy: apiKeyAuth, params: { header: x-api-key } }";
    for whole in [true, false] {
        let mut old = start(Release::Oldest, Variant::StateOfTheWorld, whole, key, HEADERS);
        assert_eq!(old.client.send(&Request::get("/users/7")).unwrap().status, 401, "{whole}");
        assert_eq!(old.client.send(&Request::get("/users/7").header("x-api-key", KEY)).unwrap().status, 200, "{whole}");
        let answer = old.client.get("/welcome").unwrap();
        assert_eq!((answer.status, answer.echoed("x-guarded")), (200, vec!["1".to_owned()]), "{whole}: {answer:?}");
    }
}
