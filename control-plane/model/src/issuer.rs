//! `Issuer`: an issuer of JSON Web Tokens, with the keys that verify its signatures or the place where they are
//! published.

use std::time::Duration;

use postern_base::{
    diagnostic::Path,
    yaml::{Node, Value},
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    key_uri::KeyUri,
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    target_ref::Reach,
    unit,
};
use crate::jwk::{Algorithm, Fault, Key, MOST_KEYS, mixes_secrets, read_key, repeated};

/// The default interval at which a key set is fetched again.
const REFRESH: Duration = Duration::from_secs(300);
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);
const LONGEST_REFRESH: Duration = Duration::from_secs(86_400);

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Issuer",
    about: "Who issues JSON Web Tokens, and the keys that their signatures are checked with.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Issuer"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "How its tokens are known."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec:
  issuer: https://accounts.example.com
  audiences: [users-api]
  jwksUri: https://accounts.example.com/jwks
";

const SPEC: Object = Object {
    fields: &[
        Field::required("issuer", Kind::Text, "What the claim `iss` of its tokens says."),
        Field::optional(
            "audiences",
            Kind::List { item: &Kind::Text, at_least: 1 },
            "A token must be for one of them; it may be for anyone if left out.",
        ),
        Field::optional("jwks", Kind::JwkSet, "The keys: a JSON Web Key set (RFC 7517)."),
        Field::optional(
            "jwksUri",
            Kind::Text,
            "Where the keys are published: the control plane fetches them. `https`, or `http` on the same machine.",
        ),
        Field::optional(
            "refresh",
            Kind::Duration,
            "How often they are fetched again, `1s` to `1d`; more often if they say that they are fresh for less.",
        )
        .or("5m"),
        Field::optional(
            "algorithms",
            Kind::List { item: &Kind::Choice(Algorithm::NAMES), at_least: 1 },
            "The signature algorithms that its tokens may use; all that its keys are made for if left out.",
        ),
    ],
    exactly_one_of: &["jwks", "jwksUri"],
};

/// The `spec` of an `Issuer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Issuer {
    /// The value of the claim `iss`.
    pub issuer: String,
    /// Accepted audiences: a token must have one of them. Empty means any.
    pub audiences: Vec<String>,
    /// Accepted algorithms. Empty means all that the keys are made for.
    pub algorithms: Vec<Algorithm>,
    /// The source of its keys.
    pub keys: KeySource,
}

/// The source of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum KeySource {
    /// Keys in the resource: at least one, and either all secrets or none.
    Inline(Vec<Key>),
    /// Keys that the issuer publishes.
    Published {
        /// The address of the key set.
        uri: KeyUri,
        /// The interval at which it is fetched again.
        refresh: Duration,
    },
}

/// The form that a user writes. No `Debug`: it can hold a secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    issuer: String,
    #[serde(default)]
    audiences: Vec<String>,
    jwks: Option<Json>,
    jwks_uri: Option<KeyUri>,
    refresh: Option<String>,
    #[serde(default)]
    algorithms: Vec<Algorithm>,
}

impl TryFrom<Written> for Issuer {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { issuer, audiences, jwks, jwks_uri, refresh, mut algorithms } = written;
        algorithms.sort();
        algorithms.dedup();
        let keys = match (jwks, jwks_uri) {
            (Some(jwks), None) => {
                let items = items(parsed(jwks)?)?;
                let keys = items.iter().map(|item| read_key(item).ok()?.restricted_to(&algorithms));
                KeySource::Inline(keys.collect::<Option<_>>().ok_or("a key cannot be used")?)
            }
            (None, Some(uri)) => {
                let refresh = refresh.map_or(Some(REFRESH), |refresh| unit::duration(&refresh));
                KeySource::Published { uri, refresh: refresh.ok_or("not a length of time")? }
            }
            _ => return Err("expected one source of keys"),
        };
        Ok(Self { issuer, audiences, algorithms, keys })
    }
}

fn parsed(jwks: Json) -> Result<Json, &'static str> {
    match jwks {
        Json::String(text) => serde_json::from_str(&text).map_err(|_| "the key set is not JSON"),
        json => Ok(json),
    }
}

fn items(mut jwks: Json) -> Result<Vec<Json>, &'static str> {
    match jwks.get_mut("keys").map(Json::take) {
        Some(Json::Array(items)) => Ok(items),
        _ => Err("the key set has no list `keys`"),
    }
}

impl Spec for Issuer {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::Mesh
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        texts(spec, path, report);
        let algorithms = algorithms(spec, path, report);
        if let Some(jwks) = spec.get("jwks") {
            KeySetRules { path: &path.field("jwks"), report }.check(jwks, &algorithms);
        }
        if let Some((node, uri)) = spec.get("jwksUri").and_then(|node| Some((node, node.text()?))) {
            if let Err(message) = KeyUri::try_from(uri.to_owned()) {
                report.error(node.at, &path.field("jwksUri"), message);
            }
            if let (Some(node), [Algorithm::Hs256]) = (spec.get("algorithms"), algorithms.as_slice()) {
                report.error(
                    node.at,
                    &path.field("algorithms"),
                    "a shared secret is not published: put it into `jwks`",
                );
            }
        }
        refresh(spec, path, report);
    }
}

