//! Everything answers while a change is accepted. The store of these tests blocks at a given point until it is
//! released, so that nothing depends on timing. The server has one worker, so that anything that blocks it blocks all.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient},
};
use postern::{
    control_plane::ControlPlane,
    reload::Reloads,
    serve::{Followed, Sockets, follow, serve},
};
use postern_compile::snapshot::{FilterCode, ResourceType};
use postern_release::{
    releases::{KEPT, Releases},
    rollout::Strategy,
    store::{Document, Draft, Memory, NodeRecord, Parent, Prepared, Revision, Store, StoreError},
};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

/// Far longer than anything here takes: reaching it is a failure, not a measurement.
const LIMIT: Duration = Duration::from_secs(60);

/// The point at which a store blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// While the compiler runs in parallel.
    Prepare,
    /// After compilation and the gate.
    Append,
}

#[derive(Debug, Default)]
struct Stop {
    /// Where it is to block, and where it blocks now.
    points: Mutex<(Option<Point>, Option<Point>)>,
    moved: Condvar,
}

impl Stop {
    fn pass(&self, point: Point) {
        let mut points = self.points.lock().unwrap();
        if points.0 == Some(point) {
            points.1 = Some(point);
            self.moved.notify_all();
        }
        while points.0 == Some(point) {
            points = self.moved.wait(points).unwrap();
        }
    }

    fn set(&self, point: Option<Point>) {
        self.points.lock().unwrap().0 = point;
        self.moved.notify_all();
    }

    fn wait_until_reached(&self) {
        let points = self.points.lock().unwrap();
        let waits = |points: &mut (Option<Point>, Option<Point>)| points.0 != points.1;
        let (_points, waited) = self.moved.wait_timeout_while(points, LIMIT, waits).unwrap();
        assert!(!waited.timed_out(), "no change has come to the store");
    }
}

/// A store in memory that blocks on demand.
#[derive(Debug, Default)]
struct Still {
    memory: Memory,
    stop: Arc<Stop>,
}

impl Store for Still {
    fn prepare(&self, documents: Vec<Document>) -> Result<Prepared, StoreError> {
        self.stop.pass(Point::Prepare);
        self.memory.prepare(documents)
    }

    fn append(&self, draft: Draft, parent: Parent) -> Result<Revision, StoreError> {
        self.stop.pass(Point::Append);
        self.memory.append(draft, parent)
    }

    fn latest(&self) -> Result<Option<Revision>, StoreError> {
        self.memory.latest()
    }

    fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError> {
        self.memory.revision(number)
    }

    fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        self.memory.revisions()
    }

    fn documents(&self, number: u64) -> Result<Option<Vec<Document>>, StoreError> {
        self.memory.documents(number)
    }

    fn collect(&self, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError> {
        self.memory.collect(keep, pinned)
    }

    fn purge(&self, resource: &str, doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>) -> Result<Vec<u64>, StoreError> {
        self.memory.purge(resource, doomed)
    }

    fn put_notes(&self, notes: &[(&str, Option<&[u8]>)]) -> Result<(), StoreError> {
        self.memory.put_notes(notes)
    }

    fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.memory.note(name)
    }

    fn put_nodes(&self, nodes: &BTreeMap<String, NodeRecord>) -> Result<(), StoreError> {
        self.memory.put_nodes(nodes)
    }

    fn nodes(&self) -> Result<BTreeMap<String, NodeRecord>, StoreError> {
        self.memory.nodes()
    }
}

/// A control plane that follows a directory, with one worker for all that it serves.
struct Server {
    stop: Arc<Stop>,
    xds: SocketAddr,
    http: SocketAddr,
    directory: tempfile::TempDir,
    clients: Runtime,
    _runtime: Runtime,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Releases everything, however a test ends.
        self.stop.set(None);
    }
}

