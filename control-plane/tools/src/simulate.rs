//! Runs a route's request chain on a described request, without a proxy: on the native engine, with the host's answers
//! taken from the description. Agents are not called, and no state is kept between requests.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use postern_base::uri::escaped;
use postern_compile::route_match;
use postern_engine::{
    Answer, Ask, Decision, Headers, Inputs, Needs, Plan, Property, Run, Turn, Verdict,
    agent::{CallError, Health},
    host::Alone,
    matching::Requested,
    run::Traced,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request, as a user describes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The host.
    pub host: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
    /// Who sends it.
    pub source: Peer,
}

/// Who sends a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Peer {
    /// Its address and port.
    pub address: Option<String>,
    /// The identity in its certificate, such as `spiffe://default/web`.
    pub principal: Option<String>,
    /// The tags in its certificate.
    pub tags: BTreeMap<String, String>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: "localhost".to_owned(),
            scheme: "http".to_owned(),
            headers: BTreeMap::new(),
            body: None,
            source: Peer::default(),
        }
    }
}

/// The result of a request.
#[derive(Debug)]
pub struct Simulated {
    /// The decision of the chain.
    pub decision: Decision,
    /// The steps that were reached, each with its result.
    pub trace: Vec<Traced>,
}

/// Runs the request chain of a route. `None` if the plan has none for the route.
pub fn simulate(plan: &Arc<Plan>, route: &str, request: &Request) -> Option<Simulated> {
    let mut run = Run::request(plan, route, &Health::default())?;
    let mut host = Alone::default();
    loop {
        let ask = match run.advance(&mut host) {
            Turn::Done => return Some(Simulated { decision: run.take_decision(), trace: run.trace().to_vec() }),
            Turn::Ask(ask) => ask,
        };
        let size = request.body.as_ref().map_or(0, String::len);
        match ask {
            Ask::Inputs(needs) if needs.has(Needs::BODY) && size > run.body_limit() => run.answer(Answer::BodyTooLarge),
            Ask::Inputs(needs) => {
                let mut inputs = inputs(request);
                for property in needs.properties() {
                    if let Some(value) = request.property(property) {
                        inputs.set(property, value);
                    }
                }
                run.give(inputs);
            }
            Ask::Wait { .. } => run.answer(Answer::Waited),
            Ask::Call(_) => run.answer(Answer::Called(Err(CallError::Unreachable))),
        }
    }
}

fn inputs(request: &Request) -> Inputs {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    Inputs::of_request(request.envoy_headers(), request.body.clone().map(String::into_bytes), now)
}

impl Request {
    /// The request's headers in the form in which Envoy passes them to a filter.
    fn envoy_headers(&self) -> Headers {
        let pseudo =
            [(":authority", &self.host), (":path", &self.path), (":method", &self.method), (":scheme", &self.scheme)];
        let own = self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        pseudo.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).chain(own).collect()
    }

    /// What it asks for, by which a route without a name is found.
    pub(crate) fn requested(&self) -> Requested<'_> {
        Requested { host: self.host.as_bytes(), path: self.path.as_bytes(), method: self.method.as_bytes() }
    }

    /// The request as Envoy's connection manager has parsed it.
    pub(crate) fn as_envoy_parses_it(&self) -> route_match::Request {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let headers = self.headers.iter().map(|(name, value)| (bytes(&name.to_ascii_lowercase()), bytes(value)));
        let (method, authority) = (bytes(&self.method), bytes(&self.host));
        route_match::Request { method, authority, path: bytes(&self.path), headers: headers.collect() }
    }

    fn property(&self, property: Property) -> Option<Vec<u8>> {
        let source = &self.source;
        match property {
            Property::SourceAddress => Some(source.address.clone()?.into_bytes()),
            Property::PeerUriSan => Some(source.principal.clone()?.into_bytes()),
            Property::PeerUriSans => {
                let tags = source
                    .tags
                    .iter()
                    .map(|(name, value)| format!("postern://tag/{}/{}", escaped(name), escaped(value)));
                Some(source.principal.iter().cloned().chain(tags).collect::<Vec<_>>().join(",").into_bytes())
            }
            Property::Mtls => Some(vec![u8::from(source.principal.is_some())]),
            _ => None,
        }
    }
}

impl Simulated {
    /// The status that the filter answers with; `None` if the request goes upstream.
    pub fn status(&self) -> Option<u16> {
        match &self.decision.verdict {
            Verdict::Continue(_) => None,
            Verdict::Deny(response) | Verdict::Respond(response) => Some(response.status),
        }
    }
}
