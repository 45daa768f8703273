//! Clients with an identity: what they get, and that they count as nodes.

use std::sync::Arc;

use postern::control_plane::ControlPlane;
use postern_base::node::NodeIdentity;
use postern_deliver::discovery::Options;
use postern_proto::discovery::v1::PolicyDiscoveryRequest;
use postern_release::rollout::State;
use tokio::time::timeout;
use tonic::Code;

use crate::client::{Client, LIMIT, apply, control_plane, first, guarded, identity, names, policy, start, until};

/// One policy for each kind of target, and one of another mesh.
fn targets() -> String {
    [
        ("all", "default", "kind: Mesh"),
        ("canaries", "default", "kind: MeshSubset, tags: { stage: canary }"),
        ("of-web", "default", "kind: Service, name: web"),
        ("of-web-canaries", "default", "kind: ServiceSubset, name: web, tags: { stage: canary }"),
        ("one-proxy", "default", "kind: Proxy, name: point-1"),
        ("all", "other", "kind: Mesh"),
        ("of-other-web", "other", "kind: Service, name: web"),
    ]
    .map(|(name, mesh, target)| policy(name, mesh, target, "first"))
    .concat()
}

#[tokio::test]
async fn a_client_gets_the_policies_that_concern_it_and_a_plan_only_if_it_says_who_it_is_and_asks() {
    let plane = control_plane();
    let (_, address) = start(&plane, Options::default()).await;
    apply(&plane, &targets()).await;
    let canary = [("stage", "canary")];
    for (client, who, expect) in [
        ("stranger", identity("", "", &[]), &["all"][..]),
        ("tagged", identity("", "", &canary), &["all", "canaries"]),
        ("web-1", identity("web", "default", &[]), &["all", "of-web"]),
        ("web-2", identity("web", "", &canary), &["all", "canaries", "of-web", "of-web-canaries"]),
        ("point-1", identity("", "", &[]), &["all", "one-proxy"]),
        ("elsewhere", identity("web", "other", &[]), &["all", "of-other-web"]),
        ("nowhere", identity("web", "none", &[]), &[]),
    ] {
        for plan in [false, true] {
            let response = Client::connect_as(address, client, who.clone(), plan).await.next_policies().await;
            assert_eq!(names(&response), expect, "{client}");
            assert_eq!(!response.plan.is_empty(), plan, "{client}");
        }
    }
    let response = Client::connect(address, "point-1").await.next_policies().await;
    assert_eq!(
        names(&response),
        ["all", "canaries", "of-web", "of-web-canaries", "one-proxy"],
        "all of the default mesh"
    );
    assert!(response.plan.is_empty());
}

#[tokio::test]
async fn a_change_reaches_the_group_that_it_concerns_and_each_group_is_waited_for_by_itself() {
    let plane = control_plane();
    let (discovery, address) = start(&plane, Options::default()).await;
    apply(&plane, &targets()).await;
    let mut web = [
        Client::connect_as(address, "web-1", identity("web", "", &[]), false).await,
        Client::connect_as(address, "web-2", identity("web", "", &[]), false).await,
    ];
    let mut other = Client::connect_as(address, "other", identity("", "other", &[]), false).await;
    let others = other.accept().await;
    let shared = web[0].accept().await;
    assert_eq!(web[1].next_policies().await, shared, "clients of one group share an update");
    timeout(LIMIT, discovery.group_all_acked(&version(&others.version_info, &discovery).await)).await.unwrap().unwrap();
    let waited_for = version(&shared.version_info, &discovery).await;
    let waiting = discovery.group_all_acked(&waited_for);
    tokio::pin!(waiting);
    assert!(futures_pending(waiting.as_mut()).await, "one of this group has not answered");
    web[1].answer("", &shared.nonce, Some("no")).await;
    let group = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!(group.clients.len(), 2);

    apply(&plane, &targets().replacen("kind: Service, name: web }", "kind: Service, name: web, optional: true }", 1))
        .await;
    let next = web[0].next_policies().await;
    assert_ne!(next.version_info, shared.version_info);
    assert_eq!(other.health_check().await, (true, others.version_info.clone()));
    assert!(discovery.group_all_acked(&waited_for).await.is_none(), "nobody is to have it any more");
    apply(&plane, &targets().replacen("name: all, mesh: other", "name: most, mesh: other", 1)).await;
    assert_eq!(names(&other.next_policies().await), ["most"], "and nothing came before");
}

/// The digest of the version that a client was sent.
async fn version(text: &str, discovery: &postern_deliver::discovery::Discovery) -> postern_base::digest::Digest {
    let groups = discovery.report().await;
    groups.iter().find_map(|group| group.version().filter(|version| version.as_str() == text)).unwrap().clone()
}

/// Whether a future is pending when it is polled once.
async fn futures_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut future = Some(future);
    std::future::poll_fn(move |context| {
        std::task::Poll::Ready(future.take().is_some_and(|future| future.poll(context).is_pending()))
    })
    .await
}

