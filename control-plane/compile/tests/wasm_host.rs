//! The host for the filter, tested with small modules that do what the filter never does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{collections::BTreeSet, time::Duration};

use postern_compile::wasm::{
    CallError, CallId, Callout, Cause, Clusters, Filter, Flow, HeaderMap, HeadersPause, HttpReply, Limits, MetricKind,
    Properties, RootId, Setup, SharedData, Vm,
};

fn request() -> HeaderMap {
    HeaderMap::from([(":method", "GET"), (":path", "/users"), (":authority", "example.com")])
}

// Test modules. Each stores its observations as shared data, under a letter, with `$put`.

const PUT: &str = r#"
  (func $put (param $key i32) (param $value i32)
    (i32.store (i32.const 0) (local.get $key)) (i32.store (i32.const 4) (local.get $value))
    (drop (call $set_shared_data (i32.const 0) (i32.const 1) (i32.const 4) (i32.const 4) (i32.const 0))))"#;

fn import(name: &str, parameters: &str) -> String {
    let short = name.trim_start_matches("proxy_");
    format!("(import \"env\" \"{name}\" (func ${short} (param {parameters}) (result i32)))\n")
}

/// A module with this code and these imports, in addition to `proxy_set_shared_data`.
fn module(imports: &[(&str, &str)], code: &str) -> Filter {
    let mut text = import("proxy_set_shared_data", "i32 i32 i32 i32 i32");
    text.extend(imports.iter().map(|(name, parameters)| import(name, parameters)));
    let text = format!(
        r#"(module {text}
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 65536))
  (func (export "malloc") (param $size i32) (result i32)
    (global.get $free) (global.set $free (i32.add (global.get $free) (local.get $size))))
  (func (export "proxy_abi_version_0_2_1")) {PUT} {code})"#
    );
    Filter::compile(&wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap()
}

fn started(filter: &Filter) -> (Vm, RootId) {
    let mut vm = filter.start(Setup::default()).unwrap();
    let root = vm.configure(b"configuration").unwrap();
    (vm, root)
}

fn learned(vm: &Vm, key: &str) -> Option<u32> {
    vm.shared_data().get(key).map(|(value, _)| u32::from_le_bytes(value.try_into().unwrap()))
}

/// Bytes as a data segment.
fn data(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let number = |size: usize| u32::try_from(size).unwrap().to_le_bytes();
    let sizes = pairs.iter().flat_map(|(name, value)| [number(name.len()), number(value.len())]).flatten();
    let texts = pairs.iter().flat_map(|(name, value)| format!("{name}\0{value}\0").into_bytes());
    number(pairs.len()).into_iter().chain(sizes).chain(texts).collect()
}

#[test]
fn refuses_what_is_not_a_filter() {
    let check = |text: &str, expect: &str| {
        let error = Filter::compile(text.as_bytes()).map(|filter| filter.start(Setup::default()).map(drop));
        let error = error.and_then(|started| started).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    };
    let wat = |text: &str| String::from_utf8(wat::parse_str(text).unwrap()).unwrap();
    let abi = r#"(func (export "proxy_abi_version_0_2_1"))"#;
    check("not wasm", "the module cannot be compiled: ");
    check(&wat("(module)"), "the module does not export `proxy_abi_version_0_2_1`");
    check(&wat(&format!("(module {abi})")), "the module does not export `memory`");
    let foreign = format!(r#"(module (import "env" "proxy_fly" (func)) {abi})"#);
    check(&wat(&foreign), "the module cannot be linked: unknown import: `env::proxy_fly`");
    let wrong = format!(
        r#"(module (memory (export "memory") 0) {abi} (func (export "malloc") (param i32) (result i32) i32.const 0)
             (func (export "proxy_on_tick")))"#
    );
    check(&wat(&wrong), "the module's export `proxy_on_tick` cannot be called: ");
}

