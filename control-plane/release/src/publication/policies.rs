//! The policies that clients of policy discovery get. Compiled when the first client asks, and shared by all clients
//! that get the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use postern_base::node::{DEFAULT_MESH, NodeIdentity};
use postern_compile::attach::{Scope, Signature};
use postern_model::Resource;

use super::{Content, Groups, PolicySet, Publication, compiled::MOST_GROUPS, lock};

/// The client that policies are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// A client that does not identify itself.
    Anyone,
    /// A client that identifies itself.
    Identified {
        /// Its identity.
        node: Arc<NodeIdentity>,
        /// Whether it is sent the plan.
        plan: bool,
    },
}

impl Audience {
    /// The client's identity, if it has one.
    pub fn node(&self) -> Option<&Arc<NodeIdentity>> {
        match self {
            Self::Anyone => None,
            Self::Identified { node, .. } => Some(node),
        }
    }

    /// Whether it is sent the plan.
    pub fn wants_plan(&self) -> bool {
        matches!(self, Self::Identified { plan: true, .. })
    }
}

/// The sets made so far: under `None` the one for anonymous clients, else by group and by whether the plan is included.
pub(super) type PolicySets = Mutex<HashMap<Option<(Signature, bool)>, Arc<PolicySet>>>;

impl Publication {
    /// The release for a client. An anonymous client gets what a node with the default identity gets.
    pub fn release_for_client(&self, client: &Audience) -> &Self {
        match client {
            Audience::Anyone => self.release_for(&NodeIdentity::default()),
            Audience::Identified { node, .. } => self.release_for(node),
        }
    }

    /// The policies that concern a client, with their plan if it wants one; for an anonymous client, all policies of
    /// the default mesh. This may compile, unless [`Self::has_policies_for`] the client.
    pub fn policies_for(&self, client: &Audience) -> Arc<PolicySet> {
        let release = self.release_for_client(client);
        match &release.content {
            Content::Grouped(groups) => groups.policies_for(client),
            // The resources that it was compiled from are not known here.
            Content::Uniform(_) | Content::Split(_) => {
                let plan = client.node().filter(|_| client.wants_plan()).map(|node| release.snapshot_for(node));
                Arc::new(PolicySet::new(Vec::new(), plan.map(|snapshot| snapshot.plan().clone())))
            }
        }
    }

    /// Whether the policies for a client are compiled already.
    pub fn has_policies_for(&self, client: &Audience) -> bool {
        match &self.release_for_client(client).content {
            Content::Grouped(groups) => lock(&groups.policies).contains_key(&groups.policy_key(client)),
            Content::Uniform(_) | Content::Split(_) => false,
        }
    }
}

impl Groups {
    fn policy_key(&self, client: &Audience) -> Option<(Signature, bool)> {
        client.node().map(|node| (self.kinship.signature(node), client.wants_plan()))
    }

    fn policies_for(&self, client: &Audience) -> Arc<PolicySet> {
        let key = self.policy_key(client);
        if let Some(set) = lock(&self.policies).get(&key) {
            return Arc::clone(set);
        }
        let made = Arc::new(self.make_policies(client));
        let mut sets = lock(&self.policies);
        if sets.len() >= MOST_GROUPS {
            sets.clear();
        }
        Arc::clone(sets.entry(key).or_insert(made))
    }

    fn make_policies(&self, client: &Audience) -> PolicySet {
        let Audience::Identified { node, plan } = client else {
            let chains = of_default_mesh(&self.bundle.route_policies);
            return PolicySet::of(chains, of_default_mesh(&self.bundle.traffic_permissions), None);
        };
        let scope = Scope::of(&self.bundle, node);
        let plan = plan.then(|| self.snapshot_for(node).plan().clone());
        PolicySet::of(scope.route_policies.iter().copied(), scope.traffic_permissions.iter().copied(), plan)
    }
}

fn of_default_mesh<T>(resources: &[Resource<T>]) -> impl Iterator<Item = &Resource<T>> {
    resources.iter().filter(|resource| resource.mesh() == DEFAULT_MESH)
}
