//! Random requests against random valid plans in the filter's own bytes: nothing traps, and decisions equal those of
//! the native engine. Every run makes the same plans and requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{collections::HashMap, env, fs, sync::Arc, time::Duration};

use postern_compile::{
    pipeline::compile,
    snapshot::FilterCode,
    wasm::{Filter, Flow, HeaderMap, HeadersPause, Properties, RootId, Setup, Vm},
};
use postern_engine::{
    Answer, Ask, Decision, Headers, Inputs, Needs, Plan, Property, Response, Run, Turn, Verdict, agent::Health,
    host::Alone,
};
use postern_model::File;
use postern_proto::configuration;
use serde_json::{Value, json};

const PLANS: u64 = 300;
const REQUESTS: usize = 20;
const ROUTE: &str = "route";

const CONDITIONS: [&str; 18] = [
    "true",
    "request.method == 'GET'",
    "request.url_path.startsWith('/a')",
    "request.path.size() < 20",
    "request.query.contains('key=')",
    "request.query.split('&').exists(p, p.startsWith('key'))",
    "request.headers['x-a'] == '1'",
    "has(request.headers.cookie)",
    "'x-user' in request.headers",
    "request.headers.all(name, name.size() > 2)",
    "request.headers['x-user'].matches('^[a-z]+$')",
    "size(request.body) > 3",
    "request.time > timestamp('2020-01-01T00:00:00Z')",
    "request.time.getHours() % 2 == 0",
    "source.port > 1000",
    "connection.mtls",
    "int(request.headers['x-a']) / (source.port - 7) > 1",
    "source.principal.endsWith('web')",
];

const NAMES: [&str; 10] =
    ["x-api-key", "cookie", "x-user", "x-a", "x-b", "content-type", "x-request-id", "host", "accept", "x-long"];

const VALUES: [&[u8]; 14] = [
    b"",
    b"1",
    b"k1",
    b"key=k1",
    b"key=\"k 2\"; a=b",
    b"key=k1; key=k1",
    b"me",
    b"\xff\xfe",
    "é🐱".as_bytes(),
    b"a\tb",
    b"-9223372036854775808",
    b"verdict=allow route=x",
    b"%",
    b"application/json",
];

const PATHS: [&[u8]; 14] = [
    b"",
    b"/",
    b"*",
    b"/a",
    b"/a?key=k1",
    b"/a?key=k%202&key",
    b"?",
    b"/?key=%zz%",
    b"/\xff?key=\xff",
    b"//a//../b;c?d#e?f",
    b"/#?key=k1",
    b"/a?k%65y=k1&&&=&",
    b"http://a/b?key=k1",
    "/é?é=é".as_bytes(),
];

/// A pseudo-random generator: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Random bytes; longer ones are rarer.
    fn noise(&mut self) -> Vec<u8> {
        let size = if self.one_in(50) { 20_000 } else { self.below(30) };
        (0..size).map(|_| self.below(256) as u8).collect()
    }
}

fn condition(dice: &mut Dice) -> String {
    let one = dice.pick(&CONDITIONS);
    match dice.below(6) {
        0 => format!("!({one})"),
        1 => format!("({one}) && ({})", dice.pick(&CONDITIONS)),
        2 => format!("({one}) || ({})", dice.pick(&CONDITIONS)),
        3 => format!("({one}) ? ({}) : false", dice.pick(&CONDITIONS)),
        _ => one.to_owned(),
    }
}

