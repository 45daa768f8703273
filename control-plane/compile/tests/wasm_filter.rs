//! The real filter's bytes under our own host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{collections::BTreeSet, env, fs, sync::OnceLock, time::Instant};

use postern_compile::{
    pipeline::compile,
    route_match::marked_names,
    snapshot::FilterCode,
    wasm::{
        CallError, Filter, Flow, HeaderMap, HostError, Limits, LogLevel, Properties, Refused, Setup, SharedData,
        StreamId, Vm,
    },
};
use postern_model::{File, read};
use postern_proto::configuration::{unwrap, wrap};

const POLICY: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: mobile-app }
spec: { apiKeys: [{ key: the-key }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users }
spec:
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - { policy: apiKeyAuth, params: { header: x-api-key } }
    - { policy: headers, params: { remove: [x-api-key], set: { x-guarded-by: postern } } }
  response:
    - { policy: headers, params: { set: { x-content-type-options: nosniff } } }
";

/// The real filter, compiled once.
fn filter() -> &'static Filter {
    static FILTER: OnceLock<Filter> = OnceLock::new();
    let path = env::var_os("POSTERN_FILTER").expect("POSTERN_FILTER is not set: `cargo xtask test` sets it");
    FILTER.get_or_init(|| {
        let begin = Instant::now();
        let filter = Filter::compile(&fs::read(path).unwrap()).unwrap();
        println!("compiled the filter in {:?}", begin.elapsed());
        filter
    })
}

fn plan(text: &str) -> Vec<u8> {
    let files = [File { name: "p.yaml".into(), bytes: text.into() }];
    let snapshot = compile(&files, &FilterCode::new(b"code".to_vec(), None)).unwrap_or_else(|error| panic!("{error}"));
    snapshot.plan().configuration().to_vec()
}

fn route(name: &str) -> Properties {
    Properties::new().with(&["xds", "route_name"], name)
}

/// The filter with the policy above, and an open stream on its route.
fn guarded() -> (Vm, StreamId) {
    let mut vm = filter().start(Setup::default()).unwrap();
    let root = vm.configure(&plan(POLICY)).unwrap();
    let stream = vm.open(root, route("users")).unwrap();
    (vm, stream)
}

fn request(more: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::from([(":method", "GET"), (":path", "/users"), (":authority", "example.com")]);
    more.iter().for_each(|(name, value)| headers.add(name, value));
    headers
}

#[test]
fn removes_trailers_that_are_named_like_headers_that_steps_edit() {
    for last in [false, true] {
        // Without steps for the response, the stream is forgotten before its trailers come.
        let policy = if last { POLICY.split("  response:").next().unwrap() } else { POLICY };
        let mut vm = filter().start(Setup::default()).unwrap();
        let root = vm.configure(&plan(policy)).unwrap();
        let trailers = [("x-guarded-by", "me"), ("x-sum", "1"), ("x-api-key", "another"), ("x-guarded-by", "again")];
        let stream = vm.open(root, route("users")).unwrap();
        assert_eq!(vm.request_headers(stream, request(&[("x-api-key", "the-key")]), false).unwrap(), Flow::Continue);
        assert_eq!(vm.request_body(stream, b"hello", false).unwrap(), Flow::Continue);
        assert_eq!(vm.request_trailers(stream, HeaderMap::from(trailers)).unwrap(), Flow::Continue);
        assert_eq!(*vm.close(stream).unwrap().request().trailers(), HeaderMap::from([("x-sum", "1")]), "{last}");

        let stream = vm.open(root, route("open")).unwrap();
        assert_eq!(vm.request_headers(stream, request(&[]), false).unwrap(), Flow::Continue);
        assert_eq!(vm.request_trailers(stream, HeaderMap::from(trailers)).unwrap(), Flow::Continue);
        assert_eq!(vm.close(stream).unwrap().request().trailers().len(), 4, "no step edits anything there");
    }
}

