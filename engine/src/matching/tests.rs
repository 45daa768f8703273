//! Which route a request takes. A request is written `METHOD host path`.

use std::collections::BTreeSet;

use postern_proto::plan::v1::{self as wire, FORMAT};
use prost::Message as _;

use super::*;
use crate::{Placement, Plan};

/// A match.
struct Rule {
    route: &'static str,
    hosts: &'static [&'static str],
    path: PathPattern<'static>,
    methods: &'static [&'static str],
}

const fn on(route: &'static str, path: PathPattern<'static>) -> Rule {
    Rule { route, hosts: &[], path, methods: &[] }
}

/// A plan in which each route has a chain of its own, except those whose names start with `open`.
fn load(rules: &[Rule]) -> Result<Plan, LoadError> {
    let mut plan = wire::Plan { format: FORMAT, label: "1".to_owned(), ..Default::default() };
    let mut matches = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let shape = rule.path.shape().unwrap();
        for host in if rule.hosts.is_empty() { &["*"] } else { rule.hosts } {
            let methods = rule.methods.iter().map(|method| Some(*method));
            for method in methods.chain(rule.methods.is_empty().then_some(None)) {
                let specificity = Specificity::of(host, &shape, method.is_some());
                matches.push((specificity, lowered(&mut plan, rule.route, host, &shape, method)));
            }
        }
        if !rule.route.starts_with("open") {
            let name = string(&mut plan, rule.route);
            plan.routes.push(wire::Route { name, chain: u32::try_from(plan.chains.len()).unwrap() });
            plan.chains.push(wire::Chain { body_limit: u32::try_from(index).unwrap(), ..Default::default() });
        }
    }
    let ranks: BTreeSet<_> = matches.iter().map(|(specificity, _)| specificity.clone()).collect();
    for (specificity, mut lowered) in matches {
        lowered.rank = u32::try_from(ranks.iter().take_while(|other| **other < specificity).count()).unwrap();
        plan.matches.push(lowered);
    }
    Plan::load(&plan.encode_to_vec())
}

fn lowered(plan: &mut wire::Plan, route: &str, host: &str, shape: &Shape, method: Option<&str>) -> wire::Match {
    let mut lowered = wire::Match { route: string(plan, route), host: string(plan, host), ..Default::default() };
    lowered.method = method.map_or(0, |method| string(plan, method).strict_add(1));
    match shape {
        Shape::Regex(text) => lowered.regex = string(plan, &format!("^(?:{text})$")).strict_add(1),
        Shape::Segments { segments, is_start } => {
            lowered.is_start = *is_start;
            for segment in segments {
                lowered.segments.push(match segment {
                    Segment::Any => 0,
                    Segment::Text(text) => string(plan, str::from_utf8(text).unwrap()).strict_add(1),
                });
            }
        }
    }
    lowered
}

fn string(plan: &mut wire::Plan, text: &str) -> u32 {
    plan.strings.push(text.to_owned());
    u32::try_from(plan.strings.len()).unwrap().strict_sub(1)
}

/// Compares the routes of requests, written `METHOD host path`. `400` is for those that are refused, `-` for no match.
fn check(rules: &[Rule], requests: &[(&str, &str)]) {
    let plan = load(rules).unwrap();
    for (request, expect) in requests {
        let mut parts = request.splitn(3, ' ').map(str::as_bytes);
        let mut part = || parts.next().unwrap();
        let requested = Requested { method: part(), host: part(), path: part() };
        let found = plan.matched_route(&requested);
        let shown = found.map_or("400", |route| route.map_or("-", |route| route));
        assert_eq!(shown, *expect, "{request}");
    }
}

use PathPattern::{Exact, Prefix, Regex, Template};

