//! Targets that no node matches yet: resources may come before their nodes, before the services that call, and, in a
//! mesh without declared routes, before the routes. They are findings until a matching node has connected.

use std::collections::BTreeMap;

use postern_base::{diagnostic::quote, node::NodeIdentity};
use postern_model::{Bundle, Diagnostic, Resource, TargetRef, Targeted};

use super::references::DeclaredNames;
use crate::lint::Finding;

/// The code of the finding.
const CODE: &str = "no-node-yet";

/// The targets that nodes may match, by mesh, each with the positions that name it.
#[derive(Debug, Default)]
pub struct Waiting(BTreeMap<(String, Awaited), Vec<Diagnostic>>);

/// The nodes that a target waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// Nodes that the target selects.
    Nodes(TargetRef),
    /// Any node of the mesh, since it may have this route.
    Route(String),
    /// Nodes of this service, which calls others.
    Source(String),
}

impl Waiting {
    /// All targets of a bundle, except those that are `optional`.
    pub fn of(bundle: &Bundle) -> Self {
        let known = DeclaredNames::of(bundle);
        let mut waiting = Self::default();
        for policy in &bundle.route_policies {
            waiting.target(policy, &known);
            waiting.sources(policy, policy.spec.from.iter().map(|entry| &entry.target_ref), &known);
        }
        for permission in &bundle.traffic_permissions {
            waiting.target(permission, &known);
            waiting.sources(permission, permission.spec.from.iter().map(|entry| &entry.target_ref), &known);
        }
        bundle.timeouts.iter().for_each(|timeout| waiting.target(timeout, &known));
        bundle.circuit_breakers.iter().for_each(|breaker| waiting.target(breaker, &known));
        bundle.retries.iter().for_each(|retry| waiting.target(retry, &known));
        bundle.health_checks.iter().for_each(|check| waiting.target(check, &known));
        bundle.virtual_outbounds.iter().for_each(|outbound| waiting.target(outbound, &known));
        bundle.tracings.iter().for_each(|tracing| waiting.target(tracing, &known));
        for log in &bundle.access_logs {
            waiting.target(log, &known);
            waiting.sources(log, log.spec.from.iter().map(|entry| &entry.target_ref), &known);
        }
        for gateway in &bundle.gateways {
            waiting.nodes(gateway, gateway.spec.target_ref.as_ref());
        }
        for raw in &bundle.envoy_resources {
            waiting.nodes(raw, raw.spec.target_ref.as_ref());
        }
        waiting
    }

    /// A finding for each target that none of these nodes matches.
    pub fn findings(&self, nodes: &[NodeIdentity]) -> Vec<Finding> {
        let unmatched = self
            .0
            .iter()
            .filter(|((mesh, awaited), _)| !nodes.iter().any(|node| node.mesh == *mesh && awaited.is_met_by(node)));
        let all = unmatched.flat_map(|((mesh, awaited), places)| {
            let message = awaited.message(mesh);
            // Only once for a whole mesh, however many resources target it.
            let most = if *awaited == Awaited::Nodes(TargetRef::Mesh) { 1 } else { places.len() };
            places.iter().take(most).map(move |place| Diagnostic { message: message.clone(), ..place.clone() })
        });
        all.map(|at| Finding { at, code: CODE }).collect()
    }

    fn target<T: Targeted>(&mut self, resource: &Resource<T>, known: &DeclaredNames<'_>) {
        let target = resource.spec.target_ref();
        match target.route() {
            None => self.nodes(resource, Some(target)),
            Some(route) if !target.is_optional() && !known.knows_of(resource.mesh(), route) => {
                self.add(resource, "spec.targetRef.name", Awaited::Route(route.to_owned()));
            }
            Some(_) => {}
        }
    }

    fn nodes<T>(&mut self, resource: &Resource<T>, target: Option<&TargetRef>) {
        if let Some(target) = target.filter(|target| !target.is_optional()) {
            self.add(resource, "spec.targetRef", Awaited::Nodes(target.clone()));
        }
    }

    fn sources<'t, T>(
        &mut self,
        resource: &Resource<T>,
        from: impl IntoIterator<Item = &'t TargetRef>,
        known: &DeclaredNames<'_>,
    ) {
        for (index, target) in from.into_iter().enumerate().filter(|(_, target)| !target.is_optional()) {
            if let Some(service) = target.service().filter(|name| !known.has_service(resource.mesh(), name)) {
                let field = format!("spec.from[{index}].targetRef.name");
                self.add(resource, &field, Awaited::Source(service.to_owned()));
            }
        }
    }

    fn add<T>(&mut self, resource: &Resource<T>, field: &str, awaited: Awaited) {
        let places = self.0.entry((resource.mesh().to_owned(), awaited)).or_default();
        places.push(resource.diagnose(field, ""));
    }
}

impl Awaited {
    fn is_met_by(&self, node: &NodeIdentity) -> bool {
        match self {
            Self::Nodes(target) => target.selects(node),
            Self::Route(_) => true,
            Self::Source(service) => node.service == *service,
        }
    }

    fn message(&self, mesh: &str) -> String {
        match self {
            Self::Nodes(TargetRef::Mesh) => format!("no node of mesh {} has connected yet", quote(mesh)),
            Self::Nodes(target) => format!("no node of {target} has connected yet"),
            Self::Route(route) => format!(
                "nothing declares route {}, and no node has connected yet that could have it as a route of its own",
                quote(route)
            ),
            Self::Source(service) => {
                format!("there is no Service {0}, and no node of service {0} has connected yet", quote(service))
            }
        }
    }
}
