//! The metrics in Prometheus' text format. The number of label values is bounded, whatever users and nodes do.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use postern_base::counter::Histogram;
use postern_deliver::{discovery::ClientState, xds::service::PerType};
use postern_release::rollout::State as RolloutState;

use super::{extract::on_a_thread, nodes::NodeState, operation::Operation, problem::Problem};
use crate::control_plane::ControlPlane;

/// The version of the text format.
const TYPE: &str = "text/plain; version=0.0.4";

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/metrics", ("getMetrics", "What is counted, for Prometheus."), metrics)
            .text("text/plain", "The metrics, in Prometheus' text format."),
    ]
}

async fn metrics(State(plane): State<Arc<ControlPlane>>) -> Result<Response, Problem> {
    let text = on_a_thread(move || Ok::<_, Problem>(expose(&plane))).await?;
    Ok(([(header::CONTENT_TYPE, TYPE)], text).into_response())
}

/// The text under construction.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn head(&mut self, name: &str, kind: &str, about: &str) {
        self.line(format_args!("# HELP postern_{name} {about}"));
        self.line(format_args!("# TYPE postern_{name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn counter<'l>(&mut self, name: &str, about: &str, samples: impl IntoIterator<Item = (&'l str, String, u64)>) {
        self.samples(name, "counter", about, samples);
    }

    fn gauge<'l>(&mut self, name: &str, about: &str, samples: impl IntoIterator<Item = (&'l str, String, u64)>) {
        self.samples(name, "gauge", about, samples);
    }

    fn samples<'l>(
        &mut self,
        name: &str,
        kind: &str,
        about: &str,
        samples: impl IntoIterator<Item = (&'l str, String, u64)>,
    ) {
        self.head(name, kind, about);
        for (label, value, number) in samples {
            match label {
                "" => self.line(format_args!("postern_{name} {number}")),
                label => self.line(format_args!("postern_{name}{{{label}=\"{value}\"}} {number}")),
            }
        }
    }

    fn per_type(&mut self, name: &str, about: &str, counters: &PerType) {
        self.counter(name, about, counters.iter().map(|(kind, count)| ("type", kind.to_string(), count)));
    }

    fn histogram(&mut self, name: &str, about: &str, histogram: &Histogram) {
        self.head(name, "histogram", about);
        for (bound, count) in histogram.cumulative() {
            self.line(format_args!("postern_{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        let count = histogram.count();
        self.line(format_args!("postern_{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(format_args!("postern_{name}_sum {}", histogram.sum()));
        self.line(format_args!("postern_{name}_count {count}"));
    }
}

fn alone(number: u64) -> [(&'static str, String, u64); 1] {
    [("", String::new(), number)]
}

fn expose(plane: &ControlPlane) -> String {
    let mut text = Exposition::default();
    text.head("build_info", "gauge", "The program that answers.");
    text.line(format_args!("postern_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
    text.gauge("uptime_seconds", "How long it runs.", alone(plane.uptime().as_secs()));
    fleet(plane, &mut text);
    clients(plane, &mut text);
    revisions(plane, &mut text);
    requests(plane, &mut text);
    text.0
}

fn fleet(plane: &ControlPlane, text: &mut Exposition) {
    let (reports, streams) = plane.fleet().ask(|fleet| (fleet.report(), fleet.open_streams()));
    let count = |state: NodeState| reports.iter().filter(|report| NodeState::of(report) == state).count();
    let states = NodeState::ALL.map(|state| {
        let name = format!("{state:?}").to_ascii_lowercase();
        ("state", name, u64::try_from(count(state)).unwrap_or(u64::MAX))
    });
    text.gauge("nodes", "The nodes, by where they are.", states);
    text.gauge("xds_streams", "The xDS streams that are open.", alone(u64::try_from(streams).unwrap_or(u64::MAX)));
    let groups = plane.publications().latest().map_or(0, |publication| publication.groups());
    let groups = u64::try_from(groups).unwrap_or(u64::MAX);
    text.gauge("node_groups", "The groups of nodes that are kept compiled.", alone(groups));
    let traffic = plane.traffic();
    text.per_type("xds_pushes_total", "What was sent to nodes.", &traffic.pushes);
    text.per_type("xds_acks_total", "What nodes accepted.", &traffic.acks);
    text.per_type("xds_nacks_total", "What nodes refused.", &traffic.nacks);
}

fn clients(plane: &ControlPlane, text: &mut Exposition) {
    let clients = plane.clients();
    let reports = clients.latest_report();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let states = ClientState::ALL.map(|state| {
        let in_it = reports.iter().flat_map(|group| &group.clients).filter(|client| client.state() == state).count();
        ("state", format!("{state:?}").to_ascii_lowercase(), number(in_it))
    });
    text.gauge("discovery_clients", "The clients of policy discovery, by where they are.", states);
    let groups = [true, false].map(|acked| {
        let groups = reports.iter().filter(|group| group.all_acked == acked).count();
        ("all_acked", acked.to_string(), number(groups))
    });
    let about = "The versions that clients of policy discovery are to have, by whether all have answered.";
    text.gauge("discovery_groups", about, groups);
    text.counter("discovery_pushes_total", "Policies that were sent to clients.", alone(clients.pushes.get()));
    text.counter("discovery_acks_total", "Policies that clients accepted.", alone(clients.acks.get()));
    text.counter("discovery_nacks_total", "Policies that clients refused.", alone(clients.nacks.get()));
}

fn revisions(plane: &ControlPlane, text: &mut Exposition) {
    let report = plane.in_force().rollout_report();
    let (candidate, last_good) = report.as_ref().map_or((0, None), |report| (report.candidate, report.last_good));
    text.gauge("revision", "The revision that spreads, or spread last.", alone(candidate));
    text.gauge("revision_last_good", "The last good revision; 0 if there is none.", alone(last_good.unwrap_or(0)));
    if let Ok(kept) = plane.store().revisions() {
        let kept = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        text.gauge("revisions_kept", "The revisions that can be gone back to.", alone(kept));
    }
    let state = report.as_ref().map(|report| &report.state);
    let states = [
        ("progressing", matches!(state, Some(RolloutState::Progressing))),
        ("paused", matches!(state, Some(RolloutState::Paused))),
        ("completed", matches!(state, Some(RolloutState::Completed))),
        ("rolled_back", matches!(state, Some(RolloutState::RolledBack { .. }))),
        ("aborted", matches!(state, Some(RolloutState::Aborted))),
    ];
    let states = states.map(|(name, is)| ("state", name.to_owned(), u64::from(is)));
    text.gauge("rollout_state", "1 for the state that the rollout is in.", states);
    let rollouts = &plane.counts().rollouts;
    let outcomes = [
        ("started", &rollouts.started),
        ("completed", &rollouts.completed),
        ("rolled_back", &rollouts.rolled_back),
        ("aborted", &rollouts.aborted),
    ];
    let outcomes = outcomes.map(|(name, counter)| ("outcome", name.to_owned(), counter.get()));
    text.counter("rollouts_total", "Rollouts, by what came of them.", outcomes);
    let proposals = &plane.counts().proposals;
    let results = [
        ("created", &proposals.created),
        ("unchanged", &proposals.unchanged),
        ("invalid", &proposals.invalid),
        ("conflict", &proposals.conflict),
        ("failed", &proposals.failed),
    ];
    let results = results.map(|(name, counter)| ("result", name.to_owned(), counter.get()));
    text.counter("applies_total", "Changes that were proposed, by what came of them.", results);
    text.histogram(
        "apply_seconds",
        "How long a change took to be taken in: compiled, gated and stored.",
        &plane.counts().applies,
    );
    if let Some(times) = plane.code().gate().times() {
        text.histogram("gate_seconds", "How long a plan took to load at the gate.", times);
    }
    let refused = u64::from(!plane.in_force().refused_change().is_empty());
    text.gauge("change_refused", "1 while the latest change of the directory is refused.", alone(refused));
}

fn requests(plane: &ControlPlane, text: &mut Exposition) {
    text.head("http_requests_total", "counter", "Requests to this API, by operation and status.");
    for ((operation, status), count) in plane.requests().all() {
        text.line(format_args!("postern_http_requests_total{{operation=\"{operation}\",code=\"{status}\"}} {count}"));
    }
    text.counter("events_total", "Happenings that were noted.", alone(plane.journal().count()));
}
