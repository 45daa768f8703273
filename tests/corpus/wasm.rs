//! The filter's very bytes, under wasmtime.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use postern::wasm::{Filter, Flow, HeaderMap, HeadersPause, Properties, RootId, Setup, Vm};
use postern_tests::control_plane::from_environment;

use crate::{
    case::{Case, CaseFile, Exchange},
    engine::{request_headers, response_headers},
    outcome::{Outcome, Pairs},
};

pub fn compile() -> Filter {
    Filter::compile(&fs::read(from_environment("POSTERN_FILTER").unwrap()).unwrap()).unwrap()
}

/// A VM that has loaded the plan of one file.
pub struct Worker {
    vm: Vm,
    root: RootId,
}

impl Worker {
    pub fn start(filter: &Filter, file: &CaseFile) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let setup = Setup { headers_pause: HeadersPause::ShowsBody, time, ..Setup::default() };
        let mut vm = filter.start(setup).unwrap();
        let root = vm.configure(&file.plan_bytes()).unwrap();
        Self { vm, root }
    }

    pub fn run(&mut self, case: &Case) -> Vec<Outcome> {
        case.exchanges().iter().map(|exchange| self.exchange(case, exchange)).collect()
    }

    fn exchange(&mut self, case: &Case, exchange: &Exchange) -> Outcome {
        self.vm.set_time(exchange.request.time());
        let mut properties = Properties::new().with(&["xds", "route_name"], &case.route);
        if let Some(source) = &exchange.request.source {
            properties = properties.with(&["connection", "uri_san_peer_certificate"], source);
        }
        let stream = self.vm.open(self.root, properties).unwrap();
        let body = exchange.request.body.as_ref().map(|body| body.get());
        let headers: HeaderMap = request_headers(case, exchange).into_iter().collect();
        let mut flow = self.vm.request_headers(stream, headers, body.is_none()).unwrap();
        for (last, chunk) in body.iter().flat_map(|body| chunks(body)) {
            if self.vm.stream(stream).unwrap().local_response().is_none() {
                flow = self.vm.request_body(stream, chunk, last).unwrap();
            }
        }
        let answered = self.vm.stream(stream).unwrap().local_response().is_some();
        if !answered {
            assert_eq!(flow, Flow::Continue, "`{}` is stuck", case.note);
            let headers: HeaderMap = response_headers(exchange).into_iter().collect();
            let flow = self.vm.response_headers(stream, headers, false).unwrap();
            assert_eq!(flow, Flow::Continue, "the response to `{}` is stuck", case.note);
        }
        let stream = self.vm.close(stream).unwrap();
        let account = String::from_utf8(stream.property("postern").unwrap_or_default().to_vec()).unwrap();
        match stream.local_response() {
            Some(answer) => {
                let status = answer.status.try_into().unwrap();
                Outcome::new(exchange, &account, status, &pairs(&answer.headers), None, &answer.body)
            }
            None => {
                let (request, response) = (pairs(stream.request().headers()), pairs(stream.response().headers()));
                Outcome::new(exchange, &account, exchange.upstream.status, &response, Some(&request), b"")
            }
        }
    }
}

/// A body in two parts, the second of which is the last.
fn chunks(body: &[u8]) -> [(bool, &[u8]); 2] {
    let (first, second) = body.split_at(body.len() / 2);
    [(false, first), (true, second)]
}

fn pairs(headers: &HeaderMap) -> Pairs {
    headers.iter().map(|(name, value)| (String::from_utf8(name.to_vec()).unwrap(), value.to_vec())).collect()
}
