//! Incremental: cases 25 to 31.

use postern_compile::snapshot::ResourceType::{self, Cluster, Endpoints, Listener, RouteConfiguration};
use postern_deliver::xds::{
    Offers,
    content::Variant::Incremental,
    session::{Event, PATIENCE_TO_BREAK, TIME_TO_REJOIN},
};
use postern_fixtures::SITE;

use crate::client::{Client, SILENCE, all, clusters, endpoints, only, outcomes, snapshot, tell, told};

#[test]
fn case_25_a_wildcard_gets_all_each_with_its_own_version_and_then_only_what_changes() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let response = only(client.subscribe(Cluster, &[]));
    assert_eq!(tell(&response), "CDS a=1 b=1");
    let versions: Vec<_> = response.content.resources.iter().map(|resource| resource.version.as_str().len()).collect();
    assert_eq!(versions, [64, 64]);
    client.ack(&response);
    assert_eq!(told(&client.publish(&clusters("a=1 b=2"))), ["CDS b=2"]);
    let mut client = Client::new(Incremental);
    client.publish(&clusters(""));
    assert_eq!(told(&client.subscribe(Cluster, &[])), ["CDS"], "an empty set is told");
}

#[test]
fn case_25_a_wildcard_and_names_come_and_go_on_their_own() {
    let mut client = Client::served(Incremental, &clusters("a=1 b=1"), &[(Cluster, &["*"])]);
    let named = client.subscribe(Cluster, &["a"]);
    assert_eq!(told(&named), ["CDS a=1"]);
    client.accept_all(named);
    assert_eq!(told(&client.unsubscribe(Cluster, &["*"])), SILENCE);
    assert_eq!(told(&client.publish(&clusters("a=2 b=2"))), ["CDS a=2"]);
    // An unsubscription of what was never subscribed to is nothing.
    assert_eq!(told(&client.unsubscribe(Cluster, &["never", "*"])), SILENCE);
}

#[test]
fn case_26_what_is_removed_is_told_and_sent_when_it_is_added_again() {
    for kind in [Cluster, Endpoints, Listener, RouteConfiguration] {
        let made = |text| snapshot(&all(kind, text));
        let mut client = Client::served(Incremental, &made("a=1 b=1"), &[(kind, &["a", "b"])]);
        let removed = only(client.publish(&made("a=1")));
        assert_eq!(tell(&removed), format!("{kind} -b"));
        client.ack(&removed);
        assert_eq!(told(&client.publish(&made("a=1 b=1"))), [format!("{kind} b=1")]);
    }
}

#[test]
fn case_27_a_name_that_is_subscribed_to_again_is_sent_again() {
    for kind in ResourceType::ALL {
        let mut client = Client::served(Incremental, &snapshot(&all(kind, "a=1 b=1")), &[(kind, &["a", "b"])]);
        assert_eq!(told(&client.subscribe(kind, &["a"])), [format!("{kind} a=1")]);
    }
    // Even if the whole was refused, and nothing is pushed.
    let mut client = Client::served(Incremental, &clusters("a=1 b=1"), &[(Cluster, &["*"])]);
    let refused = only(client.publish(&clusters("a=1 b=2")));
    client.nack(&refused, "no");
    assert_eq!(told(&client.subscribe(Cluster, &["a"])), ["CDS a=1"]);
}

#[test]
fn case_28_what_does_not_exist_is_told_as_removed_and_pushed_once_it_does() {
    let mut client = Client::new(Incremental);
    client.publish(&endpoints("a=1"));
    let response = only(client.subscribe(Endpoints, &["z"]));
    assert_eq!(tell(&response), "EDS -z");
    client.ack(&response);
    assert_eq!(told(&client.publish(&endpoints("a=2"))), SILENCE, "told once");
    assert_eq!(told(&client.publish(&endpoints("a=2 z=1"))), ["EDS z=1"]);
}

#[test]
fn case_29_after_a_refusal_nothing_is_sent_until_a_change_and_then_all_that_was_not_accepted() {
    let mut client = Client::served(Incremental, &clusters("a=1 b=1 c=1 d=1"), &[(Cluster, &[])]);
    let refused = only(client.publish(&clusters("a=2 b=2 c=1")));
    assert_eq!(tell(&refused), "CDS a=2 b=2 -d");
    assert_eq!(told(&client.nack(&refused, "no").responses), SILENCE);
    assert_eq!(told(&client.publish(&clusters("a=2 b=2 c=1"))), SILENCE);
    let next = only(client.publish(&clusters("a=2 b=3 c=1")));
    assert_eq!(tell(&next), "CDS a=2 b=3 -d");
    client.ack(&next);
    assert_eq!(told(&client.publish(&clusters("a=2 b=3 c=2"))), ["CDS c=2"], "accepted, and not sent again");
}

