//! The fourth face: every case of `tests/cases/routes` on the matcher and on a real Envoy.

use std::collections::BTreeSet;

use postern_compile::route_match::Matcher;
use postern_tests::{
    raw::{self, RawAnswer},
    wait,
};
use serde_json::Value;

use crate::{
    case::{Case, CaseFile, Want},
    observed::Observed,
    site::Site,
    table::Table,
};

const LEAST_CASES: usize = 120;

#[test]
fn every_case_holds_on_the_matcher() {
    let mut wrong = Vec::new();
    for file in CaseFile::read_all() {
        let table = file.table();
        let bundle = table.bundle();
        let matcher = Matcher::new(&bundle.gateways[0].spec).unwrap();
        for case in file.cases.iter().filter(|case| !case.codec) {
            let Some(request) = case.request() else { continue };
            let got = Observed::expected(&matcher, &request);
            wrong.extend(matcher_complaints(&file, case, &got));
        }
    }
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join("\n"));
}

/// The matcher knows routes and refusals, not what a chain answers.
fn matcher_complaints(file: &CaseFile, case: &Case, got: &Observed) -> Vec<String> {
    let Want { route, status, path, .. } = &case.want;
    let route = route.as_ref().map(|route| file.route(route));
    let mut complaints = Vec::new();
    if got.chain != route {
        complaints.push(format!("{}: {}: takes {:?} instead of {route:?}", file.name, case.note, got.chain));
    }
    if route.is_none() && got.status != *status {
        complaints.push(format!("{}: {}: status {} instead of {status}", file.name, case.note, got.status));
    }
    if path.is_some() && got.path != *path {
        complaints.push(format!("{}: {}: path {:?} instead of {path:?}", file.name, case.note, got.path));
    }
    complaints
}

#[test]
fn every_case_holds_on_a_real_envoy() {
    let files = CaseFile::read_all();
    let services: BTreeSet<String> = files.iter().flat_map(CaseFile::services).collect();
    let mut shared: Vec<Value> = files.iter().flat_map(|file| file.resources.clone()).collect();
    shared.sort_by_key(Value::to_string);
    shared.dedup();
    let mut site = Site::new(&services.into_iter().collect::<Vec<_>>(), &shared, files.len());
    let tables: Vec<Table> = files.iter().map(CaseFile::table).collect();
    site.publish(&tables);
    let (mut ran, mut wrong) = (0, Vec::new());
    for (index, file) in files.iter().enumerate() {
        for case in &file.cases {
            ran += 1;
            let send = || match (case.request(), &case.bytes) {
                (Some(request), None) => request.send(site.address(index)).unwrap(),
                (None, Some(bytes)) => raw::send_bytes(site.address(index), &bytes.get()).unwrap(),
                _ => panic!("`{}` needs `request` or `bytes`", case.note),
            };
            // Another worker may have the routes a moment later.
            let mut found = vec![String::new()];
            let _ = wait::until_within(std::time::Duration::from_millis(300), || {
                found = complaints(file, &tables[index], case, &send());
                found.is_empty()
            });
            wrong.extend(found);
        }
    }
    println!("{ran} cases of routes ran");
    assert!(wrong.is_empty(), "{} complaints in {ran} cases:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran >= LEAST_CASES, "the corpus has only {ran} cases of routes");
    assert_eq!(site.unknown_fields(), 0, "Envoy ignores fields that we emit\n{}", site.log());
}

fn complaints(file: &CaseFile, table: &Table, case: &Case, answer: &RawAnswer) -> Vec<String> {
    let got = Observed::of(answer);
    let want = &case.want;
    let mut complaints = Vec::new();
    let mut compare = |what: &str, got: String, want: String| {
        if got != want {
            complaints.push(format!("{}: {}: {what} is `{got}` instead of `{want}`", file.name, case.note));
        }
    };
    compare("the status", got.status.to_string(), want.status.to_string());
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
    // A route whose chain denies is not seen by any service.
    let route = want.route.as_ref().filter(|_| want.status == 200).map(|route| file.route(route));
    let service = table.routes.iter().find(|candidate| route.as_deref() == candidate["name"].as_str());
    let service = service.and_then(|route| Some(route["service"].as_str()?.to_owned()));
    compare("the service", shown(&got.service), shown(&service));
    compare("the chain that ran", shown(&got.chain), shown(&route));
    if want.path.is_some() {
        compare("the path", shown(&got.path), shown(&want.path));
    }
    if want.location.is_some() {
        compare("the location", shown(&answer.location), shown(&want.location));
    }
    for (name, value) in &want.upstream {
        compare(&format!("upstream {name}"), shown(&answer.echoed(name)), shown(value));
    }
    complaints
}
