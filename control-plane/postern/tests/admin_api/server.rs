//! A control plane's real servers on free ports, with a simulated fleet.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{
    keys::{self, client::Client},
    snapshot::{FilterCode, ResourceType},
};
use postern_deliver::xds::session::Event;
use postern_release::fleet::Learnt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) const RESOURCES: &str = r#"apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes: [{ name: users, match: { path: { prefix: /users } }, service: backend }]
---
apiVersion: postern/v1
kind: Service
metadata: { name: backend }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Consumer
metadata: { name: app }
spec: { apiKeys: [{ key: a-secret-key }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users-api }
spec:
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - policy: apiKeyAuth
      params: { header: x-api-key }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: canaries }
spec:
  targetRef: { kind: MeshSubset, tags: { stage: canary } }
  response:
    - policy: headers
      params: { set: { x-stage: canary } }
"#;

pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl ApiResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub(crate) struct Server {
    pub(crate) plane: Arc<ControlPlane>,
    http: SocketAddr,
    runtime: Runtime,
}

impl Server {
    /// A server with nothing in force.
    pub(crate) fn empty() -> Self {
        let runtime = Runtime::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(any, any)).unwrap();
        let http = sockets.http_address().unwrap();
        let plane = Arc::new(ControlPlane::new(FilterCode::new(b"\0asm code".to_vec(), None)));
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        Self { plane, http, runtime }
    }

    /// A server with resources in force and two nodes that run them: `edge-1`, and the canary `edge-2`.
    pub(crate) fn running() -> Self {
        let server = Self::empty();
        let answer = server.apply(RESOURCES);
        assert_eq!(answer.status, 200, "{}", answer.body);
        for (id, tags) in [("edge-1", &[][..]), ("edge-2", &[("stage", "canary")])] {
            let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let node = NodeIdentity { id: id.to_owned(), service: "edge".to_owned(), tags, ..NodeIdentity::default() };
            let joined = server.plane.fleet().connect(&node, SystemTime::now());
            server.settle(&node, joined.stream);
        }
        server.plane.commands().look().wait().unwrap();
        server
    }

    /// Lets both nodes run all that is in force for them.
    pub(crate) fn settle_all(&self) {
        for (node, stream) in self.plane.identities().iter().zip(1..) {
            self.settle(node, stream);
        }
        self.plane.commands().look().wait().unwrap();
    }

    /// Fetches the key sets that issuers publish.
    pub(crate) fn follow_keys(&self) {
        let (sources, commands) = (Arc::clone(self.plane.keys()), self.plane.commands().clone());
        self.runtime.spawn(keys::follow(sources, Client::default(), move || commands.renew_keys()));
    }

    /// Lets a node run all that is in force for it.
    pub(crate) fn settle(&self, node: &NodeIdentity, stream: u64) {
        let publication = self.plane.publications().latest().unwrap();
        let revision = publication.release_for(node).revision().clone();
        let version = Digest::of(b"a version");
        let acked = Event::Acked { kind: ResourceType::ExtensionConfig, version };
        self.learn(&node.id, stream, vec![acked, Event::Settled { revision }], None);
    }

    /// Lets a stream report events of its node.
    pub(crate) fn learn(&self, node: &str, stream: u64, events: Vec<Event>, reason: Option<String>) {
        let learnt = Learnt { events, reason };
        self.plane.fleet().record(node, stream, learnt, SystemTime::now());
    }

    pub(crate) fn apply(&self, text: &str) -> ApiResponse {
        let body = json!({ "files": [{ "name": "r.yaml", "text": text }], "author": "alice" });
        self.send("post", "/api/v1/apply", &[], Some(&body))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn get(&self, path: &str) -> ApiResponse {
        self.send("get", path, &[], None)
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> ApiResponse {
        let config = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
        let agent: ureq::Agent = config.build().into();
        let mut request = ureq::http::Request::builder()
            .method(method.to_ascii_uppercase().as_str())
            .uri(format!("http://{}{path}", self.http));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = match body {
            Some(body) => agent.run(request.header("content-type", "application/json").body(body.to_string()).unwrap()),
            // A request without a body has no content type; this header shows that no form sent it.
            None => agent.run(request.header("x-postern-client", "test").body(()).unwrap()),
        };
        let mut answer = answer.unwrap();
        let content_type = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        ApiResponse {
            status: answer.status().as_u16(),
            content_type: content_type.unwrap_or_default(),
            body: answer.body_mut().read_to_string().unwrap(),
        }
    }
}
