//! The filter's very bytes, under wasmtime.

use std::{
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use envoy_types::pb::envoy::config::core::v3::{GrpcService, grpc_service::TargetSpecifier};
use postern_compile::wasm::{Callout, Filter, Flow, HeaderMap, HeadersPause, HttpReply, Properties, RootId, Setup, Vm};
use postern_engine::Placement;
use postern_proto::configuration;
use postern_tests::control_plane::from_environment;
use prost::Message as _;

use crate::{
    case::{Case, CaseFile, Exchange},
    engine::{PEER, request_headers, response_headers, rewrite},
    observation::{Observation, Pairs, called},
};

pub fn compile() -> Filter {
    Filter::compile(&fs::read(from_environment("POSTERN_FILTER").unwrap()).unwrap()).unwrap()
}

/// A VM that has loaded the plan of one file.
pub struct Worker {
    vm: Vm,
    root: RootId,
    overlay: bool,
}

impl Worker {
    pub fn start(filter: &Filter, file: &CaseFile) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut setup = Setup { headers_pause: HeadersPause::ShowsBody, time, ..Setup::default() };
        if file.overlay {
            setup.properties = Properties::new().with(&["plugin_root_id"], Placement::Overlay.name());
        }
        let mut vm = filter.start(setup).unwrap();
        let root = vm.configure(&configuration::wrap(&file.plan_bytes())).unwrap();
        Self { vm, root, overlay: file.overlay }
    }

    pub fn run(&mut self, case: &Case) -> Vec<Observation> {
        case.exchanges().iter().map(|exchange| self.exchange(case, exchange)).collect()
    }

    fn exchange(&mut self, case: &Case, exchange: &Exchange) -> Observation {
        self.vm.set_time(exchange.request.time());
        let route = if self.overlay { "" } else { case.route.as_str() };
        let mut properties = Properties::new().with(&["xds", "route_name"], route).with(&["source", "address"], PEER);
        if let Some(source) = &exchange.request.source {
            let names = exchange.request.names().unwrap();
            properties = properties
                .with(&["connection", "uri_san_peer_certificate"], source)
                .with(&["filter_state", "postern.peer_uri_sans"], &names);
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
        if self.vm.tick_period(self.root).is_some() {
            assert_eq!(flow, Flow::Pause, "nobody waits in `{}`", case.note);
            self.vm.set_time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(600));
            self.vm.tick(self.root).unwrap();
            assert_eq!(self.vm.tick_period(self.root), None, "the timer of `{}` goes on", case.note);
            let paused = self.vm.stream(stream).unwrap().request().is_paused();
            flow = if paused { Flow::Pause } else { Flow::Continue };
        }
        let answered = self.vm.stream(stream).unwrap().local_response().is_some();
        if !answered {
            assert_eq!(flow, Flow::Continue, "`{}` is stuck", case.note);
            let headers: HeaderMap = response_headers(exchange).into_iter().collect();
            let flow = self.vm.response_headers(stream, headers, false).unwrap();
            assert_ne!(flow, Flow::Pause, "the response to `{}` is stuck", case.note);
        }
        let stream = self.vm.close(stream).unwrap();
        let (logged, posted) = self.records();
        let account = String::from_utf8(stream.property("postern").unwrap_or_default().to_vec()).unwrap();
        let outcome = match stream.local_response() {
            Some(answer) => {
                let status = answer.status.try_into().unwrap();
                Observation::new(exchange, &account, status, &pairs(&answer.headers), None, &answer.body)
            }
            None => {
                let (mut request, response) = (pairs(stream.request().headers()), pairs(stream.response().headers()));
                let [path, host] = ["postern_path", "postern_host"]
                    .map(|name| stream.property(name).map(|value| String::from_utf8(value.to_vec()).unwrap()));
                rewrite(path.as_deref(), host.as_deref(), &mut request);
                Observation::new(exchange, &account, exchange.upstream.status, &response, Some(&request), b"")
            }
        };
        if exchange.want.is_recorded() { outcome.recorded(&logged, &posted) } else { outcome }
    }

    /// The records that were logged and posted. Those that were posted are answered.
    fn records(&mut self) -> (Vec<String>, Vec<(String, String)>) {
        let lines = self.vm.take_log().into_iter().map(|line| line.text);
        let logged = lines.filter(|line| line.starts_with(r#"{"audit":"#)).collect();
        let calls: Vec<_> = self.vm.callouts().map(|(id, call)| (id, call.clone())).collect();
        let posted = calls.into_iter().map(|(id, call)| {
            let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
            let call = match call {
                Callout::Http(call) => call,
                Callout::Grpc(call) => {
                    self.vm.reply_grpc(id, b"").unwrap();
                    let upstream = GrpcService::decode(call.upstream.as_slice()).unwrap().target_specifier;
                    let Some(TargetSpecifier::EnvoyGrpc(upstream)) = upstream else { panic!("{upstream:?}") };
                    let method = format!("{}/{}", text(Some(&call.service)), text(Some(&call.method)));
                    return called(&upstream.cluster_name, &method, &call.message);
                }
                Callout::GrpcStream(stream) => panic!("{stream:?}"),
            };
            assert_eq!(text(call.headers.get(":method")), "POST");
            assert_eq!(text(call.headers.get("content-type")), "application/x-ndjson");
            let reply = HttpReply::response([(":status", "200")], b"thanks");
            self.vm.reply_http(id, reply).unwrap();
            let line = text(Some(&call.body)).strip_suffix('\n').unwrap().to_owned();
            (format!("{} {}", text(Some(&call.cluster)), text(call.headers.get(":path"))), line)
        });
        (logged, posted.collect())
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
