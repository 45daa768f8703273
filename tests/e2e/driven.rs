//! A real Envoy under a random sequence of changes, refusals and restarts of the control plane. After each of them its
//! `/config_dump` must show what it should have.
//!
//! `POSTERN_DRIVEN_SEED=N` repeats a sequence, `POSTERN_DRIVEN_STEPS=N` makes it longer.

use std::{collections::BTreeMap, ffi::OsStr, path::Path};

use postern_tests::{
    Client, ControlPlane, Envoy,
    site::{free_port, write_whole},
    wait,
};
use serde_json::{Value, json};

use crate::{
    raw::{address, ads, listener, raw},
    world::{Variant, envoy_of},
};

/// How many changes there are, unless `POSTERN_DRIVEN_STEPS` says otherwise.
const STEPS: u64 = 40;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Pseudo-random numbers, the same for each seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.roll(NAMES.len() as u64)).unwrap()]
    }
}

/// A number that identifies a version of a resource.
type Version = u64;

/// A resource as it is applied.
#[derive(Debug, Clone, Copy)]
struct Applied {
    version: Version,
    /// Whether Envoy refuses it.
    is_bad: bool,
}

/// What is applied. Endpoints, routes and filters of every name always exist; clusters and listeners come and go.
#[derive(Debug, Default)]
struct Desired {
    clusters: BTreeMap<&'static str, Applied>,
    endpoints: BTreeMap<&'static str, Version>,
    routes: BTreeMap<&'static str, Version>,
    filters: BTreeMap<&'static str, Applied>,
    listeners: BTreeMap<&'static str, Version>,
}

/// What an Envoy has of each type, by name. Only what it uses is included.
type Has = BTreeMap<&'static str, BTreeMap<String, Version>>;

impl Desired {
    fn new() -> Self {
        let of_all = || NAMES.into_iter().map(|name| (name, 1)).collect();
        let filters = NAMES.into_iter().map(|name| (name, Applied { version: 1, is_bad: false })).collect();
        Self { endpoints: of_all(), routes: of_all(), filters, listeners: of_all(), ..Self::default() }
    }

    /// Changes some of the resources. `has` is what the Envoy has.
    fn change(&mut self, dice: &mut Dice, version: Version, has: &Has) {
        // Then it may still have clusters that are gone, and would go on with them.
        let keeps_clusters = self.keeps_clusters();
        for _ in 0..=dice.roll(3) {
            self.change_one(dice, version, has, keeps_clusters);
        }
    }

    fn change_one(&mut self, dice: &mut Dice, version: Version, has: &Has, keeps_clusters: bool) {
        let name = dice.name();
        let breaks_now = self.filters.get(name).is_some_and(|it| it.is_bad && it.version == version);
        match dice.roll(10) {
            0..=2 => {
                let is_bad = !keeps_clusters && dice.roll(4) == 0;
                self.clusters.insert(name, Applied { version, is_bad });
            }
            3 => drop(self.clusters.remove(name)),
            4 => drop(self.endpoints.insert(name, version)),
            5 => drop(self.routes.insert(name, version)),
            // Envoy does not say which of several filters it refuses, so that all that are new would go back.
            6 if self.filters.values().any(|it| it.version == version) => {}
            // Without a good one to go back to, a listener would never start; and Envoy refuses a listener that changes
            // together with a filter that it refuses.
            6 => {
                let changes = self.listeners.get(name) == Some(&version);
                let is_bad = has["filters"].contains_key(name) && !changes && dice.roll(2) == 0;
                self.filters.insert(name, Applied { version, is_bad });
            }
            7..=8 if breaks_now => {}
            7..=8 => drop(self.listeners.insert(name, version)),
            _ => drop(self.listeners.remove(name)),
        }
    }

    /// Whether an Envoy may keep clusters that are gone: a filter that it refuses may use them, or the set without them has
    /// a cluster that it refused, which is not sent again.
    fn keeps_clusters(&self) -> bool {
        self.refuses_filters() || self.clusters.values().any(|cluster| cluster.is_bad)
    }

    fn refuses_filters(&self) -> bool {
        self.filters.values().any(|filter| filter.is_bad)
    }

    fn apply(&self, directory: &Path, ports: &BTreeMap<&'static str, u16>) {
        let clusters = self.clusters.iter().map(|(name, it)| cluster(name, *it));
        let endpoints = self.endpoints.iter().map(|(name, version)| endpoints(name, *version));
        let routes = self.routes.iter().map(|(name, version)| routes(name, *version));
        let filters = self.filters.iter().map(|(name, it)| filter(name, *it));
        let listeners = self.listeners.iter().map(|(name, version)| http(name, ports[name], *version));
        let all: String = clusters.chain(endpoints).chain(routes).chain(filters).chain(listeners).collect();
        write_whole(directory, "driven.yaml", &all).unwrap();
    }

