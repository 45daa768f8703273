//! Runs the tests of a file on the filter's wasm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postern_compile::{
    snapshot::FilterCode,
    wasm::{Filter, Flow, HeaderMap, HeadersPause, Properties, RootId, Setup, Vm},
};

use super::{
    Mismatch, Suite, Test, TestError,
    observation::Observation,
    site::{Site, Target},
};

/// The maximum number of timer ticks for a request that waits, one second each.
const MOST_TICKS: u32 = 3_600;

/// The result of one test.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The test.
    pub test: &'a Test,
    /// What was not as expected. Empty if the test passed.
    pub mismatches: Vec<Mismatch>,
    /// What became of the request, in words.
    pub decided: String,
}

/// Runs all tests of a file in order.
pub fn run<'a>(suite: &'a Suite, code: &FilterCode, filter: &Filter) -> Result<Vec<Outcome<'a>>, TestError> {
    let (site, snapshot) = Site::read(suite, code)?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut vm = filter.start(Setup { headers_pause: HeadersPause::ShowsBody, time, ..Setup::default() })?;
    let root = vm.configure(snapshot.plan().configuration())?;
    let mut worker = Worker { vm, root, time, site };
    let one = |test: &'a Test| {
        let mut seen = worker.send(test)?;
        for _ in 1..test.times {
            seen = worker.send(test)?;
        }
        Ok(Outcome { test, mismatches: seen.compare(&test.expect), decided: seen.decided() })
    };
    suite.tests.iter().map(one).collect()
}

struct Worker {
    site: Site,
    vm: Vm,
    root: RootId,
    time: Duration,
}

impl Worker {
    fn send(&mut self, test: &Test) -> Result<Observation, TestError> {
        let token = test.request.token.as_ref();
        let token = token.map(|token| self.site.token(test, token, self.time.as_secs())).transpose()?;
        match self.site.target(test)? {
            Target::Answered(answer) => Ok(Observation::unrouted(&answer)),
            Target::Route { name, path } => self.exchange(test, &name, request_headers(test, &path, token.as_deref())),
        }
    }

    fn exchange(&mut self, test: &Test, route: &str, headers: HeaderMap) -> Result<Observation, TestError> {
        let request = &test.request;
        let properties =
            Properties::new().with(&["xds", "route_name"], route).with(&["source", "address"], &request.source);
        let stream = self.vm.open(self.root, properties)?;
        let body = request.body.as_deref().map(str::as_bytes);
        let mut flow = self.vm.request_headers(stream, headers, body.is_none())?;
        let answered = |vm: &Vm| vm.stream(stream).is_some_and(|stream| stream.local_response().is_some());
        if let Some(body) = body.filter(|_| !answered(&self.vm)) {
            flow = self.vm.request_body(stream, body, true)?;
        }
        for _ in 0..MOST_TICKS {
            if flow != Flow::Pause || self.vm.tick_period(self.root).is_none() {
                break;
            }
            self.time += Duration::from_secs(1);
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

fn request_headers(test: &Test, path: &str, token: Option<&str>) -> HeaderMap {
    let request = &test.request;
    let mut headers = HeaderMap::from([
        (":method", request.method.as_str()),
        (":path", path),
        (":authority", &request.host),
        (":scheme", "http"),
    ]);
    request.headers.iter().for_each(|(name, value)| headers.add(name.to_ascii_lowercase(), value));
    token.into_iter().for_each(|token| headers.add("authorization", format!("Bearer {token}")));
    headers
}
