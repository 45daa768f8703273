//! Lowering: attached chains and consumers become a plan. Strings and chains are interned: what is equal is there once.

use std::collections::{BTreeMap, HashMap};

use postern_proto::plan::v1::{
    ApiKeyAuth, Chain, Consumer, FORMAT, HeaderValue, Headers, Plan, Route, Step as WireStep, step::Policy,
};
use prost::Message;
use serde::Deserialize;

use crate::{
    attach::Attached,
    digest::Digest,
    model::{ApiKey, Bundle, Diagnostic, Diagnostics, Step},
};

/// The plan for what is attached.
pub fn lower(bundle: &Bundle, attached: &BTreeMap<&str, Attached<'_>>, revision: &Digest) -> Result<Plan, Diagnostics> {
    let mut lowering = Lowering::default();
    for (route, chain) in attached {
        lowering.route(route, chain);
    }
    for consumer in &bundle.consumers {
        lowering.consumer(&consumer.name, &consumer.spec.api_keys);
    }
    lowering.finish(revision)
}

#[derive(Default)]
struct Lowering {
    strings: Interned<String>,
    chains: Interned<Vec<u8>>,
    plan: Plan,
    errors: Vec<Diagnostic>,
}

impl Lowering {
    fn route(&mut self, route: &str, attached: &Attached<'_>) {
        let request = self.steps(attached, "request", attached.request);
        let response = self.steps(attached, "response", attached.response);
        let chain = Chain { request, response };
        let index = self.chains.index(chain.encode_to_vec());
        if index as usize == self.plan.chains.len() {
            self.plan.chains.push(chain);
        }
        let name = self.string(route);
        self.plan.routes.push(Route { name, chain: index });
    }

    fn consumer(&mut self, name: &str, keys: &[ApiKey]) {
        let name = self.string(name);
        let api_key_sha256 = keys.iter().map(|key| key.sha256.to_vec()).collect();
        self.plan.consumers.push(Consumer { name, api_key_sha256 });
    }

    fn steps(&mut self, attached: &Attached<'_>, phase: &str, steps: &[Step]) -> Vec<WireStep> {
        let mut lowered = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let name = self.string(&step.name);
            match self.policy(step) {
                Ok(policy) => lowered.push(WireStep { name, policy: Some(policy) }),
                Err(error) => {
                    let field = format!("spec.{phase}[{index}].params");
                    self.errors.push(attached.policy.diagnose(&field, error.to_string()));
                }
            }
        }
        lowered
    }

    /// Parameters are checked against the policy's schema before; an error here means that the two disagree.
    fn policy(&mut self, step: &Step) -> Result<Policy, LowerError> {
        match step.policy.as_str() {
            "apiKeyAuth" => self.api_key_auth(params(step)?),
            "headers" => self.headers(params(step)?),
            other => Err(LowerError::Policy(other.to_owned())),
        }
    }

    fn api_key_auth(&mut self, params: ApiKeyAuthParams) -> Result<Policy, LowerError> {
        let header = self.header_name(&params.header);
        Ok(Policy::ApiKeyAuth(ApiKeyAuth { header }))
    }

    fn headers(&mut self, params: HeadersParams) -> Result<Policy, LowerError> {
        let remove = params.remove.iter().map(|name| self.header_name(name)).collect();
        let set = self.header_values(&params.set);
        let add = self.header_values(&params.add);
        Ok(Policy::Headers(Headers { remove, set, add }))
    }

    fn header_values(&mut self, values: &BTreeMap<String, String>) -> Vec<HeaderValue> {
        let lower =
            |(name, value): (&String, &String)| HeaderValue { name: self.header_name(name), value: self.string(value) };
        values.iter().map(lower).collect()
    }

    fn header_name(&mut self, name: &str) -> u32 {
        self.strings.index(name.to_ascii_lowercase())
    }

    fn string(&mut self, text: &str) -> u32 {
        self.strings.index(text.to_owned())
    }

    fn finish(self, revision: &Digest) -> Result<Plan, Diagnostics> {
        Diagnostics::reject(self.errors)?;
        Ok(Plan {
            format: FORMAT,
            revision: revision.short().to_owned(),
            strings: self.strings.into_values(),
            ..self.plan
        })
    }
}

#[derive(Deserialize)]
struct ApiKeyAuthParams {
    header: String,
}

#[derive(Deserialize)]
struct HeadersParams {
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    add: BTreeMap<String, String>,
}

fn params<T: for<'de> Deserialize<'de>>(step: &Step) -> Result<T, LowerError> {
    Ok(T::deserialize(&step.params)?)
}

#[derive(Debug, thiserror::Error)]
enum LowerError {
    #[error("policy `{0}` has a schema but no lowering")]
    Policy(String),
    #[error("the parameters fit the schema but not the plan: {0}")]
    Params(#[from] serde_json::Error),
}

/// Values by index, each there once, in the order in which they first came.
struct Interned<T>(HashMap<T, u32>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: std::hash::Hash + Eq> Interned<T> {
    fn index(&mut self, value: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(value).or_insert(next)
    }

    fn into_values(self) -> Vec<T> {
        let mut values: Vec<_> = self.0.into_iter().collect();
        values.sort_by_key(|(_, index)| *index);
        values.into_iter().map(|(value, _)| value).collect()
    }
}
