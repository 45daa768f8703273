//! A real Envoy, with the real control plane and an upstream that echoes: every file's resources at once, a host for
//! each case.

use std::path::PathBuf;

use postern_engine::record::GRPC_METHOD;
use postern_tests::nameless::{AS_IT_CAME, NORMALIZATION, ROUTES};
use postern_tests::{Client, Collector, ControlPlane, Envoy, GrpcCollector, Request, Upstream, site::free_port, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    case::{Case, CaseFile, Exchange, documents},
    observation::{Observation, Pairs},
};

/// The service that is called with records by gRPC.
const GRPC_COLLECTOR: &str = "grpc-collector";

pub struct Site {
    upstream: Upstream,
    collector: Collector,
    grpc_collector: GrpcCollector,
    port: u16,
    directory: TempDir,
    running: Option<(ControlPlane, Envoy)>,
    overlay: Option<Overlay>,
}

/// An Envoy with routes of its own that have no names.
struct Overlay {
    envoy: Envoy,
    port: u16,
    _control_plane: ControlPlane,
    _directory: TempDir,
}

impl Overlay {
    fn start(file: &CaseFile, upstream: u16) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
        std::fs::write(directory.path().join("shared.yaml"), documents(file.shared())).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let ports = [format!("port_value: {upstream}"), format!("port_value: {port}")];
        let replace = [("port_value: 10001", ports[0].as_str()), ("port_value: 10000", ports[1].as_str())];
        let replace = [&replace[..], &[(NORMALIZATION, AS_IT_CAME)], &ROUTES].concat();
        let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
        envoy.wait_until_serving(([127, 0, 0, 1], port).into(), &Request::get("/").host("ready.test")).unwrap();
        Self { envoy, port, _control_plane: control_plane, _directory: directory }
    }
}

impl Site {
    pub fn start() -> Self {
        let upstream = Upstream::start(0).unwrap();
        let (collector, grpc_collector) = (Collector::start(0).unwrap(), GrpcCollector::start().unwrap());
        Self {
            upstream,
            collector,
            grpc_collector,
            port: free_port().unwrap(),
            directory: tempfile::tempdir().unwrap(),
            running: None,
            overlay: None,
        }
    }

    /// Serves the resources of all files, and waits until Envoy has them.
    pub fn publish(&mut self, files: &[CaseFile]) {
        let (overlay, files): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|file| file.overlay);
        assert!(overlay.len() < 2, "files with overlays would share one Envoy's policies");
        self.overlay = overlay.first().map(|file| Overlay::start(file, self.upstream.address().port()));
        let files = files.as_slice();
        let path: PathBuf = self.directory.path().join("gateway.yaml");
        std::fs::write(path, documents(&self.gateway(files))).unwrap();
        let mut shared: Vec<Value> = files.iter().flat_map(|file| file.shared().to_vec()).collect();
        shared.sort_by_key(Value::to_string);
        shared.dedup();
        shared
            .retain(|resource| !["collector", GRPC_COLLECTOR].map(Value::from).contains(&resource["metadata"]["name"]));
        std::fs::write(self.directory.path().join("shared.yaml"), documents(&shared)).unwrap();
        for file in files.iter().filter(|file| !file.policies().is_empty()) {
            let path = self.directory.path().join(format!("case-{}.yaml", file.name));
            std::fs::write(path, documents(&file.policies())).unwrap();
        }
        let control_plane = ControlPlane::start(self.directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        envoy.wait_until_serving(self.address(), &Request::get("/").host("ready.test")).unwrap();
        self.running = Some((control_plane, envoy));
    }