#[test]
fn stops_an_endless_loop_and_ends_the_vm() {
    let filter = module(
        &[("proxy_log", "i32 i32 i32")],
        r#"(data (i32.const 100) "about to loop")
           (func (export "proxy_on_tick") (param i32)
             (drop (call $log (i32.const 3) (i32.const 100) (i32.const 13))) (loop (br 0)))"#,
    );
    let limits = Limits { fuel: 1_000_000, ..Limits::default() };
    let mut vm = filter.start(Setup { limits, ..Setup::default() }).unwrap();
    let root = vm.configure(b"").unwrap();
    let CallError::Crashed(crash) = vm.tick(root).unwrap_err() else { panic!("it goes on") };
    assert_eq!((crash.callback, &crash.cause), ("proxy_on_tick", &Cause::Fuel { fuel: 1_000_000 }));
    let text = "the filter failed in `proxy_on_tick`: it used up its 1000000 units of fuel: about to loop";
    assert_eq!(crash.to_string(), text);
    assert!(matches!(vm.tick(root), Err(CallError::Ended(_))));
    assert_eq!(vm.configure(b"").unwrap_err().to_string(), format!("the VM has ended: {text}"));
    assert_eq!(vm.log().len(), 1);
}

#[test]
fn stops_memory_that_grows_without_end() {
    let filter = module(
        &[],
        r#"(func (export "proxy_on_tick") (param i32)
             (loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable)"#,
    );
    let (mut vm, root) = started(&filter);
    let CallError::Crashed(crash) = vm.tick(root).unwrap_err() else { panic!("it goes on") };
    assert_eq!(crash.cause, Cause::Memory { bytes: 256 << 20 });
    assert!(vm.memory_size() <= 256 << 20);
}

#[test]
fn charges_for_what_the_host_must_keep() {
    let filter = module(
        &[("proxy_log", "i32 i32 i32")],
        r#"(func (export "proxy_on_tick") (param i32)
             (loop (drop (call $log (i32.const 0) (i32.const 0) (i32.const 131072))) (br 0)))"#,
    );
    let limits = Limits { fuel: 100_000_000, ..Limits::default() };
    let mut vm = filter.start(Setup { limits, ..Setup::default() }).unwrap();
    let root = vm.configure(b"").unwrap();
    assert!(matches!(vm.tick(root), Err(CallError::Crashed(crash)) if matches!(crash.cause, Cause::Fuel { .. })));
    assert!(vm.log().len() < 100, "{} lines", vm.log().len());
}

/// Every import of ABI 0.2.1, with the status that it returns if all parameters are -1, and if all but a valid first
/// one are.
const IMPORTS: &[(&str, &str, u32, u32)] = &[
    ("proxy_log", "i32 i32 i32", 2, 6),
    ("proxy_get_log_level", "i32", 6, 0),
    ("proxy_get_current_time_nanoseconds", "i32", 6, 0),
    ("proxy_set_tick_period_milliseconds", "i32", 0, 0),
    ("proxy_get_buffer_bytes", "i32 i32 i32 i32 i32", 2, 2),
    ("proxy_get_buffer_status", "i32 i32 i32", 2, 6),
    ("proxy_set_buffer_bytes", "i32 i32 i32 i32 i32", 2, 6),
    ("proxy_get_header_map_pairs", "i32 i32 i32", 2, 6),
    ("proxy_set_header_map_pairs", "i32 i32 i32", 2, 6),
    ("proxy_get_header_map_size", "i32 i32", 2, 2),
    ("proxy_get_header_map_value", "i32 i32 i32 i32 i32", 2, 6),
    ("proxy_add_header_map_value", "i32 i32 i32 i32 i32", 2, 6),
    ("proxy_replace_header_map_value", "i32 i32 i32 i32 i32", 2, 6),
    ("proxy_remove_header_map_value", "i32 i32 i32", 2, 6),
    ("proxy_continue_stream", "i32", 2, 0),
    ("proxy_close_stream", "i32", 2, 0),
    ("proxy_send_local_response", "i32 i32 i32 i32 i32 i32 i32 i32", 6, 6),
    ("proxy_set_effective_context", "i32", 2, 2),
    ("proxy_done", "", 1, 1),
    ("proxy_get_status", "i32 i32 i32", 6, 6),
    ("proxy_get_property", "i32 i32 i32 i32", 6, 6),
    ("proxy_set_property", "i32 i32 i32 i32", 6, 6),
    ("proxy_get_shared_data", "i32 i32 i32 i32 i32", 6, 6),
    ("proxy_register_shared_queue", "i32 i32 i32", 12, 12),
    ("proxy_resolve_shared_queue", "i32 i32 i32 i32 i32", 12, 12),
    ("proxy_dequeue_shared_queue", "i32 i32 i32", 12, 12),
    ("proxy_enqueue_shared_queue", "i32 i32 i32", 12, 12),
    ("proxy_http_call", "i32 i32 i32 i32 i32 i32 i32 i32 i32 i32", 6, 6),
    ("proxy_grpc_call", "i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32", 6, 6),
    ("proxy_grpc_stream", "i32 i32 i32 i32 i32 i32 i32 i32 i32", 6, 6),
    ("proxy_grpc_send", "i32 i32 i32 i32", 6, 6),
    ("proxy_grpc_cancel", "i32", 1, 1),
    ("proxy_grpc_close", "i32", 1, 1),
    ("proxy_define_metric", "i32 i32 i32 i32", 6, 6),
    ("proxy_increment_metric", "i32 i64", 1, 1),
    ("proxy_record_metric", "i32 i64", 1, 1),
    ("proxy_get_metric", "i32 i32", 1, 1),
    ("proxy_call_foreign_function", "i32 i32 i32 i32 i32 i32", 6, 6),
];