impl Server {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(any, any)).unwrap();
        let (xds, http) = (sockets.xds_address().unwrap(), sockets.http_address().unwrap());
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &resources(1));
        let stop = Arc::<Stop>::default();
        let store = Still { memory: Memory::default(), stop: Arc::clone(&stop) };
        let releases = Releases::new(Arc::new(store), Strategy::AllAtOnce, KEPT);
        let plane = Arc::new(ControlPlane::with_releases(FilterCode::new(b"code".to_vec(), None), releases));
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        let path = directory.path().to_owned();
        runtime.spawn(async move {
            follow(plane, Some(Followed { path: &path, allow_unguarded: false, strict: true }), Reloads::never()).await
        });
        let server = Self { stop, xds, http, directory, clients: Runtime::new().unwrap(), _runtime: runtime };
        server.wait_for_revision(1);
        server
    }

    fn get(&self, path: &str) -> (u16, String) {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LIMIT)).build().into();
        let mut answer = agent.get(format!("http://{}{path}", self.http)).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    fn wait_for_revision(&self, number: u64) {
        let begin = std::time::Instant::now();
        while self.candidate() != number {
            assert!(begin.elapsed() < LIMIT, "revision {number} is not in force");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn candidate(&self) -> u64 {
        let (status, body) = self.get("/api/v1/rollout");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        if status == 200 { body["candidate"].as_u64().unwrap() } else { 0 }
    }

    /// The version of the clusters that a new stream of a node gets first.
    fn new_stream(&self, node: &str) -> String {
        let answer = async {
            let mut service = AggregatedDiscoveryServiceClient::connect(format!("http://{}", self.xds)).await.unwrap();
            let node = Node { id: node.to_owned(), ..Node::default() };
            let type_url = ResourceType::Cluster.type_url().to_owned();
            let request = DiscoveryRequest { node: Some(node), type_url, ..DiscoveryRequest::default() };
            let requests = tokio_stream::StreamExt::chain(tokio_stream::once(request), tokio_stream::pending());
            let mut responses = service.stream_aggregated_resources(requests).await.unwrap().into_inner();
            responses.message().await.unwrap().unwrap().version_info
        };
        self.clients
            .block_on(async { tokio::time::timeout(LIMIT, answer).await })
            .unwrap_or_else(|_| panic!("a stream gets no answer"))
    }

    /// Checks that every face answers, repeatedly, with what was in force before the change under way.
    fn answers(&self, round: &str) {
        for attempt in 0..3 {
            assert_eq!(self.get("/healthz"), (200, "ok\n".to_owned()));
            for path in [
                "/readyz",
                "/status",
                "/metrics",
                "/api/v1/nodes",
                "/api/v1/nodes/absent",
                "/api/v1/clients",
                "/api/v1/revisions",
                "/api/v1/revisions/1",
                "/api/v1/revisions/1/conditions",
                "/api/v1/resources",
                "/api/v1/resources/RoutePolicy/p0/conditions",
            ] {
                let (status, body) = self.get(path);
                assert_eq!(status, 200, "{path}: {body}");
            }
            assert!(!self.new_stream(&format!("{round}-{attempt}")).is_empty());
            assert_eq!(self.candidate(), 1, "the change has not ended");
        }
    }
}

/// This many routes with a policy each, and as many consumers.
fn resources(count: usize) -> String {
    let mut text = String::from(
        "apiVersion: postern/v1\nkind: Service\nmetadata: { name: backend }\n\
         spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }\n",
    );
    for number in 0..count {
        write!(
            text,
            "---\napiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: c{number} }}\n\
             spec: {{ apiKeys: [{{ key: key-number-{number} }}] }}\n\
             ---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p{number} }}\nspec:\n  \
             targetRef: {{ kind: HTTPRoute, name: r{number} }}\n  request:\n    \
             - {{ policy: apiKeyAuth, params: {{ header: x-api-key }} }}\n"
        )
        .unwrap();
    }
    text
}

/// Replaces the directory's file atomically, so that no half of it is read.
fn write(directory: &Path, text: &str) {
    fs::write(directory.join(".draft"), text).unwrap();
    fs::rename(directory.join(".draft"), directory.join("resources.yaml")).unwrap();
}

#[test]
fn everything_answers_while_a_directory_is_taken_in() {
    let server = Server::start();
    server.stop.set(Some(Point::Prepare));
    write(server.directory.path(), &resources(300));
    server.stop.wait_until_reached();
    server.answers("compiling");
    server.stop.set(Some(Point::Append));
    server.stop.wait_until_reached();
    server.answers("storing");
    server.stop.set(None);
    server.wait_for_revision(2);
}

#[test]
fn everything_answers_while_a_bundle_is_taken_in_by_the_api() {
    let server = Server::start();
    server.stop.set(Some(Point::Prepare));
    let url = format!("http://{}/api/v1/apply", server.http);
    let applied = thread::spawn(move || {
        let body = json!({ "files": [{ "name": "r.yaml", "text": resources(300) }] }).to_string();
        let answer = ureq::post(url).header("content-type", "application/json").send(body).unwrap();
        answer.status().as_u16()
    });
    server.stop.wait_until_reached();
    server.answers("compiling");
    server.stop.set(Some(Point::Append));
    server.stop.wait_until_reached();
    server.answers("storing");
    assert!(!applied.is_finished(), "its answer has come, and it has not ended");
    server.stop.set(None);
    assert_eq!(applied.join().unwrap(), 200);
    assert_eq!(server.candidate(), 2);
}
