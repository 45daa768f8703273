//! Users' own tests of their policies: a request and its expected result, run on the filter's wasm. This module owns
//! the format of tests and runs them; the host is [`postern_compile::wasm`].
//!
//! A file names the resources that it tests, and lists tests. All tests of a file run on one VM in order, so that
//! limits count across them.

mod observation;
mod run;
mod signer;
mod site;

use std::{
    collections::BTreeMap,
    mem,
    path::{Path, PathBuf},
};

use postern_base::diagnostic::quote;
use postern_compile::{
    pipeline::CompileError,
    wasm::{CallError, HostError, Refused},
};
use postern_model::{Diagnostics, File, directory::SourceError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

pub use self::{
    observation::Mismatch,
    run::{Outcome, run},
};

/// The tests of one file.
#[derive(Debug)]
pub struct Suite {
    /// The file's name.
    pub name: String,
    /// The directory of the resources under test.
    pub resources: PathBuf,
    /// The key sets that issuers publish, by `jwksUri`.
    key_sets: BTreeMap<String, Value>,
    /// The tests, in order.
    pub tests: Vec<Test>,
}

/// A request and its expected result.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Test {
    /// The name of the test.
    pub name: String,
    request: Sent,
    /// The upstream's answer, if the request gets there.
    #[serde(default)]
    upstream: Answered,
    /// The number of times that the request is sent; only the last result is checked.
    #[serde(default = "once")]
    times: u32,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sent {
    /// The route. By default, the one that Envoy would choose.
    route: Option<String>,
    /// The Gateway that the request comes to. By default, the only one.
    gateway: Option<String>,
    #[serde(default = "get")]
    method: String,
    #[serde(default = "root")]
    path: String,
    #[serde(default = "localhost")]
    host: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    /// A token that the test signs by itself, sent as `authorization: Bearer …`.
    token: Option<Token>,
    /// The caller's address and port.
    #[serde(default = "caller")]
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Token {
    /// The name of the Issuer.
    issuer: String,
    /// Its claims. Issuer, audience and times have defaults that make it good; null leaves a claim out.
    #[serde(default)]
    claims: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answered {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Default for Answered {
    fn default() -> Self {
        Self { status: ok(), headers: BTreeMap::new() }
    }
}

/// The expected result. Fields that are absent are not checked; a header that is null must be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    /// The verdict, such as `allow` or `deny`; `none` for a route without a chain; `unrouted` if Envoy answers, since no
    /// route matches or the request is refused before a route is chosen.
    verdict: Option<String>,
    /// The step that decided.
    step: Option<String>,
    /// Its reason.
    reason: Option<String>,
    /// The status that the caller gets.
    status: Option<u16>,
    /// Headers that the caller gets.
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    /// Headers that the upstream gets.
    #[serde(default)]
    upstream_headers: BTreeMap<String, Option<String>>,
    /// The body of an answer that is the filter's own.
    body: Option<String>,
}

impl Expect {
    fn is_empty(&self) -> bool {
        let Self { verdict, step, reason, status, headers, upstream_headers, body } = self;
        let words = [verdict, step, reason, body].into_iter().all(Option::is_none);
        words && status.is_none() && headers.is_empty() && upstream_headers.is_empty()
    }
}

/// Why tests could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// A file is not valid YAML.
    #[error(transparent)]
    Diagnostics(#[from] Diagnostics),
    /// A file does not have the format of tests.
    #[error("{file}: {place}: {error}")]
    Form {
        /// The file.
        file: String,
        /// The part of the file.
        place: String,
        /// The error.
        error: String,
    },
    /// The request of a test cannot be sent.
    #[error("{}: {error}", quote(.test))]
    Request {
        /// The name of the test.
        test: String,
        /// The error.
        error: String,
    },
    /// No throw-away key can be made.
    #[error("the system has no randomness")]
    NoRandomness,
    /// The resources could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The resources are not valid.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The filter could not be started.
    #[error(transparent)]
    Start(#[from] HostError),
    /// The filter refused the plan.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The filter failed on a request.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Suite {
    /// Reads a file of tests. The path of its resources is relative to the file.
    pub fn read(file: &File) -> Result<Self, TestError> {
        let form = |place: String, error: String| TestError::Form { file: file.name.clone(), place, error };
        let mut document: Outer =
            typed(postern_model::read_document(file)?).map_err(|error| form("the document".to_owned(), error))?;
        let test = |(index, value): (usize, Value)| {
            let place = format!("tests[{index}]");
            let test: Test = typed(value).map_err(|error| form(place.clone(), error))?;
            if test.expect.is_empty() {
                return Err(form(format!("{place}.expect"), "it expects nothing, and so cannot fail".to_owned()));
            }
            Ok(test)
        };
        let tests = mem::take(&mut document.tests).into_iter().enumerate().map(test).collect::<Result<_, _>>()?;
        let folder = Path::new(&file.name).parent().unwrap_or(Path::new("."));
        let Outer { resources, key_sets, .. } = document;
        Ok(Self { name: file.name.clone(), resources: folder.join(resources), key_sets, tests })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Outer {
    resources: PathBuf,
    #[serde(default)]
    key_sets: BTreeMap<String, Value>,
    tests: Vec<Value>,
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn once() -> u32 {
    1
}

fn ok() -> u16 {
    200
}

fn get() -> String {
    "GET".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

fn localhost() -> String {
    "localhost".to_owned()
}

fn caller() -> String {
    "127.0.0.1:50000".to_owned()
}
