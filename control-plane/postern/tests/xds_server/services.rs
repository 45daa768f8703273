//! Every service answers, in every variant that it has.

use envoy_types::pb::envoy::service::{
    cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient,
    discovery::v3::{DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient},
    endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient,
    extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient,
    listener::v3::listener_discovery_service_client::ListenerDiscoveryServiceClient,
    route::v3::{
        route_discovery_service_client::RouteDiscoveryServiceClient,
        virtual_host_discovery_service_client::VirtualHostDiscoveryServiceClient,
    },
    secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient,
};
use postern_compile::snapshot::ResourceType::{
    Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration, Secret, VirtualHost,
};
use postern_deliver::xds::Limits;
use tokio_stream::{StreamExt, iter, pending};
use tonic::Code;

use crate::server::{Server, first, first_incremental, first_of, soon};

/// Calls one service in both variants, with these names, and checks the resource.
macro_rules! check {
    ($server:expr, $client:ident, $kind:expr, $world:ident, $incremental:ident) => {{
        let named = DiscoveryRequest { resource_names: vec!["r/a".to_owned()], ..first("node", $kind) };
        let requests = iter([named]).chain(pending());
        let mut client = $client::new($server.channel().await);
        let mut responses = soon("the stream", client.$world(requests)).await.unwrap().into_inner();
        let response = soon("a response", responses.message()).await.unwrap().unwrap();
        assert_eq!((response.type_url.as_str(), response.resources.len()), ($kind.type_url(), 1));
        assert_eq!(response.version_info.len(), 64);
        check!($server, $client, $kind, $incremental);
    }};
    ($server:expr, $client:ident, $kind:expr, $incremental:ident) => {{
        let requests = iter([first_incremental("node", $kind, &["r/a"])]).chain(pending());
        let mut client = $client::new($server.channel().await);
        let responses = soon("the stream", client.$incremental(requests)).await.unwrap().into_inner();
        let response = first_of(responses).await;
        assert_eq!((response.type_url.as_str(), response.resources.len()), ($kind.type_url(), 1));
        assert_eq!(response.resources[0].name, "r/a");
    }};
}

#[tokio::test]
async fn every_service_answers_in_both_variants() {
    let server = Server::start(Limits::default()).await;
    // Small enough to be one frame, and large enough to be shared.
    for (version, size) in [(1, 10), (2, 50_000)] {
        server.publish(version, size).await;
        check!(
            server,
            AggregatedDiscoveryServiceClient,
            Cluster,
            stream_aggregated_resources,
            delta_aggregated_resources
        );
        check!(server, ListenerDiscoveryServiceClient, Listener, stream_listeners, delta_listeners);
        check!(server, RouteDiscoveryServiceClient, RouteConfiguration, stream_routes, delta_routes);
        check!(server, VirtualHostDiscoveryServiceClient, VirtualHost, delta_virtual_hosts);
        check!(server, ClusterDiscoveryServiceClient, Cluster, stream_clusters, delta_clusters);
        check!(server, EndpointDiscoveryServiceClient, Endpoints, stream_endpoints, delta_endpoints);
        check!(server, SecretDiscoveryServiceClient, Secret, stream_secrets, delta_secrets);
        check!(
            server,
            ExtensionConfigDiscoveryServiceClient,
            ExtensionConfig,
            stream_extension_configs,
            delta_extension_configs
        );
    }
}

#[tokio::test]
async fn case_08_a_stream_whose_first_request_names_no_node_ends_with_a_clear_status() {
    let server = Server::start(Limits::default()).await;
    server.publish(1, 10).await;
    let mut client = server.stream("").await;
    client.subscribe().await;
    let status = client.next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("node.id"), "{status}");
    // The node of the first request counts for the others, which name none.
    let mut client = server.stream("edge").await;
    client.subscribe().await;
    let response = client.next().await.unwrap();
    client.answer(&response, None).await;
    client
        .requests
        .send(DiscoveryRequest { type_url: Listener.type_url().into(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(client.next().await.unwrap().type_url, Listener.type_url());
    assert_eq!(server.plane.fleet().report()[0].id, "edge");
}

#[tokio::test]
async fn case_19_an_unknown_type_leaves_the_others_alone_and_none_is_an_error() {
    let server = Server::start(Limits::default()).await;
    server.publish(1, 10).await;
    let mut client = server.stream("edge").await;
    let mut unknown = first("edge", Cluster);
    unknown.type_url = "type.googleapis.com/unheard.of".to_owned();
    client.requests.send(unknown).await.unwrap();
    client.subscribe().await;
    assert_eq!(client.next().await.unwrap().type_url, Cluster.type_url());
    client.requests.send(DiscoveryRequest::default()).await.unwrap();
    assert_eq!(client.next().await.unwrap_err().code(), Code::InvalidArgument);
}
