//! Which answers count in a rollout, on real Envoys. A stranger's refusal affects no other node, and two Envoys that
//! share an identity are noticed.

use std::{net::SocketAddr, thread};

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::rpc::Status,
};
use postern_compile::snapshot::ResourceType;
use postern_tests::{ControlPlane, Envoy};
use serde_json::Value;
use tokio::{runtime, sync::mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::fleet::{Stage, completed, envoys, rollout_state};

/// Subscribes to everything under an identity and refuses whatever comes, until the server ends.
fn refuse_everything(xds: SocketAddr, id: &str) {
    let id = id.to_owned();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = AggregatedDiscoveryServiceClient::connect(format!("http://{xds}")).await.unwrap();
            let (sender, requests) = mpsc::unbounded_channel();
            for kind in [ResourceType::Cluster, ResourceType::Listener] {
                let node = Some(Node { id: id.clone(), cluster: "edge".to_owned(), ..Default::default() });
                let type_url = kind.type_url().to_owned();
                sender.send(DiscoveryRequest { node, type_url, ..Default::default() }).unwrap();
            }
            let requests = UnboundedReceiverStream::new(requests);
            let mut responses = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
            while let Ok(Some(response)) = responses.message().await {
                let error_detail =
                    Some(Status { code: 3, message: "I will not have it".to_owned(), ..Default::default() });
                let (type_url, response_nonce) = (response.type_url, response.nonce);
                let refusal = DiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() };
                if sender.send(refusal).is_err() {
                    break;
                }
            }
        });
    });
}

fn refuses(status: &Value, id: &str) -> bool {
    let nodes = status["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["id"] == id);
    node.is_some_and(|node| !node["types"]["cluster"]["refused"].is_null())
}

/// One was there before, one joins in the middle.
#[test]
fn a_strangers_refusal_moves_no_healthy_node() {
    let stage = Stage::new();
    let control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let _envoys = envoys(control_plane.xds(), 2);
    control_plane.wait_for_status("both nodes", completed(2)).unwrap();
    refuse_everything(control_plane.xds(), "stranger");
    control_plane.wait_for_status("its refusal", |status| refuses(status, "stranger")).unwrap();
    for (round, value) in ["one", "two", "three"].into_iter().enumerate() {
        stage.change(if round == 0 { "nosniff" } else { ["one", "two"][round - 1] }, value);
        let late = format!("late-{round}");
        refuse_everything(control_plane.xds(), &late);
        control_plane.wait_for_status("its refusal", |status| refuses(status, &late)).unwrap();
        let revision = round + 2;
        let over =
            |status: &Value| status["rollout"]["candidate"] == revision && rollout_state(status) != "progressing";
        let status = control_plane.wait_for_status("the rollout", over).unwrap();
        assert_eq!(rollout_state(&status), "completed", "{}", status["rollout"]);
        assert!(stage.answers(value), "{value}");
    }
}

#[test]
fn two_envoys_with_one_identity_are_said() {
    let stage = Stage::new();
    let control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let warning = |status: &Value| status["nodes"][0]["warning"].as_str().map(str::to_owned);
    let mut twins = vec![Envoy::whole(control_plane.xds()).unwrap(), Envoy::whole(control_plane.xds()).unwrap()];
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    stage.change("nosniff", "changed");
    let status = control_plane.wait_for_status("the warning", |status| warning(status).is_some()).unwrap();
    assert!(warning(&status).unwrap().starts_with("several Envoys use this node id"), "{status}");
    let log = control_plane.log();
    assert!(log.iter().any(|line| line.contains("several Envoys use this node id")), "{log:#?}");
    // It is over once one of them is.
    drop(twins.pop());
    control_plane.wait_for_status("one Envoy", |status| warning(status).is_none()).unwrap();
}
