//! Policy discovery over real sockets, with a tonic client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use postern::{
    discovery::{Answer, Discovery, service::MAX_CLIENT_INACTIVE},
    model::File,
    releases::Proposal,
    serve::{Hub, Sockets, serve},
    snapshot::FilterCode,
    store::Parent,
};
use postern_proto::discovery::v1::{
    ErrorDetail, HealthCheckRequest, PolicyDiscoveryRequest, PolicyDiscoveryResponse,
    policy_discovery_client::PolicyDiscoveryClient,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint, Server},
};

/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

fn hub() -> Arc<Hub> {
    Arc::new(Hub::new(FilterCode::new(Vec::new(), None)))
}

/// Puts one policy in force that sets a header to this value, and a service on this port.
fn apply(hub: &Hub, value: &str, port: u16) {
    let text = format!(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: users-api }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: users }}\n  request:\n    - policy: headers\n      \
         params: {{ set: {{ x-guarded-by: {value} }} }}\n---\n\
         apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: backend }}\nspec:\n  \
         endpoints: [{{ address: 127.0.0.1, port: {port} }}]\n"
    );
    let file = File { name: "policies.yaml".to_owned(), bytes: text.into_bytes() };
    let (author, message) = ("test".to_owned(), value.to_owned());
    hub.apply(Proposal {
        files: vec![file],
        author,
        message,
        parent: Parent::Latest,
        again: false,
        allow_unguarded: false,
    })
    .unwrap();
}

/// The service alone, on a free port.
async fn start(hub: &Arc<Hub>, longest_silence: Duration) -> (Discovery, SocketAddr) {
    let discovery = Discovery::new(Arc::clone(hub), longest_silence);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(discovery.clone().into_server());
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let flushing = discovery.clone();
    tokio::spawn(async move { flushing.flush_inactive().await });
    (discovery, address)
}

/// An enforcement point.
struct Client {
    address: String,
    service: PolicyDiscoveryClient<Channel>,
    requests: mpsc::Sender<PolicyDiscoveryRequest>,
    responses: Streaming<PolicyDiscoveryResponse>,
}

impl Client {
    /// Opens a stream with an empty state.
    async fn connect(server: SocketAddr, address: &str) -> Self {
        let channel = Endpoint::from_shared(format!("http://{server}")).unwrap().connect().await.unwrap();
        let mut service = PolicyDiscoveryClient::new(channel);
        let (requests, receiver) = mpsc::channel(4);
        let first = PolicyDiscoveryRequest { client_address: address.to_owned(), ..Default::default() };
        requests.send(first).await.unwrap();
        let responses = service.stream_policies(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Self { address: address.to_owned(), service, requests, responses }
    }

    async fn next(&mut self) -> Result<Option<PolicyDiscoveryResponse>, Status> {
        timeout(LIMIT, self.responses.message()).await.expect("nothing came")
    }

    async fn next_policies(&mut self) -> PolicyDiscoveryResponse {
        self.next().await.unwrap().expect("the stream ended")
    }

    /// How the stream ends, after whatever comes before.
    async fn end(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a status"),
                Err(status) => return status,
            }
        }
    }

    async fn ack(&self, response: &PolicyDiscoveryResponse) {
        self.answer(&response.version_info, &response.nonce, None).await;
    }

    async fn answer(&self, version: &str, nonce: &str, error: Option<&str>) {
        let request = PolicyDiscoveryRequest {
            client_address: self.address.clone(),
            version_info: version.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(|message| ErrorDetail { code: 3, message: message.to_owned() }),
        };
        self.requests.send(request).await.unwrap();
    }

    /// Whether the server knows it, and the version in force.
    async fn health_check(&mut self) -> (bool, String) {
        let request = HealthCheckRequest { client_address: self.address.clone() };
        let response = self.service.health_check(request).await.unwrap().into_inner();
        (response.connected, response.version_info)
    }
}