fn params(dice: &mut Dice, policy: &str) -> Value {
    match policy {
        "apiKeyAuth" => {
            let (source, name) = dice.pick(&[("header", "x-api-key"), ("query", "key"), ("cookie", "key")]);
            json!({ source: name })
        }
        "headers" => json!({
            "remove": [dice.pick(&["x-a", "x-b", "x-api-key"])],
            "set": { dice.pick(&["x-user", "x-b"]): dice.pick(&["set", "", "é"]) },
            "add": { dice.pick(&["x-a", "x-c"]): "added" },
        }),
        "rateLimit" => {
            let mut params = json!({
                "requests": 1 + dice.below(5),
                "per": dice.pick(&["1s", "1m", "1h"]),
                "report": dice.pick(&["denied", "always", "never"]),
                "maxKeys": 1 + dice.below(40),
            });
            if dice.one_in(2) {
                params["key"] = dice
                    .pick(&[
                        "request.headers['x-user']",
                        "request.method",
                        "source.port",
                        "request.body",
                        "consumer.name",
                    ])
                    .into();
            }
            params
        }
        "respond" => json!({ "status": 200 + dice.below(300), "body": "an answer", "headers": { "x-answer": "1" } }),
        "roleCheck" => json!({ "groups": ["staff", "admins"], "match": dice.pick(&["any", "all"]) }),
        "trafficPermission" => {
            let from = dice.pick(&["services", "anyone"]);
            let from = if from == "anyone" { json!({ "anyone": true }) } else { json!({ "services": ["web"] }) };
            json!({ "rules": [{ "from": from, "action": dice.pick(&["ALLOW", "ALLOW", "DENY"]) }] })
        }
        _ => {
            json!({ "rules": [{ "rule": condition(dice), "message": "no" }, { "rule": condition(dice), "message": "\"" }] })
        }
    }
}

fn step(dice: &mut Dice, number: usize, policies: &[&str]) -> Value {
    let policy = dice.pick(policies);
    let mut step = json!({ "name": format!("step-{number}"), "policy": policy, "params": params(dice, policy) });
    if dice.one_in(2) {
        step["when"] = condition(dice).into();
    }
    if dice.one_in(2) {
        step["onFailure"] = dice.pick(&["deny", "continue", "skipRemaining"]).into();
    }
    if dice.one_in(6) {
        step["mode"] = "shadow".into();
    }
    step
}

/// A random plan that was read, checked, lowered and admitted like a user's.
fn plan(dice: &mut Dice) -> Vec<u8> {
    const REQUEST: [&str; 12] = [
        "apiKeyAuth",
        "headers",
        "headers",
        "rateLimit",
        "rateLimit",
        "respond",
        "roleCheck",
        "trafficPermission",
        "validate",
        "validate",
        "apiKeyAuth",
        "headers",
    ];
    let mut spec = json!({
        "targetRef": { "kind": "HTTPRoute", "name": ROUTE },
        "maxBodySize": dice.pick(&[1, 16, 10_000]),
        "request": (0..=dice.below(6)).map(|number| step(dice, number, &REQUEST)).collect::<Vec<_>>(),
        "response": (0..dice.below(3)).map(|number| step(dice, number, &["headers"])).collect::<Vec<_>>(),
    });
    if dice.one_in(8) {
        spec["mode"] = "shadow".into();
    }
    let consumer = |name: &str, key: &str, groups: &[&str]| {
        let spec = json!({ "apiKeys": [{ "key": key }], "groups": groups });
        json!({ "apiVersion": "postern/v1", "kind": "Consumer", "metadata": { "name": name }, "spec": spec })
    };
    let documents = [
        consumer("alice", "k1", &["staff", "admins"]),
        consumer("bob", "k 2", &["staff"]),
        json!({ "apiVersion": "postern/v1", "kind": "RoutePolicy", "metadata": { "name": ROUTE }, "spec": spec }),
    ];
    let text = documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    let files = [File { name: "random.yaml".into(), bytes: text.clone().into() }];
    let snapshot =
        compile(&files, &FilterCode::new(Vec::new(), None)).unwrap_or_else(|error| panic!("{text}\n{error}"));
    snapshot.plan().bytes().to_vec()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug)]
struct Exchange {
    request: Pairs,
    response: Pairs,
    body: Option<Vec<u8>>,
    properties: Vec<(Property, Vec<u8>)>,
    time: Duration,
}

