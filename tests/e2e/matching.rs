//! Who gets which policy, on real Envoys: nodes by service and tags, time-outs and access logs.

use std::{fs, io::Read, net::TcpListener, path::Path, thread};

use postern_tests::{Client, ControlPlane, Envoy, Request, Upstream, site::free_port, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A control plane over a directory of its own.
pub struct Deployment {
    directory: TempDir,
    control_plane: ControlPlane,
}

impl Deployment {
    pub fn start(resources: &[Value]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "all.yaml", resources);
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        Self { directory, control_plane }
    }

    pub fn write(&self, file: &str, resources: &[Value]) {
        write(self.directory.path(), file, resources);
    }

    /// Waits until the control plane's status is like this.
    pub fn wait_for_status(&self, what: &str, fits: impl Fn(&Value) -> bool) {
        self.control_plane.wait_for_status(what, fits).unwrap();
    }

    /// An Envoy of a service, with tags.
    pub fn node(&self, id: &str, service: &str, tags: &str) -> Envoy {
        let replace = [
            ("id: edge-1", format!("id: {id}")),
            ("cluster: edge", format!("cluster: {service}")),
            ("metadata: {", format!("metadata: {{ tags: {tags},")),
        ];
        let replace: Vec<_> = replace.iter().map(|(from, to)| (*from, to.as_str())).collect();
        Envoy::start("whole.yaml", self.control_plane.xds(), &replace).unwrap()
    }
}

/// Writes resources as JSON, which is YAML too. The file is replaced atomically.
fn write(directory: &Path, file: &str, resources: &[Value]) {
    let text: Vec<_> = resources.iter().map(ToString::to_string).collect();
    let draft = directory.join(format!(".{file}.draft"));
    fs::write(&draft, text.join("\n---\n")).unwrap();
    fs::rename(draft, directory.join(file)).unwrap();
}

pub fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "postern/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn gateway(service: &str, port: u16, upstream: &str) -> Value {
    let spec = json!({
        "targetRef": {"kind": "Service", "name": service},
        "listeners": [{"name": "http", "port": port}],
        "routes": [{"name": format!("{service}-all"), "service": upstream}],
    });
    resource("Gateway", service, spec)
}

pub fn service(name: &str, port: u16) -> Value {
    resource("Service", name, json!({"endpoints": [{"address": "127.0.0.1", "port": port}]}))
}

fn marks(name: &str, target: Value, value: &str) -> Value {
    let step = json!({"name": name, "policy": "headers", "params": {"set": {format!("x-{name}"): value}}});
    resource("RoutePolicy", name, json!({"targetRef": target, "response": [step]}))
}

pub fn client(port: u16) -> Client {
    Client::new(([127, 0, 0, 1], port).into())
}

/// Waits until a response header has this value.
fn wait_for_mark(port: u16, name: &str, expect: Option<&str>) {
    wait::until_true(&format!("{name} to be {expect:?} at {port}"), || {
        let answer = client(port).get("/")?;
        Ok(answer.status == 200 && answer.header(name) == expect)
    })
    .unwrap();
}

#[test]
fn nodes_get_the_policies_that_select_them_and_no_others() {
    let upstream = Upstream::start(0).unwrap();
    let (web, api) = (free_port().unwrap(), free_port().unwrap());
    let deployment = Deployment::start(&[
        service("echo", upstream.address().port()),
        gateway("web", web, "echo"),
        gateway("api", api, "echo"),
        marks("everyone", json!({"kind": "Mesh"}), "1"),
        marks("service", json!({"kind": "Service", "name": "web"}), "1"),
        marks("subset", json!({"kind": "MeshSubset", "tags": {"zone": "b"}}), "1"),
        marks("proxy", json!({"kind": "Proxy", "name": "api-1"}), "1"),
        marks("route", json!({"kind": "HTTPRoute", "name": "api-all"}), "1"),
    ]);
    let web_node = deployment.node("web-1", "web", "{ zone: a }");
    let _api_node = deployment.node("api-1", "api", "{ zone: b }");
    wait_for_mark(web, "x-everyone", Some("1"));
    wait_for_mark(api, "x-everyone", Some("1"));
    let marks_at = |port: u16| {
        let answer = client(port).get("/").unwrap();
        ["x-everyone", "x-service", "x-subset", "x-proxy", "x-route"].map(|name| answer.header(name).is_some())
    };
    assert_eq!(marks_at(web), [true, true, false, false, false]);
    assert_eq!(marks_at(api), [true, false, true, true, true]);

    // A change for one group is none for the other: nothing is sent to it.
    let updates = || web_node.stat("extension_config_discovery.http_filter.web.postern-gateway.config_reload").unwrap();
    let before = (updates(), received(&web_node));
    deployment.write("more.yaml", &[marks("later", json!({"kind": "Service", "name": "api"}), "1")]);
    wait_for_mark(api, "x-later", Some("1"));
    assert_eq!((updates(), received(&web_node)), before);
    assert_eq!(client(web).get("/").unwrap().header("x-later"), None);
}

/// How many updates of any type an Envoy got.
pub fn received(envoy: &Envoy) -> u64 {
    let stats = envoy.stats("update_success").unwrap();
    stats.iter().map(|(_, value)| value).sum()
}

