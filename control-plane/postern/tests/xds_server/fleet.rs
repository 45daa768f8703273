//! What the fleet records of its nodes: what they run and refused, and that they disconnected.

use std::{collections::BTreeSet, time::Duration};

use postern_compile::snapshot::ResourceType::Cluster;
use postern_deliver::xds::Limits;

use crate::server::{Server, soon, until};

#[tokio::test]
async fn all_acked_is_there_once_every_connected_node_runs_the_revision() {
    let server = Server::start(Limits::default()).await;
    let first_revision = server.publish(1, 10).await;
    // No node is connected.
    soon("an empty fleet", server.plane.fleet().all_acked(&first_revision)).await;
    let (mut a, mut b) = (server.stream("a").await, server.stream("b").await);
    for client in [&mut a, &mut b] {
        client.subscribe().await;
        let response = client.next().await.unwrap();
        client.answer(&response, None).await;
    }
    soon("both nodes", server.plane.fleet().all_acked(&first_revision)).await;
    let revision = server.publish(2, 10).await;
    let for_a = a.next().await.unwrap();
    a.answer(&for_a, None).await;
    until("one of them", || server.plane.fleet().progress(&revision).settled == 1).await;
    assert!(!server.plane.fleet().progress(&revision).is_complete());
    let for_b = b.next().await.unwrap();
    b.answer(&for_b, Some("no such thing as r/a")).await;
    until("the refusal", || server.plane.fleet().progress(&revision).refusing == ["b"]).await;
    let report = server.plane.fleet().report();
    let refusal = report[1].types[&Cluster].refused.as_ref().unwrap();
    assert_eq!((refusal.message.as_str(), refusal.resources.as_slice()), ("no such thing as r/a", &["r/a".into()][..]));
    // It gets another, and runs that.
    let revision = server.publish(3, 10).await;
    for client in [&mut a, &mut b] {
        let response = client.next().await.unwrap();
        client.answer(&response, None).await;
    }
    soon("both again", server.plane.fleet().all_acked(&revision)).await;
    assert!(server.plane.fleet().report()[1].types[&Cluster].refused.is_none());
}

#[tokio::test]
async fn case_13_a_client_that_refuses_everything_gets_each_version_once() {
    let server = Server::start(Limits::default()).await;
    server.publish(0, 10).await;
    let mut client = server.stream("rejecting").await;
    client.subscribe().await;
    let mut seen = Vec::new();
    for version in 1..=50 {
        let response = client.next().await.unwrap();
        seen.push(response.version_info.clone());
        // Thrice, as if it could not be said often enough.
        for _ in 0..3 {
            client.answer(&response, Some("never")).await;
        }
        server.publish(version, 10).await;
    }
    let last = client.next().await.unwrap();
    client.answer(&last, Some("never")).await;
    seen.push(last.version_info);
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "a version came twice");
    // Nothing else is on its way: what comes next is the next version.
    server.publish(200, 10).await;
    let next = client.next().await.unwrap();
    assert_eq!(next.resources[0].value[0], 200);
    assert!(!seen.contains(&next.version_info));
}

#[tokio::test]
async fn case_40_clients_that_vanish_are_remembered_for_a_while_and_then_forgotten() {
    let most = 300;
    let limits = Limits { streams: most, keep_nodes: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start(limits).await;
    server.publish(1, 10).await;
    for _ in 0..2 {
        let mut clients = Vec::new();
        for number in 0..most {
            let client = server.stream(&format!("node-{number}")).await;
            client.subscribe().await;
            clients.push(client);
        }
        until("all of them", || server.plane.fleet().report().iter().filter(|node| node.connected).count() == most)
            .await;
        drop(clients);
        until("all to be gone", || server.plane.fleet().report().iter().all(|node| !node.connected)).await;
        until("all to be forgotten", || server.plane.fleet().report().is_empty()).await;
    }
}