#[test]
fn case_29_a_change_that_crosses_a_refusal_does_not_bring_the_refused_again() {
    let mut client = Client::served(Incremental, &clusters("a=1 b=1"), &[(Cluster, &[])]);
    let first = only(client.publish(&clusters("a=2 b=1")));
    let second = only(client.publish(&clusters("a=2 b=2")));
    assert_eq!(tell(&second), "CDS b=2");
    assert_eq!(told(&client.nack(&first, "no").responses), SILENCE);
    let acked = client.ack(&second);
    assert_eq!((told(&acked.responses), outcomes(&acked)), (vec![], vec![]), "it does not run what is in force");
    assert_eq!(told(&client.publish(&clusters("a=2 b=3"))), ["CDS a=2 b=3"], "the next change brings it");
    // Nor is it taken to be accepted with what was sent after it.
    let mut client = Client::served(Incremental, &clusters("b=1"), &[(Cluster, &[])]);
    let first = only(client.publish(&clusters("a=2 b=1")));
    let second = only(client.publish(&clusters("a=2 b=2")));
    let third = only(client.publish(&clusters("a=2")));
    assert_eq!(told(&client.nack(&first, "no").responses), SILENCE);
    assert_eq!(outcomes(&client.ack(&second)), Vec::<&str>::new());
    assert_eq!(told(&client.ack(&third).responses), SILENCE);
    assert_eq!(told(&client.publish(&clusters("a=2 c=1"))), ["CDS a=2 c=1"]);
}

#[test]
fn case_30_a_client_that_comes_back_up_to_date_is_sent_nothing() {
    let snapshot = clusters("a=1 b=1");
    let mut before = Client::new(Incremental);
    before.publish(&snapshot);
    let response = only(before.subscribe(Cluster, &[]));
    let had: Vec<_> = response.content.resources.iter().map(|it| (it.name.as_str(), it.version.as_str())).collect();
    for names in [&[][..], &["*"], &["a", "b"]] {
        for early in [true, false] {
            let mut client = Client::new(Incremental);
            let mut reactions = Vec::new();
            // Whether there is a snapshot when it comes back, or soon after.
            if early {
                reactions.push(client.publish_events(&snapshot));
            }
            reactions.push(client.resume(Cluster, names, &had));
            if !early {
                reactions.push(client.publish_events(&snapshot));
            }
            assert!(reactions.iter().all(|reaction| reaction.responses.is_empty()), "{names:?}");
            assert_eq!(reactions.iter().flat_map(outcomes).collect::<Vec<_>>(), ["acked"], "and that is an ACK");
            assert_eq!(told(&client.publish(&clusters("a=1 b=2"))), ["CDS b=2"]);
        }
    }
}

#[test]
fn case_30_a_client_that_comes_back_gets_what_changed_and_loses_what_is_gone_only_later() {
    let had = [("a", "old"), ("gone", "old")];
    let mut client = Client::new(Incremental);
    let made = [all(Cluster, "a=1"), all(RouteConfiguration, "r=1")].concat();
    client.publish(&snapshot(&made));
    let changed = only(client.resume(Cluster, &[], &had).responses);
    assert_eq!(tell(&changed), "CDS a=1", "its routes may still lead to what is gone");
    assert_eq!(told(&client.ack(&changed).responses), SILENCE);
    let routes = only(client.resume(RouteConfiguration, &["r"], &[("r", "old")]).responses);
    assert_eq!(told(&client.wait(TIME_TO_REJOIN)), SILENCE, "they are not answered yet");
    assert_eq!(told(&client.ack(&routes).responses), ["CDS -gone"]);
    // And without any route, once it had the time to name them.
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1"));
    client.resume(Cluster, &[], &had);
    assert_eq!(told(&client.wait(TIME_TO_REJOIN)), ["CDS -gone"]);
    assert!(TIME_TO_REJOIN < PATIENCE_TO_BREAK);
}