fn texts(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let mut not_empty = |node: &Node, path: &Path<'_>| {
        if node.text() == Some("") {
            report.error(node.at, path, "expected at least 1 character");
        }
    };
    if let Some(node) = spec.get("issuer") {
        not_empty(node, &path.field("issuer"));
    }
    let path = path.field("audiences");
    for (index, node) in spec.get("audiences").map_or(&[][..], Node::items).iter().enumerate() {
        not_empty(node, &path.item(index));
    }
}

fn algorithms(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) -> Vec<Algorithm> {
    let Some(node) = spec.get("algorithms") else { return Vec::new() };
    let read = |item: &Node| serde_json::from_value::<Algorithm>(item.to_json()).ok();
    let found: Vec<_> = node.items().iter().filter_map(read).collect();
    let symmetric = found.iter().filter(|algorithm| algorithm.is_symmetric()).count();
    if (1..found.len()).contains(&symmetric) && found.iter().any(|algorithm| !algorithm.is_symmetric()) {
        let message = "`HS256` cannot stand beside the others: a public key could be taken for a secret";
        report.error(node.at, &path.field("algorithms"), message);
        return Vec::new();
    }
    found
}

fn refresh(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Some((node, text)) = spec.get("refresh").and_then(|node| Some((node, node.text()?))) else { return };
    let path = path.field("refresh");
    if spec.get("jwks").is_some() {
        report.error(node.at, &path, "there is nothing to refresh: it goes with `jwksUri`");
    } else if unit::duration(text).is_some_and(|time| !(SHORTEST_REFRESH..=LONGEST_REFRESH).contains(&time)) {
        report.error(node.at, &path, "expected `1s` to `1d`");
    }
}

/// Checks keys that a user wrote. Unlike in published key sets, every fault is an error.
struct KeySetRules<'a, 'r> {
    path: &'a Path<'a>,
    report: &'a mut Report<'r>,
}

impl KeySetRules<'_, '_> {
    /// Reports all faults of a key set. For a mapping they are at its members, for JSON in a string at the string.
    fn check(&mut self, jwks: &Node, algorithms: &[Algorithm]) {
        match &jwks.value {
            Value::Map(_) => {
                let Some(Node { value: Value::List(items), .. }) = jwks.get("keys") else {
                    return self.error(jwks, "the key set has no list `keys`".to_owned());
                };
                let written: Vec<_> = items.iter().map(|item| (Some(item), item.to_json())).collect();
                self.keys(jwks, &written, algorithms);
            }
            Value::Text(text) => match serde_json::from_str::<Json>(text) {
                Ok(json) => match items(json) {
                    Ok(items) => {
                        let written: Vec<_> = items.into_iter().map(|item| (None, item)).collect();
                        self.keys(jwks, &written, algorithms);
                    }
                    Err(message) => self.error(jwks, message.to_owned()),
                },
                Err(error) => {
                    self.error(jwks, format!("not JSON: line {}, column {} of it", error.line(), error.column()));
                }
            },
            // Reported by the schema's check.
            _ => {}
        }
    }

    fn keys(&mut self, jwks: &Node, written: &[(Option<&Node>, Json)], algorithms: &[Algorithm]) {
        if !(1..=MOST_KEYS).contains(&written.len()) {
            self.error(jwks, format!("expected 1 to {MOST_KEYS} keys, found {}", written.len()));
        }
        let mut keys = Vec::with_capacity(written.len());
        for (index, (node, json)) in written.iter().enumerate() {
            let key = read_key(json).and_then(|key| {
                let message = "`algorithms` leaves none that this key is made for".to_owned();
                key.restricted_to(algorithms).ok_or_else(|| vec![Fault { member: None, message }])
            });
            for fault in key.as_ref().err().into_iter().flatten() {
                self.fault(jwks, *node, index, fault.member, &fault.message);
            }
            keys.push(key.ok());
        }
        for (index, first) in repeated(&keys) {
            let node = written.get(index).and_then(|(node, _)| *node);
            self.fault(jwks, node, index, Some("kid"), &format!("keys[{first}] has the same for the same algorithm"));
        }
        if mixes_secrets(keys.iter().flatten()) {
            let message = "secrets cannot stand beside public keys: one could be taken for the other";
            self.error(jwks, message.to_owned());
        }
    }

    fn fault(&mut self, jwks: &Node, node: Option<&Node>, index: usize, member: Option<&str>, message: &str) {
        let Some(node) = node else {
            let member = member.map_or_else(String::new, |member| format!(".{member}"));
            return self.error(jwks, format!("keys[{index}]{member}: {message}"));
        };
        let at = member.and_then(|member| node.get(member)).unwrap_or(node).at;
        let keys = self.path.field("keys");
        let item = keys.item(index);
        match member {
            Some(member) => self.report.error(at, &item.field(member), message),
            None => self.report.error(at, &item, message),
        }
    }

    fn error(&mut self, jwks: &Node, message: String) {
        self.report.error(jwks.at, self.path, message);
    }
}