fn exchange(dice: &mut Dice, number: usize) -> Exchange {
    let mut request: Pairs = Vec::new();
    for (name, values) in
        [(":path", &PATHS[..]), (":method", &[b"GET", b"POST", b"\xff"]), (":authority", &[b"a.test"])]
    {
        if !dice.one_in(20) {
            request.push((name.into(), dice.pick(values).to_vec()));
        }
    }
    headers(dice, &mut request);
    let mut response = vec![(b":status".to_vec(), dice.pick(&[&b"200"[..], b"503", b"", b"\xff"]).to_vec())];
    headers(dice, &mut response);
    let integer = |dice: &mut Dice| dice.pick(&[7_i64, 8, 50_000, i64::MIN]).to_le_bytes().to_vec();
    let mut properties = Vec::new();
    for property in Property::ALL {
        let value = match property {
            _ if dice.one_in(3) => continue,
            _ if dice.one_in(10) => dice.noise(),
            Property::SourcePort | Property::DestinationPort => integer(dice),
            Property::Mtls => vec![dice.below(2) as u8],
            Property::PeerUriSan => dice.pick(&[&b"spiffe://mesh/web"[..], b"spiffe://", b"", b"\xff"]).to_vec(),
            _ => dice.pick(&VALUES).to_vec(),
        };
        properties.push((property, value));
    }
    let body = (!dice.one_in(3)).then(|| dice.noise());
    let time = Duration::from_millis(1_800_000_000_000 + 300 * number as u64);
    Exchange { request, response, body, properties, time }
}

fn headers(dice: &mut Dice, pairs: &mut Pairs) {
    let count = if dice.one_in(20) { 400 } else { dice.below(8) };
    for _ in 0..count {
        let name = if dice.one_in(30) { dice.noise() } else { dice.pick(&NAMES).into() };
        let value = if dice.one_in(10) { dice.noise() } else { dice.pick(&VALUES).to_vec() };
        pairs.push((name, value));
    }
}

/// The result of an exchange: the account, and the response unless it is the upstream's.
#[derive(Debug, PartialEq, Eq)]
struct Exchanged {
    account: String,
    answer: Option<(u32, Vec<u8>)>,
}

impl Exchanged {
    fn new(account: String, answer: Option<&Response>) -> Self {
        Self { account, answer: answer.map(|answer| (answer.status.into(), answer.body.clone())) }
    }
}

/// The engine as a native library.
struct Native {
    plan: Arc<Plan>,
    host: Alone,
}

impl Native {
    fn decide(&mut self, exchange: &Exchange) -> Exchanged {
        let health = Health::default();
        let mut run = Run::request(&self.plan, ROUTE, &health).unwrap();
        let decision = self.drive(&mut run, exchange);
        let account = decision.account(self.plan.label(), ROUTE);
        if let Verdict::Deny(answer) | Verdict::Respond(answer) = &decision.verdict {
            return Exchanged::new(account, Some(answer));
        }
        if let Some(mut run) = Run::response(&self.plan, ROUTE, &health, run.take_outlook()) {
            let decision = self.drive(&mut run, exchange);
            if let Verdict::Deny(answer) | Verdict::Respond(answer) = &decision.verdict {
                // The account of a response that is refused takes the place of the request's.
                return Exchanged::new(decision.account(self.plan.label(), ROUTE), Some(answer));
            }
        }
        Exchanged::new(account, None)
    }