#[test]
fn answers_wild_pointers_with_a_status() {
    let call = |name: &str, parameters: &str, first: i32| {
        let kinds = parameters.split_whitespace().enumerate();
        let values = kinds.map(|(at, kind)| format!("({kind}.const {})", if at == 0 { first } else { -1 }));
        format!("(call ${} {})", name.trim_start_matches("proxy_"), values.collect::<String>())
    };
    let code: String = (IMPORTS.iter().zip(0..))
        .map(|((name, parameters, ..), at)| {
            let [wild, valid] = [-1, 0].map(|first| call(name, parameters, first));
            format!("(call $put (i32.const {at}) {wild}) (call $put (i32.const {}) {valid})", at + 100)
        })
        .collect();
    let imports: Vec<_> = IMPORTS.iter().map(|(name, parameters, ..)| (*name, *parameters)).collect();
    let (mut vm, root) = started(&module(&imports, &format!(r#"(func (export "proxy_on_tick") (param i32) {code})"#)));
    vm.tick(root).unwrap();
    for ((name, _, wild, valid), at) in IMPORTS.iter().zip(0_u8..) {
        let status = |at: u8| vm.shared_data().get([at]).unwrap().0[0];
        assert_eq!([status(at), status(at + 100)].map(u32::from), [*wild, *valid], "{name}");
    }
}

#[test]
fn shares_data_between_workers_with_compare_and_swap() {
    // Reads the version on a tick, and writes with that version when a stream opens.
    let filter = module(
        &[("proxy_get_shared_data", "i32 i32 i32 i32 i32")],
        r#"(data (i32.const 100) "k") (data (i32.const 101) "w")
           (func (export "proxy_on_tick") (param i32)
             (call $put (i32.const 103) (call $get_shared_data
               (i32.const 100) (i32.const 1) (i32.const 200) (i32.const 204) (i32.const 208))))
           (func (export "proxy_on_context_create") (param i32 i32)
             (if (local.get 1) (then (call $put (i32.const 115) (call $set_shared_data
               (i32.const 100) (i32.const 1) (i32.const 101) (i32.const 1) (i32.load (i32.const 208)))))))"#,
    );
    let setup = Setup { shared_data: SharedData::default(), ..Setup::default() };
    let mut workers = [(); 2].map(|()| {
        let mut vm = filter.start(setup.clone()).unwrap();
        let root = vm.configure(b"").unwrap();
        (vm, root)
    });
    let [(first, first_root), (second, second_root)] = &mut workers;
    first.tick(*first_root).unwrap();
    assert_eq!(learned(first, "g"), Some(1), "not found");
    assert!(setup.shared_data.set("k", "0", 0));
    first.tick(*first_root).unwrap();
    second.tick(*second_root).unwrap();
    assert_eq!(learned(second, "g"), Some(0));
    first.open(*first_root, Properties::new()).unwrap();
    assert_eq!(learned(first, "s"), Some(0));
    second.open(*second_root, Properties::new()).unwrap();
    assert_eq!(learned(second, "s"), Some(8), "the other worker was first");
    assert_eq!(setup.shared_data.get("k").unwrap().0, b"w");
}

/// A module that makes an HTTP callout for each request, and copies the answer's body into a header.
fn asking() -> Filter {
    let headers = pairs(&[(":method", "GET"), (":path", "/"), (":authority", "a")]);
    let grave = pairs(&[("x-why", "no answer")]);
    module(
        &[
            ("proxy_http_call", "i32 i32 i32 i32 i32 i32 i32 i32 i32 i32"),
            ("proxy_get_buffer_bytes", "i32 i32 i32 i32 i32"),
            ("proxy_get_header_map_value", "i32 i32 i32 i32 i32"),
            ("proxy_add_header_map_value", "i32 i32 i32 i32 i32"),
            ("proxy_set_effective_context", "i32"),
            ("proxy_continue_stream", "i32"),
            ("proxy_send_local_response", "i32 i32 i32 i32 i32 i32 i32 i32"),
        ],
        &format!(
            r#"(data (i32.const 100) "authz") (data (i32.const 200) "{}") (data (i32.const 400) "{}")
               (data (i32.const 110) "x-said") (data (i32.const 120) "X-Seen") (data (i32.const 130) "body?")
               (global $stream (mut i32) (i32.const 0))
               (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
                 (global.set $stream (local.get 0))
                 (call $put (i32.const 99) (call $http_call (i32.const 100) (i32.const 5) (i32.const 200)
                   (i32.const {}) (i32.const 130) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 250)
                   (i32.const 500)))
                 i32.const 1)
               (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
                 (drop (call $set_effective_context (global.get $stream)))
                 (if (local.get 2)
                   (then
                     (drop (call $get_buffer_bytes (i32.const 4) (i32.const 0) (local.get 3)
                       (i32.const 504) (i32.const 508)))
                     (drop (call $add_header_map_value (i32.const 0) (i32.const 110) (i32.const 6)
                       (i32.load (i32.const 504)) (i32.load (i32.const 508))))
                     (drop (call $continue_stream (i32.const 0))))
                   (else
                     (drop (call $send_local_response (i32.const 503) (i32.const 100) (i32.const 5)
                       (i32.const 130) (i32.const 5) (i32.const 400) (i32.const {}) (i32.const -1))))))
               (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
                 (drop (call $add_header_map_value (i32.const 2) (i32.const 120) (i32.const 6)
                   (i32.const 120) (i32.const 1)))
                 i32.const 0)"#,
            data(&headers),
            data(&grave),
            headers.len(),
            grave.len(),
        ),
    )
}

#[test]
fn pauses_for_a_callout_and_resumes_with_its_answer() {
    let (mut vm, root) = started(&asking());
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), false).unwrap(), Flow::Pause);
    assert_eq!(vm.request_body(stream, b"early", true).unwrap(), Flow::Pause);
    let (id, callout) = vm.callouts().next().unwrap();
    let Callout::Http(call) = callout else { panic!("{callout:?}") };
    assert_eq!((call.cluster.as_slice(), call.timeout), (b"authz".as_slice(), Some(Duration::from_millis(250))));
    assert_eq!(
        (call.headers.get("content-length"), call.body.as_slice()),
        (Some(b"5".as_slice()), b"body?".as_slice())
    );
    vm.reply_http(id, HttpReply::response([(":status", "200")], "fine")).unwrap();
    let seen = vm.stream(stream).unwrap().request();
    assert_eq!((seen.is_paused(), seen.headers().get("x-said")), (false, Some(b"fine".as_slice())));
    assert_eq!(seen.body(), b"early", "what came meanwhile goes on");
    assert!(matches!(vm.reply_http(id, HttpReply::Reset), Err(CallError::Unknown { what: "callout", .. })));
}

