//! Policies with any parameters: every one of the closed set, one function each.

mod bodies;
mod credentials;
mod edges;
mod records;
mod scope;
mod sources;

use postern_proto::plan::v1::step::Policy;

pub(super) use self::scope::Scope;
use crate::Script;

/// Makes one policy.
type Maker = fn(&mut Script<'_>, Scope) -> Policy;

/// One for each policy that a plan can have; a test looks whether one is missing.
const MAKERS: [Maker; 21] = [
    credentials::api_key_auth,
    credentials::basic_auth,
    credentials::hmac_auth,
    credentials::jwt_validation,
    credentials::role_check,
    sources::agent,
    sources::ip_filter,
    sources::rate_limit,
    sources::traffic_permission,
    bodies::json_schema,
    bodies::request_size,
    bodies::respond,
    bodies::validate,
    edges::cors,
    edges::csrf,
    edges::fault_injection,
    edges::headers,
    edges::request_id,
    edges::rewrite,
    edges::security_headers,
    records::audit_log,
];

/// Any policy. It may or may not load.
pub(super) fn scripted(script: &mut Script<'_>, scope: Scope) -> Policy {
    let make = script.pick(&MAKERS, credentials::api_key_auth);
    make(script, scope)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, mem::discriminant};

    use postern_proto::plan::v1 as wire;
    use prost::Message as _;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Every policy that the format has: the fields of a step that are one.
    fn all() -> Vec<Policy> {
        let empty_message = |field: u32| {
            let mut bytes = Vec::new();
            prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, &mut bytes);
            bytes.push(0);
            bytes
        };
        let steps = (1..1000).filter_map(|field| wire::Step::decode(empty_message(field).as_slice()).ok());
        steps.filter_map(|step| step.policy).collect()
    }

    #[test]
    fn makes_every_policy_that_a_plan_can_have() {
        let scope = Scope { strings: 9, expressions: 3 };
        let script = [7; 400];
        let made: HashSet<_> =
            MAKERS.iter().map(|make| discriminant(&make(&mut Script::new(&script), scope))).collect();
        let missing: Vec<_> = all().into_iter().filter(|policy| !made.contains(&discriminant(policy))).collect();
        assert!(missing.is_empty(), "the generator never makes {missing:?}");
        assert_eq!((made.len(), all().len()), (MAKERS.len(), MAKERS.len()));
    }

    /// Whether one of these policies loads, in a request or a response.
    fn loads(make: Maker, seed: u32) -> bool {
        let plan = crate::plans::whole();
        let scope = Scope { strings: plan.strings.len(), expressions: plan.expressions.len() };
        let block = |number: u32| Sha256::digest([seed, number].map(u32::to_le_bytes).concat());
        let script: Vec<u8> = (0..16).flat_map(block).collect();
        let policy = Some(make(&mut Script::new(&script), scope));
        let steps = Some(wire::Steps { steps: vec![wire::Step { policy, ..Default::default() }], unsupported: vec![] });
        let request = wire::Chain { request: steps.clone(), ..Default::default() };
        let response = wire::Chain { response: steps, ..Default::default() };
        [request, response].into_iter().any(|chain| {
            let plan = wire::Plan { chains: vec![chain], routes: vec![], ..plan.clone() };
            postern_engine::Plan::load(&plan.encode_to_vec()).is_ok()
        })
    }

    #[test]
    fn makes_some_of_each_policy_that_load() {
        let counts: Vec<_> = MAKERS.iter().map(|make| (0..300).filter(|seed| loads(*make, *seed)).count()).collect();
        assert!(counts.iter().all(|count| *count > 0), "of 300 each, so many load: {counts:?}");
    }

    #[test]
    fn has_every_policy_in_the_whole_plan() {
        let plan = crate::plans::whole();
        let chains = plan.chains.iter().flat_map(|chain| chain.request.iter().chain(&chain.response));
        let policies = chains.flat_map(|steps| &steps.steps).filter_map(|step| step.policy.as_ref());
        let there: HashSet<_> = policies.map(discriminant).collect();
        let missing: Vec<_> = all().into_iter().filter(|policy| !there.contains(&discriminant(policy))).collect();
        assert!(missing.is_empty(), "the whole plan has no {missing:?}");
    }
}
