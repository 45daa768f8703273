//! `csrf`, where the corpus cannot go: other schemes, ports and hosts of the request itself, and a plan by hand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod common;

use common::{Driver, Writer};
use postern_engine::Plan;
use postern_proto::plan::v1::{self as wire, step::Policy};
use prost::Message as _;

const REFUSED: &str = "verdict=deny step=csrf reason=csrf_origin_refused";

/// Sends a POST to an authority, with further headers.
fn check(scheme: &str, authority: Option<&str>, headers: &[(&str, &str)], expect: &str) {
    let mut writer = Writer::new();
    let step = writer.step("csrf", Policy::Csrf(wire::Csrf::default()));
    writer.route("r", vec![step], vec![]);
    let mut all = vec![(":method", "POST"), (":path", "/"), (":scheme", scheme)];
    all.extend(authority.map(|authority| (":authority", authority)));
    all.extend(headers);
    let bytes: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let decision = Driver::request(&bytes).run(&writer.load(), "r").unwrap();
    assert_eq!(decision.account("r1", "r"), format!("{expect} route=r plan=r1"), "{all:?}");
}

#[test]
fn admits_the_requests_own_origin() {
    for (scheme, authority, origin) in [
        ("https", "shop.test", "https://shop.test"),
        ("https", "shop.test:443", "https://shop.test"),
        ("https", "SHOP.test", "https://shop.test:443"),
        ("http", "shop.test:80", "http://shop.test"),
        ("http", "shop.test:8080", "http://shop.test:8080"),
        ("https", "[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
        ("http", "127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http", "localhost", "http://localhost"),
    ] {
        check(scheme, Some(authority), &[("origin", origin)], "verdict=allow");
        check(scheme, Some(authority), &[("referer", &format!("{origin}/a?b#c"))], "verdict=allow");
        check(scheme, Some(authority), &[("referer", origin)], "verdict=allow");
    }
}

#[test]
fn refuses_what_is_not_quite_it() {
    for (scheme, authority, origin) in [
        ("http", "shop.test", "https://shop.test"),
        ("https", "shop.test", "http://shop.test"),
        ("https", "shop.test", "https://shop.test:8443"),
        ("https", "shop.test:8443", "https://shop.test"),
        ("http", "shop.test:443", "http://shop.test"),
        ("https", "shop.test", "https://shop.test."),
        // A browser does not take these for one either, but a host that cannot be read is equal to none.
        ("https", "shop.test.", "https://shop.test."),
        ("https", "[2001:db8::1]", "https://[2001:db8::2]"),
        ("https", "[2001:db8::1]", "https://2001:db8::1"),
        ("https", "evil@shop.test", "https://shop.test"),
        ("https", "shop.test, evil.test", "https://shop.test"),
        ("https", "", "https://"),
    ] {
        check(scheme, Some(authority), &[("origin", origin)], REFUSED);
        check(scheme, Some(authority), &[("referer", &format!("{origin}/"))], REFUSED);
    }
}

#[test]
fn knows_no_own_origin_without_a_host() {
    check("http", None, &[("origin", "http://shop.test")], REFUSED);
    check("http", None, &[("referer", "http://shop.test/")], REFUSED);
    check("http", None, &[], "verdict=allow");
    check("http", None, &[("sec-fetch-site", "same-origin")], "verdict=allow");
}

#[test]
fn reads_no_origin_out_of_odd_referers() {
    for referer in [
        "",
        "/",
        "//shop.test/",
        "https:shop.test/",
        "https:/shop.test/",
        "https://",
        "https:///shop.test/",
        "https://user@shop.test/",
        "https://shop.test@evil.test/",
        "https://evil.test\\@shop.test/",
        "https://evil.test\\.shop.test/",
        "https://evil.test/https://shop.test/",
        "https://evil.test?https://shop.test/",
        "https://evil.test#https://shop.test/",
        "https://shop.test.evil.test/",
        "https://shop.test:443:443/",
        "https://shop.test:x/",
        "https://shop.test%2f/",
        "https://shop.test\u{3002}evil.test/",
        " https://shop.test/",
        "about:blank",
        "about:client",
        "blob:https://shop.test/uuid",
        "view-source:https://shop.test/",
        "moz-extension://shop.test/",
    ] {
        check("https", Some("shop.test"), &[("referer", referer)], REFUSED);
    }
}

#[test]
fn refuses_plans_that_admit_everyone() {
    let load = |origin: &str, header: &str| {
        let mut writer = Writer::new();
        let policy = wire::Csrf {
            allow_origins: vec![writer.string(origin)],
            deny_missing: false,
            token_cookie: Some(writer.string("c")),
            token_header: (!header.is_empty()).then(|| writer.string(header)),
        };
        let step = writer.step("csrf", Policy::Csrf(policy));
        writer.route("r", vec![step], vec![]);
        Plan::load(&writer.plan.encode_to_vec()).map(|_| ())
    };
    load("https://a.test", "x-csrf").unwrap();
    for (origin, header) in [
        ("*", "x-csrf"),
        ("null", "x-csrf"),
        ("a.test", "x-csrf"),
        ("https://a.test", "X-Csrf"),
        ("https://a.test", ""),
    ] {
        assert!(load(origin, header).is_err(), "{origin} {header}");
    }
}
