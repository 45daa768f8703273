//! Streams that reconnect, and slow streams (case 39).

use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use postern_compile::snapshot::ResourceType::{Cluster, Endpoints, ExtensionConfig};
use postern_deliver::xds::{
    content::Variant,
    session::{Memory, Request, Wish},
};
use prost::Message;

use crate::client::{BOTH, Client, SILENCE, all, clusters, only, outcomes, snapshot, tell, told};

#[test]
fn a_client_of_the_state_of_the_world_that_comes_back_up_to_date_is_sent_nothing() {
    let snapshot = clusters("a=1");
    let mut before = Client::new(Variant::StateOfTheWorld);
    before.publish(&snapshot);
    let version = only(before.subscribe(Cluster, &[])).content.version.to_string();
    let resumed = |version: String| {
        let mut client = Client::of(Variant::StateOfTheWorld, 2, Memory::default());
        client.publish(&snapshot);
        let wish = Wish::All { names: Vec::new(), version };
        client.send(Request { kind: Cluster, nonce: "1-1".into(), error: None, wish })
    };
    let reaction = resumed(version);
    assert_eq!((told(&reaction.responses), outcomes(&reaction)), (vec![], vec!["acked"]));
    assert_eq!(told(&resumed("other".into()).responses), ["CDS a=1"]);
}

#[test]
fn case_39_a_client_that_does_not_answer_gets_changes_merged() {
    for variant in BOTH {
        for (kind, names) in [(Cluster, &[][..]), (Endpoints, &["a"]), (ExtensionConfig, &["a"])] {
            let mut client = Client::new(variant);
            let mut sent = client.subscribe(kind, names);
            for version in 0..1_000 {
                sent.extend(client.publish(&snapshot(&all(kind, &format!("a={version}")))));
            }
            assert!(sent.len() < 20, "{variant:?} {kind}: {} responses wait", sent.len());
            // Once it answers, it gets the latest version only.
            let latest = client.ack(sent.last().unwrap()).responses;
            assert_eq!(told(&latest), [format!("{kind} a=999")], "{variant:?}");
            assert_eq!(told(&client.ack(&latest[0]).responses), SILENCE);
        }
    }
}

#[test]
fn case_39_streams_that_are_sent_the_same_share_its_bytes() {
    for variant in BOTH {
        let mut before = Vec::new();
        let snapshots = [clusters("a=1 b=1"), clusters("a=2 b=1")];
        let mut streams: Vec<_> = (0..3).map(|stream| Client::of(variant, stream, Memory::default())).collect();
        for snapshot in &snapshots {
            let mut contents = Vec::new();
            for client in &mut streams {
                let mut responses = client.publish(snapshot);
                if responses.is_empty() {
                    responses = client.subscribe(Cluster, &[]);
                }
                client.ack(&responses[0]);
                contents.push(Arc::clone(&responses[0].content));
            }
            assert!(contents.iter().all(|content| Arc::ptr_eq(content, &contents[0])), "{variant:?}");
            before.push(contents[0].encoded());
        }
        assert_ne!(before[0], before[1]);
    }
}

#[test]
fn a_response_is_the_shared_bytes_and_a_nonce() {
    for variant in BOTH {
        let mut client = Client::served(variant, &clusters("a=1 b=1"), &[(Cluster, &[])]);
        let response = only(client.publish(&clusters("a=2")));
        let mut bytes = vec![5 << 3 | 2, u8::try_from(response.nonce.len()).unwrap()];
        bytes.extend(response.nonce.as_bytes());
        bytes.extend(response.content.encoded());
        let (nonce, version, url) = match variant {
            Variant::StateOfTheWorld => {
                let wire = DiscoveryResponse::decode(bytes.as_slice()).unwrap();
                assert_eq!(wire.resources.len(), 1);
                (wire.nonce, wire.version_info, wire.type_url)
            }
            Variant::Incremental => {
                let wire = DeltaDiscoveryResponse::decode(bytes.as_slice()).unwrap();
                assert_eq!(
                    (wire.resources[0].name.as_str(), wire.removed_resources.as_slice()),
                    ("a", &["b".into()][..])
                );
                assert_eq!(wire.resources[0].version, response.content.resources[0].version.as_str());
                (wire.nonce, wire.system_version_info, wire.type_url)
            }
        };
        assert_eq!((nonce, version), (response.nonce.clone(), response.content.version.to_string()));
        assert_eq!(url, Cluster.type_url());
        assert!(tell(&response).starts_with("CDS a=2"));
    }
}
