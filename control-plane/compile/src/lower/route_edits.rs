//! Refuses chains that edit a header on which routes match. Envoy chooses the route again after an edit, so such a
//! chain could lead a request past the chain of its new route.

use std::collections::{BTreeMap, BTreeSet};

use postern_base::diagnostic::quote;
use postern_engine::EditedHeaders;
use postern_model::{Diagnostic, Gateway, Resource};
use postern_proto::plan::v1::{Chain, Plan, Steps};
use prost::Message as _;

use crate::{
    attach::{Attachment, Scope},
    route_match::headers_of_route,
};

/// The unsupported policy that a refused chain names, so that it answers 500.
const REFUSED: &str = "route-changing-chain";

/// Replaces chains that could change the route of a request by chains that refuse all requests. Returns an error at
/// each step in question.
pub(super) fn refuse(plan: &mut Plan, scope: &Scope<'_>, attachment: &Attachment<'_>) -> Vec<Diagnostic> {
    let gateways: Vec<_> = scope.gateways.iter().map(|gateway| (*gateway, matched_headers(gateway))).collect();
    if gateways.iter().all(|(_, matched)| matched.is_empty()) {
        return Vec::new();
    }
    // A plan that the engine does not load is refused by the gate, with a reason.
    let Ok(loaded) = postern_engine::Plan::load(&plan.encode_to_vec()) else { return Vec::new() };
    let (mut found, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (gateway, matched) in &gateways {
        // The empty name: requests without a route run the default chain, and could then take any route.
        let routes = gateway.spec.routes.iter().map(|route| route.name.as_str()).chain([""]);
        for route in routes {
            let Some(place) = loaded.chain_of(route) else { continue };
            let attached = attachment.routes.get(route).copied().or(attachment.default);
            for (step, edited) in loaded.editing_steps(place) {
                let Some((header, by)) = matched.iter().find(|(header, _)| edited.may_edit(header)) else { continue };
                refused.insert(place);
                found.extend(diagnose(attachment, attached, step, &message(gateway, header, by, &edited)));
            }
        }
    }
    let name = u32::try_from(plan.strings.len()).unwrap_or(u32::MAX);
    if !refused.is_empty() {
        plan.strings.push(REFUSED.to_owned());
    }
    for place in refused {
        let request = Some(Steps { steps: Vec::new(), unsupported: vec![name] });
        if let Some(chain) = plan.chains.get_mut(place) {
            *chain = Chain { request, ..Chain::default() };
        }
    }
    found.into_iter().collect()
}

/// The headers that routes of a gateway match on, in lower case, each with the first such route. Pseudo-headers are
/// omitted, since no step can edit them.
fn matched_headers(gateway: &Resource<Gateway>) -> BTreeMap<String, &str> {
    let mut matched = BTreeMap::new();
    for route in &gateway.spec.routes {
        for header in headers_of_route(route).into_iter().filter(|name| !name.starts_with(':')) {
            matched.entry(header).or_insert(route.name.as_str());
        }
    }
    matched
}

fn message(gateway: &Resource<Gateway>, header: &str, route: &str, edited: &EditedHeaders) -> String {
    let what = if edited.is_any() { "an agent may edit any header, and" } else { "the step edits it, and" };
    format!(
        "route {} of {} matches on header {}: {what} Envoy would then choose the route again, past the policies of the \
         route that it takes. Leave the header as it is, or match on another",
        quote(route),
        gateway.label(),
        quote(header),
    )
}

/// The error at the step of this name in an attached chain.
fn diagnose(attachment: &Attachment<'_>, chain: Option<usize>, step: &str, message: &str) -> Option<Diagnostic> {
    let chain = attachment.chains.get(chain?)?;
    chain.request.iter().find(|candidate| candidate.step.name == step)?.diagnose("", message)
}

#[cfg(test)]
mod tests {
    use crate::{
        attach::Scope,
        keys::KeySets,
        lower::Strictness,
        pipeline::{compile_bundle, compile_scope},
        snapshot::{FilterCode, Kept},
    };
    use postern_base::{digest::Digest, node::NodeIdentity};
    use postern_model::File;

    /// A gateway whose routes match on `x-preview` and on a cookie, with a policy of one step for a target.
    fn bundle(target: &str, step: &str) -> postern_model::Bundle {
        let text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  \
             routes:\n    - {{name: preview, service: s, match: {{headers: [{{name: X-Preview, present: true}}]}}}}\n    \
             - {{name: beta, service: s, match: {{cookies: [{{name: beta, present: true}}]}}}}\n    - {{name: a, service: s}}\n\
             ---\napiVersion: postern/v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{endpoints: [{{address: 127.0.0.1, \
             port: 1}}]}}\n---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{name: p}}\nspec:\n  \
             targetRef: {target}\n  request: [{step}]\n"
        );
        postern_model::read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]).unwrap()
    }

    /// Compiles the bundle, and compares the error, or that there is none.
    fn check(target: &str, step: &str, expect: Option<&str>) {
        let code = FilterCode::new(Vec::new(), None);
        let bundle = bundle(target, step);
        let said = compile_bundle(&bundle, &KeySets::default(), &code).err().map(|error| error.to_string());
        match (said, expect) {
            (None, None) => {}
            (Some(said), Some(expect)) => assert!(said.contains(expect), "{said}"),
            (said, expect) => panic!("{step}: {said:?} instead of {expect:?}"),
        }
    }

    const A: &str = "{kind: HTTPRoute, name: a}";

    #[test]
    fn refuses_an_edit_of_what_a_route_of_the_gateway_matches_on() {
        let preview = "f:21:13: RoutePolicy `p`: spec.request[0]: route `preview` of Gateway `edge` matches on header `x-preview`";
        check(A, "{policy: headers, params: {set: {x-preview: '1'}}}", Some(preview));
        check(A, "{policy: headers, params: {remove: [X-PREVIEW]}}", Some(preview));
        check(
            A,
            "{policy: headers, params: {remove: [cookie]}}",
            Some("route `beta` of Gateway `edge` matches on header `cookie`"),
        );
        check(A, "{policy: headers, params: {set: {x-other: '1'}}}", None);
        check(A, "{policy: requestSize, params: {maxBody: 1MiB}}", None);
    }

    #[test]
    fn refuses_it_in_the_chain_of_requests_that_match_no_route() {
        check("{kind: Mesh}", "{policy: headers, params: {set: {x-preview: '1'}}}", Some("`x-preview`"));
    }

    #[test]
    fn serves_a_stored_chain_of_that_kind_as_a_refusal() {
        let bundle = bundle(A, "{policy: headers, params: {set: {x-preview: '1'}}}");
        let scope = Scope::of(&bundle, &NodeIdentity::default());
        let code = FilterCode::new(Vec::new(), None);
        let (snapshot, problems) = compile_scope(
            &scope,
            Digest::of(b""),
            &KeySets::default(),
            &code,
            &Kept::default(),
            Strictness::Permissive,
        )
        .unwrap();
        assert_eq!(problems.len(), 1);
        let plan = postern_engine::Plan::load(snapshot.plan().bytes()).unwrap();
        let chain = plan.chain_of("a").unwrap();
        assert!(plan.edited_request_headers(chain).is_empty(), "nothing of the chain runs");
    }
}
