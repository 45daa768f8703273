//! Extension configurations and Wasm: cases 32 to 35, as far as they need no Envoy.

use std::time::{Duration, UNIX_EPOCH};

use envoy_types::pb::envoy::{
    config::{
        core::v3::{TypedExtensionConfig, async_data_source, data_source},
        listener::v3::{Listener as WireListener, filter},
    },
    extensions::{
        filters::{
            http::wasm::v3::Wasm,
            network::http_connection_manager::v3::{HttpConnectionManager, http_filter},
        },
        wasm::v3::plugin_config,
    },
};
use postern_base::node::NodeIdentity;
use postern_compile::snapshot::{
    FilterCode,
    ResourceType::{self, Cluster, ExtensionConfig, Listener},
};
use postern_deliver::xds::{
    content::Variant,
    session::{Memory, Reaction, Request, Wish},
};
use postern_fixtures::{SITE, snapshot_with};
use postern_release::fleet::{Fleet, Learnt};
use prost::Message;

use crate::client::{BOTH, Client, SILENCE, all, only, outcomes, snapshot, tell, told};

#[test]
fn case_32_an_extension_configuration_is_never_withdrawn() {
    for variant in BOTH {
        let wanted: [(ResourceType, &[&str]); 2] = [(ExtensionConfig, &["x", "y"]), (Listener, &[])];
        let both = [all(ExtensionConfig, "x=1 y=1"), all(Listener, "l=1 m=1")].concat();
        let mut client = Client::served(variant, &snapshot(&both), &wanted);
        let fewer = [all(ExtensionConfig, "y=1"), all(Listener, "m=1")].concat();
        let responses = client.publish(&snapshot(&fewer));
        let kinds: Vec<_> = responses.iter().map(|response| response.kind()).collect();
        assert_eq!(kinds, [Listener], "{variant:?}");
        client.accept_all(responses);
        assert_eq!(told(&client.wait(Duration::from_secs(3600))), SILENCE);
        // It is not withdrawn by the answer to a request either.
        let again = client.request(ExtensionConfig, "", None, &["x"]);
        assert_eq!(told(&again), SILENCE, "{variant:?}");
    }
}

#[test]
fn case_33_the_last_good_configuration_waits_for_no_cluster_even_if_it_was_not_in_force_for_a_while() {
    let made = |filter, clusters| snapshot(&[all(ExtensionConfig, filter), all(Cluster, clusters)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(ExtensionConfig, &["x"]), (Cluster, &[])];
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=good", "k=1"), &wanted);
        let refused = only(client.publish(&made("x=bad", "k=1")));
        assert_eq!(told(&client.publish(&made("", "k=1"))), SILENCE, "{variant:?}");
        let clusters = only(client.publish(&made("x=bad", "k=1 m=1")));
        assert_eq!(clusters.kind(), Cluster, "{variant:?}");
        assert_eq!(told(&client.nack(&refused, "no").responses), ["ECDS x=good"], "{variant:?}");
    }
}

#[test]
fn case_33_what_is_accepted_beside_a_refused_configuration_is_good_whatever_is_held_back() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    let memory = Memory::default();
    let mut other = Client::of(Variant::Incremental, 2, memory.clone());
    let mut client = Client::of(Variant::Incremental, 1, memory);
    client.publish(&made("a=1 c=1"));
    let older = only(client.subscribe(ExtensionConfig, &["a", "c", "d"]));
    let newer = only(client.publish(&made("a=bad c=1 d=good")));
    assert_eq!(tell(&newer), "ECDS a=bad d=good");
    other.publish(&made("a=bad c=1 d=good"));
    let refused = only(other.subscribe(ExtensionConfig, &["a"]));
    other.nack(&refused, "a is bad");
    client.nack(&older, "no");
    client.ack(&newer);
    let bad = only(client.publish(&made("d=bad")));
    assert_eq!(told(&client.nack(&bad, "no").responses), ["ECDS d=good"]);
}

