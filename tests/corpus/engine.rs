//! The engine itself, natively: the runner that the others are compared with.

use std::sync::Arc;

use postern_engine::{
    Answer, Ask, Decision, Headers, Inputs, Needs, Plan, Property, Record, Response, Run, Turn, Verdict,
    agent::Health,
    edits::Edits,
    host::Alone,
    matching::{Requested, Unclear},
    record::GRPC_METHOD,
};

use crate::{
    case::{Case, CaseFile, Exchange},
    observation::{Observation, Pairs, called},
};

/// Runs one case, with shared values of its own.
pub fn run(file: &CaseFile, case: &Case) -> Vec<Observation> {
    let plan = file.plan();
    let mut host = Alone::default();
    let once = |exchange| match matched(&plan, file, case, exchange) {
        Ok(route) => exchange_once(&plan, &route, case, exchange, &mut host),
        Err(Unclear) => unclear(exchange),
    };
    case.exchanges().iter().map(once).collect()
}

/// The name of a request's route: that of the case, or in an overlay the one whose match fits, or none.
fn matched(plan: &Plan, file: &CaseFile, case: &Case, exchange: &Exchange) -> Result<String, Unclear> {
    if !file.overlay {
        return Ok(case.route.clone());
    }
    assert!(plan.goes_by_match(b""), "{} has no matches", file.name);
    let matched = plan.matched_route(&Requested::of(&headers(&request_headers(case, exchange))))?;
    Ok(matched.map(ToString::to_string).unwrap_or_default())
}

/// What the filter answers to a request that can be read in several ways.
fn unclear(exchange: &Exchange) -> Observation {
    let answer = Response::problem(400, "the path or the host can be read in several ways");
    own_answer(exchange, "verdict=deny step=route reason=route_unclear", answer)
}

/// The caller, as Envoy sees it, and the address of Envoy's own node.
pub const PEER: &str = "127.0.0.1:50000";
const NODE: &str = "10.99.99.99";

/// The request as Envoy shows it to a filter.
pub fn request_headers(case: &Case, exchange: &Exchange) -> Pairs {
    let request = &exchange.request;
    let pseudo = [
        (":authority", case.host(&exchange.request)),
        (":path", request.path.clone()),
        (":method", request.method.clone()),
        (":scheme", "http".to_owned()),
    ];
    let length = request
        .body
        .as_ref()
        .filter(|_| !request.chunked)
        .map(|body| ("content-length".to_owned(), body.get().len().to_string().into_bytes()));
    let own = request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.get())).chain(length);
    let (forwarded, own): (Vec<_>, Vec<_>) = own.partition(|(name, _)| name == "x-forwarded-for");
    // Envoy appends the peer, or for a peer on the same machine its own address.
    let forwarded =
        forwarded.into_iter().map(|(_, value)| value).chain([NODE.into()]).collect::<Vec<_>>().join(&b","[..]);
    let pseudo = pseudo.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes()));
    pseudo.chain(own).chain([("x-forwarded-for".to_owned(), forwarded)]).collect()
}

/// The response as Envoy shows it to a filter.
pub fn response_headers(exchange: &Exchange) -> Pairs {
    let status = (":status".to_owned(), exchange.upstream.status.to_string().into_bytes());
    let own = exchange.upstream.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
    [status].into_iter().chain(own).collect()
}

fn exchange_once(plan: &Arc<Plan>, route: &str, case: &Case, exchange: &Exchange, host: &mut Alone) -> Observation {
    let mut request = request_headers(case, exchange);
    let mut response = response_headers(exchange);
    let status = exchange.upstream.status;
    let Some(mut run) = Run::request(plan, route, &Health::default()) else {
        return Observation::new(exchange, "", status, &response, Some(&request), b"");
    };
    let mut decision = drive(&mut run, exchange, &request, &response, host);
    check_edits(plan, route, &decision);
    let mut records = std::mem::take(&mut decision.records);
    if let Some(exceeded) = exceeded(&decision, exchange) {
        let recording = Run::unanswered(plan, route, &Health::default(), run.take_outlook(), Some(exceeded()));
        if let Some(mut run) = recording {
            records.extend(drive(&mut run, exchange, &request, &response, host).records);
        }
        let decision = exceeded();
        let account = decision.account("r", route);
        let answer = answered(decision, &mut request).unwrap();
        return recorded(own_answer(exchange, &account, answer), exchange, &records);
    }
    let account = decision.account("r", route);
    if let Some(answer) = answered(decision, &mut request) {
        return recorded(own_answer(exchange, &account, answer), exchange, &records);
    }
    if let Some(mut run) = Run::response(plan, route, &Health::default(), run.take_outlook()) {
        let decision = drive(&mut run, exchange, &request, &response, host);
        records.extend(decision.records.iter().cloned());
        let account = decision.account("r", route);
        if let Some(answer) = answered(decision, &mut response) {
            return recorded(own_answer(exchange, &account, answer), exchange, &records);
        }
    }
    recorded(Observation::new(exchange, &account, status, &response, Some(&request), b""), exchange, &records)
}

