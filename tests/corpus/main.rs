//! One corpus, three runners: every case of `tests/cases/*.yaml` runs on the engine natively, on the filter's very bytes
//! under wasmtime, and on a real Envoy, with equal results.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

mod case;
mod comparison;
mod coverage;
mod engine;
mod envoy;
mod observation;
mod wasm;

use case::{Case, CaseFile, Runner};
use observation::Observation;

/// The fewest cases that the corpus must have.
const LEAST_CASES: usize = 350;

/// Runs every case on one runner, and reports all differences at once.
fn check(runner: Runner, start: impl Fn(&CaseFile) -> Box<dyn FnMut(&Case) -> Vec<Observation>>) {
    let (mut ran, mut wrong, mut excepted) = (0, Vec::new(), Vec::new());
    for file in CaseFile::read_all() {
        let mut run = start(&file);
        for case in &file.cases {
            let name = format!("{}: {}", file.name, case.note);
            if let Some(why) = case.except.get(&runner) {
                excepted.push(format!("{name}: {why}"));
                continue;
            }
            ran += 1;
            let outcomes = run(case);
            wrong.extend(case.complaints(&outcomes).into_iter().map(|complaint| format!("{name}: {complaint}")));
            if runner != Runner::Engine {
                wrong.extend(differences(&name, &outcomes, &engine::run(&file, case)));
            }
        }
    }
    println!("{runner:?}: {ran} cases ran, {} not on this runner", excepted.len());
    excepted.iter().for_each(|line| println!("  not on this runner: {line}"));
    assert!(wrong.is_empty(), "{} of {ran} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran + excepted.len() >= LEAST_CASES, "the corpus has only {ran} cases");
    assert!(excepted.len() * 20 <= ran, "too many cases are excepted");
}

/// Where a runner differs from the engine itself.
fn differences(name: &str, outcomes: &[Observation], expect: &[Observation]) -> Vec<String> {
    let pairs = outcomes.iter().zip(expect);
    pairs
        .filter(|(got, want)| got != want)
        .map(|(got, want)| format!("{name}: {got:?}, but the engine: {want:?}"))
        .collect()
}

#[test]
fn every_case_holds_on_the_engine() {
    check(Runner::Engine, |file| {
        let file = file.clone();
        Box::new(move |case| engine::run(&file, case))
    });
}

#[test]
fn every_case_holds_on_the_filter_under_wasmtime() {
    let filter = wasm::compile();
    check(Runner::Wasm, |file| {
        let mut worker = wasm::Worker::start(&filter, file);
        Box::new(move |case| worker.run(case))
    });
}

#[test]
fn every_case_holds_on_a_real_envoy() {
    let mut site = envoy::Site::start();
    let files = CaseFile::read_all();
    let site = std::rc::Rc::new(std::cell::RefCell::new({
        site.publish(&files);
        site
    }));
    check(Runner::Envoy, |file| {
        let (site, file) = (std::rc::Rc::clone(&site), file.clone());
        Box::new(move |case| site.borrow_mut().run(&file, case))
    });
    site.borrow().assert_no_vm_failure();
}

#[test]
fn every_parameter_of_every_policy_is_tried() {
    let files = CaseFile::read_all();
    let untried = coverage::untried(files.iter().flat_map(CaseFile::chains));
    assert!(untried.is_empty(), "no case has these parameters:\n{}", untried.join("\n"));
}

#[test]
fn every_refusal_is_refused_with_its_words() {
    let (mut count, mut wrong) = (0, Vec::new());
    for file in CaseFile::read_all() {
        for refusal in &file.refusals {
            count += 1;
            let said = file.compile_refusal(refusal);
            if !said.contains(&refusal.says) {
                wrong.push(format!("{}: {}: {said}", file.name, refusal.note));
            }
        }
    }
    println!("{count} refusals");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
