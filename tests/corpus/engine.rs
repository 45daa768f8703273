//! The engine itself, natively: the runner that the others are compared with.

use std::{collections::HashMap, sync::Arc};

use postern_engine::{
    Answer, Ask, Decision, Headers, Inputs, Plan, Property, Run, Turn, Verdict, agent::Health, edits::Edits,
    jwt::TokenCache,
};

use crate::{
    case::{Case, CaseFile, Exchange},
    outcome::{Outcome, Pairs},
};

/// Runs one case with a shared store of its own.
pub fn run(file: &CaseFile, case: &Case) -> Vec<Outcome> {
    let plan = file.plan();
    let mut shared = Shared::default();
    case.exchanges().iter().map(|exchange| exchange_once(&plan, case, exchange, &mut shared)).collect()
}

/// What outlives an exchange.
#[derive(Default)]
struct Shared {
    values: HashMap<String, (Vec<u8>, u32)>,
    tokens: TokenCache,
}

/// The request as Envoy shows it to a filter.
pub fn request_headers(case: &Case, exchange: &Exchange) -> Pairs {
    let request = &exchange.request;
    let pseudo = [
        (":authority", format!("{}.test", case.route)),
        (":path", request.path.clone()),
        (":method", request.method.clone()),
        (":scheme", "http".to_owned()),
    ];
    let length =
        request.body.as_ref().map(|body| ("content-length".to_owned(), body.get().len().to_string().into_bytes()));
    let own = request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.get())).chain(length);
    pseudo.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).chain(own).collect()
}

/// The response as Envoy shows it to a filter.
pub fn response_headers(exchange: &Exchange) -> Pairs {
    let status = (":status".to_owned(), exchange.upstream.status.to_string().into_bytes());
    let own = exchange.upstream.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
    [status].into_iter().chain(own).collect()
}

fn exchange_once(plan: &Arc<Plan>, case: &Case, exchange: &Exchange, shared: &mut Shared) -> Outcome {
    let mut request = request_headers(case, exchange);
    let mut response = response_headers(exchange);
    let status = exchange.upstream.status;
    let Some(mut run) = Run::request(plan, &case.route, &Health::default()) else {
        return Outcome::new(exchange, "", status, &response, Some(&request), b"");
    };
    let decision = drive(&mut run, exchange, &request, &response, shared);
    let account = decision.account("r", &case.route);
    if let Some(answer) = answered(decision, &mut request) {
        return own_answer(exchange, &account, answer);
    }
    if let Some(mut run) = Run::response(plan, &case.route, &Health::default(), run.into_outlook()) {
        let decision = drive(&mut run, exchange, &request, &response, shared);
        if let Some(answer) = answered(decision, &mut response) {
            return own_answer(exchange, &account, answer);
        }
    }
    Outcome::new(exchange, &account, status, &response, Some(&request), b"")
}

fn own_answer(exchange: &Exchange, account: &str, answer: postern_engine::Response) -> Outcome {
    let headers = answer.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    Outcome::new(exchange, account, answer.status, &headers, None, &answer.body)
}

/// The answer that a decision gives, or its edits applied.
fn answered(decision: Decision, headers: &mut Pairs) -> Option<postern_engine::Response> {
    match decision.verdict {
        Verdict::Continue(edits) => {
            apply(&edits, headers);
            None
        }
        Verdict::Deny(response) | Verdict::Respond(response) => Some(response),
    }
}

fn apply(edits: &Edits, headers: &mut Pairs) {
    for edit in edits.headers() {
        if edit.replace {
            headers.retain(|(name, _)| **name != *edit.name);
        }
        headers.extend(edit.values.iter().map(|value| (edit.name.to_string(), value.as_bytes().to_vec())));
    }
}

fn drive(run: &mut Run, exchange: &Exchange, request: &Pairs, response: &Pairs, shared: &mut Shared) -> Decision {
    loop {
        let ask = match run.advance() {
            Turn::Done(decision) => return decision,
            Turn::Ask(ask) => ask,
        };
        let body = exchange.request.body.as_ref().map(|body| body.get()).unwrap_or_default();
        let answer = match ask {
            Ask::Inputs(needs) if needs.body && body.len() > run.body_limit() => Answer::BodyTooLarge,
            Ask::Inputs(needs) => {
                let mut inputs = Inputs::default();
                let now = exchange.request.time().as_nanos().try_into().unwrap();
                (inputs.now, inputs.body) = (now, body);
                inputs.request_headers = headers(request);
                inputs.response_headers = headers(response);
                for property in needs.properties() {
                    if let (Property::PeerUriSan, Some(source)) = (property, &exchange.request.source) {
                        inputs.set(property, source.clone().into_bytes());
                    }
                }
                Answer::Inputs(inputs)
            }
            Ask::Load { key } => {
                let (value, version) = shared.values.get(&key).cloned().unwrap_or_default();
                Answer::Loaded { value, version }
            }
            Ask::Store { key, value, version } => {
                shared.values.insert(key, (value, version + 1));
                Answer::Stored(true)
            }
            Ask::Call(call) => panic!("no agent is there to be asked: {call:?}"),
            Ask::Recall(key) => Answer::Recalled(shared.tokens.recall(&key)),
            Ask::Remember(entry) => {
                shared.tokens.remember(entry);
                Answer::Remembered
            }
            Ask::Verify(_) => Answer::Verified(None),
        };
        run.answer(answer);
    }
}

fn headers(pairs: &Pairs) -> Headers {
    pairs.iter().map(|(name, value)| (name, value)).collect()
}
