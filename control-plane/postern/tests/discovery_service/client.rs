//! An enforcement point with a tonic client, and a control plane for it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use postern::control_plane::ControlPlane;
use postern_compile::snapshot::FilterCode;
use postern_deliver::discovery::{Discovery, Options};
use postern_model::File;
use postern_proto::discovery::v1::{
    ClientIdentity, ErrorDetail, HealthCheckRequest, PolicyDiscoveryRequest, PolicyDiscoveryResponse,
    policy_discovery_client::PolicyDiscoveryClient,
};
use postern_release::{releases::Proposal, store::Parent};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint, Server},
};

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn control_plane() -> Arc<ControlPlane> {
    Arc::new(ControlPlane::new(FilterCode::new(Vec::new(), None)))
}

/// A policy that sets a header to this value.
pub(crate) fn guarded(value: &str) -> String {
    policy("users-api", "default", "kind: HTTPRoute, name: users", value)
}

/// A policy of a mesh with a target, which sets a header to this value.
pub(crate) fn policy(name: &str, mesh: &str, target: &str, value: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {name}, mesh: {mesh} }}\nspec:\n  \
         targetRef: {{ {target} }}\n  request:\n    - policy: headers\n      \
         params: {{ set: {{ x-guarded-by: {value} }} }}\n"
    )
}

/// A service on this port.
pub(crate) fn service(port: u16) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: backend }}\nspec:\n  \
         endpoints: [{{ address: 127.0.0.1, port: {port} }}]\n"
    )
}

/// Puts resources in force.
pub(crate) async fn apply(plane: &ControlPlane, text: &str) {
    let files = vec![File { name: "policies.yaml".to_owned(), bytes: text.as_bytes().to_vec() }];
    let (author, message) = ("test".to_owned(), String::new());
    let proposal = Proposal {
        files,
        author,
        message,
        parent: Parent::Latest,
        again: false,
        allow_unguarded: true,
        ..Proposal::default()
    };
    plane.commands().apply(proposal).await.unwrap();
}

pub(crate) fn silence(max_inactive: Duration) -> Options {
    Options { max_inactive }
}

/// Starts the service alone, on a free port.
pub(crate) async fn start(plane: &Arc<ControlPlane>, options: Options) -> (Discovery, SocketAddr) {
    let discovery = Discovery::new(Arc::clone(plane.clients()), options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(discovery.clone().into_server());
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let flushing = discovery.clone();
    tokio::spawn(async move { flushing.flush_inactive().await });
    (discovery, address)
}

/// The identity that a client reports.
pub(crate) fn identity(service: &str, mesh: &str, tags: &[(&str, &str)]) -> ClientIdentity {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ClientIdentity { service: service.to_owned(), mesh: mesh.to_owned(), tags }
}

/// The first request of a client without any policies.
pub(crate) fn first(address: &str) -> PolicyDiscoveryRequest {
    PolicyDiscoveryRequest { client_address: address.to_owned(), ..Default::default() }
}

/// An enforcement point.
pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) service: PolicyDiscoveryClient<Channel>,
    pub(crate) requests: mpsc::Sender<PolicyDiscoveryRequest>,
    responses: Streaming<PolicyDiscoveryResponse>,
}

impl Client {
    /// Opens a stream with an empty state, and without an identity.
    pub(crate) async fn connect(server: SocketAddr, address: &str) -> Self {
        Self::open(server, first(address)).await
    }

    /// Like [`Self::connect`], with an identity.
    pub(crate) async fn connect_as(server: SocketAddr, address: &str, identity: ClientIdentity, plan: bool) -> Self {
        Self::open(server, PolicyDiscoveryRequest { identity: Some(identity), wants_plan: plan, ..first(address) })
            .await
    }

    pub(crate) async fn open(server: SocketAddr, first: PolicyDiscoveryRequest) -> Self {
        let channel = Endpoint::from_shared(format!("http://{server}")).unwrap().connect().await.unwrap();
        let mut service = PolicyDiscoveryClient::new(channel);
        let (requests, receiver) = mpsc::channel(4);
        let address = first.client_address.clone();
        requests.send(first).await.unwrap();
        let responses = service.stream_policies(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Self { address, service, requests, responses }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<PolicyDiscoveryResponse>, Status> {
        timeout(LIMIT, self.responses.message()).await.expect("nothing came")
    }

    pub(crate) async fn next_policies(&mut self) -> PolicyDiscoveryResponse {
        self.next().await.unwrap().expect("the stream ended")
    }

    /// Like [`Self::next_policies`], and accepts them.
    pub(crate) async fn accept(&mut self) -> PolicyDiscoveryResponse {
        let response = self.next_policies().await;
        self.ack(&response).await;
        response
    }

    /// The status with which the stream ends, after any other responses.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a status"),
                Err(status) => return status,
            }
        }
    }

    pub(crate) async fn ack(&self, response: &PolicyDiscoveryResponse) {
        self.answer(&response.version_info, &response.nonce, None).await;
    }

    pub(crate) async fn answer(&self, version: &str, nonce: &str, error: Option<&str>) {
        let request = PolicyDiscoveryRequest {
            version_info: version.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(|message| ErrorDetail { code: 3, message: message.to_owned() }),
            ..first(&self.address)
        };
        self.requests.send(request).await.unwrap();
    }

    /// Whether the server knows it, and the version that it is to have.
    pub(crate) async fn health_check(&mut self) -> (bool, String) {
        let request = HealthCheckRequest { client_address: self.address.clone() };
        let response = self.service.health_check(request).await.unwrap().into_inner();
        (response.connected, response.version_info)
    }
}

pub(crate) fn names(response: &PolicyDiscoveryResponse) -> Vec<&str> {
    response.policies.iter().map(|policy| policy.name.as_str()).collect()
}

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let holds = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, holds).await.unwrap_or_else(|_| panic!("never: {what}"));
}
