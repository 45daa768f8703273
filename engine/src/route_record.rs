//! Which chain ran for which route, in a form that a later filter of the same request can compare.
//!
//! Envoy chooses the route again after a header was edited, by us or by another filter. A filter directly before the
//! router sees the final choice; the record tells it which route the chain was chosen for.

use crate::plan::Plan;

/// The property in which a host keeps the record of a request. It is in the filter state, which no caller can set.
pub const RECORD_PROPERTY: &str = "postern_route";

/// The separator of the parts. Neither a chain's number nor a plan's label contains it; a route's name may, and is
/// last.
const SEPARATOR: u8 = b'\n';

/// The record of a request on this route: the chain's index in the plan (empty for none), the plan's label, the route.
pub fn record(plan: &Plan, route: &[u8]) -> Vec<u8> {
    let chain = plan.chain_of(route).map(|chain| chain.to_string()).unwrap_or_default();
    [chain.as_bytes(), plan.label().as_bytes(), route].join(&SEPARATOR)
}

/// Whether the chain that ran is the chain of the route that Envoy takes now. Without a record no chain ran.
///
/// Two routes with the same chain agree, unless its steps read which route it is. Equal routes always agree, since the
/// plan may have been updated in between.
pub fn agrees(plan: &Plan, route: &[u8], record: Option<&[u8]>) -> bool {
    let due = plan.chain_of(route);
    let Some(record) = record else { return due.is_none() };
    let mut parts = record.splitn(3, |byte| *byte == SEPARATOR);
    let (Some(chain), Some(label), Some(recorded)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if recorded == route {
        return true;
    }
    match due {
        None => chain.is_empty(),
        Some(due) => {
            let same = chain == due.to_string().as_bytes() && label == plan.label().as_bytes();
            same && plan.chain(due).is_some_and(|chain| !chain.depends_on_route())
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_proto::plan::v1::{
        self as wire, FORMAT,
        expression::{Attribute, Node, node},
        step::Policy,
    };
    use prost::Message as _;

    use super::*;

    /// Routes `a` and `b` share a chain, `c` has one of its own, and no other route has any.
    fn plan(label: &str) -> Plan {
        let strings = ["a", "b", "c"].map(str::to_owned).to_vec();
        let routes = [(0, 0), (1, 0), (2, 1)].map(|(name, chain)| wire::Route { name, chain }).to_vec();
        let chains = vec![wire::Chain::default(), wire::Chain { shadow: true, ..Default::default() }];
        let label = label.to_owned();
        let plan = wire::Plan { format: FORMAT, label, strings, chains, routes, ..Default::default() };
        Plan::load(&plan.encode_to_vec()).unwrap()
    }

    fn check(ran: Option<&str>, takes: &str, expect: bool) {
        let ran = ran.map(|route| record(&plan("1"), route.as_bytes()));
        assert_eq!(agrees(&plan("1"), takes.as_bytes(), ran.as_deref()), expect);
    }

    #[test]
    fn the_same_route_agrees() {
        check(Some("a"), "a", true);
        check(Some("open"), "open", true);
        check(Some(""), "", true);
    }

    #[test]
    fn another_route_with_the_same_chain_agrees() {
        check(Some("a"), "b", true);
        check(Some("open"), "also-open", true);
    }

    #[test]
    fn another_route_with_a_chain_that_reads_the_route_does_not_agree() {
        let reads = |attribute: Attribute, wanted: bool| {
            let node = Node { kind: Some(node::Kind::HasAttribute(attribute.into())), column: 1 };
            let policy = Some(Policy::Headers(wire::Headers::default()));
            let steps = vec![wire::Step { when: 1, policy, ..Default::default() }];
            let plan = wire::Plan {
                format: FORMAT,
                strings: vec!["a".to_owned(), "b".to_owned()],
                routes: [0, 1].map(|name| wire::Route { name, chain: 0 }).to_vec(),
                expressions: vec![wire::Expression { nodes: vec![node] }],
                chains: vec![wire::Chain {
                    request: Some(wire::Steps { steps, ..Default::default() }),
                    ..Default::default()
                }],
                ..Default::default()
            };
            let plan = Plan::load(&plan.encode_to_vec()).unwrap();
            assert_eq!(agrees(&plan, b"b", Some(&record(&plan, b"a"))), wanted, "{attribute:?}");
            assert!(agrees(&plan, b"a", Some(&record(&plan, b"a"))), "{attribute:?}");
        };
        reads(Attribute::XdsRouteName, false);
        reads(Attribute::XdsClusterName, false);
        reads(Attribute::XdsVirtualHostName, false);
        reads(Attribute::RequestMethod, true);
    }

    #[test]
    fn another_route_with_another_chain_does_not_agree() {
        check(Some("a"), "c", false);
        check(Some("open"), "a", false);
        check(Some("a"), "open", false);
        check(Some(""), "a", false);
    }

    #[test]
    fn a_request_without_a_record_agrees_only_with_a_route_without_a_chain() {
        check(None, "a", false);
        check(None, "open", true);
    }

    #[test]
    fn a_record_of_another_plan_agrees_only_for_its_own_route() {
        let of = |route: &str| record(&plan("2"), route.as_bytes());
        assert!(agrees(&plan("1"), b"a", Some(&of("a"))));
        assert!(!agrees(&plan("1"), b"b", Some(&of("a"))));
        assert!(agrees(&plan("1"), b"open", Some(&of("also-open"))));
    }

    #[test]
    fn a_name_cannot_pass_for_another_part() {
        check(Some("0\n1\nb"), "a", false);
        check(Some("x\n\n"), "x\n\n", true);
        assert!(!agrees(&plan("1"), b"a", Some(b"")));
        assert!(!agrees(&plan("1"), b"a", Some(b"0\n1")));
    }
}
