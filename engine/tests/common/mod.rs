//! A writer of plans, and a driver that answers what a run asks for.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code, of which every test binary uses a part"
)]

use std::{collections::HashMap, sync::Arc};

use postern_engine::{
    Answer, Ask, Decision, Headers, Host, Inputs, Needs, Plan, Property, Run, Turn,
    agent::{Call, CallError, Health, Reply},
    host::{Alone, SharedValue, Unavailable},
    jwt::{Entry, SignatureCheck, TokenKey, Verified},
};
use postern_proto::plan::v1::{self as wire, step};
use prost::Message;

/// Interns strings while a plan is written.
#[derive(Default)]
pub struct Writer {
    pub plan: wire::Plan,
}

impl Writer {
    pub fn new() -> Self {
        Self { plan: wire::Plan { format: wire::FORMAT, label: "r1".into(), ..Default::default() } }
    }

    pub fn string(&mut self, text: &str) -> u32 {
        let known = self.plan.strings.iter().position(|known| known == text);
        let index = known.unwrap_or_else(|| {
            self.plan.strings.push(text.to_owned());
            self.plan.strings.len() - 1
        });
        index.try_into().unwrap()
    }

    pub fn step(&mut self, name: &str, policy: step::Policy) -> wire::Step {
        wire::Step { name: self.string(name), policy: Some(policy), ..Default::default() }
    }

    pub fn key_step(&mut self) -> wire::Step {
        let source = wire::api_key_auth::Source::Header(self.string("x-api-key"));
        self.step("apiKeyAuth", step::Policy::ApiKeyAuth(wire::ApiKeyAuth { source: Some(source), optional: false }))
    }

    pub fn set_step(&mut self, name: &str, header: &str, value: &str) -> wire::Step {
        let set = vec![wire::HeaderValue { name: self.string(header), value: self.string(value) }];
        self.step(name, step::Policy::Headers(wire::Headers { set, ..Default::default() }))
    }

    pub fn agent(&mut self, name: &str, fail_open: bool) -> u32 {
        let name = self.string(name);
        self.plan.agents.push(wire::Agent { name, fail_open, timeout_ms: 500 });
        (self.plan.agents.len() - 1).try_into().unwrap()
    }

    pub fn agent_step(&mut self, policy: &str, agents: &[u32]) -> wire::Step {
        let wire = wire::AgentPolicy { agents: agents.to_vec(), policy: self.string(policy), params: vec![] };
        self.step(policy, step::Policy::Agent(wire))
    }

    pub fn consumer(&mut self, name: &str, digest: Vec<u8>, groups: &[&str]) {
        let groups = groups.iter().map(|group| self.string(group)).collect();
        let name = self.string(name);
        self.plan.consumers.push(wire::Consumer { name, api_key_sha256: vec![digest], groups, ..Default::default() });
    }

    /// A route with a request and a response chain.
    pub fn route(&mut self, name: &str, request: Vec<wire::Step>, response: Vec<wire::Step>) {
        let steps = |steps| Some(wire::Steps { steps, unsupported: vec![] });
        self.chain(name, wire::Chain { request: steps(request), response: steps(response), ..Default::default() });
    }

    pub fn chain(&mut self, name: &str, chain: wire::Chain) {
        let name = self.string(name);
        self.plan.chains.push(chain);
        let chain = (self.plan.chains.len() - 1).try_into().unwrap();
        self.plan.routes.push(wire::Route { name, chain });
    }

    pub fn load(&self) -> Arc<Plan> {
        Arc::new(Plan::load(&self.plan.encode_to_vec()).unwrap())
    }
}