#[test]
fn case_33_after_a_refusal_the_last_good_configuration_is_pushed_at_once() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=good"), &[(ExtensionConfig, &["x"])]);
        let refused = only(client.publish(&made("x=bad")));
        let nacked = client.nack(&refused, "Unable to create Wasm plugin x");
        assert_eq!(outcomes(&nacked), ["nacked"]);
        let restored = only(nacked.responses);
        assert_eq!(tell(&restored), "ECDS x=good", "{variant:?}");
        let acked = client.ack(&restored);
        assert_eq!((told(&acked.responses), outcomes(&acked)), (vec![], vec!["restored"]));
        assert_eq!(told(&client.publish(&made("x=bad"))), SILENCE);
        // Back to what it runs: nothing to send. Another version is another chance.
        assert_eq!(told(&client.publish(&made("x=good"))), SILENCE);
        assert_eq!(told(&client.publish(&made("x=other"))), ["ECDS x=other"]);
    }
}

#[test]
fn case_33_a_refused_configuration_is_not_pushed_again_when_another_changes() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=1 y=1"), &[(ExtensionConfig, &["x", "y"])]);
        let refused = only(client.publish(&made("x=bad y=2")));
        let restored = only(client.nack(&refused, "Unable to create Wasm plugin x").responses);
        assert!(tell(&restored).contains("x=1"), "{}", tell(&restored));
        assert!(!tell(&restored).contains("y=1"), "the message blames only one: {}", tell(&restored));
        client.ack(&restored);
        let next = only(client.publish(&made("x=bad y=3")));
        assert!(tell(&next).contains("y=3") && !tell(&next).contains("bad"), "{variant:?} {}", tell(&next));
    }
}

#[test]
fn case_33_a_client_that_refuses_even_the_last_good_one_is_left_alone() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=1"), &[(ExtensionConfig, &["x"])]);
        let refused = only(client.publish(&made("x=2")));
        let restored = only(client.nack(&refused, "no").responses);
        assert_eq!(told(&client.nack(&restored, "no").responses), SILENCE, "{variant:?}");
        assert_eq!(told(&client.publish(&made("x=3"))), ["ECDS x=3"]);
    }
}

#[test]
fn case_33_the_last_good_configuration_is_pushed_to_a_client_that_left_before_it_came() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let good = made("x=good");
        let mut client = Client::served(variant, &good, &[(ExtensionConfig, &["x"])]);
        let refused = only(client.publish(&made("x=bad")));
        client.nack(&refused, "no");
        // It reconnects, and reports that it has the good one.
        let mut next = Client::of(variant, 2, client.session.memory().clone());
        next.publish(&made("x=bad"));
        let offer = good.offer(ExtensionConfig);
        let wish = match variant {
            Variant::StateOfTheWorld => Wish::All { names: vec!["x".into()], version: offer.version().to_string() },
            Variant::Incremental => {
                let version = offer.set().resources[0].version.to_string();
                let initial = [("x".to_owned(), version)].into();
                Wish::Changes { subscribe: vec!["x".into()], unsubscribe: Vec::new(), initial }
            }
        };
        let back = next.send(Request { kind: ExtensionConfig, nonce: String::new(), error: None, wish });
        assert_eq!(told(&back.responses), ["ECDS x=good"], "{variant:?}");
    }
}

#[test]
fn case_33_the_last_good_configuration_waits_for_no_cluster() {
    let made = |clusters, filters| snapshot(&[all(Cluster, clusters), all(ExtensionConfig, filters)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (ExtensionConfig, &["x"])];
    for variant in BOTH {
        let mut client = Client::served(variant, &made("c=1", "x=good"), &wanted);
        let refused = only(client.publish(&made("c=1", "x=bad")));
        assert_eq!(client.publish(&made("c=1 d=1", "x=bad")).len(), 1, "a cluster that is not accepted");
        assert_eq!(told(&client.nack(&refused, "no: x").responses), ["ECDS x=good"], "{variant:?}");
    }
}

#[test]
fn case_33_what_is_accepted_beside_a_restored_configuration_is_good_too() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=1 y=1"), &[(ExtensionConfig, &["x", "y"])]);
        let refused = only(client.publish(&made("x=bad y=1")));
        let restored = client.nack(&refused, "no: x").responses;
        client.accept_all(restored);
        let accepted = client.publish(&made("x=bad y=2"));
        client.accept_all(accepted);
        let refused = only(client.publish(&made("x=bad y=bad")));
        let restored = only(client.nack(&refused, "no: y").responses);
        assert!(tell(&restored).contains("y=2"), "{variant:?}: {}", tell(&restored));
    }
}