#[test]
fn answers_after_a_callout_that_failed() {
    let (mut vm, root) = started(&asking());
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), true).unwrap(), Flow::Pause);
    vm.reply_http(CallId::Http(1), HttpReply::Reset).unwrap();
    let stream = vm.close(stream).unwrap();
    assert_eq!(stream.local_response().unwrap().headers, HeaderMap::from([("x-why", "no answer")]));
    let expect = [
        (":status", "503"),
        ("x-why", "no answer"),
        ("content-length", "5"),
        ("content-type", "text/plain"),
        ("x-seen", "X"),
    ];
    assert_eq!(*stream.response().headers(), HeaderMap::from(expect), "as the filter's own response callback left it");
    assert_eq!(stream.response().body(), b"body?");
}

#[test]
fn takes_the_first_of_two_answers_and_answers_a_response_directly() {
    let filter = module(
        &[("proxy_send_local_response", "i32 i32 i32 i32 i32 i32 i32 i32")],
        r#"(func $answer (param $status i32) (drop (call $send_local_response (local.get $status) (i32.const 0)
             (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -1))))
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (if (i32.eq (local.get 1) (i32.const 4)) (then (call $answer (i32.const 403)) (call $answer (i32.const 404))))
             i32.const 0)
           (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
             (call $answer (i32.const 502)) i32.const 0)"#,
    );
    let (mut vm, root) = started(&filter);
    let denied = vm.open(root, Properties::new()).unwrap();
    let mut headers = request();
    headers.add("x-no", "1");
    assert_eq!(vm.request_headers(denied, headers, true).unwrap(), Flow::Answered);
    let denied = vm.close(denied).unwrap();
    assert_eq!(denied.local_response().unwrap().status, 403);
    assert_eq!(*denied.response().headers(), HeaderMap::from([(":status", "403")]));

    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), true).unwrap(), Flow::Continue);
    let flow = vm.response_headers(stream, HeaderMap::from([(":status", "200"), ("x-secret", "1")]), false);
    assert_eq!(flow.unwrap(), Flow::Answered);
    assert_eq!(*vm.stream(stream).unwrap().response().headers(), HeaderMap::from([(":status", "502")]));
}