#[test]
fn case_30_what_is_gone_goes_at_once_when_all_that_may_use_it_is_known() {
    let made = |clusters: &str| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, "r=1")].concat());
    let versions = |kind: ResourceType| {
        let offer = made("a=1 gone=1").offer(kind);
        let each = offer.set().resources.iter().map(|it| (it.name.clone(), it.version.to_string()));
        each.collect::<Vec<_>>()
    };
    let resume = |client: &mut Client, kind, names: &[&str]| {
        let had = versions(kind);
        let had: Vec<_> = had.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        client.resume(kind, names, &had).responses
    };
    // It used clusters and nothing else.
    let before = Client::served(Incremental, &made("a=1 gone=1"), &[(Cluster, &[])]);
    let mut client = Client::of(Incremental, 2, before.session.memory().clone());
    client.publish(&made("a=1"));
    assert_eq!(told(&resume(&mut client, Cluster, &[])), ["CDS -gone"]);
    // It used routes, too, and is waited for until it has named them.
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (RouteConfiguration, &["r"])];
    let before = Client::served(Incremental, &made("a=1 gone=1"), &wanted);
    let mut client = Client::of(Incremental, 2, before.session.memory().clone());
    client.publish(&made("a=1"));
    assert_eq!(told(&resume(&mut client, Cluster, &[])), SILENCE);
    assert!(client.session.deadline().is_some(), "it is not waited for in vain");
    assert_eq!(told(&resume(&mut client, RouteConfiguration, &["r"])), ["CDS -gone"]);
    // Nothing is known of it, but it has named all that could use a cluster.
    let mut client = Client::new(Incremental);
    client.publish(&made("a=1"));
    assert_eq!(told(&resume(&mut client, Cluster, &[])), SILENCE);
    let users = [ResourceType::ExtensionConfig, Listener, RouteConfiguration, ResourceType::VirtualHost];
    let mut said = Vec::new();
    for kind in users {
        for response in client.subscribe(kind, &["x"]) {
            said.extend(told(&client.ack(&response).responses));
        }
    }
    assert_eq!(said, ["CDS -gone"]);
}

#[test]
fn case_31_versions_depend_on_content_alone() {
    let versions = |stream| {
        let snapshot = Offers::of(std::sync::Arc::new(postern_fixtures::snapshot(SITE)));
        let mut client = Client::of(Incremental, stream, postern_deliver::xds::session::Memory::default());
        client.publish(&snapshot);
        let responses = ResourceType::ALL.into_iter().flat_map(|kind| client.subscribe(kind, &["*"]));
        let contents: Vec<_> = responses.map(|response| response.content).collect();
        let resources = contents.iter().flat_map(|content| content.resources.iter());
        let each: Vec<_> = resources.map(|it| (it.name.clone(), it.version.to_string())).collect();
        (each, contents.iter().map(|content| content.version.to_string()).collect::<Vec<_>>())
    };
    let (first, second) = (versions(1), versions(2));
    assert_eq!(first, second);
    assert!(first.0.len() >= 5, "{first:?}");
}

#[test]
fn a_stream_says_when_its_client_runs_a_whole_revision() {
    let made = |cluster: &str| snapshot(&[all(Cluster, cluster), all(Endpoints, "a=1")].concat());
    let mut client = Client::new(Incremental);
    client.publish(&made("a=1"));
    let settled = |events: &[Event]| {
        events
            .iter()
            .filter(|event| matches!(event, Event::Settled { .. } | Event::Unsettled))
            .cloned()
            .collect::<Vec<_>>()
    };
    let response = only(client.subscribe(Cluster, &[]));
    let revision = made("a=1").revision().clone();
    assert_eq!(settled(&client.ack(&response).events), [Event::Settled { revision: revision.clone() }]);
    // Another type of the same revision is asked for: it is not there yet.
    let reaction = client.resume(Endpoints, &["a"], &[]);
    assert_eq!(settled(&reaction.events), [Event::Unsettled]);
    assert_eq!(settled(&client.ack(&reaction.responses[0]).events), [Event::Settled { revision }]);
    // A refusal does not settle.
    let changed = client.publish(&made("a=2"));
    assert!(settled(&client.nack(&changed[0], "no").events).is_empty());
}

#[test]
fn a_revision_that_does_not_touch_a_client_is_settled_without_a_word() {
    let mut client = Client::served(Incremental, &clusters("a=1"), &[(Cluster, &[])]);
    let next = postern_base::digest::Digest::of(b"next");
    let reaction = client.session.on_snapshot(next.clone(), clusters("a=1"), client.now);
    assert_eq!(told(&reaction.responses), SILENCE);
    assert_eq!(reaction.events, [Event::Settled { revision: next }]);
}
