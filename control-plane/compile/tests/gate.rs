//! The gate: plans are loaded in the filter's own bytes, and the filter's reasons for a refusal reach the user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{env, fs, sync::OnceLock};

use postern_compile::{
    gate::{EncodedPlan, Gate, Refusal, diagnose},
    pipeline::compile,
    snapshot::FilterCode,
    wasm::{Filter, Limits},
};
use postern_engine::Site;
use postern_model::File;
use postern_proto::plan::v1::{FORMAT, Plan};

const RESOURCES: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: app }
spec: { apiKeys: [{ key: the-key }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users }
spec:
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - { policy: apiKeyAuth, params: { header: x-api-key } }
    - { policy: headers, params: { set: { x-guarded-by: postern } } }
  response:
    - { policy: securityHeaders }
";

/// The real filter, compiled once.
fn filter() -> Filter {
    static FILTER: OnceLock<Filter> = OnceLock::new();
    let path = env::var_os("POSTERN_FILTER").expect("POSTERN_FILTER is not set: `cargo xtask test` sets it");
    FILTER.get_or_init(|| Filter::compile(&fs::read(path).unwrap()).unwrap()).clone()
}

fn real() -> Gate {
    Gate::of_filter(filter(), Limits::default())
}

/// A gate with a filter that logs these words as an error and returns the result of the code, a boolean.
fn filter_that(words: &str, code: &str) -> Gate {
    let size = words.len();
    let text = format!(
        r#"(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "{words}")
  (func (export "malloc") (param i32) (result i32) (i32.const 8192))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 1024) (i32.const {size}))) {code}))"#
    );
    let filter = Filter::compile(&wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
    Gate::of_filter(filter, Limits { fuel: 1_000_000, ..Limits::default() })
}

/// Compiles the resources above behind this gate, and returns the error.
fn error(gate: Gate) -> String {
    let file = File { name: "p.yaml".into(), bytes: RESOURCES.into() };
    let code = FilterCode::new(b"code".to_vec(), None).gated(gate);
    compile(&[file], &code).map_or_else(|error| error.to_string(), |_| "it was admitted".to_owned())
}

#[test]
fn admits_what_the_real_filter_loads() {
    assert_eq!(error(real()), "it was admitted");
    let plan = real().admit(EncodedPlan::new(&Plan { format: FORMAT, ..Plan::default() })).unwrap();
    assert_eq!(diagnose(&plan), None);
}

#[test]
fn refuses_in_the_real_filters_own_words() {
    let refusal = real().admit(EncodedPlan::new(&Plan { format: 99, ..Plan::default() })).unwrap_err();
    let words = "plan format 99 is not supported, this engine loads formats 3 to 4";
    assert_eq!(refusal, Refusal::Declined { site: Site::Elsewhere, words: words.to_owned() });
    assert_eq!(
        Gate::of_engine().admit(EncodedPlan::new(&Plan { format: 99, ..Plan::default() })).unwrap_err(),
        refusal
    );
}

#[test]
fn names_the_step_that_the_filter_refuses() {
    let declined = |words: &str| error(filter_that(&format!("plan refused: {words}"), "(i32.const 0)"));
    assert_eq!(
        declined("not today [at=1;chain=0;phase=request;step=headers]"),
        "p.yaml:14:7: RoutePolicy `users`: spec.request[1]: the filter refuses this: not today"
    );
    assert_eq!(
        declined("never: at all [at=1;chain=0;phase=response;step=securityHeaders]"),
        "p.yaml:16:7: RoutePolicy `users`: spec.response[0]: the filter refuses this: never: at all"
    );
    // Audit logs are in neither phase.
    assert_eq!(
        declined("odd [at=1;chain=0;step=securityHeaders]"),
        "p.yaml:16:7: RoutePolicy `users`: spec.response[0]: the filter refuses this: odd"
    );
    assert_eq!(
        declined("something else [at=1;chain=0]"),
        "p.yaml:11:3: RoutePolicy `users`: spec: the filter refuses this: something else"
    );
    assert_eq!(declined("unloved [at=1;consumer=app]"), "p.yaml:2:1: Consumer `app`: the filter refuses this: unloved");
}

