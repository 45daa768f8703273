//! Origins: any header `Origin`. Only what a second, simpler reading knows is let in, and nothing else is granted.

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use postern_engine::{Plan, Response, Verdict};
use postern_fuzz::{
    common::{Driver, Writer},
    cost, decision,
};
use postern_proto::plan::v1::{self as wire, step::Policy};

postern_fuzz::target!(run: run, seeds: seeds);

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let mut writer = Writer::new();
    let strings = ["https://a.test", "https://*.b.test", "http://c.test:8080", "null", "GET", ""];
    let [exact, below, port, null, get, empty] = strings.map(|text| writer.string(text));
    let pattern = writer.string(r"https://pr-[0-9]+\.d\.test");
    let cors = wire::Cors {
        origins: vec![exact, below, port, null],
        origin_patterns: vec![pattern],
        allow_methods: get,
        allow_headers: empty,
        expose_headers: empty,
        max_age: empty,
        allow_credentials: true,
        ..Default::default()
    };
    let step = writer.step("cors", Policy::Cors(cors));
    writer.route("r", vec![step], vec![]);
    writer.load()
});

fn run(input: &[u8]) {
    let header = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
    let headers =
        vec![header(":method", b"OPTIONS"), header("access-control-request-method", b"GET"), header("origin", input)];
    let mut driver = Driver { headers, ..Driver::default() };
    cost::start();
    let Some(decided) = driver.run(&PLAN, "r") else { return };
    cost::check(1, PLAN.steps(), 0);
    decision::check(&decided);
    let headers = match &decided.verdict {
        Verdict::Respond(Response { status: 204, headers, .. }) => headers.as_slice(),
        _ => &[],
    };
    assert!(!headers.is_empty(), "a preflight is answered: {decided:?}");
    let granted = headers.iter().find(|(name, _)| &**name == "access-control-allow-origin").map(|(_, value)| value);
    let credentials = headers.iter().any(|(name, _)| &**name == "access-control-allow-credentials");
    assert_eq!(granted.is_some(), credentials, "{headers:?}");
    assert_eq!(granted.map(|value| value.as_bytes()), is_known(input).then_some(input), "{:?}", input.escape_ascii());
}

fn is_known(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    let lower = text.to_ascii_lowercase();
    // A port is a number with any zeros before it, at most 65535.
    let (site, port) = match lower.rsplit_once(':') {
        Some((site, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let Ok(port) = port.parse::<u16>() else { return false };
            (site, Some(port))
        }
        _ => (lower.as_str(), None),
    };
    let plain = matches!(port, None | Some(443));
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let below = |text: &str| text.split('.').all(label);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let between = |before: &str, after: &str| {
        site.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).map(str::to_owned)
    };
    let short = text.len() <= 512;
    text == "null"
        || (short && plain && site == "https://a.test")
        || (short && plain && between("https://", ".b.test").is_some_and(|rest| below(&rest)))
        || (short && port == Some(8080) && site == "http://c.test")
        || (short && plain && between("https://pr-", ".d.test").is_some_and(|rest| number(&rest)))
}

fn seeds() -> Vec<Vec<u8>> {
    let origins = [
        "",
        "null",
        "*",
        "https://a.test",
        "HTTPS://A.Test:443",
        "https://a.test:0443",
        "https://a.test.",
        "https://a.test/",
        "https://x.b.test",
        "https://x.y.b.test",
        "https://b.test",
        "https://.b.test",
        "https://xb.test",
        "http://c.test:8080",
        "https://pr-17.d.test",
        "https://pr-17.d.test:443",
        "https://pr-.d.test",
        "https://u@x.b.test",
        "https://[::1]:443",
        "https://x.b.test, https://a.test",
        "https://evil.test#.b.test",
        "https://evil.test\\.b.test",
    ];
    origins.iter().map(|origin| origin.as_bytes().to_vec()).collect()
}