    /// What an Envoy should have that had `before`: of a resource that it refused, it keeps the previous version.
    /// `good` has the filters that it last accepted, including those that no listener uses now.
    fn expected(&self, before: &Has, good: &BTreeMap<String, Version>) -> Has {
        let taken = |had: &BTreeMap<String, Version>, (name, it): (&&str, &Applied)| {
            let version = if it.is_bad { *had.get(*name)? } else { it.version };
            Some(((*name).to_owned(), version))
        };
        let clusters: BTreeMap<_, _> = self.clusters.iter().filter_map(|it| taken(&before["clusters"], it)).collect();
        let some = |all: &BTreeMap<&'static str, Version>, used: &dyn Fn(&str) -> bool| {
            let used = all.iter().filter(|(name, _)| used(name));
            used.map(|(name, version)| ((*name).to_owned(), *version)).collect::<BTreeMap<_, _>>()
        };
        let listens = |name: &str| self.listeners.contains_key(name);
        let filters = self.filters.iter().filter(|(name, _)| listens(name)).filter_map(|it| taken(good, it));
        [
            ("endpoints", some(&self.endpoints, &|name| clusters.contains_key(name))),
            ("routes", some(&self.routes, &listens)),
            ("filters", filters.collect()),
            ("listeners", some(&self.listeners, &|_| true)),
            ("clusters", clusters),
        ]
        .into()
    }
}

/// A cluster, whose version is a timeout. Envoy refuses one that balances what has no endpoints.
fn cluster(name: &str, applied: Applied) -> String {
    let timeout = format!("{}s", applied.version);
    let cluster = match applied.is_bad {
        true => json!({ "name": name, "type": "ORIGINAL_DST", "lb_policy": "ROUND_ROBIN", "connect_timeout": timeout }),
        false => json!({
            "name": name,
            "type": "EDS",
            "connect_timeout": timeout,
            "eds_cluster_config": { "eds_config": ads() },
        }),
    };
    raw(&format!("cluster-{name}"), "cluster.v3.Cluster", cluster)
}

/// Endpoints, whose version is a port that nobody connects to.
fn endpoints(name: &str, version: Version) -> String {
    let port = u16::try_from(version).unwrap();
    let locality = json!({ "lb_endpoints": [{ "endpoint": { "address": address(port) } }] });
    let assignment = json!({ "cluster_name": name, "endpoints": [locality] });
    raw(&format!("endpoints-{name}"), "endpoint.v3.ClusterLoadAssignment", assignment)
}

/// Routes, whose version is a number of bytes.
fn routes(name: &str, version: Version) -> String {
    let route = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200 } });
    let routes = json!({
        "name": name,
        "max_direct_response_body_size_bytes": version,
        "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }],
    });
    raw(&format!("routes-{name}"), "route.v3.RouteConfiguration", routes)
}

const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";

/// A filter, whose version is in a comment of its program. Envoy refuses what is no program.
fn filter(name: &str, applied: Applied) -> String {
    let program = if applied.is_bad { "neither function nor end" } else { "function envoy_on_request(handle) end" };
    let lua = json!({
        "@type": LUA,
        "default_source_code": { "inline_string": format!("{program} -- {}", applied.version) },
    });
    raw(&format!("filter-{name}"), "core.v3.TypedExtensionConfig", json!({ "name": name, "typed_config": lua }))
}

/// A listener with the routes and the filter of its name, whose version is a suffix of its prefix of statistics.
fn http(name: &str, port: u16, version: Version) -> String {
    let rds = json!({ "route_config_name": name, "config_source": ads() });
    let discovered = json!({ "name": name, "config_discovery": { "config_source": ads(), "type_urls": [LUA] } });
    let text = listener(name, port, ("rds", rds), &[discovered]);
    text.replace(&format!("\"stat_prefix\":\"{name}\""), &format!("\"stat_prefix\":\"{name}-{version}\""))
}

/// Everything in some lists of one kind of dump.
fn dumped(dump: &Value, kind: &str, lists: &[&str]) -> Vec<Value> {
    let configs = dump["configs"].as_array().into_iter().flatten();
    let of_kind = configs.filter(|config| config["@type"].as_str().is_some_and(|it| it.ends_with(kind)));
    let items = of_kind.flat_map(|config| lists.iter().filter_map(|list| config[*list].as_array()).flatten());
    items.cloned().collect()
}

