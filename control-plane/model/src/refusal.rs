//! What a permissive start serves in place of resources that are invalid: refusals of their targets, and services that
//! nobody reaches. Which resource needs what is not decided here.

use std::sync::Arc;

use postern_base::yaml::parse;
use serde_json::json;

use super::{Bundle, Resource, RoutePolicy, TargetRef, report::Report, resource};

/// A target all of whose requests are refused, because a resource that may guard it is invalid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The mesh.
    pub mesh: String,
    /// The target.
    pub target: TargetRef,
    /// The name of the RoutePolicy that refuses. A number is appended if it is taken.
    pub name: String,
    /// The file of the invalid resource.
    pub file: String,
    /// Its first line there.
    pub line: usize,
}

impl Bundle {
    /// Refuses every request on the routes of a target: they answer `Settings.policyNotSupported`, whatever other
    /// resources say. Returns false, and changes nothing, if the target is not valid.
    #[must_use]
    pub fn refuse(&mut self, refusal: &Refusal) -> bool {
        let taken =
            |name: &str| self.route_policies.iter().any(|policy| policy.mesh == refusal.mesh && policy.name == name);
        let numbered = (2_usize..).map(|number| format!("{}-{number}", refusal.name));
        let name = [refusal.name.clone()].into_iter().chain(numbered).find(|name| !taken(name));
        let Some(policy) = name.and_then(|name| policy(refusal, &name)) else { return false };
        self.route_policies.push(policy);
        self.route_policies.sort_by(Resource::order);
        true
    }

    /// Takes away all endpoints of a service, so that requests to it are answered with 503.
    pub fn withdraw(&mut self, mesh: &str, name: &str) {
        for service in self.services.iter_mut().filter(|service| service.mesh == mesh && service.name == name) {
            *service = service.changed(|spec| spec.endpoints.clear());
        }
    }
}

/// The policy that refuses. Its step is for those who read policies and know no refusals; chains with it run no step.
fn policy(refusal: &Refusal, name: &str) -> Option<Resource<RoutePolicy>> {
    let document = json!({
        "apiVersion": "postern/v1",
        "kind": "RoutePolicy",
        "metadata": { "name": name, "mesh": refusal.mesh },
        "spec": {
            "targetRef": refusal.target,
            "override": true,
            "request": [{ "name": "postern-refusal", "policy": "respond", "params": { "status": 500 } }],
        },
    });
    let document = parse(document.to_string().as_bytes()).documents.into_iter().next()?;
    let file = Arc::from(refusal.file.as_str());
    let policy = resource::read::<RoutePolicy>(&file, &document.root, &mut Report::new(&file, None))?;
    Some(policy.placed(&file, refusal.line.saturating_sub(1)).changed(|spec| spec.refused = true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(target: TargetRef) -> Refusal {
        let (mesh, name, file) = ("default".to_owned(), "users".to_owned(), "a.yaml".to_owned());
        Refusal { mesh, target, name, file, line: 7 }
    }

    #[test]
    fn refuses_a_target_under_a_name_of_its_own_and_at_its_line() {
        let mut bundle = Bundle::default();
        assert!(bundle.refuse(&refusal(TargetRef::Mesh)) && bundle.refuse(&refusal(TargetRef::Mesh)));
        let names: Vec<_> = bundle.route_policies.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(names, ["users", "users-2"]);
        let first = &bundle.route_policies[0];
        assert!(first.spec.refused && first.spec.overrides);
        assert_eq!(first.diagnose("spec.targetRef", "x").line, 7);
    }

    #[test]
    fn has_another_digest_than_the_policy_that_a_user_could_write() {
        let mut bundle = Bundle::default();
        assert!(bundle.refuse(&refusal(TargetRef::Mesh)));
        let written = bundle.route_policies[0].changed(|spec| spec.refused = false);
        assert_ne!(written.digest(), bundle.route_policies[0].digest());
    }

    #[test]
    fn refuses_nothing_for_a_target_that_is_none() {
        let mut bundle = Bundle::default();
        let nameless = TargetRef::HttpRoute { name: String::new(), optional: false };
        assert!(!bundle.refuse(&refusal(nameless)) && bundle.is_empty());
    }

    #[test]
    fn is_nothing_that_a_document_can_say() {
        let text = "{apiVersion: postern/v1, kind: RoutePolicy, metadata: {name: a}, spec: {targetRef: {kind: Mesh}, \
                    refused: true, request: [{policy: requestId}]}}";
        let errors = crate::read(&[crate::File { name: "f".to_owned(), bytes: text.into() }]).unwrap_err().to_string();
        assert!(errors.contains("unknown field `refused`"), "{errors}");
    }
}
