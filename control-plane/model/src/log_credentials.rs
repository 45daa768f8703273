//! Access logs that would show a credential: the header or parameter of the query from which a step takes a key or
//! token. Well-known headers are refused by the format itself.

use std::collections::BTreeMap;

use postern_base::diagnostic::{Diagnostic, quote};

use super::{
    Bundle, Chains, LogFormat, LogSink, Resource, RoutePolicy, Settings, Step,
    log_format::{headers, parameters},
};

/// The parameters of policies that name a header or a parameter of the query with a credential.
const HEADERS: [(&str, &str); 3] = [("apiKeyAuth", "/header"), ("jwtValidation", "/header"), ("csrf", "/token/header")];
const PARAMETERS: [(&str, &str); 2] = [("apiKeyAuth", "/query"), ("jwtValidation", "/query")];

/// The names that carry credentials in a mesh, in lower case, with the resources that say so.
#[derive(Default)]
struct Credentials<'a> {
    headers: BTreeMap<String, &'a Resource<RoutePolicy>>,
    parameters: BTreeMap<String, &'a Resource<RoutePolicy>>,
}

/// An error for each format that shows a credential of its mesh.
pub(super) fn check(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for settings in bundle.settings.iter().filter(|settings| !settings.spec.log_backends.is_empty()) {
        let policies = bundle.route_policies.iter().filter(|policy| policy.mesh == settings.mesh);
        let credentials = Credentials::of(policies);
        found.extend(shown(settings, &credentials));
    }
    found
}

impl<'a> Credentials<'a> {
    fn of(policies: impl Iterator<Item = &'a Resource<RoutePolicy>>) -> Self {
        let mut known = Self::default();
        for policy in policies {
            for step in steps(&policy.spec) {
                known.headers.extend(named(step, &HEADERS).map(|name| (name, policy)));
                known.parameters.extend(named(step, &PARAMETERS).map(|name| (name, policy)));
            }
        }
        known
    }
}

/// What a step names in these parameters, in lower case.
fn named(step: &Step, places: &'static [(&str, &str)]) -> impl Iterator<Item = String> {
    let places = places.iter().filter(move |(policy, _)| *policy == step.policy);
    places.filter_map(move |(_, place)| step.params.pointer(place)?.as_str().map(str::to_ascii_lowercase))
}

fn steps(policy: &RoutePolicy) -> impl Iterator<Item = &Step> {
    let directed = policy.from.iter().chain(&policy.to).map(|entry| &entry.chains);
    [&policy.chains].into_iter().chain(directed).flat_map(|Chains { request, .. }| request)
}

fn shown(settings: &Resource<Settings>, known: &Credentials<'_>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, backend) in settings.spec.log_backends.iter().enumerate() {
        let path = format!("spec.logBackends[{index}]");
        let mut check = |field: String, kind: &str, name: &str, by: &BTreeMap<String, &Resource<RoutePolicy>>| {
            if let Some(policy) = by.get(&name.to_ascii_lowercase()) {
                let message = format!(
                    "the {kind} {} carries credentials, as {} says: no access log may show it",
                    quote(name),
                    policy.label()
                );
                found.push(settings.diagnose(&field, message));
            }
        };
        let formats: Vec<_> = match &backend.format {
            None => Vec::new(),
            Some(LogFormat::Text(text)) => vec![(format!("{path}.format.text"), text)],
            Some(LogFormat::Json(members)) => {
                members.iter().map(|(key, text)| (format!("{path}.format.json.{key}"), text)).collect()
            }
        };
        for (field, text) in formats {
            headers(text).iter().for_each(|name| check(field.clone(), "header", name, &known.headers));
            parameters(text).iter().for_each(|name| check(field.clone(), "parameter", name, &known.parameters));
        }
        if let LogSink::Grpc(collector) = &backend.sink {
            for (index, name) in collector.request_headers.iter().enumerate() {
                check(format!("{path}.grpc.requestHeaders[{index}]"), "header", name, &known.headers);
            }
        }
    }
    found
}
