//! Refuses proxies that are counted twice. Behind a Gateway with `trustedHops`, Envoy has already taken the caller's
//! address from `X-Forwarded-For`. An `ipFilter` with `trustedHops` of its own would read beyond it, an address that
//! the caller wrote.

use std::collections::BTreeSet;

use postern_model::Diagnostic;

use crate::{
    attach::{Attachment, EffectiveStep, Scope},
    params::Params,
};

/// An error for each step on a Gateway's route that counts proxies which the Gateway counts already.
pub(super) fn counted_twice(scope: &Scope<'_>, attachment: &Attachment<'_>) -> Vec<Diagnostic> {
    let mut found = BTreeSet::new();
    for gateway in scope.gateways.iter().filter(|gateway| gateway.spec.http.trusted_hops > 0) {
        let routes = gateway.spec.routes.iter().map(|route| attachment.routes.get(route.name.as_str()).copied());
        let places: BTreeSet<_> = routes.chain([None]).filter_map(|place| place.or(attachment.default)).collect();
        let chains = places.into_iter().filter_map(|place| attachment.chains.get(place));
        for step in chains.flat_map(|chain| &chain.request).filter(|step| counts_proxies(step)) {
            let message = format!(
                "{} has `http.trustedHops`, so that its `source.address` is the caller's already: leave this at 0",
                gateway.label()
            );
            found.extend(step.diagnose("params.trustedHops", message));
        }
    }
    found.into_iter().collect()
}

fn counts_proxies(step: &EffectiveStep<'_>) -> bool {
    matches!(step.params(), Ok(Params::IpFilter(filter)) if filter.trusted_hops > 0)
}

#[cfg(test)]
mod tests {
    use crate::{keys::KeySets, pipeline::compile_bundle, snapshot::FilterCode};
    use postern_model::{File, read};

    /// Compiles an `ipFilter` behind a gateway that trusts `hops` proxies, and compares the error.
    fn check(hops: u8, target: &str, params: &str, expect: Option<&str>) {
        let text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec: {{listeners: [{{name: http, port: 80}}], \
             http: {{trustedHops: {hops}}}, routes: [{{name: a, service: s}}]}}\n---\napiVersion: postern/v1\nkind: Service\n\
             metadata: {{name: s}}\nspec: {{endpoints: [{{address: x, port: 1}}]}}\n---\napiVersion: postern/v1\nkind: \
             RoutePolicy\nmetadata: {{name: p}}\nspec:\n  targetRef: {target}\n  request: [{{policy: ipFilter, params: \
             {{allow: [10.0.0.0/8]{params}}}}}]\n"
        );
        let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]).unwrap();
        let code = FilterCode::new(Vec::new(), None);
        let said = compile_bundle(&bundle, &KeySets::default(), &code).err().map(|error| error.to_string());
        assert_eq!(said.is_some(), expect.is_some(), "{said:?}");
        let said = said.unwrap_or_default();
        assert!(said.contains(expect.unwrap_or_default()), "{said}");
    }

    #[test]
    fn counts_every_proxy_once() {
        let expect = "RoutePolicy `p`: spec.request[0].params.trustedHops: Gateway `edge` has `http.trustedHops`";
        for target in ["{kind: HTTPRoute, name: a}", "{kind: Mesh}"] {
            check(1, target, ", trustedHops: 1", Some(expect));
            check(1, target, ", trustedHops: 0", None);
            check(1, target, "", None);
            check(0, target, ", trustedHops: 1", None);
        }
    }
}