#[test]
fn refuses_a_corrupt_plan_with_the_filters_own_line() {
    let mut vm = filter().start(Setup::default()).unwrap();
    for (bytes, line) in [
        (wrap(b""), "plan refused: plan format 0 is not supported"),
        (wrap(b"\xff\xff\xff"), "plan refused: the plan cannot be decoded"),
        (Vec::new(), "plan refused: the configuration is not a GenericSecret with a plan"),
        (unwrap(&plan(POLICY)).unwrap().to_vec(), "plan refused: the configuration is not a GenericSecret with a plan"),
    ] {
        let refused = vm.configure(&bytes).unwrap_err();
        assert!(matches!(refused, Refused::Declined { .. }), "{refused:?}");
        assert_eq!(refused.log()[0].level, LogLevel::Error);
        assert!(refused.log()[0].text.starts_with(line), "{refused}");
        assert!(refused.to_string().starts_with("the filter refused its configuration: plan refused: "), "{refused}");
    }
    vm.configure(&plan(POLICY)).expect("a refusal leaves the VM as it was");
}

#[test]
fn answers_by_the_chain_of_the_route_that_the_request_took() {
    let (mut vm, stream) = guarded();
    let flow = vm.request_headers(stream, request(&[("x-api-key", "the-key")]), true);
    assert_eq!(flow.unwrap(), Flow::Continue);
    // The route is another one by now, without a response chain.
    vm.provide(stream, route("open"));
    let flow = vm.response_headers(stream, HeaderMap::from([(":status", "200")]), true);
    assert_eq!(flow.unwrap(), Flow::Continue);
    let answer = vm.close(stream).unwrap();
    assert_eq!(answer.response().headers().get("x-content-type-options"), Some(b"nosniff".as_slice()));

    // And the other way around: a request without a chain gets none for its response.
    let root = vm.configure(&plan(POLICY)).unwrap();
    let stream = vm.open(root, route("open")).unwrap();
    assert_eq!(vm.request_headers(stream, request(&[]), true).unwrap(), Flow::Continue);
    vm.provide(stream, route("users"));
    let flow = vm.response_headers(stream, HeaderMap::from([(":status", "200")]), true);
    assert_eq!(flow.unwrap(), Flow::Continue);
    assert_eq!(vm.close(stream).unwrap().response().headers().get("x-content-type-options"), None);
}

#[test]
fn denies_without_a_key() {
    let (mut vm, stream) = guarded();
    assert_eq!(vm.request_headers(stream, request(&[]), true).unwrap(), Flow::Answered);
    let stream = vm.close(stream).unwrap();
    let answer = stream.local_response().unwrap();
    assert_eq!((answer.status, answer.details.as_slice()), (401, b"postern".as_slice()));
    assert_eq!(answer.headers.get("www-authenticate"), Some(b"ApiKey".as_slice()));
    assert!(String::from_utf8_lossy(&answer.body).contains("a valid API key is required"));
    let response = stream.response();
    assert_eq!(response.headers().get(":status"), Some(b"401".as_slice()));
    assert_eq!(response.body(), answer.body);
    assert_eq!(response.headers().get("x-content-type-options"), None, "a denial does not pass the response chain");
    let account = String::from_utf8_lossy(stream.property("postern").unwrap());
    assert!(account.starts_with("verdict=deny step=apiKeyAuth reason=key_missing route=users"), "{account}");
}

#[test]
fn allows_the_right_key_and_edits_both_directions() {
    let (mut vm, stream) = guarded();
    let flow = vm.request_headers(stream, request(&[("X-Api-Key", "the-key"), ("X-Guarded-By", "me")]), true);
    assert_eq!(flow.unwrap(), Flow::Continue);
    let flow = vm.response_headers(stream, HeaderMap::from([(":status", "200")]), false);
    assert_eq!(flow.unwrap(), Flow::Continue);
    assert_eq!(vm.response_body(stream, b"hello", true).unwrap(), Flow::Continue);
    let stream = vm.close(stream).unwrap();
    assert_eq!(*stream.request().headers(), request(&[("x-guarded-by", "postern")]));
    assert_eq!(stream.response().headers().get("x-content-type-options"), Some(b"nosniff".as_slice()));
    assert_eq!(stream.response().body(), b"hello");
    let account = String::from_utf8_lossy(stream.property("postern").unwrap());
    assert!(account.starts_with("verdict=allow consumer=mobile-app route=users plan="), "{account}");
}