#[test]
fn case_33_what_is_accepted_beside_a_configuration_that_another_stream_refused_is_good_too() {
    let made = |text| snapshot(&all(ExtensionConfig, text));
    for variant in BOTH {
        let mut client = Client::new(variant);
        client.publish(&made("x=bad y=1"));
        let first = only(client.subscribe(ExtensionConfig, &["x", "y"]));
        let mut other = Client::of(variant, 2, client.session.memory().clone());
        other.publish(&made("x=bad"));
        let refused = only(other.subscribe(ExtensionConfig, &["x"]));
        other.nack(&refused, "no: x");
        client.ack(&first);
        let refused = only(client.publish(&made("x=bad y=bad")));
        let restored = only(client.nack(&refused, "no: y").responses);
        assert!(tell(&restored).contains("y=1"), "{variant:?}: {}", tell(&restored));
    }
}

#[test]
fn case_33_a_client_that_comes_back_type_by_type_finds_its_last_good_configuration() {
    let made = |text| snapshot(&[all(Cluster, "c=1"), all(ExtensionConfig, text)].concat());
    let identity = NodeIdentity { id: "node".to_owned(), ..NodeIdentity::default() };
    for variant in BOTH {
        let mut fleet = Fleet::default();
        let learnt = |reaction: Reaction| Learnt { events: reaction.events, reason: None };
        let joined = fleet.connect(&identity, UNIX_EPOCH);
        let mut client = Client::of(variant, joined.stream, joined.memory.recall());
        client.publish(&made("x=good"));
        let first = only(client.subscribe(ExtensionConfig, &["x"]));
        fleet.record("node", joined.stream, learnt(client.ack(&first)), UNIX_EPOCH);
        fleet.disconnect("node", joined.stream, UNIX_EPOCH);
        // Its clusters come first, and then it has all that it has asked for.
        let joined = fleet.connect(&identity, UNIX_EPOCH);
        let mut client = Client::of(variant, joined.stream, joined.memory.recall());
        client.publish(&made("x=bad"));
        let clusters = only(client.subscribe(Cluster, &[]));
        fleet.record("node", joined.stream, learnt(client.ack(&clusters)), UNIX_EPOCH);
        let refused = only(client.subscribe(ExtensionConfig, &["x"]));
        assert_eq!(told(&client.nack(&refused, "no: x").responses), ["ECDS x=good"], "{variant:?}");
    }
}

/// The first resource of a type that the site becomes; filters differ only in where they stand.
fn compiled(kind: ResourceType, code: &FilterCode) -> Vec<u8> {
    let snapshot = snapshot_with(SITE, code);
    let all = snapshot.whole(kind);
    assert_eq!(all.resources.len(), if kind == ExtensionConfig { 3 } else { 1 });
    all.resources[0].body.value.clone()
}

#[test]
fn case_34_the_filters_code_is_never_fetched_by_envoy() {
    for code in [FilterCode::new(vec![1], None), FilterCode::new(vec![1], Some("/lib/filter.wasm".into()))] {
        let config = TypedExtensionConfig::decode(compiled(ExtensionConfig, &code).as_slice()).unwrap();
        let wasm = Wasm::decode(config.typed_config.unwrap().value.as_slice()).unwrap();
        let Some(plugin_config::Vm::VmConfig(vm)) = wasm.config.unwrap().vm else { panic!("no VM") };
        let Some(async_data_source::Specifier::Local(local)) = vm.code.unwrap().specifier else {
            panic!("remote code")
        };
        let file = matches!(local.specifier, Some(data_source::Specifier::Filename(_)));
        let inline = matches!(local.specifier, Some(data_source::Specifier::InlineBytes(_)));
        assert!(file || inline);
    }
}

#[test]
fn case_35_a_listener_without_a_plan_has_nothing_to_fall_back_on() {
    let listener = compiled(Listener, &FilterCode::new(vec![1], None));
    let listener = WireListener::decode(listener.as_slice()).unwrap();
    let Some(filter::ConfigType::TypedConfig(manager)) = listener.filter_chains[0].filters[0].config_type.clone()
    else {
        panic!("no HTTP connection manager")
    };
    let manager = HttpConnectionManager::decode(manager.value.as_slice()).unwrap();
    let discovered = manager.http_filters.iter().find_map(|filter| match &filter.config_type {
        Some(http_filter::ConfigType::ConfigDiscovery(discovery)) => Some((filter, discovery)),
        _ => None,
    });
    let (filter, discovery) = discovered.unwrap();
    assert!(discovery.default_config.is_none() && !discovery.apply_default_config_without_warming);
    assert!(!filter.is_optional, "a request must not pass by a filter that is not there");
}