/// Asserts that policies edit only the headers that they declare. An undeclared edit would bypass the check of routes
/// at admission.
fn check_edits(plan: &Plan, route: &str, decision: &Decision) {
    let said = plan.chain_of(route).map(|chain| plan.edited_request_headers(chain)).unwrap_or_default();
    if let Verdict::Continue(edits) = &decision.verdict {
        for edit in edits.headers() {
            assert!(said.may_edit(&edit.name), "no policy describes the edit of `{}`: {said:?}", edit.name);
        }
    }
}

fn recorded(outcome: Observation, exchange: &Exchange, records: &[Record]) -> Observation {
    if !exchange.want.is_recorded() {
        return outcome;
    }
    let logged: Vec<_> = records.iter().filter(|record| record.log).map(|record| record.line.clone()).collect();
    let posted = records.iter().flat_map(|record| {
        let post = record.collector.as_ref();
        let post = post.map(|to| (format!("{} {}", to.service, to.path), record.line.clone()));
        let call = record.grpc.as_ref().map(|call| called(&call.service, &GRPC_METHOD.join("/"), &call.message));
        post.into_iter().chain(call)
    });
    outcome.recorded(&logged, &posted.collect::<Vec<_>>())
}

/// What a host does with a body that turns out to be larger than allowed.
fn exceeded(decision: &Decision, exchange: &Exchange) -> Option<impl Fn() -> Decision + use<>> {
    let size = exchange.request.body.as_ref().map_or(0, |body| body.get().len() as u64);
    let Verdict::Continue(edits) = &decision.verdict else { return None };
    let allowance = edits.allowance().filter(|allowance| size > allowance.most)?.clone();
    Some(move || allowance.exceeded())
}

fn own_answer(exchange: &Exchange, account: &str, answer: Response) -> Observation {
    let headers = answer.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    Observation::new(exchange, account, answer.status, &headers, None, &answer.body)
}

/// The answer that a decision gives, or its edits applied.
fn answered(decision: Decision, headers: &mut Pairs) -> Option<Response> {
    match decision.verdict {
        Verdict::Continue(edits) => {
            apply(&edits, headers);
            None
        }
        Verdict::Deny(response) | Verdict::Respond(response) => Some(response),
    }
}

/// Sets another path for the upstream, keeping the query, or another host.
pub fn rewrite(path: Option<&str>, host: Option<&str>, headers: &mut Pairs) {
    for (name, value) in headers {
        match (name.as_str(), path, host) {
            (":path", Some(path), _) => {
                let query = value.iter().position(|byte| *byte == b'?').map(|at| value.split_off(at));
                *value = [path.as_bytes(), &query.unwrap_or_default()].concat();
            }
            (":authority", _, Some(host)) => *value = host.into(),
            _ => {}
        }
    }
}

fn apply(edits: &Edits, headers: &mut Pairs) {
    rewrite(edits.path(), edits.host(), headers);
    for edit in edits.headers() {
        if edit.replace {
            headers.retain(|(name, _)| **name != *edit.name);
        }
        headers.extend(edit.values.iter().map(|value| (edit.name.to_string(), value.as_bytes().to_vec())));
    }
}

fn drive(run: &mut Run, exchange: &Exchange, request: &Pairs, response: &Pairs, host: &mut Alone) -> Decision {
    loop {
        let ask = match run.advance(host) {
            Turn::Done => return run.take_decision(),
            Turn::Ask(ask) => ask,
        };
        let body = exchange.request.body.as_ref().map(|body| body.get()).unwrap_or_default();
        match ask {
            Ask::Inputs(needs) if needs.has(Needs::BODY) && body.len() > run.body_limit() => {
                run.answer(Answer::BodyTooLarge)
            }
            Ask::Inputs(needs) => {
                let mut inputs = Inputs::default();
                inputs.now = exchange.request.time().as_nanos().try_into().unwrap();
                inputs.random = [7; 16];
                inputs.has_body = exchange.request.body.is_some();
                if needs.has(Needs::BODY) {
                    inputs.body = body;
                }
                inputs.request_headers = headers(request);
                inputs.response_headers = headers(response);
                for property in needs.properties() {
                    match (property, &exchange.request.source) {
                        (Property::PeerUriSan, Some(source)) => inputs.set(property, source.clone().into_bytes()),
                        (Property::PeerUriSans, Some(_)) => {
                            inputs.set(property, exchange.request.names().unwrap().into_bytes());
                        }
                        (Property::SourceAddress, _) => inputs.set(property, PEER.into()),
                        _ => {}
                    }
                }
                run.give(inputs);
            }
            Ask::Wait { .. } => run.answer(Answer::Waited),
            Ask::Call(call) => panic!("no agent is there to be asked: {call:?}"),
        }
    }
}

fn headers(pairs: &Pairs) -> Headers {
    pairs.iter().map(|(name, value)| (name, value)).collect()
}