#[test]
fn refuses_a_callout_to_an_unknown_cluster() {
    let clusters = Clusters::Only(BTreeSet::from(["other".to_owned()]));
    let mut vm = asking().start(Setup { clusters, ..Setup::default() }).unwrap();
    let root = vm.configure(b"").unwrap();
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), true).unwrap(), Flow::Pause);
    assert_eq!((learned(&vm, "c"), vm.callouts().count()), (Some(2), 0));
}

#[test]
fn carries_grpc_calls_and_their_ends() {
    let filter = module(
        &[
            ("proxy_grpc_call", "i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32"),
            ("proxy_get_buffer_bytes", "i32 i32 i32 i32 i32"),
            ("proxy_get_status", "i32 i32 i32"),
        ],
        r#"(data (i32.const 100) "agent") (data (i32.const 110) "pkg.Svc") (data (i32.const 120) "Check")
           (func (export "proxy_on_tick") (param i32)
             (drop (call $grpc_call (i32.const 100) (i32.const 5) (i32.const 110) (i32.const 7) (i32.const 120)
               (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 100) (i32.const 5) (i32.const 90)
               (i32.const 500))))
           (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
             (drop (call $get_buffer_bytes (i32.const 5) (i32.const 0) (local.get 2) (i32.const 500) (i32.const 504)))
             (call $put (i32.const 114) (i32.load8_u (i32.load (i32.const 500)))))
           (func (export "proxy_on_grpc_close") (param i32 i32 i32)
             (drop (call $get_status (i32.const 500) (i32.const 504) (i32.const 508)))
             (call $put (i32.const 99) (i32.load (i32.const 500)))
             (call $put (i32.const 116) (i32.load8_u (i32.load (i32.const 504)))))"#,
    );
    let (mut vm, root) = started(&filter);
    vm.tick(root).unwrap();
    vm.tick(root).unwrap();
    let (_, Callout::Grpc(call)) = vm.callouts().next().unwrap() else { panic!("not a gRPC call") };
    assert_eq!((call.service.as_slice(), call.method.as_slice()), (b"pkg.Svc".as_slice(), b"Check".as_slice()));
    assert_eq!((call.message.as_slice(), call.timeout), (b"agent".as_slice(), Duration::from_millis(90)));
    vm.reply_grpc(CallId::Grpc(1), b"yes").unwrap();
    vm.end_grpc(CallId::Grpc(3), 14, "down").unwrap();
    let expect = [Some(u32::from(b'y')), Some(14), Some(u32::from(b'd'))];
    assert_eq!(["r", "c", "t"].map(|key| learned(&vm, key)), expect);
    assert_eq!(vm.callouts().count(), 0);
}

