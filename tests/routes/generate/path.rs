//! Paths of routes, and paths of requests that are near them.

use serde_json::{Value, json};

use crate::random::Random;

const SEGMENTS: [&str; 12] = ["a", "b", "ab", "A", "admin", "a.b", "@me", "a%20b", "x:y", "v1~", "(c)", "a=b"];
/// What stands for a `{name}`.
const FILLINGS: [&str; 14] =
    ["7", "7[", "]7", "[7]", "%5B", "a;b", "a%3Bb", "x%", "..;", "%7B", "{", "é", "a@b", "..."];
/// Expressions for paths, and a path that fits each.
const PATTERNS: [(&str, &str); 5] = [
    ("/a/[0-9]+(/b)?", "/a/17/b"),
    ("/.*", "/admin/x"),
    ("/(a|b)/[^/]+", "/b/x"),
    ("/a/.*/b", "/a/x/y/b"),
    ("/[a-z.]{1,4}", "/a.b"),
];

pub fn generate(random: &mut Random) -> Value {
    let depth = 1 + random.below(3);
    let text: String = (0..depth).map(|_| format!("/{}", random.pick(&SEGMENTS))).collect();
    match random.below(9) {
        0..=2 => json!({ "exact": if random.once_in(4) { format!("{text}/") } else { text } }),
        3 | 4 => json!({ "prefix": if random.once_in(3) { format!("{text}/") } else { text } }),
        5..=7 => json!({ "template": template(random) }),
        _ => json!({ "regex": random.pick(&PATTERNS).0 }),
    }
}

fn template(random: &mut Random) -> String {
    let mut text = String::new();
    for place in 0..1 + random.below(3) {
        match random.below(2) {
            0 => text += &format!("/{{n{place}}}"),
            _ => text += &format!("/{}", random.pick(&SEGMENTS)),
        }
    }
    match random.below(4) {
        0 => text + "/{rest=**}",
        1 => text + "/",
        _ => text,
    }
}

/// A path that fits what a route asks for, mostly.
pub fn near(random: &mut Random, path: &Value) -> Vec<u8> {
    let text = |name: &str| path[name].as_str().map(str::to_owned);
    let path = if let Some(exact) = text("exact") {
        exact
    } else if let Some(prefix) = text("prefix") {
        prefix + *random.pick(&["", "/", "/x", "/x/y", "x"])
    } else if let Some(template) = text("template") {
        filled(random, &template)
    } else if let Some(pattern) = text("regex") {
        PATTERNS.iter().find(|(candidate, _)| *candidate == pattern).map_or("/", |(_, path)| path).to_owned()
    } else {
        format!("/{}", random.pick(&SEGMENTS))
    };
    path.bytes().flat_map(|byte| spelled(random, byte)).collect()
}

/// A byte as it is, or escaped where it must be or may be.
fn spelled(random: &mut Random, byte: u8) -> Vec<u8> {
    let may = b"@:=()".contains(&byte) && random.once_in(4);
    if may || !byte.is_ascii() { format!("%{byte:02x}").into_bytes() } else { vec![byte] }
}

fn filled(random: &mut Random, template: &str) -> String {
    let segments = template.split('/').map(|segment| match segment {
        rest if rest.ends_with("=**}") => (*random.pick(&["", "x", "x/y", "[/]"])).to_owned(),
        name if name.starts_with('{') => (*random.pick(&FILLINGS)).to_owned(),
        text => text.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// A path with one thing about it changed: most of what attackers try.
pub fn changed(random: &mut Random, mut path: Vec<u8>, bytes: fn(u8) -> bool) -> Vec<u8> {
    const PIECES: [&str; 22] = [
        "/", "//", "/./", "/../", "/x/../", "/%2e%2e/", "/.%2E/", "\\", "\\..\\", "%2f", "%2F", "%5c", "..%2f", ";x",
        "..;/", "/..;x/", "%00", "%252f", "?", "#", ".", "%",
    ];
    let place = 1 + random.below(path.len().max(1));
    let place = place.min(path.len());
    match random.below(8) {
        0..=2 => {
            let piece = random.pick(&PIECES).bytes();
            path.splice(place..place, piece);
        }
        3 | 4 => {
            let byte = random.below(256).try_into().unwrap();
            let piece = if bytes(byte) { vec![byte] } else { format!("%{byte:02X}").into_bytes() };
            path.splice(place..place, piece);
        }
        5 => {
            let byte = random.below(256);
            path.splice(place..place, format!("%{byte:02x}").into_bytes());
        }
        6 if place < path.len() => {
            let escaped = format!("%{:02x}", path[place]).into_bytes();
            path.splice(place..=place, escaped);
        }
        _ if place < path.len() => path[place] ^= 0x20 * u8::from(path[place].is_ascii_alphabetic()),
        _ => path.extend(b"/"),
    }
    path
}
