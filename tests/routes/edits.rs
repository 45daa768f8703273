//! Chains that edit what routes match on: either admission refuses them, or the chain that ran is the chain of the route
//! that Envoy takes.

use std::collections::BTreeSet;

use postern_compile::{
    pipeline,
    route_match::{Matcher, matched_headers},
    snapshot::FilterCode,
};
use postern_model::Bundle;
use serde_json::{Value, json};

use crate::{
    differential::number,
    generate::{self, SERVICES},
    observed::Observed,
    random::Random,
    site::Site,
    table::Table,
};

const TABLES: usize = 60;
const REQUESTS: usize = 20;

#[test]
fn an_edit_by_a_chain_never_leads_to_the_route_of_another_chain() {
    let seed = number("POSTERN_ROUTES_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let (mut refused, mut tables) = (0, Vec::new());
    while tables.len() < TABLES {
        let mut table = generate::table(&mut random, tables.len());
        edit(&mut random, &mut table);
        match admitted(&table) {
            true => tables.push(table),
            false => refused += 1,
        }
        assert!(refused < 100 * TABLES, "admission refuses every table");
    }
    println!("{refused} tables were refused, {TABLES} are tried");
    assert!(refused > 0, "admission refuses no edit of what a route matches on");
    let services: Vec<_> = (0..SERVICES).map(generate::service).collect();
    let mut site = Site::new(&services, &[], TABLES);
    site.publish(&tables);
    let mut wrong = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let bundle = table.bundle();
        let matcher = Matcher::new(&bundle.gateways[0].spec).unwrap();
        for _ in 0..REQUESTS {
            let request = generate::request(&mut random, table);
            let got = Observed::of(&request.send(site.address(index)).unwrap());
            // Whatever the edit did, no service is reached by another chain than that of its route.
            let chain = got.service.as_ref().map(|service| chain_of(table, service));
            if got.chain != chain {
                let expected = Observed::expected(&matcher, &request);
                wrong.push(format!(
                    "POSTERN_ROUTES_SEED={seed} {}\n  expected {expected:?}\n  got      {got:?}\n{}",
                    request.shown(),
                    table.alone()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} requests came past their chain, the first:\n{}", wrong.len(), wrong[0]);
}

fn chain_of(table: &Table, service: &str) -> String {
    let route = table.routes.iter().find(|route| route["service"] == service).unwrap();
    route["name"].as_str().unwrap().to_owned()
}

/// Lets a chain of the table edit what one of its routes matches on.
fn edit(random: &mut Random, table: &mut Table) {
    let names: BTreeSet<String> = matched_headers(&bundle(table).gateways[0].spec);
    let names: Vec<_> = names.into_iter().filter(|name| !name.starts_with(':')).collect();
    if names.is_empty() {
        return;
    }
    let name = random.pick(&names).clone();
    let params: Value = match random.below(3) {
        0 => json!({ "remove": [name] }),
        1 => json!({ "set": { name: "1" } }),
        _ => json!({ "add": { name: "1" } }),
    };
    let place = random.below(table.chains.len());
    table.chains[place].request.push(json!({ "policy": "headers", "name": "edit", "params": params }));
}

fn bundle(table: &Table) -> Bundle {
    table.bundle()
}

fn admitted(table: &Table) -> bool {
    let file = postern_model::File { name: "table".into(), bytes: table.alone().into_bytes() };
    pipeline::compile(&[file], &FilterCode::new(Vec::new(), None)).is_ok()
}