#[test]
fn carries_grpc_streams() {
    let filter = module(
        &[
            ("proxy_grpc_stream", "i32 i32 i32 i32 i32 i32 i32 i32 i32"),
            ("proxy_grpc_send", "i32 i32 i32 i32"),
            ("proxy_get_header_map_size", "i32 i32"),
            ("proxy_get_header_map_value", "i32 i32 i32 i32 i32"),
        ],
        r#"(data (i32.const 100) "agent") (data (i32.const 110) "pkg.Svc") (data (i32.const 120) "Watch")
           (func (export "proxy_on_tick") (param i32)
             (drop (call $grpc_stream (i32.const 100) (i32.const 5) (i32.const 110) (i32.const 7) (i32.const 120)
               (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 500)))
             (drop (call $grpc_send (i32.load (i32.const 500)) (i32.const 100) (i32.const 5) (i32.const 1))))
           (func (export "proxy_on_grpc_receive_initial_metadata") (param i32 i32 i32)
             (call $put (i32.const 105) (call $get_header_map_value
               (i32.const 4) (i32.const 100) (i32.const 5) (i32.const 504) (i32.const 508))))
           (func (export "proxy_on_grpc_receive") (param i32 i32 i32) (call $put (i32.const 114) (local.get 2)))
           (func (export "proxy_on_grpc_close") (param i32 i32 i32) (call $put (i32.const 99) (local.get 2)))"#,
    );
    let (mut vm, root) = started(&filter);
    vm.tick(root).unwrap();
    let (id, Callout::GrpcStream(stream)) = vm.callouts().next().unwrap() else { panic!("not a gRPC stream") };
    assert_eq!((id, stream.method.as_slice()), (CallId::Grpc(2), b"Watch".as_slice()));
    assert_eq!((stream.sent[0].bytes.as_slice(), stream.sent[0].last), (b"agent".as_slice(), true));
    vm.grpc_initial_metadata(id, HeaderMap::from([("agent", "7")])).unwrap();
    vm.reply_grpc(id, b"one").unwrap();
    vm.reply_grpc(id, b"four").unwrap();
    vm.end_grpc(id, 0, "").unwrap();
    assert_eq!(["i", "r", "c"].map(|key| learned(&vm, key)), [Some(0), Some(4), Some(0)]);
    assert!(matches!(vm.reply_grpc(id, b""), Err(CallError::Unknown { .. })));
}

/// A module that pauses until the message is complete, and replaces its body by `new`.
fn rewriting() -> Filter {
    module(
        &[("proxy_set_buffer_bytes", "i32 i32 i32 i32 i32"), ("proxy_get_buffer_status", "i32 i32 i32")],
        r#"(data (i32.const 100) "new")
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) i32.const 1)
           (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
             (drop (call $get_buffer_status (i32.const 0) (i32.const 500) (i32.const 504)))
             (call $put (i32.const 115) (i32.load (i32.const 500)))
             (if (local.get 2) (then (drop (call $set_buffer_bytes
               (i32.const 0) (i32.const 0) (local.get 1) (i32.const 100) (i32.const 3)))))
             (i32.eqz (local.get 2)))"#,
    )
}

#[test]
fn replaces_a_body_that_the_filter_waited_for() {
    let setup = Setup { headers_pause: HeadersPause::ShowsBody, ..Setup::default() };
    let mut vm = rewriting().start(setup).unwrap();
    let root = vm.configure(b"").unwrap();
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), false).unwrap(), Flow::Pause);
    assert_eq!(vm.request_body(stream, b"12345", false).unwrap(), Flow::Pause);
    assert_eq!(vm.stream(stream).unwrap().request().body(), b"");
    assert_eq!(vm.request_body(stream, b"678", true).unwrap(), Flow::Continue);
    assert_eq!(learned(&vm, "s"), Some(8), "both pieces");
    assert_eq!(vm.close(stream).unwrap().request().body(), b"new");
}

#[test]
fn shows_no_body_while_the_headers_are_paused() {
    let (mut vm, root) = started(&rewriting());
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), false).unwrap(), Flow::Pause);
    assert_eq!(vm.request_body(stream, b"12345", true).unwrap(), Flow::Pause);
    assert_eq!(learned(&vm, "s"), None, "Envoy would hang here as well");
}