#[test]
fn lets_other_routes_pass_and_keeps_a_stream_on_its_plan() {
    let mut vm = filter().start(Setup::default()).unwrap();
    let old = vm.configure(&plan(POLICY)).unwrap();
    let begun = vm.open(old, route("users")).unwrap();
    let new = vm.configure(&plan(&POLICY.replace("name: users }", "name: orders }"))).unwrap();
    let other = vm.open(new, route("users")).unwrap();
    let nameless = vm.open(new, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(begun, request(&[]), true).unwrap(), Flow::Answered);
    assert_eq!(vm.request_headers(other, request(&[]), true).unwrap(), Flow::Continue);
    assert_eq!(vm.request_headers(nameless, request(&[]), true).unwrap(), Flow::Continue);
    assert!(vm.retire(old).unwrap());
    assert!(matches!(vm.open(old, route("users")), Err(CallError::Unknown { what: "root context", .. })));
}

#[test]
fn survives_odd_requests() {
    let (mut vm, stream) = guarded();
    let mut headers = request(&[]);
    headers.add("x-odd", b"\xff\xfe\x00");
    headers.add("x-api-key", b"\xc3\x28");
    assert_eq!(vm.request_headers(stream, headers, true).unwrap(), Flow::Answered, "a key that is not UTF-8");

    let (mut vm, stream) = guarded();
    let mut headers = request(&[]);
    (0..1000).for_each(|number| headers.add(format!("x-{number}"), vec![0xff; 100]));
    headers.add("x-api-key", "the-key");
    assert_eq!(vm.request_headers(stream, headers, true).unwrap(), Flow::Continue);
    assert_eq!(vm.stream(stream).unwrap().request().headers().len(), 1004);
}

#[test]
fn loads_10_000_routes() {
    let text: String = (0..10_000)
        .map(|number| format!("{}\n---", policy(number)).replace("x-api-key", &format!("x-key-{}", number % 100)))
        .collect();
    let bytes = plan(&format!("{POLICY}\n---{}", text.trim_end_matches("---")));
    let filter = filter();
    let begin = Instant::now();
    let mut vm = filter.start(Setup::default()).unwrap();
    println!("started a VM in {:?}", begin.elapsed());
    let begin = Instant::now();
    vm.configure(&bytes).unwrap();
    let (took, fuel, memory) = (begin.elapsed(), vm.fuel_used(), vm.memory_size());
    println!("10,000 routes: {} bytes of plan, {took:?}, {fuel} fuel, {memory} bytes of memory", bytes.len());
}

fn policy(number: usize) -> String {
    let (_, policy) = POLICY.split_once("---").unwrap();
    policy.replace("name: users }", &format!("name: route-{number} }}"))
}

#[test]
fn stops_a_real_filter_at_its_limits() {
    let limits = Limits { fuel: 10_000, ..Limits::default() };
    let mut vm = filter().start(Setup { limits, ..Setup::default() }).unwrap();
    let refused = vm.configure(&plan(POLICY)).unwrap_err();
    assert!(refused.to_string().ends_with("it used up its 10000 units of fuel"), "{refused}");
    let limits = Limits { memory: 1 << 16, ..Limits::default() };
    let error = filter().start(Setup { limits, ..Setup::default() }).unwrap_err();
    assert!(error.to_string().contains("more than its 65536 bytes of memory"), "{error}");
}

#[test]
fn writes_its_compiled_form() {
    assert!(!filter().serialize().unwrap().is_empty());
    assert!(matches!(Filter::compile(&[]), Err(HostError::Compile(_))));
}

const LIMIT: &str = "
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users }
spec:
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - { policy: rateLimit, params: { requests: 10, per: 1h } }
";