#[tokio::test]
async fn is_served_on_the_port_of_xds_with_policies_as_written_and_as_a_plan_that_the_engine_loads() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = Sockets::bind(any, any).await.unwrap();
    let (hub, address) = (hub(), sockets.xds_address().unwrap());
    tokio::spawn(serve(Arc::clone(&hub), sockets));
    // Early: it waits until there is something in force.
    let mut client = Client::connect(address, "point-1").await;
    let connected = async { while client.health_check().await != (true, String::new()) {} };
    timeout(LIMIT, connected).await.expect("the client is not known");
    apply(&hub, "first", 9000);

    let first = client.next_policies().await;
    assert_eq!(first.policies.len(), 1);
    assert_eq!((first.policies[0].name.as_str(), first.policies[0].kind.as_str()), ("users-api", "RoutePolicy"));
    let spec: serde_json::Value = serde_json::from_str(&first.policies[0].spec).unwrap();
    assert_eq!(spec["request"][0]["params"]["set"]["x-guarded-by"], "first", "{spec}");
    assert!(postern_engine::Plan::load(&first.plan).unwrap().routes() == 1);
    client.ack(&first).await;
    assert_eq!(client.health_check().await, (true, first.version_info.clone()));

    // A change of policies is pushed; one of something else, before it, is not.
    apply(&hub, "first", 9001);
    apply(&hub, "second", 9001);
    let second = client.next_policies().await;
    assert!(second.policies[0].spec.contains("second"), "{}", second.policies[0].spec);
    assert_ne!((&first.version_info, &first.nonce), (&second.version_info, &second.nonce));
    client.ack(&second).await;
}

#[tokio::test]
async fn who_waits_for_all_is_told_what_each_client_made_of_the_version() {
    let hub = hub();
    let (discovery, address) = start(&hub, MAX_CLIENT_INACTIVE).await;
    apply(&hub, "first", 9000);
    let mut good = Client::connect(address, "good").await;
    let mut bad = Client::connect(address, "bad").await;
    let first = good.next_policies().await;
    good.ack(&first).await;
    assert_eq!(bad.next_policies().await, first, "all get the same, under the same nonce");
    bad.answer("", &first.nonce, Some("no such header")).await;

    let acked = timeout(LIMIT, discovery.all_acked()).await.unwrap();
    assert_eq!(acked.version.as_str(), first.version_info);
    let answers: Vec<_> = acked.clients.into_iter().map(|client| (client.address, client.answer.unwrap())).collect();
    let refused = Answer::Refused("no such header".to_owned());
    assert_eq!(answers, [("bad".to_owned(), refused), ("good".to_owned(), Answer::Accepted)]);

    // The next version reaches both, and waits for the one that goes only until it is gone.
    apply(&hub, "second", 9000);
    let second = good.next_policies().await;
    assert_eq!(bad.next_policies().await, second);
    good.ack(&second).await;
    drop(bad);
    let acked = timeout(LIMIT, discovery.all_acked()).await.unwrap();
    assert_eq!(acked.version.as_str(), second.version_info);
    assert_eq!(acked.clients.iter().map(|client| client.address.as_str()).collect::<Vec<_>>(), ["good"]);
}

#[tokio::test]
async fn a_silent_client_is_flushed_and_may_come_back() {
    let hub = hub();
    apply(&hub, "first", 9000);
    let (discovery, address) = start(&hub, Duration::from_millis(200)).await;
    let mut silent = Client::connect(address, "silent").await;
    let status = silent.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("`silent`") && status.message().contains("health checks"), "{status}");
    assert_eq!(discovery.clients(), []);
    assert!(!silent.health_check().await.0, "it is told that it has no stream");
    // On a busy machine it may be flushed again before it is sent anything.
    let back = async { while !matches!(Client::connect(address, "silent").await.next().await, Ok(Some(_))) {} };
    timeout(LIMIT, back).await.expect("it was never sent anything");
}

#[tokio::test]
async fn a_second_stream_of_a_client_ends_the_first() {
    let hub = hub();
    apply(&hub, "first", 9000);
    let (_, address) = start(&hub, MAX_CLIENT_INACTIVE).await;
    let mut first = Client::connect(address, "twin").await;
    first.next_policies().await;
    let mut second = Client::connect(address, "twin").await;
    second.next_policies().await;
    assert_eq!(first.end().await.code(), Code::Aborted);
    assert!(second.health_check().await.0);
}

#[tokio::test]
async fn a_client_without_an_address_or_with_another_than_before_is_told_so() {
    let hub = hub();
    apply(&hub, "first", 9000);
    let (_, address) = start(&hub, MAX_CLIENT_INACTIVE).await;
    for wrong in [String::new(), "x".repeat(300)] {
        let status = Client::connect(address, &wrong).await.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("`client_address`"), "{status}");
    }
    // A request has no reason to be large.
    assert_eq!(Client::connect(address, &"x".repeat(100_000)).await.end().await.code(), Code::OutOfRange);
    let mut client = Client::connect(address, "one").await;
    client.next_policies().await;
    client.address = "two".to_owned();
    client.answer("", "", None).await;
    assert_eq!(client.end().await.code(), Code::InvalidArgument);
}