#[test]
fn time_outs_take_effect_where_they_are_attached() {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in silent.incoming().take(64) {
            let Ok(mut connection) = connection else { return };
            let _ = connection.read(&mut [0; 1024]);
            kept.push(connection);
        }
    });
    let upstream = Upstream::start(0).unwrap();
    let edge = free_port().unwrap();
    let timeout = |target: Value, to: Value, conf: Value| {
        let mut entry = conf;
        entry["targetRef"] = to;
        json!({"targetRef": target, "to": [entry]})
    };
    let silent_service = json!({"kind": "Service", "name": "silent"});
    let deployment = Deployment::start(&[
        service("silent", port),
        service("echo", upstream.address().port()),
        gateway("edge", edge, "silent"),
        resource(
            "Timeout",
            "base",
            timeout(
                json!({"kind": "Mesh"}),
                json!({"kind": "Mesh"}),
                json!({"connectTimeout": "7s", "http": {"idleTimeout": "9m", "streamIdleTimeout": "11m"}}),
            ),
        ),
        resource(
            "Timeout",
            "impatient",
            timeout(
                json!({"kind": "Service", "name": "edge"}),
                silent_service,
                json!({"http": {"requestTimeout": "100ms"}}),
            ),
        ),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    wait::until_true("the request to time out", || Ok(client(edge).get("/")?.status == 504)).unwrap();
    let dump = Client::new(envoy.admin()).get("/config_dump").unwrap().body;
    for expect in [
        "\"connect_timeout\": \"7s\"",
        "\"idle_timeout\": \"540s\"",
        "\"idle_timeout\": \"660s\"",
        "\"timeout\": \"0.100s\"",
    ] {
        assert!(dump.contains(expect), "{expect} is not in Envoy's configuration");
    }
}

#[test]
fn access_logs_go_where_they_are_attached() {
    let upstream = Upstream::start(0).unwrap();
    let logs = tempfile::tempdir().unwrap();
    let (web, other) = (logs.path().join("web"), logs.path().join("other"));
    let edge = free_port().unwrap();
    let file = |name: &str, path: &Path| json!({"name": name, "file": {"path": path}});
    let entry = |target: Value, backend: &str| json!({"targetRef": target, "backends": [{"name": backend}]});
    let route = |name: &str, service: &str| json!({"name": name, "service": service, "match": {"path": {"prefix": format!("/{name}")}}});
    let deployment = Deployment::start(&[
        service("web", upstream.address().port()),
        service("api", upstream.address().port()),
        resource(
            "Gateway",
            "edge",
            json!({"listeners": [{"name": "http", "port": edge}], "routes": [route("web", "web"), route("api", "api"), route("quiet", "web")]}),
        ),
        resource("Settings", "s", json!({"logBackends": [file("web", &web), file("other", &other)]})),
        resource(
            "AccessLog",
            "by-service",
            json!({"targetRef": {"kind": "Mesh"}, "to": [
                entry(json!({"kind": "Service", "name": "web"}), "web"),
                entry(json!({"kind": "Mesh"}), "other"),
            ]}),
        ),
        resource(
            "AccessLog",
            "quiet",
            json!({"targetRef": {"kind": "HTTPRoute", "name": "quiet"}, "to": [{"targetRef": {"kind": "Mesh"}, "backends": []}]}),
        ),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    wait::until_true("the gateway to serve", || Ok(client(edge).get("/web/ready")?.status == 200)).unwrap();
    for path in ["/quiet/1", "/api/1", "/nowhere", "/web/1"] {
        client(edge).send(&Request::get(path)).unwrap();
    }
    // Each file is written in order, so that what comes last tells that the rest is there, or never comes.
    let paths = |file: &Path| -> Vec<String> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| serde_json::from_str::<Value>(line).ok()?["path"].as_str().map(str::to_owned);
        text.lines().filter_map(line).filter(|path| path != "/web/ready").collect()
    };
    wait::until_true("the logs", || Ok(paths(&web) == ["/web/1"] && paths(&other) == ["/api/1", "/nowhere"])).unwrap();
    assert_eq!(envoy.access_log(), Vec::<Value>::new());
}

#[test]
fn a_sampled_access_log_has_every_request_that_went_wrong() {
    let upstream = Upstream::start(0).unwrap();
    let edge = free_port().unwrap();
    let routes = json!([{"name": "web", "service": "web", "match": {"path": {"prefix": "/web"}}}]);
    let deployment = Deployment::start(&[
        service("web", upstream.address().port()),
        resource("Gateway", "edge", json!({"listeners": [{"name": "http", "port": edge}], "routes": routes})),
        resource("Settings", "s", json!({"logSampling": 0})),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    wait::until_true("the gateway to serve", || Ok(client(edge).get("/web/ready")?.status == 200)).unwrap();
    for path in ["/web/1", "/nowhere/1", "/web/2", "/nowhere/2"] {
        client(edge).send(&Request::get(path)).unwrap();
    }
    let paths = || -> Vec<_> {
        envoy.access_log().iter().filter_map(|entry| entry["path"].as_str().map(str::to_owned)).collect()
    };
    // The log is written in order: what comes last tells that the rest is there, or never comes.
    wait::until_true("the last request", || Ok(paths().iter().any(|path| path == "/nowhere/2"))).unwrap();
    let logged: Vec<_> = paths().into_iter().filter(|path| path != "/web/ready").collect();
    assert_eq!(logged, ["/nowhere/1", "/nowhere/2"]);
}
