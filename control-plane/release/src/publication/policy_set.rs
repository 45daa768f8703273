//! What is discovered: the policies that a client is to have, and the version that stands for exactly these.

use postern_base::digest::Digest;
use postern_compile::gate::AdmittedPlan;
use postern_model::{Resource, RoutePolicy, TrafficPermission};
use postern_proto::discovery::v1::Policy;
use prost::{Message, bytes::Bytes};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The policies that some clients are to have, with or without their plan. Immutable; streams share it.
#[derive(Debug)]
pub struct PolicySet {
    version: Digest,
    policies: Vec<Policy>,
    plan: Bytes,
}

impl PolicySet {
    /// These resources, and the plan that was made of them.
    pub fn of<'r>(
        route_policies: impl Iterator<Item = &'r Resource<RoutePolicy>>,
        traffic_permissions: impl Iterator<Item = &'r Resource<TrafficPermission>>,
        plan: Option<AdmittedPlan>,
    ) -> Self {
        let chains = route_policies.map(|resource| policy("RoutePolicy", resource));
        let permissions = traffic_permissions.map(|resource| policy("TrafficPermission", resource));
        Self::new(chains.chain(permissions).collect(), plan)
    }

    /// Any policies, in any order, and a plan.
    pub fn new(policies: Vec<Policy>, plan: Option<AdmittedPlan>) -> Self {
        Self::encoded(policies, plan.map(|plan| Bytes::copy_from_slice(plan.bytes())))
    }

    /// The same with a plan as it is sent.
    pub fn encoded(mut policies: Vec<Policy>, plan: Option<Bytes>) -> Self {
        policies.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
        let version = version(&policies, plan.as_deref());
        Self { version, policies, plan: plan.unwrap_or_default() }
    }

    /// The digest over the policies, and over the plan if there is one.
    pub fn version(&self) -> &Digest {
        &self.version
    }

    /// The policies, sorted by kind and name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The same compiled; empty if it is for clients that are not sent it.
    pub fn plan(&self) -> &Bytes {
        &self.plan
    }
}

/// As the protocol computes it: name and encoding of each policy, one after the other. A plan changes with keys that no
/// policy shows, so that its digest comes behind them.
fn version(policies: &[Policy], plan: Option<&[u8]>) -> Digest {
    let encoded: Vec<_> = policies.iter().map(Message::encode_to_vec).collect();
    let names = policies.iter().map(|policy| policy.name.as_bytes());
    let plan = plan.map(Sha256::digest);
    let parts = names.zip(&encoded).flat_map(|(name, policy)| [name, policy]);
    Digest::of_joined(parts.chain(plan.as_ref().map(|digest| digest.as_slice())))
}

fn policy<T: Serialize>(kind: &str, resource: &Resource<T>) -> Policy {
    // The same was written for the resource's digest, without which there is no plan.
    let spec = serde_json::to_string(&resource.spec).unwrap_or_default();
    Policy { name: resource.name.clone(), kind: kind.to_owned(), spec }
}