#[test]
fn the_most_specific_match_is_taken() {
    check(
        &[
            on("site", Prefix("/")),
            on("api", Prefix("/api")),
            on("v1", Prefix("/api/v1")),
            on("user", Template("/api/v1/{id}")),
            on("me", Exact("/api/v1/me")),
            on("keys", Regex("/api/v[0-9]+/keys/.*")),
            Rule { methods: &["DELETE", "PUT"], ..on("edit", Prefix("/api")) },
            Rule { hosts: &["*.example.com"], ..on("examples", Prefix("/")) },
            Rule { hosts: &["*.b.example.com"], ..on("b", Prefix("/x")) },
            Rule { hosts: &["a.b.example.com"], ..on("a", Exact("/y")) },
        ],
        &[
            ("GET h /", "site"),
            ("GET h /apis", "site"),
            ("GET h /api", "api"),
            ("GET h /api/", "api"),
            ("GET h /api?v1", "api"),
            ("GET h /api/v1/me", "me"),
            ("GET h /api/v1/me/", "me"),
            ("GET h /api/v1/me?x=/../y", "me"),
            ("GET h /api/v1/you", "user"),
            ("GET h /api/v1/you/x", "v1"),
            ("GET h /api/v1/keys/x", "keys"),
            ("GET h /api/v1/keys", "user"),
            ("PUT h /api/x", "edit"),
            // The path counts before the method.
            ("PUT h /api/v1/x/y", "v1"),
            // The host counts before the path.
            ("GET x.example.com /api", "examples"),
            ("GET A.B.Example.com.:80 /x/y", "b"),
            ("GET a.b.example.com /y", "a"),
            ("GET a.b.example.com /z", "examples"),
            ("GET example.com /api", "api"),
        ],
    );
}

#[test]
fn a_request_that_no_match_fits_has_none() {
    check(
        &[on("a", Prefix("/a")), Rule { methods: &["GET"], ..on("b", Exact("/b")) }],
        &[("GET h /", "-"), ("GET h /ab", "-"), ("GET h /A", "-"), ("POST h /b", "-"), ("GET h /b/c", "-")],
    );
}

#[test]
fn a_request_whose_spellings_have_different_chains_is_refused() {
    check(
        &[on("admin", Prefix("/admin")), on("x", Prefix("/x")), Rule { methods: &["GET"], ..on("get", Exact("/m")) }],
        &[
            ("GET h /admin", "admin"),
            ("GET h /%61dmin/x", "admin"),
            ("GET h /admin;x", "400"),
            ("GET h /x/../admin", "400"),
            ("GET h /x/%2e%2E/admin", "400"),
            ("GET h /x/..%2fadmin", "400"),
            ("GET h /x/..%252fadmin", "400"),
            ("GET h //admin", "400"),
            ("GET h /x//..//admin", "400"),
            ("GET h /\\admin", "400"),
            ("GET h \\admin", "400"),
            ("GET h /admin%2fx", "400"),
            ("GET h /y/%5cadmin", "-"),
            ("GET h /y\\..\\admin", "400"),
            ("GET h /admin%3fx", "400"),
            ("GET h /admin#x", "400"),
            ("GET h /./admin", "400"),
            ("GET h /.;/admin", "400"),
            ("GET h /y/..;x/admin", "400"),
            ("GET h http://h/admin", "400"),
            ("GET h *", "400"),
            ("GET h ", "400"),
            ("GET h /a%00", "400"),
            // All spellings are below /x, or nowhere.
            ("GET h /x/a%2fb;c//d", "x"),
            ("GET h /x/./y", "x"),
            ("GET h /y/../z", "-"),
            ("GET h /y?/../admin", "-"),
            ("get h /m", "400"),
            ("GET h /m", "get"),
            ("post h /m", "-"),
        ],
    );
}

#[test]
fn spellings_with_one_chain_are_no_matter() {
    // Neither route has a chain.
    check(&[on("open-a", Prefix("/a")), on("open-b", Prefix("/b"))], &[("GET h /a/../b", "open-a")]);
}

