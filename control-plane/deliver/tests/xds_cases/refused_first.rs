//! A node without any resources gets some: cases 13 and 43.

use std::sync::Arc;

use postern_compile::snapshot::ResourceType::{
    self, Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration,
};
use postern_deliver::xds::{Offers, content::Variant, session::Memory};

use crate::client::{BOTH, Client, SILENCE, all, clusters, only, outcomes, snapshot, told};

/// The memory of a node that refused its very first set with this message.
fn after_refusing(variant: Variant, first: &Arc<Offers>, kind: ResourceType, names: &[&str], words: &str) -> Memory {
    let mut client = Client::new(variant);
    client.publish(first);
    let refused = only(client.subscribe(kind, names));
    let again = client.nack(&refused, words).responses;
    assert!(again.iter().all(|response| response.content.version != refused.content.version), "{:?}", told(&again));
    client.session.memory().clone()
}

/// Every pair of variants: of the stream with the refusal, and of the next one.
fn pairs() -> impl Iterator<Item = (Variant, Variant)> {
    BOTH.into_iter().flat_map(|before| BOTH.map(|after| (before, after)))
}

#[test]
fn case_43_a_node_that_refused_one_of_its_first_clusters_gets_the_others_on_its_next_stream() {
    for (before, after) in pairs() {
        let memory = after_refusing(before, &clusters("bad=1 good=1"), Cluster, &[], "cluster(s) bad: no");
        let mut next = Client::of(after, 2, memory);
        next.publish(&clusters("bad=1 good=1"));
        let response = only(next.subscribe(Cluster, &[]));
        assert_eq!(told(std::slice::from_ref(&response)), ["CDS good=1"], "{before:?} {after:?}");
        let acked = next.ack(&response);
        assert_eq!((told(&acked.responses), outcomes(&acked)), (vec![], vec!["restored"]));
        // Another name is asked for, or another resource changes: the refused one stays away until it changes itself.
        let changed = next.publish(&clusters("bad=1 good=2"));
        assert_eq!(told(&changed), ["CDS good=2"], "{before:?} {after:?}");
        next.accept_all(changed);
        let mended = next.publish(&clusters("bad=2 good=2"));
        let expect = if after == Variant::Incremental { "CDS bad=2" } else { "CDS bad=2 good=2" };
        assert_eq!(told(&mended), [expect], "{before:?} {after:?}");
        assert_eq!(outcomes(&next.ack(&mended[0])), ["acked"]);
    }
}

#[test]
fn case_43_a_node_that_refused_all_of_its_first_set_gets_it_once_more_on_its_next_stream() {
    for (before, after) in pairs() {
        for kind in [Cluster, Endpoints, Listener, RouteConfiguration] {
            let first = snapshot(&all(kind, "a=1 b=1"));
            for words in ["no", "a and b are wrong"] {
                let memory = after_refusing(before, &first, kind, &["a", "b"], words);
                let mut next = Client::of(after, 2, memory.clone());
                next.publish(&first);
                let response = only(next.subscribe(kind, &["a", "b"]));
                assert_eq!(told(std::slice::from_ref(&response)), [format!("{kind} a=1 b=1")], "{before:?} {after:?}");
                // Refused again, it is not sent again on this stream.
                assert_eq!(told(&next.nack(&response, words).responses), SILENCE);
                assert_eq!(told(&next.publish(&first)), SILENCE);
                // Accepted, it is accepted.
                let mut last = Client::of(after, 3, memory);
                last.publish(&first);
                let response = only(last.subscribe(kind, &["a", "b"]));
                let acked = last.ack(&response);
                assert_eq!((told(&acked.responses), outcomes(&acked)), (vec![], vec!["acked"]), "{after:?} {kind}");
                assert_eq!(told(&last.publish(&first)), SILENCE);
            }
        }
    }
}

#[test]
fn case_43_a_node_that_had_accepted_a_set_gets_that_on_its_next_stream() {
    for (before, after) in pairs() {
        let mut client = Client::served(before, &clusters("a=1 b=1"), &[(Cluster, &[])]);
        let refused = only(client.publish(&clusters("a=2 b=2")));
        client.nack(&refused, "no");
        let mut next = Client::of(after, 2, client.session.memory().clone());
        next.publish(&clusters("a=2 b=2"));
        assert_eq!(told(&next.subscribe(Cluster, &[])), ["CDS a=1 b=1"], "{before:?} {after:?}");
    }
}

#[test]
fn case_43_a_set_too_large_to_blame_its_resources_is_refused_as_a_whole() {
    let of = |version: &str| {
        let text: Vec<_> = (0..100).map(|number| format!("c{number:03}={version}")).collect();
        clusters(&text.join(" "))
    };
    for (before, after) in pairs() {
        let mut client = Client::served(before, &of("1"), &[(Cluster, &[])]);
        let refused = only(client.publish(&of("2")));
        client.nack(&refused, "no");
        let mut next = Client::of(after, 2, client.session.memory().clone());
        next.publish(&of("2"));
        let response = only(next.subscribe(Cluster, &[]));
        assert_eq!(response.content.version, *of("1").offer(Cluster).version(), "{before:?} {after:?}");
        // Without a last good one, there is nothing else to give.
        let memory = after_refusing(before, &of("2"), Cluster, &[], "no");
        let mut next = Client::of(after, 2, memory);
        next.publish(&of("2"));
        let response = only(next.subscribe(Cluster, &[]));
        assert_eq!(response.content.version, *of("2").offer(Cluster).version(), "{before:?} {after:?}");
    }
}

#[test]
fn case_33_a_refused_extension_configuration_is_not_sent_to_a_node_that_comes_with_nothing() {
    for (before, after) in pairs() {
        let first = snapshot(&all(ExtensionConfig, "x=1 y=1"));
        let memory = after_refusing(before, &first, ExtensionConfig, &["x", "y"], "Unable to create Wasm plugin x");
        let mut next = Client::of(after, 2, memory);
        next.publish(&first);
        assert_eq!(told(&next.subscribe(ExtensionConfig, &["x", "y"])), ["ECDS y=1"], "{before:?} {after:?}");
        assert_eq!(told(&next.request(ExtensionConfig, "", None, &["x"])), SILENCE, "{before:?} {after:?}");
    }
}