/// The version that is written in a text.
fn number(text: Option<&str>) -> Version {
    let digits = text.unwrap_or_default().trim_end_matches('s').rsplit(['-', ' ']).next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

fn named(items: Vec<Value>, read: impl Fn(&Value) -> Option<(String, Version)>) -> BTreeMap<String, Version> {
    items.iter().filter_map(read).collect()
}

/// What an Envoy has, by its `/config_dump`.
fn has(envoy: &Envoy) -> anyhow::Result<Has> {
    let dump: Value = serde_json::from_str(&Client::new(envoy.admin()).get("/config_dump?include_eds")?.body)?;
    let name = |it: &Value| it["name"].as_str().map(str::to_owned);
    let mut clusters = named(dumped(&dump, "ClustersConfigDump", &["dynamic_active_clusters"]), |it| {
        Some((name(&it["cluster"])?, number(it["cluster"]["connect_timeout"].as_str())))
    });
    // One that is warming is not what it should be yet.
    let warming = dumped(&dump, "ClustersConfigDump", &["dynamic_warming_clusters"]);
    clusters.extend(named(warming, |it| Some((name(&it["cluster"])?, 0))));
    let endpoints = named(dumped(&dump, "EndpointsConfigDump", &["dynamic_endpoint_configs"]), |it| {
        let assignment = &it["endpoint_config"];
        let socket = &assignment["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
        Some((assignment["cluster_name"].as_str()?.to_owned(), socket["port_value"].as_u64()?))
    });
    let mut routes = named(dumped(&dump, "RoutesConfigDump", &["dynamic_route_configs"]), |it| {
        let routes = &it["route_config"];
        Some((name(routes)?, routes["max_direct_response_body_size_bytes"].as_u64()?))
    });
    let mut filters = named(dumped(&dump, "EcdsConfigDump", &["ecds_filters"]), |it| {
        let filter = &it["ecds_filter"];
        Some((name(filter)?, number(filter["typed_config"]["default_source_code"]["inline_string"].as_str())))
    });
    let listeners = named(dumped(&dump, "ListenersConfigDump", &["dynamic_listeners"]), |it| {
        // One that is warming is not there yet.
        let state = if it["warming_state"].is_object() { "warming_state" } else { "active_state" };
        let manager = &it[state]["listener"]["filter_chains"][0]["filters"][0]["typed_config"];
        let version = number(manager["stat_prefix"].as_str());
        it[state].is_object().then(|| Some((name(it)?, if state == "active_state" { version } else { 0 })))?
    });
    // A listener that was removed goes on for its connections, with its routes and its filter.
    routes.retain(|name, _| listeners.contains_key(name));
    filters.retain(|name, _| listeners.contains_key(name));
    let all = [clusters, endpoints, routes, filters, listeners];
    Ok(["clusters", "endpoints", "routes", "filters", "listeners"].into_iter().zip(all).collect())
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Whether an Envoy has what it should. While it refuses something, clusters that are gone may stay.
fn fits(mut found: Has, expected: &Has, desired: &Desired) -> bool {
    if desired.keeps_clusters() {
        for kind in ["clusters", "endpoints"] {
            found.entry(kind).or_default().retain(|name, _| desired.clusters.contains_key(name.as_str()));
        }
    }
    found == *expected
}

fn drive(variant: Variant) {
    let seed = variable("POSTERN_DRIVEN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{variant:?}: POSTERN_DRIVEN_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let ports = NAMES.map(|name| (name, free_port().unwrap())).into();
    let (mut dice, mut desired) = (Dice(seed), Desired::new());
    desired.apply(directory.path(), &ports);
    // A refusal is not to take the change back, and no removal is held.
    let options = ["--max-refused", "1", "--max-removed", "100%"].map(OsStr::new);
    let mut control_plane = ControlPlane::start_with(directory.path(), &options).unwrap();
    let envoy = envoy_of(variant, control_plane.xds());
    let (mut before, mut good): (Has, _) = ([("clusters", BTreeMap::new())].into(), BTreeMap::new());
    for step in 0..variable("POSTERN_DRIVEN_STEPS").unwrap_or(STEPS) {
        // What a node accepted is forgotten with the process: it could not get its last good filter.
        if step > 0 && !desired.refuses_filters() && dice.roll(6) == 0 {
            control_plane.kill_and_restart().unwrap();
        }
        let (expected, mut found) = (desired.expected(&before, &good), Has::new());
        let settled = wait::until_true("Envoy to have what it should", || {
            found = has(&envoy)?;
            Ok(fits(found.clone(), &expected, &desired))
        });
        println!("step {step}: {desired:?}");
        if let Err(error) = settled {
            let (log, of_control_plane) = (envoy.log().join("\n"), control_plane.log().join("\n"));
            panic!(
                "{variant:?}, seed {seed}, step {step}: {error:#}\n{found:?} should be\n{expected:?}\n{of_control_plane}\n{log}"
            );
        }
        good.extend(expected["filters"].clone());
        before = expected;
        desired.change(&mut dice, step + 2, &before);
        desired.apply(directory.path(), &ports);
    }
}

#[test]
fn an_envoy_has_what_it_should_after_every_change_in_the_state_of_the_world() {
    drive(Variant::StateOfTheWorld);
}

#[test]
fn an_envoy_has_what_it_should_after_every_incremental_change() {
    drive(Variant::Incremental);
}
