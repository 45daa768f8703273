//! A plan is sent when it changes, and not when anything else does.

use std::time::SystemTime;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
};
use postern_base::node::NodeIdentity;
use postern_compile::snapshot::ResourceType::{Cluster, ExtensionConfig};
use postern_deliver::xds::Limits;
use postern_model::File;
use postern_release::{
    releases::{Applied, Proposal},
    store::Parent,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::server::{Server, answer_to, first, first_incremental, soon, until};

/// A gateway with one route, its service and its policy.
fn files(address: &str, header: &str) -> Vec<File> {
    let text = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  \
         listeners: [{{ name: http, port: 8080 }}]\n  routes: [{{ name: users, service: users }}]\n---\n\
         apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: users }}\n\
         spec: {{ endpoints: [{{ address: {address}, port: 9000 }}] }}\n---\n\
         apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: users }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: users }}\n  request:\n    \
         - {{ policy: headers, params: {{ set: {{ x-test: {header} }} }} }}\n"
    );
    vec![File { name: "test.yaml".to_owned(), bytes: text.into_bytes() }]
}

async fn apply(server: &Server, address: &str, header: &str) -> u64 {
    let (author, message) = ("test".to_owned(), String::new());
    let files = files(address, header);
    let proposal = Proposal {
        files,
        author,
        message,
        parent: Parent::Latest,
        again: false,
        allow_unguarded: false,
        ..Proposal::default()
    };
    match server.plane.commands().apply(proposal).await.unwrap() {
        Applied::Revision(revision) => revision.number,
        Applied::Unchanged(revision) => panic!("revision {} says the same", revision.number),
    }
}

/// The label of the node's plan.
fn label(server: &Server) -> String {
    let publication = server.plane.publications().latest().unwrap();
    publication.snapshot_for(&NodeIdentity::default()).plan().label().to_owned()
}

/// Waits until the node has acknowledged everything that is in force for it.
async fn settled(server: &Server) {
    let revision = server.plane.publications().latest().unwrap().revision().clone();
    until("the node to run the revision", || server.plane.fleet().progress(&revision).settled == 1).await;
}

#[tokio::test]
async fn a_change_that_touches_no_chain_sends_no_filter_configuration() {
    let server = Server::start(Limits::default()).await;
    assert_eq!(apply(&server, "one.test", "a").await, 1);
    let before = label(&server);
    let mut client = server.stream("node").await;
    client.requests.send(first("node", Cluster)).await.unwrap();
    let filter = || vec!["postern-gateway".to_owned()];
    let request = DiscoveryRequest { resource_names: filter(), ..first("node", ExtensionConfig) };
    client.requests.send(request).await.unwrap();
    let mut next = async || {
        let response = client.next().await.unwrap();
        let resource_names = if response.type_url == Cluster.type_url() { Vec::new() } else { filter() };
        let answer = DiscoveryRequest { resource_names, ..answer_to(&response, None) };
        client.requests.send(answer).await.unwrap();
        response.type_url
    };
    next().await;
    next().await;
    settled(&server).await;
    // Another address of the service is another cluster, and the same plan.
    assert_eq!(apply(&server, "two.test", "a").await, 2);
    assert_eq!(label(&server), before);
    assert_eq!(next().await, Cluster.type_url());
    settled(&server).await;
    // Another chain is another plan, and the same cluster.
    assert_eq!(apply(&server, "two.test", "b").await, 3);
    assert_ne!(label(&server), before);
    assert_eq!(next().await, ExtensionConfig.type_url());
    settled(&server).await;
    server.plane.commands().look().await.unwrap();
    let uses = server.plane.in_force().releases().plan_uses(&before);
    let shown: Vec<_> = uses.iter().map(|used| (used.revision, used.until.is_some(), used.acknowledged)).collect();
    assert_eq!(shown, [(2, true, 0), (1, true, 0)], "nobody looked while the node ran them");
    let uses = server.plane.in_force().releases().plan_uses(&label(&server));
    assert_eq!(uses.len(), 1);
    assert_eq!((uses[0].revision, uses[0].until, uses[0].nodes.len()), (3, None, 1));
    assert!(uses[0].nodes["node"] <= postern_release::store::milliseconds(SystemTime::now()));
}

#[tokio::test]
async fn nor_on_an_incremental_stream() {
    let server = Server::start(Limits::default()).await;
    apply(&server, "one.test", "a").await;
    let (requests, receiver) = mpsc::channel(100);
    let mut service = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let opening = service.delta_aggregated_resources(ReceiverStream::new(receiver));
    requests.send(first_incremental("node", Cluster, &[])).await.unwrap();
    requests.send(first_incremental("node", ExtensionConfig, &["postern-gateway"])).await.unwrap();
    let mut responses = soon("the stream", opening).await.unwrap().into_inner();
    let mut next = async || {
        let response = soon("a response", responses.message()).await.unwrap().unwrap();
        let (type_url, response_nonce) = (response.type_url.clone(), response.nonce);
        requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).await.unwrap();
        (response.type_url, response.resources.len())
    };
    next().await;
    next().await;
    settled(&server).await;
    apply(&server, "two.test", "a").await;
    assert_eq!(next().await, (Cluster.type_url().to_owned(), 1));
    settled(&server).await;
    apply(&server, "two.test", "b").await;
    assert_eq!(next().await, (ExtensionConfig.type_url().to_owned(), 1));
}