#[tokio::test]
async fn a_revoked_key_is_a_new_version_for_clients_with_a_plan_and_for_no_others() {
    let plane = control_plane();
    let (_, address) = start(&plane, Options::default()).await;
    let keyed = |key: &str, value: &str| {
        guarded(value)
            + &format!(
                "    - policy: apiKeyAuth\n      params: {{ header: x-api-key }}\n---\napiVersion: postern/v1\n\
                 kind: Consumer\nmetadata: {{ name: app }}\nspec: {{ apiKeys: [{{ key: {key} }}] }}\n"
            )
    };
    apply(&plane, &keyed("an-old-secret-key", "first")).await;
    let mut engine = Client::connect_as(address, "engine", identity("", "", &[]), true).await;
    let mut reader = Client::connect_as(address, "reader", identity("", "", &[]), false).await;
    let (plan, read) = (engine.accept().await, reader.accept().await);
    assert_eq!(plan.policies, read.policies);
    assert_ne!(plan.version_info, read.version_info);

    apply(&plane, &keyed("a-new-secret-key", "first")).await;
    let renewed = engine.accept().await;
    assert_eq!(renewed.policies, plan.policies, "no policy shows it");
    assert_ne!((&renewed.version_info, &renewed.plan), (&plan.version_info, &plan.plan));
    apply(&plane, &keyed("a-new-secret-key", "second")).await;
    let next = reader.accept().await;
    assert!(next.policies[0].spec.contains("second"), "what comes next is the next change of a policy: {next:?}");
}

#[tokio::test]
async fn an_identity_that_is_too_long_or_changes_or_a_plan_without_one_is_refused_by_its_field() {
    let plane = control_plane();
    apply(&plane, &guarded("first")).await;
    let (_, address) = start(&plane, Options::default()).await;
    let long = "x".repeat(257);
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    for (who, field) in [
        (identity(&long, "", &[]), "`identity.service`"),
        (identity("", &long, &[]), "`identity.mesh`"),
        (identity("", "", &[("stage", &long)]), "`identity.tags.stage`"),
        (identity("", "", &many), "65 tags"),
    ] {
        let status = Client::connect_as(address, "one", who, false).await.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{status}");
    }
    let request = PolicyDiscoveryRequest { wants_plan: true, ..first("one") };
    let status = Client::open(address, request).await.end().await;
    assert_eq!(
        (status.code(), status.message().contains("`wants_plan` needs `identity`")),
        (Code::InvalidArgument, true)
    );

    let web = identity("web", "", &[]);
    for (second, field) in [
        (PolicyDiscoveryRequest { identity: Some(web.clone()), ..first("one") }, None),
        (PolicyDiscoveryRequest { identity: Some(identity("db", "", &[])), ..first("one") }, Some("`identity`")),
        (PolicyDiscoveryRequest { wants_plan: true, ..first("one") }, Some("`wants_plan`")),
    ] {
        let mut client = Client::connect_as(address, "one", web.clone(), false).await;
        client.next_policies().await;
        client.requests.send(second).await.unwrap();
        match field {
            // Repeated with an empty state: it is sent everything again.
            None => assert_eq!(names(&client.next_policies().await), ["users-api"]),
            Some(field) => {
                let status = client.end().await;
                assert!(status.code() == Code::InvalidArgument && status.message().contains(field), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn a_rollout_waits_for_identified_clients_and_goes_back_if_one_refuses() {
    let plane = control_plane();
    let (_, address) = start(&plane, Options::default()).await;
    let followed = Arc::clone(&plane);
    tokio::spawn(async move { followed.follow_rollouts().await });
    let state = |plane: &ControlPlane| plane.in_force().rollout_report().unwrap().state;
    apply(&plane, &guarded("first")).await;
    // A client without an identity does not count as a node.
    let mut anyone = Client::connect(address, "anyone").await;
    anyone.next_policies().await;
    let mut client = Client::connect_as(address, "point-1", identity("web", "", &[]), false).await;
    let first = client.next_policies().await;
    plane.commands().look().await.unwrap();
    assert_eq!(state(&plane), State::Progressing, "it has not answered");
    client.ack(&first).await;
    until("the rollout completes", async || state(&plane) == State::Completed).await;
    let expect = NodeIdentity { id: "point-1".to_owned(), service: "web".to_owned(), ..NodeIdentity::default() };
    assert_eq!(plane.identities(), [expect], "admission compiles what it gets");

    apply(&plane, &guarded("second")).await;
    let second = client.next_policies().await;
    client.answer(&first.version_info, &second.nonce, Some("it does not compile")).await;
    until("the rollout goes back", async || matches!(state(&plane), State::RolledBack { .. })).await;
    let reason = "policies: it does not compile".to_owned();
    assert_eq!(state(&plane), State::RolledBack { node: "point-1".to_owned(), reason });
    let back = client.accept().await;
    assert_eq!((&back.version_info, &back.policies), (&first.version_info, &first.policies));
    assert_ne!(back.nonce, first.nonce);
}