#[test]
fn a_host_is_one_host_in_every_spelling_or_refused() {
    let admin = Rule { hosts: &["admin.example.com"], ..on("admin", Prefix("/")) };
    check(
        &[admin, on("site", Prefix("/"))],
        &[
            ("GET ADMIN.example.com.:80 /", "admin"),
            ("GET admin.example.com: /", "admin"),
            ("GET x.admin.example.com /", "site"),
            ("GET admin.example.com.. /", "400"),
            ("GET x@admin.example.com /", "400"),
            ("GET a,admin.example.com /", "400"),
            ("GET admin.example.com:x /", "400"),
            ("GET %61dmin.example.com /", "400"),
            ("GET  /", "400"),
            ("GET [::1]:80 /", "site"),
        ],
    );
    // Without a match for hosts, hosts are no matter.
    check(&[on("site", Prefix("/"))], &[("GET a,b /", "site"), ("GET  /", "site")]);
}

#[test]
fn two_regular_expressions_that_fit_are_refused() {
    let rules = [on("a", Regex("/a.*")), on("b", Regex("/.*b"))];
    check(&rules, &[("GET h /ax", "a"), ("GET h /xb", "b"), ("GET h /ab", "400"), ("GET h /x", "-")]);
    let with_exact = [on("a", Regex("/a.*")), on("b", Regex("/.*b")), on("ab", Exact("/ab"))];
    check(&with_exact, &[("GET h /ab", "ab")]);
}

#[test]
fn a_regular_expression_is_for_the_whole_path_in_every_spelling() {
    let rules = [on("users", Regex("/users/[0-9]+"))];
    check(&rules, &[("GET h /users/7", "users"), ("GET h /users/7/x", "-"), ("GET h /x/users/7", "-")]);
    check(&rules, &[("GET h /%75sers/7", "400"), ("GET h /users/7;x", "400"), ("GET h /users//7", "400")]);
}

#[test]
fn regular_expressions_have_a_budget() {
    let rules = [on("a", Regex("/(a|b|ab)*c"))];
    let plan = load(&rules).unwrap();
    let path = format!("/{}", "ab".repeat(20_000));
    let requested = Requested { host: b"h", path: path.as_bytes(), method: b"GET" };
    assert_eq!(plan.matched_route(&requested), Err(Unclear));
}

#[test]
fn refuses_a_plan_with_a_match_that_cannot_be_loaded() {
    let refused = |matching: wire::Match| {
        let strings = vec!["(".to_owned()];
        let plan = wire::Plan { format: FORMAT, strings, matches: vec![matching], ..Default::default() };
        Plan::load(&plan.encode_to_vec()).unwrap_err().to_string()
    };
    let regex = wire::Match { regex: 1, ..Default::default() };
    assert_eq!(refused(regex), "`(` is not a valid regular expression");
    for wrong in [
        wire::Match { route: 1, ..Default::default() },
        wire::Match { host: 1, ..Default::default() },
        wire::Match { segments: vec![2], ..Default::default() },
        wire::Match { regex: 2, ..Default::default() },
        wire::Match { method: 2, ..Default::default() },
    ] {
        assert_eq!(refused(wrong), "string 1 does not exist, there are 1");
    }
}

#[test]
fn a_name_that_the_plan_has_is_looked_up_by_name_and_a_gateway_has_no_matches() {
    let rules = [on("admin", Prefix("/admin"))];
    let plan = load(&rules).unwrap();
    assert!(!plan.goes_by_match(b"admin"));
    assert!(plan.goes_by_match(b"") && plan.goes_by_match(b"other"));
    assert!(!load(&[]).unwrap().goes_by_match(b""));
    for placement in Placement::ALL {
        let placed = load(&rules).unwrap().placed(placement);
        assert_eq!(placed.goes_by_match(b""), placement != Placement::Gateway, "{placement:?}");
    }
}

#[test]
fn finds_one_of_many() {
    let paths: Vec<&'static str> = (0..10_000).map(|index| &*format!("/a/{index}/b").leak()).collect();
    let rules: Vec<_> = paths.iter().map(|path| on("open", Exact(path))).chain([on("last", Exact("/z"))]).collect();
    check(&rules, &[("GET h /a/9999/b", "open"), ("GET h /a/10000/b", "-"), ("GET h /z", "last")]);
}