    fn drive(&mut self, run: &mut Run, exchange: &Exchange) -> Decision {
        loop {
            match run.advance(&mut self.host) {
                Turn::Done => return run.take_decision(),
                Turn::Ask(Ask::Inputs(needs)) => {
                    let headers = |pairs: &Pairs| pairs.iter().map(|(name, value)| (name, value)).collect::<Headers>();
                    let mut inputs = Inputs::default();
                    inputs.now = exchange.time.as_nanos().try_into().unwrap();
                    inputs.body = exchange.body.clone().unwrap_or_default();
                    inputs.request_headers = headers(&exchange.request);
                    inputs.response_headers = headers(&exchange.response);
                    for (property, value) in &exchange.properties {
                        if needs.properties().any(|needed| needed == *property) {
                            inputs.set(*property, value.clone());
                        }
                    }
                    match needs.has(Needs::BODY) && inputs.body.len() > run.body_limit() {
                        true => run.answer(Answer::BodyTooLarge),
                        false => run.give(inputs),
                    }
                }
                Turn::Ask(Ask::Wait { .. }) => run.answer(Answer::Waited),
                Turn::Ask(Ask::Call(call)) => panic!("no agent is there to be asked: {call:?}"),
            }
        }
    }
}

/// The filter in a VM. Every call must succeed: an error means a trap or an exceeded limit.
struct Worker {
    vm: Vm,
    root: RootId,
}

impl Worker {
    fn decide(&mut self, exchange: &Exchange) -> Exchanged {
        self.vm.set_time(exchange.time);
        let properties = exchange
            .properties
            .iter()
            .fold(Properties::new().with(&["xds", "route_name"], ROUTE), |properties, (property, value)| {
                properties.with(&property.path(), value)
            });
        let stream = self.vm.open(self.root, properties).unwrap();
        let request: HeaderMap = exchange.request.iter().cloned().collect();
        let mut flow = self.vm.request_headers(stream, request, exchange.body.is_none()).unwrap();
        if let Some(body) = &exchange.body {
            let (first, second) = body.split_at(body.len() / 2);
            for (chunk, last) in [(first, false), (second, true)] {
                if self.vm.stream(stream).unwrap().local_response().is_none() {
                    flow = self.vm.request_body(stream, chunk, last).unwrap();
                }
            }
        }
        if self.vm.stream(stream).unwrap().local_response().is_none() {
            assert_eq!(flow, Flow::Continue, "the request is stuck");
            let response: HeaderMap = exchange.response.iter().cloned().collect();
            let flow = self.vm.response_headers(stream, response, false).unwrap();
            assert_ne!(flow, Flow::Pause, "the response is stuck");
        }
        let stream = self.vm.close(stream).unwrap();
        let account = String::from_utf8(stream.property("postern").unwrap_or_default().to_vec()).unwrap();
        Exchanged { account, answer: stream.local_response().map(|answer| (answer.status, answer.body.clone())) }
    }
}

#[test]
fn decides_random_requests_as_the_engine_does_and_never_traps() {
    let path = env::var_os("POSTERN_FILTER").expect("POSTERN_FILTER is not set: `cargo xtask test` sets it");
    let filter = Filter::compile(&fs::read(path).unwrap()).unwrap();
    let mut verdicts: HashMap<String, usize> = HashMap::new();
    for seed in 1..=PLANS {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let bytes = plan(&mut dice);
        let setup = Setup { headers_pause: HeadersPause::ShowsBody, ..Setup::default() };
        let mut vm = filter.start(setup).unwrap();
        let root = vm.configure(&configuration::wrap(&bytes)).unwrap();
        let mut worker = Worker { vm, root };
        let mut native = Native { plan: Arc::new(Plan::load(&bytes).unwrap()), host: Alone::default() };
        for number in 0..REQUESTS {
            let exchange = exchange(&mut dice, number);
            let (got, expected) = (worker.decide(&exchange), native.decide(&exchange));
            assert_eq!(got, expected, "plan {seed}, request {number}: {exchange:?}");
            *verdicts.entry(got.account.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    // Guards against a test in which every exchange has the same result.
    println!("{verdicts:?}");
    for verdict in ["verdict=allow", "verdict=deny", "verdict=respond"] {
        assert!(verdicts.get(verdict).is_some_and(|count| *count > 100), "{verdicts:?}");
    }
}