#[test]
fn passes_on_words_that_name_no_resource() {
    let declined = |words: &str| error(filter_that(words, "(i32.const 0)"));
    for words in ["plan refused: the moon is full", "plan refused: chain 7: odd", "plan refused: consumer `x`: odd"] {
        let reason = words.trim_start_matches("plan refused: ");
        assert_eq!(declined(words), format!("the plan does not pass the gate: {reason}"));
    }
    // A site that does not exist is shown as it is.
    for (line, words) in [
        ("odd [at=1;chain=7]", "chain 7: odd"),
        ("odd [at=1;chain=0;phase=request;step=x%60]", "chain 0: request: step `x``: odd"),
        ("odd [at=1;consumer=x]", "consumer `x`: odd"),
        ("odd [at=2;chain=0]", "odd [at=2;chain=0]"),
        ("odd [at=1]", "odd"),
    ] {
        assert_eq!(declined(&format!("plan refused: {line}")), format!("the plan does not pass the gate: {words}"));
    }
    assert_eq!(declined("no prefix"), "the plan does not pass the gate: no prefix");
}

#[test]
fn stops_a_filter_that_loops_traps_or_takes_all_memory() {
    let failed = |code: &str| error(filter_that("plan refused: odd", code));
    let head = "the plan does not pass the gate: the filter failed in `proxy_on_configure`: ";
    assert_eq!(
        failed("(loop $again (br $again)) (i32.const 1)"),
        format!("{head}it used up its 1000000 units of fuel: plan refused: odd")
    );
    let said = failed("(if (i32.eq (memory.grow (i32.const 60000)) (i32.const -1)) (then unreachable)) (i32.const 1)");
    assert_eq!(said, format!("{head}it needs more than its {} bytes of memory: plan refused: odd", 256 << 20));
    let said = failed("unreachable");
    assert!(said.starts_with(head) && said.contains("unreachable"), "{said}");
}

#[test]
fn takes_every_plan_in_a_fresh_vm() {
    // A filter that accepts one configuration in its life: it would refuse the second if the VM were reused.
    let text = r#"(module
  (memory (export "memory") 1)
  (global $times (mut i32) (i32.const 0))
  (func (export "malloc") (param i32) (result i32) (i32.const 8192))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (global.set $times (i32.add (global.get $times) (i32.const 1)))
    (i32.eq (global.get $times) (i32.const 1))))"#;
    let gate = Gate::of_filter(Filter::compile(&wat::parse_str(text).unwrap()).unwrap(), Limits::default());
    for _ in 0..3 {
        gate.admit(EncodedPlan::new(&Plan::default())).unwrap();
    }
}

#[test]
fn says_whether_a_plan_needs_the_verifying_filter() {
    let check = |resources: &str, expect: bool| {
        let file = File { name: "p.yaml".into(), bytes: resources.into() };
        for gate in [real(), Gate::of_engine()] {
            let code = FilterCode::new(b"code".to_vec(), None).gated(gate);
            let snapshot = compile(std::slice::from_ref(&file), &code).unwrap();
            assert_eq!(snapshot.needs_verification(), expect, "{resources}");
        }
    };
    let settings = |headers: &str| {
        format!(
            "{RESOURCES}---\napiVersion: postern/v1\nkind: Settings\nmetadata: {{ name: s }}\nspec: {{ routeHeaders: [{headers}] }}\n"
        )
    };
    check(RESOURCES, true);
    check(&settings("x-guarded-by"), true);
    check(&settings("x-preview"), false);
    let edit = "    - { policy: headers, params: { set: { x-guarded-by: postern } } }\n";
    assert!(RESOURCES.contains(edit));
    check(&RESOURCES.replace(edit, ""), false);
}