/// Answers a run: from a request, a shared store, a clock, and a script of agents' answers.
#[derive(Debug, Default)]
pub struct Driver {
    pub headers: Vec<(String, Vec<u8>)>,
    pub response_headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub now: u64,
    pub properties: HashMap<&'static str, Vec<u8>>,
    pub shared: Alone,
    /// How often another worker is faster.
    pub rivals: usize,
    /// Whether shared values are unavailable.
    pub down: bool,
    pub healthy: Vec<bool>,
    pub replies: Vec<Result<Reply, CallError>>,
    /// What agents were asked, in order.
    pub calls: Vec<Call>,
    /// The host's answers about signatures, in order. After the last one, it cannot tell.
    pub words: Vec<Option<bool>>,
    /// How often the host was asked about a signature.
    pub signatures: usize,
    /// How often a token was found in the cache.
    pub hits: usize,
}

impl Driver {
    pub fn request(headers: &[(&str, &[u8])]) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        Self { headers, ..Self::default() }
    }

    /// Runs a route's request chain to its decision; `None` for a route that the plan does not know.
    pub fn run(&mut self, plan: &Arc<Plan>, route: &str) -> Option<Decision> {
        let mut run = Run::request(plan, route, &Health::new(self.healthy.clone()))?;
        Some(self.drive(&mut run))
    }

    /// Runs both chains. The response's decision is `None` if there is nothing to do.
    pub fn run_both(&mut self, plan: &Arc<Plan>, route: &str) -> (Decision, Option<Decision>) {
        let health = Health::new(self.healthy.clone());
        let mut run = Run::request(plan, route, &health).unwrap();
        let request = self.drive(&mut run);
        let response = Run::response(plan, route, &health, run.take_outlook());
        (request, response.map(|mut run| self.drive(&mut run)))
    }

    fn drive(&mut self, run: &mut Run) -> Decision {
        loop {
            match run.advance(self) {
                Turn::Done => return run.take_decision(),
                Turn::Ask(Ask::Inputs(needs)) if needs.has(Needs::BODY) && self.body.len() > run.body_limit() => {
                    run.answer(Answer::BodyTooLarge)
                }
                Turn::Ask(Ask::Inputs(needs)) => run.give(self.inputs(needs)),
                Turn::Ask(Ask::Wait { milliseconds }) => {
                    self.now += u64::from(milliseconds) * 1_000_000;
                    run.answer(Answer::Waited);
                }
                Turn::Ask(Ask::Call(call)) => {
                    self.calls.push(call);
                    run.answer(Answer::Called(self.replies.remove(0)));
                }
            }
        }
    }

    pub fn inputs(&self, needs: Needs) -> Inputs {
        let mut inputs = Inputs::default();
        let headers = |pairs: &[(String, Vec<u8>)]| pairs.iter().map(|(n, v)| (n, v)).collect::<Headers>();
        if needs.has(Needs::REQUEST_HEADERS) {
            inputs.request_headers = headers(&self.headers);
        }
        if needs.has(Needs::RESPONSE_HEADERS) {
            inputs.response_headers = headers(&self.response_headers);
        }
        inputs.now = self.now;
        inputs.body = self.body.clone();
        for property in needs.properties() {
            if let Some(value) = self.properties.get(property_name(property).as_str()) {
                inputs.set(property, value.clone());
            }
        }
        inputs
    }
}

impl Host for Driver {
    fn load(&mut self, key: &Arc<str>) -> Result<(SharedValue, u32), Unavailable> {
        if self.down { Err(Unavailable) } else { self.shared.load(key) }
    }

    fn store(&mut self, key: &Arc<str>, value: SharedValue, version: u32) -> Result<bool, Unavailable> {
        match self.rivals.checked_sub(1) {
            Some(left) => {
                self.rivals = left;
                Ok(false)
            }
            None => self.shared.store(key, value, version),
        }
    }

    fn recall(&mut self, key: &TokenKey) -> Option<Arc<Verified>> {
        let known = self.shared.recall(key);
        self.hits += usize::from(known.is_some());
        known
    }

    fn remember(&mut self, entry: Entry) {
        self.shared.remember(entry);
    }

    fn verify(&mut self, _check: &SignatureCheck) -> Option<bool> {
        self.signatures += 1;
        if self.words.is_empty() { None } else { self.words.remove(0) }
    }
}

pub fn property_name(property: Property) -> String {
    property.path().join(".")
}