/// Workers cache the bucket that they wrote last, and no interleaving lets them grant too much.
#[test]
fn a_bucket_is_one_bucket_whichever_worker_takes_from_it() {
    for turns in ["A", "AB", "AAAB", "AAAAAAAB", "AABB", "ABC", "AAABBBCCC", "AAAAABAAAAC", "ABBBBBBBCA"] {
        let shared_data = SharedData::default();
        let plan = plan(LIMIT);
        let mut workers: Vec<_> = "ABC"
            .chars()
            .map(|name| {
                let setup = Setup { shared_data: shared_data.clone(), ..Setup::default() };
                let mut vm = filter().start(setup).unwrap();
                let root = vm.configure(&plan).unwrap();
                (name, vm, root)
            })
            .collect();
        let admitted = turns.chars().cycle().take(40).map(|turn| {
            let (_, vm, root) = workers.iter_mut().find(|(name, ..)| *name == turn).unwrap();
            let stream = vm.open(*root, route("users")).unwrap();
            let flow = vm.request_headers(stream, request(&[]), true).unwrap();
            vm.close(stream).unwrap();
            flow == Flow::Continue
        });
        let admitted: Vec<_> = admitted.collect();
        assert_eq!(admitted, [vec![true; 10], vec![false; 30]].concat(), "{turns}");
    }
}

/// A new plan does not refill the bucket, and a worker's cache of the bucket does not prevent the update.
#[test]
fn a_bucket_goes_on_across_an_update_of_the_plan() {
    let mut vm = filter().start(Setup::default()).unwrap();
    let mut admitted = 0;
    for update in 0..4 {
        let root = vm.configure(&plan(&format!("{LIMIT}\n# {update}\n"))).unwrap();
        for _ in 0..4 {
            let stream = vm.open(root, route("users")).unwrap();
            admitted += u32::from(vm.request_headers(stream, request(&[]), true).unwrap() == Flow::Continue);
            vm.close(stream).unwrap();
        }
        assert!(vm.retire(root).unwrap());
    }
    assert_eq!(admitted, 10);
}

const SERVED: &str = "
apiVersion: postern/v1
kind: Service
metadata: { name: users }
spec: { endpoints: [{ address: 127.0.0.1, port: 1 }] }
---
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, address: 127.0.0.1, port: 2 }]
  routes: [{ name: users, match: { path: { prefix: / } }, service: users }]
---
";

const LOG: &str = "---
apiVersion: postern/v1
kind: AccessLog
metadata: { name: log }
spec: { targetRef: { kind: Mesh }, to: [{ targetRef: { kind: Mesh }, backends: [] }] }
";

const OWN: &str = "---
apiVersion: postern/v1
kind: EnvoyResource
metadata: { name: own }
spec:
  resource: { '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: own }
";

/// The account is written only if something can read it, such as an access log.
#[test]
fn gives_an_account_to_whoever_may_log_it() {
    let check = |text: &str, expect: bool| {
        let mut vm = filter().start(Setup::default()).unwrap();
        let root = vm.configure(&plan(text)).unwrap();
        let gateways = read(&[File { name: "p.yaml".into(), bytes: text.into() }]).unwrap().gateways;
        let marked = gateways
            .first()
            .map_or("users".to_owned(), |gateway| marked_names(&gateway.spec, &BTreeSet::new()).remove(0));
        for (headers, flow) in [(&[("x-api-key", "the-key")][..], Flow::Continue), (&[], Flow::Answered)] {
            let stream = vm.open(root, route(&marked)).unwrap();
            assert_eq!(vm.request_headers(stream, request(headers), true).unwrap(), flow);
            assert_eq!(vm.close(stream).unwrap().property("postern").is_some(), expect, "{text}");
        }
    };
    check(POLICY, true);
    check(&format!("{SERVED}{POLICY}"), true);
    check(&format!("{SERVED}{POLICY}{LOG}"), false);
    check(&format!("{SERVED}{POLICY}{}", LOG.replace("[]", "[{ name: stdout }]")), true);
    check(&format!("{POLICY}{LOG}"), true);
    check(&format!("{SERVED}{POLICY}{LOG}{OWN}"), true);
}
