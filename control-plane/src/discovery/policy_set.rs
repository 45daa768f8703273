//! What is discovered: the policies of a revision, and the version that stands for exactly these.

use std::sync::OnceLock;

use postern_proto::discovery::v1::Policy;
use prost::{Message, bytes::Bytes};
use serde::Serialize;

use crate::{
    attach::Scope,
    digest::Digest,
    gate::{self, AdmittedPlan},
    model::{Resource, RoutePolicy, TrafficPermission},
};

/// All policies in force. Immutable; streams share it. What clients get of it is made when the first one asks.
#[derive(Debug)]
pub struct PolicySet {
    source: Source,
    made: OnceLock<Made>,
}

/// What the policies are made of.
#[derive(Debug)]
struct Source {
    chains: Vec<Resource<RoutePolicy>>,
    permissions: Vec<Resource<TrafficPermission>>,
    plan: AdmittedPlan,
}

#[derive(Debug)]
struct Made {
    version: Digest,
    policies: Vec<Policy>,
    plan: Bytes,
}

impl PolicySet {
    /// The policies that concern a group of nodes, and the plan that was made of them.
    pub fn of(scope: &Scope<'_>, plan: &AdmittedPlan) -> Self {
        fn all<T>(resources: &[&Resource<T>]) -> Vec<Resource<T>> {
            resources.iter().copied().cloned().collect()
        }
        let (chains, permissions) = (all(&scope.route_policies), all(&scope.traffic_permissions));
        Self { source: Source { chains, permissions, plan: plan.clone() }, made: OnceLock::new() }
    }

    /// Any policies and an encoded plan. The order of the policies does not matter.
    pub fn new(policies: Vec<Policy>, plan: Bytes) -> Self {
        let source = Source { chains: Vec::new(), permissions: Vec::new(), plan: gate::refusal() };
        Self { source, made: OnceLock::from(Made::new(policies, plan)) }
    }

    /// The digest over names and contents, sorted by name.
    pub fn version(&self) -> &Digest {
        &self.made().version
    }

    /// The policies, sorted by kind and name.
    pub fn policies(&self) -> &[Policy] {
        &self.made().policies
    }

    /// The same compiled.
    pub fn plan(&self) -> &Bytes {
        &self.made().plan
    }

    fn made(&self) -> &Made {
        self.made.get_or_init(|| {
            let Source { chains, permissions, plan } = &self.source;
            let chains = chains.iter().map(|resource| policy("RoutePolicy", resource));
            let permissions = permissions.iter().map(|resource| policy("TrafficPermission", resource));
            Made::new(chains.chain(permissions).collect(), Bytes::copy_from_slice(plan.bytes()))
        })
    }
}

impl Made {
    fn new(mut policies: Vec<Policy>, plan: Bytes) -> Self {
        policies.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
        let encoded: Vec<_> = policies.iter().map(Message::encode_to_vec).collect();
        let names = policies.iter().map(|policy| policy.name.as_bytes());
        let parts = names.zip(&encoded).flat_map(|(name, policy)| [name, policy]).chain([plan.as_ref()]);
        Self { version: Digest::of_parts(parts), policies, plan }
    }
}

fn policy<T: Serialize>(kind: &str, resource: &Resource<T>) -> Policy {
    // The same was written for the resource's digest, without which there is no plan.
    let spec = serde_json::to_string(&resource.spec).unwrap_or_default();
    Policy { name: resource.name.clone(), kind: kind.to_owned(), spec }
}