#[test]
fn resets_a_stream_and_lets_the_filter_log_it() {
    let filter = module(
        &[
            ("proxy_close_stream", "i32"),
            ("proxy_get_header_map_value", "i32 i32 i32 i32 i32"),
            ("proxy_remove_header_map_value", "i32 i32 i32"),
        ],
        r#"(data (i32.const 100) ":path")
           (func $read (param $key i32) (call $put (local.get $key) (call $get_header_map_value
             (i32.const 0) (i32.const 100) (i32.const 5) (i32.const 500) (i32.const 504))))
           (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
             (call $read (i32.const 116)) (drop (call $close_stream (i32.const 0))) i32.const 0)
           (func (export "proxy_on_log") (param i32)
             (call $read (i32.const 108))
             (call $put (i32.const 101) (call $remove_header_map_value (i32.const 0) (i32.const 100) (i32.const 5))))
           (func (export "proxy_on_delete") (param i32) (call $put (i32.const 100) (i32.const 1)))"#,
    );
    let (mut vm, root) = started(&filter);
    let stream = vm.open(root, Properties::new()).unwrap();
    assert_eq!(vm.request_headers(stream, request(), false).unwrap(), Flow::Continue);
    assert_eq!(vm.request_trailers(stream, HeaderMap::from([("x-sum", "1")])).unwrap(), Flow::Reset);
    assert_eq!(learned(&vm, "t"), Some(2), "headers that went on are out of reach");
    let closed = vm.close(stream).unwrap();
    assert_eq!((closed.is_reset(), closed.request().trailers().len()), (true, 1));
    let expect = [Some(0), Some(2), Some(1)];
    assert_eq!(["l", "e", "d"].map(|key| learned(&vm, key)), expect, "a log can read and not edit");
    assert!(vm.stream(stream).is_none());
}

#[test]
fn keeps_metrics() {
    let filter = module(
        &[
            ("proxy_define_metric", "i32 i32 i32 i32"),
            ("proxy_increment_metric", "i32 i64"),
            ("proxy_record_metric", "i32 i64"),
            ("proxy_get_metric", "i32 i32"),
        ],
        r#"(data (i32.const 100) "denied")
           (func $new (param $kind i32) (result i32)
             (drop (call $define_metric (local.get $kind) (i32.const 100) (i32.const 6) (i32.const 500)))
             (i32.load (i32.const 500)))
           (func (export "proxy_on_tick") (param i32) (local $counter i32)
             (local.set $counter (call $new (i32.const 0)))
             (drop (call $increment_metric (local.get $counter) (i64.const 3)))
             (call $put (i32.const 110) (call $increment_metric (local.get $counter) (i64.const -1)))
             (drop (call $get_metric (local.get $counter) (i32.const 504)))
             (call $put (i32.const 118) (i32.load (i32.const 504)))
             (drop (call $increment_metric (call $new (i32.const 1)) (i64.const -1)))
             (drop (call $record_metric (call $new (i32.const 1)) (i64.const 7)))
             (drop (call $record_metric (call $new (i32.const 2)) (i64.const 9)))
             (call $put (i32.const 107) (call $define_metric
               (i32.const 3) (i32.const 100) (i32.const 6) (i32.const 500))))"#,
    );
    let (mut vm, root) = started(&filter);
    vm.tick(root).unwrap();
    assert_eq!(["n", "v", "k"].map(|key| learned(&vm, key)), [Some(2), Some(3), Some(2)]);
    let seen: Vec<_> = vm
        .metrics()
        .map(|metric| (metric.name.as_str(), metric.kind, metric.value, metric.samples.as_slice()))
        .collect();
    let expect: [(_, _, _, &[u64]); 3] = [
        ("denied", MetricKind::Counter, 3, &[]),
        ("denied", MetricKind::Gauge, 7, &[]),
        ("denied", MetricKind::Histogram, 0, &[9]),
    ];
    assert_eq!(seen, expect);
}

#[test]
fn ticks_when_told_and_shows_the_time_that_was_set() {
    let filter = module(
        &[("proxy_set_tick_period_milliseconds", "i32"), ("proxy_get_current_time_nanoseconds", "i32")],
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
             (drop (call $set_tick_period_milliseconds (i32.const 250))) i32.const 1)
           (func (export "proxy_on_tick") (param i32)
             (drop (call $get_current_time_nanoseconds (i32.const 504)))
             (call $put (i32.const 116) (i32.wrap_i64 (i64.div_u (i64.load (i32.const 504)) (i64.const 1000000000)))))"#,
    );
    let (mut vm, root) = started(&filter);
    assert_eq!(vm.tick_period(root), Some(Duration::from_millis(250)));
    for seconds in [0, 1_800_000_000] {
        vm.set_time(Duration::from_secs(seconds));
        vm.tick(root).unwrap();
        assert_eq!(learned(&vm, "t").map(u64::from), Some(seconds));
    }
}
