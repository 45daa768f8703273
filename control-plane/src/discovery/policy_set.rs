//! What is discovered: the policies of a revision, and the version that stands for exactly these.

use postern_proto::discovery::v1::Policy;
use prost::{Message, bytes::Bytes};

use serde::Serialize;

use crate::{attach::Scope, digest::Digest, gate::AdmittedPlan, model::Resource};

/// All policies in force. Immutable; streams share it.
#[derive(Debug)]
pub struct PolicySet {
    version: Digest,
    policies: Vec<Policy>,
    plan: Bytes,
}

impl PolicySet {
    /// The policies that concern a group of nodes, and the plan that was made of them.
    pub fn of(scope: &Scope<'_>, plan: &AdmittedPlan) -> Self {
        let chains = scope.route_policies.iter().map(|resource| policy("RoutePolicy", resource));
        let permissions = scope.traffic_permissions.iter().map(|resource| policy("TrafficPermission", resource));
        Self::new(chains.chain(permissions).collect(), Bytes::copy_from_slice(plan.bytes()))
    }

    /// Any policies and an encoded plan. The order of the policies does not matter.
    pub fn new(mut policies: Vec<Policy>, plan: Bytes) -> Self {
        policies.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
        let encoded: Vec<_> = policies.iter().map(Message::encode_to_vec).collect();
        let names = policies.iter().map(|policy| policy.name.as_bytes());
        let parts = names.zip(&encoded).flat_map(|(name, policy)| [name, policy]).chain([plan.as_ref()]);
        Self { version: Digest::of_parts(parts), policies, plan }
    }

    /// The digest over names and contents, sorted by name.
    pub fn version(&self) -> &Digest {
        &self.version
    }

    /// The policies, sorted by kind and name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The same compiled.
    pub fn plan(&self) -> &Bytes {
        &self.plan
    }
}

fn policy<T: Serialize>(kind: &str, resource: &Resource<T>) -> Policy {
    // The same was written for the resource's digest, without which there is no plan.
    let spec = serde_json::to_string(&resource.spec).unwrap_or_default();
    Policy { name: resource.name.clone(), kind: kind.to_owned(), spec }
}
