//! The resources under test: which route a request takes, and which keys issuers have.

use std::{collections::BTreeMap, sync::Arc};

use postern_base::{
    diagnostic::{quote, suggestion},
    node::NodeIdentity,
};
use postern_compile::{
    attach::Scope,
    keys::KeySets,
    pipeline::compile_bundle,
    route_match::{guarded_services, marked_names},
    snapshot::{FilterCode, Snapshot},
};
use postern_model::{Bundle, Issuer, KeyUri, directory, jwk::KeySet};
use serde_json::{Value, json};

use super::{
    Suite, Test, TestError, Token,
    signer::{Signer, published},
};
use crate::{
    explain::{EnvoyAnswer, Reached, reached},
    simulate::Request,
};

/// The resources of a suite.
pub(super) struct Site {
    bundle: Bundle,
    /// The names in Envoy of the routes of Gateways.
    names: BTreeMap<String, String>,
    signer: Signer,
}

/// Where the request of a test gets.
pub(super) enum Target {
    /// To a route, by its name in Envoy, with the path that steps see.
    Route { name: String, path: String },
    /// Envoy answers it by itself.
    Answered(EnvoyAnswer),
}

impl Site {
    /// Reads and compiles the resources of a suite.
    pub(super) fn read(suite: &Suite, code: &FilterCode) -> Result<(Self, Snapshot), TestError> {
        let bundle = postern_model::read(&directory::read(&suite.resources)?).map_err(TestError::Diagnostics)?;
        let signer = Signer::new().ok_or(TestError::NoRandomness)?;
        let sets = key_sets(suite, &bundle, &signer)?;
        let snapshot = compile_bundle(&bundle, &sets, code)?;
        let names = {
            let scope = Scope::of(&bundle, &NodeIdentity::default());
            let guarded = guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
            let names = scope.gateways.iter().flat_map(|gateway| {
                let names = gateway.spec.routes.iter().map(|route| route.name.clone());
                names.zip(marked_names(&gateway.spec, &guarded)).collect::<Vec<_>>()
            });
            names.collect()
        };
        Ok((Self { bundle, names, signer }, snapshot))
    }

    /// Where the request of a test gets: to the route that it names, or else to the one that Envoy would choose.
    pub(super) fn target(&self, test: &Test) -> Result<Target, TestError> {
        let (sent, path) = (&test.request, &test.request.path);
        let wrong = |error: String| TestError::Request { test: test.name.clone(), error };
        if let Some(route) = &sent.route {
            self.check(route, test).map_err(wrong)?;
            let name = self.names.get(route).unwrap_or(route).clone();
            return Ok(Target::Route { name, path: path.clone() });
        }
        let node = NodeIdentity::default();
        let (method, host, headers) = (sent.method.clone(), sent.host.clone(), sent.headers.clone());
        let request = Request { method, host, headers, path: path.clone(), ..Request::default() };
        let reached = reached(&Scope::of(&self.bundle, &node), sent.gateway.as_deref(), &request)
            .map_err(|error| wrong(error.to_string()))?;
        match reached {
            Some(Reached { answer: Some(answer), .. }) => Ok(Target::Answered(answer)),
            Some(Reached { route: Some(route), path: seen, .. }) => {
                let name = self.names.get(&route).cloned().unwrap_or(route);
                Ok(Target::Route { name, path: seen.unwrap_or_else(|| path.clone()) })
            }
            _ => Err(wrong("no Gateway is under test, so the request must name its `route`".to_owned())),
        }
    }

    /// Refuses a name that no resource knows, which would pass as a route without a policy.
    fn check(&self, route: &str, test: &Test) -> Result<(), String> {
        let targeted = self.bundle.route_policies.iter().filter_map(|policy| policy.spec.target_ref.route());
        let known: Vec<_> = self.names.keys().map(String::as_str).chain(targeted).collect();
        // Only an Envoy with routes of its own has routes that no resource names.
        let elsewhere = self.names.is_empty() && test.expect.verdict.as_deref() == Some("none");
        if route.is_empty() || known.contains(&route) || elsewhere {
            return Ok(());
        }
        Err(format!("no resource names route {}{}", quote(route), suggestion(route, known.iter().copied())))
    }

    /// The token that a test asks for.
    pub(super) fn token(&self, test: &Test, token: &Token, now: u64) -> Result<String, TestError> {
        let wrong = |error: String| TestError::Request { test: test.name.clone(), error };
        let names = || self.bundle.issuers.iter().map(|issuer| issuer.name.as_str());
        let found = self.bundle.issuers.iter().find(|issuer| issuer.name == token.issuer);
        let Some(issuer) = found else {
            let hint = suggestion(&token.issuer, names());
            return Err(wrong(format!("token.issuer: no Issuer {}{hint}", quote(&token.issuer))));
        };
        let spec: &Issuer = &issuer.spec;
        let refused = |error| wrong(format!("token.issuer: Issuer {}: {error}", quote(&token.issuer)));
        self.signer.token(spec, &token.claims, now).map_err(refused)
    }
}

/// The key sets of issuers: what the suite says, each with the throw-away key.
fn key_sets(suite: &Suite, bundle: &Bundle, signer: &Signer) -> Result<KeySets, TestError> {
    let wrong = |uri: &str, error: String| TestError::Form {
        file: suite.name.clone(),
        place: format!("keySets[{uri}]"),
        error,
    };
    let wanted: Vec<_> = published(bundle).collect();
    if let Some(stray) = suite.key_sets.keys().find(|uri| !wanted.iter().any(|wanted| wanted.as_str() == *uri)) {
        let hint = suggestion(stray, wanted.iter().map(|uri| uri.as_str()));
        return Err(wrong(stray, format!("no Issuer has this `jwksUri`{hint}")));
    }
    let set = |uri: &KeyUri| {
        let mut set = suite.key_sets.get(uri.as_str()).cloned().unwrap_or_else(|| json!({ "keys": [] }));
        let Some(Value::Array(keys)) = set.get_mut("keys") else {
            return Err(wrong(uri.as_str(), "the key set has no list `keys`".to_owned()));
        };
        keys.push(signer.jwk());
        let (set, skipped) =
            KeySet::read(set.to_string().as_bytes()).map_err(|error| wrong(uri.as_str(), error.to_string()))?;
        match skipped.first() {
            Some(skipped) => Err(wrong(uri.as_str(), skipped.to_string())),
            None => Ok((uri.clone(), Arc::new(set))),
        }
    };
    wanted.into_iter().map(set).collect()
}
