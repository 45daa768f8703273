//! A set of policies for clients of policy discovery, and its version (docs/rules.md, Policy discovery).

use postern_base::digest::Digest;
use postern_compile::gate::AdmittedPlan;
use postern_model::{Resource, RoutePolicy, TrafficPermission};
use postern_proto::discovery::v1::Policy;
use prost::{Message, bytes::Bytes};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The policies for some clients, with or without their plan. Immutable; streams share it.
#[derive(Debug)]
pub struct PolicySet {
    version: Digest,
    policies: Vec<Policy>,
    plan: Bytes,
}

impl PolicySet {
    /// The policies among these resources, and the plan that was compiled from them.
    pub fn of<'r>(
        route_policies: impl Iterator<Item = &'r Resource<RoutePolicy>>,
        traffic_permissions: impl Iterator<Item = &'r Resource<TrafficPermission>>,
        plan: Option<AdmittedPlan>,
    ) -> Self {
        let chains = route_policies.map(|resource| policy("RoutePolicy", resource));
        let permissions = traffic_permissions.map(|resource| policy("TrafficPermission", resource));
        Self::new(chains.chain(permissions).collect(), plan)
    }

    /// A set of any policies, in any order, and a plan.
    pub fn new(policies: Vec<Policy>, plan: Option<AdmittedPlan>) -> Self {
        Self::encoded(policies, plan.map(|plan| Bytes::copy_from_slice(plan.bytes())))
    }

    /// Like [`Self::new`], with an encoded plan.
    pub fn encoded(mut policies: Vec<Policy>, plan: Option<Bytes>) -> Self {
        policies.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
        let version = version(&policies, plan.as_deref());
        Self { version, policies, plan: plan.unwrap_or_default() }
    }

    /// The digest of the policies, and of the plan if there is one.
    pub fn version(&self) -> &Digest {
        &self.version
    }

    /// The policies, sorted by kind and name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The encoded plan; empty for clients that are not sent it.
    pub fn plan(&self) -> &Bytes {
        &self.plan
    }
}

/// The version, as the protocol defines it: the digest over name and encoding of each policy. A plan can change while
/// no policy does, when keys change, so its digest is appended.
fn version(policies: &[Policy], plan: Option<&[u8]>) -> Digest {
    let encoded: Vec<_> = policies.iter().map(Message::encode_to_vec).collect();
    let names = policies.iter().map(|policy| policy.name.as_bytes());
    let plan = plan.map(Sha256::digest);
    let parts = names.zip(&encoded).flat_map(|(name, policy)| [name, policy]);
    Digest::of_joined(parts.chain(plan.as_ref().map(|digest| digest.as_slice())))
}

fn policy<T: Serialize>(kind: &str, resource: &Resource<T>) -> Policy {
    // This cannot fail: the resource's digest was computed from the same serialization.
    let spec = serde_json::to_string(&resource.spec).unwrap_or_default();
    Policy { name: resource.name.clone(), kind: kind.to_owned(), spec }
}
