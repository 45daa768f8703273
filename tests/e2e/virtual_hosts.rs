//! Virtual hosts that an Envoy asks for when a request needs them (VHDS).

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Site, Upstream, site::free_port, wait};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    raw::{ads, listener, raw},
    world::{Variant, envoy_of},
};

/// A listener whose virtual hosts are asked for, and its route configuration.
fn on_demand(port: u16) -> String {
    let filter = json!({
        "name": "envoy.filters.http.on_demand",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand" },
    });
    let rds = json!({ "route_config_name": "team/hosts", "config_source": ads() });
    listener("hosts", port, ("rds", rds), &[filter])
}

fn routes(header: &str) -> String {
    let header = json!({ "header": { "key": "x-routes", "value": header } });
    let routes =
        json!({ "name": "team/hosts", "vhds": { "config_source": ads() }, "response_headers_to_add": [header] });
    raw("routes", "route.v3.RouteConfiguration", routes)
}

/// A virtual host that says its name in every answer.
fn host(name: &str, domains: &[&str]) -> String {
    let route = json!({
        "match": { "prefix": "/" },
        "direct_response": { "status": 200, "body": { "inline_string": name } },
    });
    let host = json!({ "name": format!("team/hosts/{name}"), "domains": domains, "routes": [route] });
    raw(&format!("host-{name}"), "route.v3.VirtualHost", host)
}

struct World {
    envoy: Envoy,
    control_plane: ControlPlane,
    site: Site,
    port: u16,
    _upstream: Upstream,
    _directory: TempDir,
}

impl World {
    fn start(hosts: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        let port = free_port().unwrap();
        site.write("listener.yaml", &on_demand(port)).unwrap();
        site.write("routes.yaml", &routes("first")).unwrap();
        if !hosts.is_empty() {
            site.write("hosts.yaml", hosts).unwrap();
        }
        let control_plane = ControlPlane::start(site.directory()).unwrap();
        let envoy = envoy_of(Variant::Incremental, control_plane.xds());
        let world = Self { envoy, control_plane, site, port, _upstream: upstream, _directory: directory };
        wait::until_true("the listener", || Ok(world.get("unknown.example").is_ok())).unwrap();
        world
    }

    fn get(&self, host: &str) -> anyhow::Result<Received> {
        Client::new(([127, 0, 0, 1], self.port).into()).send(&Request::get("/").host(host))
    }

    fn says(&self, host: &str) -> (u16, String) {
        let answer = self.get(host).unwrap();
        (answer.status, answer.body)
    }

    /// The counters of how often the Envoy gave up waiting for virtual hosts.
    fn gave_up(&self) -> Vec<(String, u64)> {
        let stats = self.envoy.stats("init_fetch_timeout").unwrap();
        stats.into_iter().filter(|(name, count)| name.contains("vhds") && *count > 0).collect()
    }
}

#[test]
fn case_45_a_listener_whose_hosts_are_asked_for_starts_at_once_and_follows_changes() {
    let shop = || host("shop", &["shop.example", "www.shop.example"]);
    let mut world = World::start(&shop());
    assert_eq!(world.gave_up(), []);
    assert_eq!(world.says("shop.example"), (200, "shop".to_owned()));
    assert_eq!(world.says("www.shop.example"), (200, "shop".to_owned()));
    assert_eq!(world.says("unknown.example").0, 404);

    // Created later, it is there.
    world.site.write("hosts.yaml", &[shop(), host("new", &["unknown.example"])].concat()).unwrap();
    wait::until_true("the new host", || Ok(world.says("unknown.example") == (200, "new".to_owned()))).unwrap();
    // Its route configuration is replaced, and it stays.
    world.site.write("routes.yaml", &routes("second")).unwrap();
    wait::until_true("the new routes", || {
        let answer = world.get("shop.example")?;
        assert_eq!(answer.status, 200);
        Ok(answer.header("x-routes") == Some("second"))
    })
    .unwrap();
    assert_eq!(world.says("unknown.example"), (200, "new".to_owned()));

    // The control plane goes and comes back, and one of them was deleted meanwhile.
    world.control_plane.kill();
    world.site.write("hosts.yaml", &shop()).unwrap();
    assert_eq!(world.says("unknown.example"), (200, "new".to_owned()));
    world.control_plane.kill_and_restart().unwrap();
    wait::until_true("the deletion", || Ok(world.says("unknown.example").0 == 404)).unwrap();
    assert_eq!(world.says("shop.example"), (200, "shop".to_owned()));
    let rejected: Vec<_> = world.envoy.stats("update_rejected").unwrap();
    assert_eq!(rejected.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), []);
}

#[test]
fn case_45_a_virtual_host_for_every_host_does_not_hide_the_others() {
    let world = World::start(&[host("shop", &["shop.example"]), host("rest", &["*"])].concat());
    assert_eq!(world.gave_up(), []);
    assert_eq!(world.says("unknown.example"), (200, "rest".to_owned()));
    assert_eq!(world.says("shop.example"), (200, "shop".to_owned()));
}
