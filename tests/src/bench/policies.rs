//! The resources for the cases of our filter, and their plan. Also the values that all cases share: the key, its
//! consumer and the headers.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use postern_compile::{pipeline, route_match::marked_names, snapshot::FilterCode};
use postern_model::File;
use sha2::{Digest, Sha256};

use super::tokens::{AUDIENCE, ISSUER, ROLE, key_set};

/// The header that carries the key, and the key.
pub(super) const KEY_HEADER: &str = "x-api-key";
pub(super) const KEY: &str = "bench-key-7d1c0a52";
/// The consumer who has the key.
pub(super) const CONSUMER: &str = "bench";
/// What a chain with `headers` sets for the upstream.
pub(super) const GUARD: (&str, &str) = ("x-guarded-by", "postern");
/// A limit that is never reached.
pub(super) const LIMIT_PER_SECOND: u32 = 1_000_000;

/// The chain that guards every route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Policies {
    /// No chain on the routes that are measured; another route has one.
    None,
    Key,
    When,
    Three,
    /// Like `Three`, with an account of every decision for an access log.
    ThreeLogged,
    Jwt,
    /// Key, token, role, limit and headers.
    Five,
}

/// The filter's code, as it lies on the disk.
pub(super) struct Code {
    path: PathBuf,
    code: FilterCode,
}

impl Code {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read the filter `{}`", path.display()))?;
        Ok(Self { path: path.to_owned(), code: FilterCode::new(bytes, Some(path.to_owned())) })
    }

    pub(super) fn code(&self) -> &FilterCode {
        &self.code
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Policies {
    /// The plan for this many routes, made and checked by the control plane's own line.
    pub(super) fn plan(self, routes: usize, code: &FilterCode) -> Result<Vec<u8>> {
        let files = [File { name: "bench.yaml".to_owned(), bytes: self.resources(routes)?.into_bytes() }];
        let snapshot = pipeline::compile(&files, code).map_err(|error| shortened(&error))?;
        Ok(snapshot.plan().bytes().to_vec())
    }

    fn resources(self, routes: usize) -> Result<String> {
        let mut text = gateway(routes)?;
        write!(text, "{}{}", consumer(), issuer()?)?;
        if self != Self::ThreeLogged {
            text.push_str(NO_LOG);
        }
        match self {
            Self::None => write!(text, "{}", route_policy(ELSEWHERE, Self::Key.chain()))?,
            Self::Key | Self::When | Self::Three | Self::ThreeLogged | Self::Jwt | Self::Five => {
                for route in 0..routes {
                    write!(text, "{}", route_policy(&route_name(route), self.chain()))?;
                }
            }
        }
        Ok(text)
    }

    fn chain(self) -> String {
        let key = format!("    - policy: apiKeyAuth\n      params: {{ header: {KEY_HEADER} }}\n");
        let (name, value) = GUARD;
        let jwt = format!("    - policy: jwtValidation\n      params: {{ audiences: [{AUDIENCE}] }}\n");
        let limit_and_headers = format!(
            "    - policy: rateLimit\n      \
             params: {{ requests: {LIMIT_PER_SECOND}, per: 1s, burst: {LIMIT_PER_SECOND} }}\n    \
             - policy: headers\n      params: {{ remove: [{KEY_HEADER}], set: {{ {name}: {value} }} }}\n"
        );
        match self {
            Self::None => String::new(),
            Self::Key => key,
            Self::When => format!("{key}      when: request.method == 'GET'\n"),
            Self::Three | Self::ThreeLogged => format!("{key}{limit_and_headers}"),
            Self::Jwt => jwt,
            Self::Five => {
                let (claim, role) = ROLE;
                let role = format!("    - policy: roleCheck\n      params: {{ claims: {{ {claim}: [{role}] }} }}\n");
                format!("{key}{jwt}{role}{limit_and_headers}")
            }
        }
    }
}

/// No case's Envoy writes an access log, and none of the others prepares anything for one.
const NO_LOG: &str = "---\napiVersion: postern/v1\nkind: AccessLog\nmetadata: { name: none }\n\
     spec: { targetRef: { kind: Mesh }, to: [{ targetRef: { kind: Mesh }, backends: [] }] }\n";

/// A route that no request takes.
const ELSEWHERE: &str = "elsewhere";

/// The name of a route in plans.
pub(super) fn route_name(index: usize) -> String {
    format!("route-{index}")
}

/// The names of this number of routes in Envoy.
pub(super) fn envoy_names(routes: usize) -> Result<Vec<String>> {
    let files = [File { name: "bench.yaml".to_owned(), bytes: gateway(routes)?.into_bytes() }];
    let bundle = postern_model::read(&files).map_err(|errors| anyhow!("{errors}"))?;
    let gateway = bundle.gateways.first().context("no gateway")?;
    Ok(marked_names(&gateway.spec, &BTreeSet::new()).into_iter().take(routes).collect())
}

/// The path of a route.
pub(super) fn route_path(index: usize) -> String {
    format!("/bench/{index}")
}

fn gateway(routes: usize) -> Result<String> {
    let mut text = String::from(
        "apiVersion: postern/v1\nkind: Service\nmetadata: { name: backend }\n\
         spec: { endpoints: [{ address: 127.0.0.1, port: 1 }] }\n---\n\
         apiVersion: postern/v1\nkind: Gateway\nmetadata: { name: edge }\nspec:\n  \
         listeners: [{ name: http, address: 127.0.0.1, port: 2 }]\n  routes:\n",
    );
    let names = (0..routes).map(|route| (route_name(route), route_path(route)));
    for (name, path) in names.chain([(ELSEWHERE.to_owned(), format!("/{ELSEWHERE}"))]) {
        writeln!(text, "    - {{ name: {name}, match: {{ path: {{ exact: {path} }} }}, service: backend }}")?;
    }
    Ok(text)
}

fn consumer() -> String {
    let digest = hex::encode(Sha256::digest(KEY));
    format!(
        "---\napiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {CONSUMER} }}\n\
         spec: {{ apiKeys: [{{ sha256: {digest} }}] }}\n"
    )
}

fn issuer() -> Result<String> {
    let (jwks, issuer) = (key_set()?, ISSUER);
    Ok(format!(
        "---\napiVersion: postern/v1\nkind: Issuer\nmetadata: {{ name: bench }}\n\
         spec: {{ issuer: '{issuer}', jwks: {jwks} }}\n"
    ))
}

fn route_policy(route: &str, chain: String) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {route} }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: {route} }}\n  request:\n{chain}"
    )
}

/// Only the first line of an error: with 10,000 routes, the same error comes 10,000 times.
fn shortened(error: &impl ToString) -> anyhow::Error {
    anyhow!(error.to_string().lines().next().unwrap_or_default().to_owned())
}