    fn gateway(&self, files: &[CaseFile]) -> Vec<Value> {
        let route = |name: &str| json!({ "name": name, "hosts": [format!("{name}.test")], "service": "echo" });
        let routes = files.iter().flat_map(|file| &file.cases).map(|case| route(&case.route));
        let routes: Vec<_> = routes.chain([route("ready")]).collect();
        let listener = json!({ "name": "http", "port": self.port });
        // The filter must cope with what a hardened listener refuses: it runs on others, too.
        let loosened = json!({ "escapedSlashes": "keep", "pathParameters": "keep", "headersWithUnderscores": "allow" });
        let endpoint = json!({ "address": "127.0.0.1", "port": self.upstream.address().port() });
        let collector = json!({ "address": "127.0.0.1", "port": self.collector.address().port() });
        let grpc_collector = json!({ "address": "127.0.0.1", "port": self.grpc_collector.address().port() });
        let resource = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "postern/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        vec![
            resource("Gateway", "corpus", json!({ "listeners": [listener], "routes": routes, "http": loosened })),
            resource("Service", "echo", json!({ "endpoints": [endpoint] })),
            resource("Service", "collector", json!({ "endpoints": [collector] })),
            resource("Service", GRPC_COLLECTOR, json!({ "protocol": "grpc", "endpoints": [grpc_collector] })),
        ]
    }

    fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The Envoy to which the requests of a file come, and where it listens.
    fn envoy(&self, file: &CaseFile) -> (&Envoy, std::net::SocketAddr) {
        match self.overlay.as_ref().filter(|_| file.overlay) {
            Some(overlay) => (&overlay.envoy, ([127, 0, 0, 1], overlay.port).into()),
            None => (&self.running.as_ref().unwrap().1, self.address()),
        }
    }

    pub fn run(&mut self, file: &CaseFile, case: &Case) -> Vec<Observation> {
        case.exchanges().iter().map(|exchange| self.exchange(file, case, exchange)).collect()
    }

    fn exchange(&self, file: &CaseFile, case: &Case, exchange: &Exchange) -> Observation {
        let (envoy, address) = self.envoy(file);
        let spec = &exchange.request;
        assert_eq!(spec.at, None, "`{}` needs a clock that Envoy does not have", case.note);
        let mut request = Request::new(&spec.method, &spec.path).host(&case.host(spec));
        for (name, value) in &spec.headers {
            request = request.header(name, value.get());
        }
        let told = json!({ "status": exchange.upstream.status, "headers": exchange.upstream.headers });
        request = request.header("x-upstream", told.to_string());
        if let Some(body) = &spec.body {
            request = if spec.chunked { request.chunked(body.get()) } else { request.body(body.get()) };
        }
        let seen = envoy.access_log_len();
        let recorded = exchange.want.is_recorded().then(|| (self.logged(case).len(), self.posted(case).len()));
        let answer = Client::new(address).send(&request).unwrap();
        let (line, _) = wait::until("the access log", || Ok(envoy.access_log_line(seen))).unwrap();
        let account = line["decision"].as_str().unwrap_or_default();
        let headers: Pairs =
            answer.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        let upstream = upstream_headers(&answer.body);
        let outcome =
            Observation::new(exchange, account, answer.status, &headers, upstream.as_ref(), answer.body.as_bytes());
        match recorded {
            None => outcome,
            Some((logged, posted)) => {
                let count = |want: &Option<Vec<Value>>| want.as_ref().map_or(0, Vec::len);
                let (log, posts) = (logged + count(&exchange.want.records), posted + count(&exchange.want.posted));
                // What does not come is complained of by whoever compares.
                let _ = wait::until_true("records", || {
                    Ok(self.logged(case).len() >= log && self.posted(case).len() >= posts)
                });
                outcome.recorded(&self.logged(case).split_off(logged), &self.posted(case).split_off(posted))
            }
        }
    }

    /// The records of a case's route in Envoy's log.
    fn logged(&self, case: &Case) -> Vec<String> {
        let log = self.running.as_ref().unwrap().1.log();
        let records = log.iter().filter_map(|line| Some(line.get(line.find(r#"{"audit":"#)?..)?.to_owned()));
        records.filter(|record| is_of(case, record)).collect()
    }

    /// The records of a case's route that were posted.
    fn posted(&self, case: &Case) -> Vec<(String, String)> {
        let posts = self.collector.posts().into_iter().filter(|post| is_of(case, &post.body));
        let posts = posts.map(|post| (format!("{} {}", post.host, post.path), post.body.trim_end().to_owned()));
        let calls = self.grpc_collector.records().into_iter().map(|record| record.to_string());
        let calls = calls.filter(|record| is_of(case, record));
        let method = GRPC_METHOD.join("/");
        posts.chain(calls.map(|record| (format!("{GRPC_COLLECTOR} {method}"), record))).collect()
    }

    pub fn assert_no_vm_failure(&self) {
        let overlay = self.overlay.iter().flat_map(|overlay| overlay.envoy.log());
        let failed: Vec<_> = self
            .running
            .iter()
            .flat_map(|(_, envoy)| envoy.log())
            .chain(overlay)
            .filter(|line| line.contains("Function: proxy_on") || line.contains("request refused"))
            .collect();
        assert_eq!(failed, Vec::<String>::new());
    }
}

fn is_of(case: &Case, record: &str) -> bool {
    record.contains(&format!(r#""route":"{}""#, case.route))
}

/// What the upstream got, if the answer is its echo.
fn upstream_headers(body: &str) -> Option<Pairs> {
    let echo: Value = serde_json::from_str(body).ok()?;
    let pairs = echo.get("headers")?.as_array()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = pairs.iter().map(|pair| (text(&pair[0]), text(&pair[1]).into_bytes()));
    let named = pairs.map(|(name, value)| (if name == "host" { ":authority".to_owned() } else { name }, value));
    Some(named.chain([(":path".to_owned(), text(&echo["path"]).into_bytes())]).collect())
}
