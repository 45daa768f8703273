//! Runs the tests of a file on the filter's wasm.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use postern_base::node::NodeIdentity;
use postern_compile::{
    attach::Scope,
    pipeline::compile,
    route_match::{guarded_services, marked_names},
    snapshot::FilterCode,
    wasm::{Filter, Flow, HeaderMap, HeadersPause, Properties, RootId, Setup, Vm},
};
use postern_model::directory;

use super::{Mismatch, Suite, Test, TestError, observation::Observation};

/// The maximum number of timer ticks for a request that waits, one second each.
const MOST_TICKS: u32 = 3_600;

/// Runs all tests of a file in order. Returns each with its mismatches.
pub fn run<'a>(
    suite: &'a Suite,
    code: &FilterCode,
    filter: &Filter,
) -> Result<Vec<(&'a Test, Vec<Mismatch>)>, TestError> {
    let files = directory::read(&suite.resources)?;
    let snapshot = compile(&files, code)?;
    let bundle = postern_model::read(&files).unwrap_or_default();
    let scope = Scope::of(&bundle, &NodeIdentity::default());
    let guarded = guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
    let names = scope.gateways.iter().flat_map(|gateway| {
        let names = gateway.spec.routes.iter().map(|route| route.name.clone());
        names.zip(marked_names(&gateway.spec, &guarded)).collect::<Vec<_>>()
    });
    let names = names.collect();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut vm = filter.start(Setup { headers_pause: HeadersPause::ShowsBody, time, ..Setup::default() })?;
    let root = vm.configure(snapshot.plan().configuration())?;
    let mut worker = Worker { vm, root, time, names };
    let one = |test: &'a Test| {
        let mut outcome = worker.exchange(test)?;
        for _ in 1..test.times {
            outcome = worker.exchange(test)?;
        }
        Ok((test, outcome.compare(&test.expect)))
    };
    suite.tests.iter().map(one).collect()
}

struct Worker {
    /// The names in Envoy of the routes of Gateways.
    names: BTreeMap<String, String>,
    vm: Vm,
    root: RootId,
    time: std::time::Duration,
}

impl Worker {
    fn exchange(&mut self, test: &Test) -> Result<Observation, TestError> {
        let request = &test.request;
        let properties = Properties::new()
            .with(&["xds", "route_name"], self.names.get(&request.route).unwrap_or(&request.route))
            .with(&["source", "address"], &request.source);
        let stream = self.vm.open(self.root, properties)?;
        let body = request.body.as_deref().map(str::as_bytes);
        let mut flow = self.vm.request_headers(stream, request_headers(test), body.is_none())?;
        let answered = |vm: &Vm| vm.stream(stream).is_some_and(|stream| stream.local_response().is_some());
        if let Some(body) = body.filter(|_| !answered(&self.vm)) {
            flow = self.vm.request_body(stream, body, true)?;
        }
        for _ in 0..MOST_TICKS {
            if flow != Flow::Pause || self.vm.tick_period(self.root).is_none() {
                break;
            }
            self.time += std::time::Duration::from_secs(1);
            self.vm.set_time(self.time);
            self.vm.tick(self.root)?;
            let paused = self.vm.stream(stream).is_some_and(|stream| stream.request().is_paused());
            flow = if paused { Flow::Pause } else { Flow::Continue };
        }
        if !answered(&self.vm) && flow == Flow::Continue {
            let mut headers = HeaderMap::from([(":status", test.upstream.status.to_string().as_str())]);
            test.upstream.headers.iter().for_each(|(name, value)| headers.add(name, value));
            // The upstream has said everything, whatever the filter may still wait for.
            let _ = self.vm.response_headers(stream, headers, true)?;
        }
        Ok(Observation::of(&self.vm.close(stream)?))
    }
}

fn request_headers(test: &Test) -> HeaderMap {
    let request = &test.request;
    let mut headers = HeaderMap::from([
        (":method", request.method.as_str()),
        (":path", &request.path),
        (":authority", &request.host),
        (":scheme", "http"),
    ]);
    request.headers.iter().for_each(|(name, value)| headers.add(name.to_ascii_lowercase(), value));
    headers
}
